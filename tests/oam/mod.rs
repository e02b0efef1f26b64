//! Rendering with the real evaluator.

mod calls;
mod goldens;
mod health;
mod older;
mod starter;
mod steps;
mod templates;
mod unification;

use std::fs;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::time::Duration;

use portolan::budget::ResourceMetrics;
use portolan::controllers::oam::context::Context;
use portolan::controllers::oam::render::component::{Base, DefinitionTemplate, Rendered, TemplatedComponent, render};
use portolan::controllers::oam::render::evaluate::{Evaluate, NamespaceEvaluator};
use portolan::cue::{Evaluator, EvaluatorOptions};
use serde_json::{Value, json};

use crate::support::cue::executable;
use crate::support::project;

/// Returns the evaluator that the tests share.
fn evaluator() -> NamespaceEvaluator<'static> {
    static POOL: OnceLock<Evaluator> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let options = EvaluatorOptions {
            program: Some(executable()),
            workers: NonZeroUsize::MIN.saturating_add(1),
            // Far more than any evaluation takes on a busy machine.
            timeout: Duration::from_secs(120),
            ..EvaluatorOptions::default()
        };
        Evaluator::new(options, ResourceMetrics::unregistered())
    });
    NamespaceEvaluator {
        pool,
        namespace: "default",
    }
}

/// Returns the template of a definition of the starter set, such as `traits/scaler`.
fn starter_template(path: &str) -> String {
    starter_text(path, "/spec/schematic/cue/template")
}

/// Returns a text of a definition of the starter set.
fn starter_text(path: &str, pointer: &str) -> String {
    let file = project("definitions").join(format!("{path}.yaml"));
    let definition: Value = serde_yaml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let text = definition.pointer(pointer);
    text.and_then(Value::as_str).unwrap().to_owned()
}

/// A component with traits, to render.
#[derive(Clone)]
struct Case {
    template: String,
    properties: Value,
    traits: Vec<(String, Value)>,
    is_strict: bool,
    /// The minor version of Kubernetes.
    minor: u32,
}

impl Case {
    fn new(template: &str, properties: Value) -> Self {
        Self {
            template: template.to_owned(),
            properties,
            traits: Vec::new(),
            is_strict: false,
            minor: 35,
        }
    }

    fn with(mut self, template: &str, properties: Value) -> Self {
        self.traits.push((template.to_owned(), properties));
        self
    }

    fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    async fn render(&self) -> Result<Value, String> {
        self.render_by(&evaluator()).await
    }

    /// Renders component `web` with traits `t0`, `t1`, …
    async fn render_by<V: Evaluate>(&self, evaluator: &V) -> Result<Value, String> {
        let names: Vec<String> = (0..self.traits.len()).map(|index| format!("t{index}")).collect();
        let traits: Vec<DefinitionTemplate<'_>> = names
            .iter()
            .zip(&self.traits)
            .map(|(name, (source, properties))| DefinitionTemplate {
                name,
                source,
                properties: Some(properties),
                is_strict: self.is_strict,
                has_status: true,
            })
            .collect();
        let context = json!({
            "name": "web", "appName": "shop", "namespace": "default",
            "clusterVersion": {"major": "1", "minor": self.minor},
        });
        let component = TemplatedComponent {
            name: "web",
            base: Base::Template(DefinitionTemplate {
                name: "component",
                source: &self.template,
                properties: Some(&self.properties),
                is_strict: self.is_strict,
                has_status: true,
            }),
            traits: &traits,
            context: &Context::from(context.as_object().unwrap().clone()),
            output_status: None,
        };
        let rendered = render(evaluator, &component).await.map_err(|error| error.to_string())?;
        Ok(to_json(&rendered))
    }
}

/// Returns rendered objects as the goldens hold them.
fn to_json(rendered: &Rendered) -> Value {
    let mut result = json!({"output": rendered.workload});
    let outputs = rendered.outputs_by_key();
    if !outputs.is_empty() {
        result["outputs"] = json!(outputs);
    }
    result
}
