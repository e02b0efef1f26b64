//! Renders of a webservice in this process and one evaluator, without an API server.

use std::fs;
use std::num::NonZeroUsize;
use std::time::Instant;

use portolan::budget::ResourceMetrics;
use portolan::controllers::oam::context::Context;
use portolan::controllers::oam::render::component::{Base, DefinitionTemplate, TemplatedComponent, render};
use portolan::controllers::oam::render::evaluate::NamespaceEvaluator;
use portolan::cue::{self, Evaluator, EvaluatorOptions};
use serde_json::{Value, json};

use crate::report::{Cpu, Row};
use crate::rig::measure::{children, cpu};
use crate::rig::{RUNS, Sample};
use crate::support::{cue::executable, project};

/// Renders over which a measurement is averaged.
const RENDERS: usize = 100;

pub async fn run() -> Vec<Row> {
    let options = EvaluatorOptions {
        program: Some(executable()),
        workers: NonZeroUsize::MIN,
        ..EvaluatorOptions::default()
    };
    let evaluator = Evaluator::new(options, ResourceMetrics::unregistered());
    let ports = json!([{ "port": 8080, "expose": true }]);
    let settings = json!({ "name": "settings", "mountPath": "/etc/settings", "data": { "setting": "value" } });
    let parts = [
        (
            "webservice",
            json!({ "image": "registry.example.com/web:1", "ports": ports }),
        ),
        ("scaler", json!({ "replicas": 2 })),
        ("storage", json!({ "configMap": [settings] })),
        ("env", json!({ "env": { "LEVEL": "info" } })),
        ("resource", json!({ "cpu": "500m", "memory": "256Mi" })),
        (
            "sidecar",
            json!({ "name": "log", "image": "registry.example.com/log:1" }),
        ),
        ("labels", json!({ "team": "shop" })),
        ("annotations", json!({ "description": "measured" })),
    ];
    let sources = parts.each_ref().map(|(name, _)| source(name));
    let templates = parts
        .iter()
        .zip(&sources)
        .map(|((name, properties), source)| DefinitionTemplate {
            name,
            source,
            properties: Some(properties),
            is_strict: false,
            has_status: false,
        });
    let templates: Vec<DefinitionTemplate<'_>> = templates.collect();
    let [webservice, traits @ ..] = templates.as_slice() else {
        panic!("there are templates");
    };
    let title = format!("Render of a webservice with {} traits", traits.len());
    vec![
        measure("Render of a webservice", &evaluator, *webservice, &[], 0.0024).await,
        measure(&title, &evaluator, *webservice, traits, 0.01).await,
    ]
}

fn source(name: &str) -> String {
    let files = ["components", "traits"].map(|kind| project(&format!("definitions/{kind}/{name}.yaml")));
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
    let definition: Value = serde_yaml::from_str(&text.expect("the project has the definition")).expect("YAML");
    let template = definition["spec"]["schematic"]["cue"]["template"].as_str();
    template.expect("a definition has a template").to_owned()
}

async fn measure(
    title: &str,
    evaluator: &Evaluator,
    webservice: DefinitionTemplate<'_>,
    traits: &[DefinitionTemplate<'_>],
    limit: f64,
) -> Row {
    let context = json!({ "name": "web", "appName": "shop", "namespace": "default" });
    let component = TemplatedComponent {
        name: "web",
        base: Base::Template(webservice),
        traits,
        context: &Context::from(context.as_object().cloned().unwrap_or_default()),
        output_status: None,
    };
    let evaluator = NamespaceEvaluator {
        pool: evaluator,
        namespace: "default",
    };
    let render_often = async |times: usize| {
        for _ in 0..times {
            let rendered = render(&evaluator, &component).await;
            rendered.unwrap_or_else(|error| panic!("the templates are valid: {error}"));
        }
    };
    render_often(1).await;
    let mut samples = Vec::new();
    for _ in 0..RUNS {
        let (started, before) = (Instant::now(), used());
        render_often(RENDERS).await;
        let sample = Sample::of_wall(started.elapsed().as_secs_f64() / RENDERS as f64);
        let cpu = (used() - before) / RENDERS as f64;
        samples.push(Sample { cpu, ..sample });
    }
    Row::new(title, &samples).limits(&[Cpu(limit)])
}

/// Returns the CPU of this process and of its evaluator, but not of servers of other parts.
fn used() -> f64 {
    let this = std::process::id();
    let is_evaluator = |pid: &u32| {
        let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        title.starts_with(cue::PROGRAM)
    };
    let evaluators = children(this).into_iter().filter(is_evaluator);
    cpu(this).into_iter().chain(evaluators.filter_map(cpu)).sum()
}
