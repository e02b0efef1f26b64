use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::calls::RenderFunctions;
use crate::api::oam::{Component, Trait};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::{Parsed, ParsedComponent, calls_functions};
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::reconciler::apply::AppObjects;
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::reconciler::failure::{Failure, Stop};
use crate::controllers::oam::reconciler::revise::Current;
use crate::controllers::oam::render::cache_key::{CacheKey, key_in_round};
use crate::controllers::oam::render::component::Rendered;
use crate::controllers::oam::render::evaluate::{Cause, ComponentError, Evaluate};
use crate::controllers::oam::render::release::{ComponentObjects, ReleaseObject, context_version};
use crate::controllers::oam::steps::CallingEvaluator;
use crate::controllers::oam::trackers::is_local;
use crate::controllers::oam::workflow::check_path;
use crate::cue;

/// Elements of lists that an input can name.
const MAX_INDEX: usize = 1_000;

#[derive(Debug)]
pub enum RenderError {
    /// The template or its parameters, with the text for the user.
    Template { message: String, is_stopped: bool },
    /// A call waits, with the reason.
    Waiting(String),
    /// The cluster of the place can't be reached. Templates see its version.
    Unreachable(String),
    /// The evaluator is missing or failed.
    Evaluator(cue::Error),
}

impl RenderError {
    pub fn new(cause: Cause<cue::Error>, message: String) -> Self {
        match cause {
            Cause::Evaluator(cause) => Self::Evaluator(cause),
            Cause::Waiting(_) => Self::Waiting(message),
            cause => Self::Template {
                is_stopped: matches!(cause, Cause::Stopped(_)),
                message,
            },
        }
    }

    /// Ends the pass. `failed` is the failure of a template.
    pub fn into_stop(self, failed: impl Fn(String) -> Failure) -> Stop {
        match self {
            Self::Evaluator(error) => error.into(),
            Self::Waiting(_) => Stop::NeedsEvaluator,
            Self::Template { message, .. } | Self::Unreachable(message) => failed(message).into(),
        }
    }
}

impl From<ComponentError<cue::Error>> for RenderError {
    fn from(error: ComponentError<cue::Error>) -> Self {
        let message = error.to_string();
        Self::new(error.cause, message)
    }
}

#[derive(Clone, Debug)]
pub struct Placed {
    pub component: ParsedComponent,
    pub place: Place,
}

impl Placed {
    pub fn name(&self) -> &str {
        &self.component.component.name
    }

    /// Returns the name under which results are remembered. It begins with the name of the component.
    pub fn memory_name(&self) -> String {
        let Place {
            cluster,
            namespace,
            replica_key,
        } = &self.place;
        if self.place == Place::default() {
            self.name().to_owned()
        } else {
            format!("{}/{cluster}/{namespace}/{replica_key}", self.name())
        }
    }
}

#[derive(Clone, Copy)]
pub struct Target<'p> {
    pub env: &'p Env<'p>,
    pub current: &'p Current,
    pub parsed: &'p Parsed,
}

impl Target<'_> {
    /// Renders a component without the traits of the last stage.
    pub async fn render(&self, objects: &AppObjects<'_>, placed: &Placed) -> Result<ComponentObjects, RenderError> {
        let _timer = self.env.reconciler.metrics.time(PassStage::Render);
        let release = &self.current.release;
        let version = self.cluster_version(&placed.place)?;
        let mut prepared = release.component(self.parsed, &placed.component, &placed.place);
        if let Some(version) = version {
            prepared.set_cluster_version(version);
        }
        let evaluator = self.evaluator(objects);
        if let Some(alone) = prepared.workload_to_read() {
            let key = self.with_round(placed, alone.key());
            let render = alone.render(&evaluator);
            let rendered = self.get_or_render(placed, "/workload", key, render).await?;
            let status = objects
                .live_status(&placed.place.cluster, &alone.objects(key, rendered).workload)
                .await;
            prepared.set_output_status(status);
        }
        let key = self.with_round(placed, prepared.key());
        let render = prepared.render(&evaluator);
        let rendered = self.get_or_render(placed, "", key, render).await?;
        Ok(prepared.objects(key, rendered))
    }

    /// Returns the version of the joined cluster of a place.
    fn cluster_version(&self, place: &Place) -> Result<Option<Value>, RenderError> {
        if is_local(&place.cluster) {
            return Ok(None);
        }
        let connection = self.env.reconciler.objects.clusters().connection(&place.cluster);
        let connection = connection.map_err(|error| RenderError::Unreachable(error.to_string()))?;
        Ok(Some(context_version(&connection.version)))
    }

    /// Renders the traits of the last stage, which see the live objects.
    pub async fn render_post_traits(
        &self,
        app_objects: &AppObjects<'_>,
        placed: &Placed,
        objects: &ComponentObjects,
        live: &Map<String, Value>,
    ) -> Result<Vec<ReleaseObject>, RenderError> {
        let (release, component) = (&self.current.release, &placed.component);
        let key = release.post_dispatch_key(component, objects, live);
        let evaluator = self.evaluator(app_objects);
        let render = async {
            let outputs = release.render_post_dispatch(&evaluator, component, objects, live);
            Ok(Rendered {
                workload: Map::new(),
                outputs: outputs.await?,
            })
        };
        let rendered = self.get_or_render(placed, "/post-dispatch", key, render).await?;
        Ok(release.post_dispatch_objects(component, objects, &rendered.outputs))
    }

    /// Returns an evaluator for templates that may call functions.
    fn evaluator(&self, objects: &AppObjects<'_>) -> impl Evaluate<Error = cue::Error> {
        CallingEvaluator {
            evaluator: self.env.evaluator(),
            functions: move || RenderFunctions::new(&objects.cluster),
        }
    }

    /// Returns the key of a component until its functions are called again. Their answers change without a change of what
    /// the key is made of.
    fn with_round(&self, placed: &Placed, key: CacheKey) -> CacheKey {
        if calls_functions(&placed.component) {
            key_in_round(key, self.env.memory.lock().call_round)
        } else {
            key
        }
    }

    async fn get_or_render(
        &self,
        placed: &Placed,
        part: &str,
        key: CacheKey,
        render: impl Future<Output = Result<Rendered, ComponentError<cue::Error>>>,
    ) -> Result<Arc<Rendered>, RenderError> {
        let name = format!("{}{part}", placed.memory_name());
        let (memories, metrics) = (&self.env.reconciler.memories, &self.env.reconciler.metrics);
        if let Some(rendered) = memories.rendered(self.env.name, &name, &key) {
            metrics.count_render("cached");
            return Ok(rendered);
        }
        let answers = &self.env.render_answers;
        answers.lock().begin_rendering();
        let rendered = render.await.map_err(|error| {
            if !calls_functions(&placed.component) {
                return error;
            }
            if !matches!(error.cause, Cause::Evaluator(_) | Cause::Waiting(_)) {
                answers.lock().fail_rendering();
            }
            error.without_values()
        });
        metrics.count_render(match &rendered {
            Ok(_) => "evaluated",
            Err(error) if matches!(error.cause, Cause::Evaluator(cue::Error::Deferred) | Cause::Waiting(_)) => {
                "deferred"
            }
            Err(_) => "failed",
        });
        let rendered = Arc::new(rendered?);
        memories.remember_rendered(self.env.name, &name, key, &rendered);
        Ok(rendered)
    }
}

pub fn with_inputs(component: &ParsedComponent, inputs: &[(&str, Value)]) -> Result<ParsedComponent, String> {
    let mut changed = component.clone();
    if inputs.is_empty() {
        return Ok(changed);
    }
    let mut value = json!({
        "properties": changed.component.properties.clone().unwrap_or_else(|| json!({})),
        "traits": changed.component.traits,
    });
    for (path, input) in inputs.iter().filter(|(path, _)| !path.is_empty()) {
        let path = path.strip_prefix("value.").unwrap_or(path);
        set_path(&mut value, path, input.clone()).ok_or_else(|| invalid_key(path))?;
    }
    changed.component.properties = Some(value["properties"].take());
    let traits: Vec<Trait> = serde_json::from_value(value["traits"].take()).map_err(|error| error.to_string())?;
    for (parsed, trait_) in changed.traits.iter_mut().zip(&traits) {
        parsed.trait_ = trait_.clone();
    }
    changed.component = Component {
        traits,
        ..changed.component
    };
    Ok(changed)
}

pub fn invalid_key(path: &str) -> String {
    crate::text::sanitize(&format!("invalid parameterKey {path}"))
}

/// Sets a value at a path such as `properties.env[0].value`.
pub fn set_path(value: &mut Value, path: &str, new: Value) -> Option<()> {
    // A deeper value could not be handled by recursion.
    check_path(path).ok()?;
    let normalized = path.replace('[', ".").replace(']', "");
    let mut target = value;
    for field in normalized.split('.').filter(|field| !field.is_empty()) {
        let field = field.trim_matches('"');
        target = child(target, field)?;
    }
    *target = new;
    Some(())
}

/// Returns a member of an object or list, and adds it if it is missing.
fn child<'v>(target: &'v mut Value, field: &str) -> Option<&'v mut Value> {
    let index = field.parse::<usize>().ok();
    if target.is_null() {
        *target = if index.is_some() { json!([]) } else { json!({}) };
    }
    match target {
        Value::Array(items) => {
            let index = index.filter(|index| *index <= items.len() && *index < MAX_INDEX)?;
            if index == items.len() {
                items.push(Value::Null);
            }
            items.get_mut(index)
        }
        Value::Object(fields) => Some(fields.entry(field).or_insert(Value::Null)),
        _ => None,
    }
}
