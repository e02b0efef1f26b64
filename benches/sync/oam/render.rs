//! Renders of a webservice in this process and one evaluator, without an API server.

use std::fs;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use portolan::budget::ResourceMetrics;
use portolan::controllers::oam::context::Context;
use portolan::controllers::oam::render::component::{Base, Component, Template, render};
use portolan::controllers::oam::render::evaluate::NamespaceEvaluator;
use portolan::cue::{self, Evaluator, Options};
use serde_json::{Value, json};

use crate::report::Limit::Cpu;
use crate::report::Row;
use crate::rig::RUNS;
use crate::rig::measure::{Sample, children, cpu};
use crate::support::{cue::executable, project};

/// Renders over which a measurement is averaged.
const RENDERS: u32 = 100;
/// Limits in seconds.
const WEBSERVICE: f64 = 0.0024;
const WITH_TRAITS: f64 = 0.01;

/// Measures a webservice without traits and with seven.
pub async fn run() -> Vec<Row> {
    let options = Options {
        program: Some(executable()),
        workers: NonZeroUsize::MIN,
        ..Options::default()
    };
    let bench = Bench {
        evaluator: Evaluator::new(options, ResourceMetrics::unregistered()),
        webservice: Part::new(
            "components/webservice",
            json!({ "image": "registry.example.com/web:1", "ports": [{ "port": 8080, "expose": true }] }),
        ),
    };
    let traits = traits();
    let title = format!("Render of a webservice with {} traits", traits.len());
    vec![
        bench.measure("Render of a webservice", &[], WEBSERVICE).await,
        bench.measure(&title, &traits, WITH_TRAITS).await,
    ]
}

fn traits() -> [Part; 7] {
    let settings = json!({ "name": "settings", "mountPath": "/etc/settings", "data": { "setting": "value" } });
    [
        Part::new("traits/scaler", json!({ "replicas": 2 })),
        Part::new("traits/storage", json!({ "configMap": [settings] })),
        Part::new("traits/env", json!({ "env": { "LEVEL": "info" } })),
        Part::new("traits/resource", json!({ "cpu": "500m", "memory": "256Mi" })),
        Part::new(
            "traits/sidecar",
            json!({ "name": "log", "image": "registry.example.com/log:1" }),
        ),
        Part::new("traits/labels", json!({ "team": "shop" })),
        Part::new("traits/annotations", json!({ "description": "measured" })),
    ]
}

/// A definition of the project with properties.
struct Part {
    name: &'static str,
    source: String,
    properties: Value,
}

impl Part {
    fn new(file: &'static str, properties: Value) -> Self {
        let text = fs::read_to_string(project("definitions").join(format!("{file}.yaml")));
        let definition: Value = serde_yaml::from_str(&text.expect("the project has the definition")).expect("YAML");
        let template = definition
            .pointer("/spec/schematic/cue/template")
            .and_then(Value::as_str);
        Self {
            name: file.rsplit('/').next().unwrap_or(file),
            source: template.expect("a definition has a template").to_owned(),
            properties,
        }
    }

    fn template(&self) -> Template<'_> {
        Template {
            name: self.name,
            source: &self.source,
            properties: Some(&self.properties),
            is_strict: false,
            has_status: false,
        }
    }
}

struct Bench {
    evaluator: Evaluator,
    webservice: Part,
}

impl Bench {
    async fn measure(&self, title: &str, traits: &[Part], limit: f64) -> Row {
        let traits: Vec<Template<'_>> = traits.iter().map(Part::template).collect();
        self.render(&traits).await;
        let mut samples = Vec::new();
        for _ in 0..RUNS {
            let (started, before) = (Instant::now(), used());
            for _ in 0..RENDERS {
                self.render(&traits).await;
            }
            let of_one = |sum: Duration| (sum / RENDERS).as_secs_f64();
            samples.push(Sample {
                wall: of_one(started.elapsed()),
                cpu: of_one(used() - before),
                ..Sample::default()
            });
        }
        Row::new(title, &samples).limits(&[Cpu(limit)])
    }

    async fn render(&self, traits: &[Template<'_>]) {
        let context = json!({ "name": "web", "appName": "shop", "namespace": "default" });
        let component = Component {
            name: "web",
            base: Base::Template(self.webservice.template()),
            traits,
            context: &Context::from(context.as_object().cloned().unwrap_or_default()),
            output_status: None,
        };
        let evaluator = NamespaceEvaluator {
            pool: &self.evaluator,
            namespace: "default",
        };
        let rendered = render(&evaluator, &component).await;
        rendered.unwrap_or_else(|error| panic!("the templates are valid: {error}"));
    }
}

/// Returns the CPU of this process and of its evaluator, but not of servers of other parts.
fn used() -> Duration {
    let this = std::process::id();
    let is_evaluator = |pid: &u32| {
        let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        title.starts_with(cue::PROGRAM)
    };
    let evaluators = children(this).into_iter().filter(is_evaluator);
    cpu(this).into_iter().chain(evaluators.filter_map(cpu)).sum()
}
