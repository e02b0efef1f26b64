//! `portolan apps`: how the Applications are.

use clap::Args;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};
use serde::Serialize;

use super::cluster::{self, given};
use super::flags::{ClusterFlags, LogFlags, OutputFlags, OutputForm};
use super::{Failure, age as ages, output};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::{
    api::{Application, ApplicationCondition, ApplicationStatus, ComponentStatus, Guarded},
    runtime::kube_client::ApiError,
    text::{printable, truncate},
};

/// Objects that are asked for at a time: a status may be as large as a megabyte.
const PAGE: u32 = 100;
/// How many components that are not ready are named in a cell.
const NAMED: usize = 5;
/// How much of what people have written stands in a cell, in bytes.
const MAX_CELL: usize = 100;
/// The longest kind (63) and the longest name (253) that Kubernetes lets in, with what stands between them, in bytes.
const MAX_NAME: usize = 317;
/// How much of a message is shown in a table, in bytes: as much as Portolan writes.
const MAX_MESSAGE: usize = 4096;

/// Show the Applications of app.k8s.io in a cluster: how many of their components are ready, of how many, and which are not.
///
/// What is shown stands in their status, where `portolan run` keeps it. With a name: their conditions and all components too.
#[derive(Args, Debug)]
pub struct Apps {
    /// Only the Applications of this name, in detail
    pub name: Option<String>,
    /// Only those of this namespace; of all without it
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Apps {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        let client = cluster::client(&self.cluster, &RequestMetrics::default()).await?;
        let namespace = given(self.namespace.as_deref());
        let views = list(client, namespace, self.name.as_deref()).await?;
        if let (Some(name), true) = (&self.name, views.is_empty()) {
            return Err(Failure::failed(format!(
                "there is no Application {name}{}; `portolan apps` lists all",
                within(namespace)
            )));
        }
        match self.output.output {
            OutputForm::Json => output::print_json(&views),
            OutputForm::Table if views.is_empty() => {
                output::print(&printable(&format!("there are no Applications{}", within(namespace))))?;
                output::print("\n")
            }
            OutputForm::Table => output::print(&text(&views, self.name.is_some(), Timestamp::now())),
        }
    }
}

fn within(namespace: Option<&str>) -> String {
    namespace.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"))
}

/// All Applications, page by page; of each only what is shown is kept.
async fn list(client: Client, namespace: Option<&str>, name: Option<&str>) -> Result<Vec<View>, Failure> {
    // One that can't be read hides no other.
    let applications: Api<Guarded<Application>> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let mut parameters = ListParams::default().limit(PAGE);
    if let Some(name) = name {
        parameters = parameters.fields(&format!("metadata.name={}", field_value(name)));
    }
    let mut views = Vec::new();
    loop {
        let page = applications.list(&parameters).await;
        let page = page.map_err(|error| refused(error, namespace))?;
        views.extend(page.items.into_iter().map(View::new));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(views),
        }
    }
}

/// A value in a field selector, in which some characters have a meaning.
fn field_value(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace(',', "\\,");
    escaped.replace('=', "\\=")
}

fn refused(error: kube::Error, namespace: Option<&str>) -> Failure {
    let error = ApiError::from(error);
    Failure::failed(match (error.code, namespace) {
        (Some(404), _) => "the cluster does not have the definition applications.app.k8s.io, and so no Applications: \
                     `portolan crds applications --apply` installs it"
            .to_owned(),
        (Some(403), None) => {
            format!("can't list Applications: {error}; with -n NAMESPACE, the right to list them there is enough")
        }
        _ => format!("can't list Applications: {error}"),
    })
}

/// What is shown of an Application.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    name: String,
    #[serde(rename = "type")]
    type_: String,
    version: String,
    created: Option<Timestamp>,
    /// Whether it is being deleted: its status stays as it is then.
    deleting: bool,
    /// Whether the status is about the spec as it is.
    up_to_date: bool,
    /// Null: not known, or not up to date.
    ready: Option<bool>,
    /// Reason and message of the condition Ready.
    reason: String,
    message: String,
    /// The message of the condition Error, if there is one; otherwise null.
    error: Option<String>,
    /// Null: nobody has counted.
    ready_components: Option<u64>,
    total_components: Option<u64>,
    /// As in the status.
    conditions: Vec<ApplicationCondition>,
    components: Vec<ComponentStatus>,
}

impl View {
    fn new(Guarded(DeserializeGuard(application)): Guarded<Application>) -> Self {
        match application {
            Ok(application) => {
                let descriptor = application.spec.descriptor.unwrap_or_default();
                Self {
                    type_: descriptor.type_.unwrap_or_default(),
                    version: descriptor.version.unwrap_or_default(),
                    ..Self::with_status(application.metadata, application.status.unwrap_or_default())
                }
            }
            Err(invalid) => Self {
                error: Some(format!("the object can't be read: {}", invalid.error)),
                ..Self::with_status(invalid.metadata, ApplicationStatus::default())
            },
        }
    }

    fn with_status(meta: ObjectMeta, status: ApplicationStatus) -> Self {
        let condition = |type_: &str| {
            let mut conditions = status.conditions.iter();
            conditions.find(|condition| condition.type_ == type_)
        };
        let (ready, error) = (condition("Ready"), condition("Error"));
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let up_to_date = status.observed_generation.is_some() && status.observed_generation == meta.generation;
        let counted = status.components_ready.as_deref().and_then(counted);
        Self {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            up_to_date,
            ready: ready.filter(|_| up_to_date).and_then(|ready| match &*ready.status {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            }),
            reason: text(ready.and_then(|ready| ready.reason.as_ref())),
            message: text(ready.and_then(|ready| ready.message.as_ref())),
            error: error
                .filter(|error| error.status == "True")
                .map(|error| text(error.message.as_ref())),
            ready_components: counted.map(|(ready, _)| ready),
            total_components: counted.map(|(_, total)| total),
            conditions: status.conditions,
            components: status.components,
            ..Self::default()
        }
    }

    fn counts(&self) -> String {
        match (self.ready_components, self.total_components) {
            (Some(ready), Some(total)) => format!("{ready}/{total}"),
            _ => "-".to_owned(),
        }
    }

    /// In one word for each thing that there is to say, as kubectl has it.
    fn status(&self) -> String {
        let mut status = match self.ready {
            Some(true) => "Ready",
            Some(false) => "NotReady",
            None => "Unknown",
        }
        .to_owned();
        for (is_so, word) in [(self.error.is_some(), ",Error"), (self.deleting, ",Deleting")] {
            if is_so {
                status.push_str(word);
            }
        }
        status
    }

    /// The first components that are not ready. All are counted, also those that had no room in the status.
    fn not_ready(&self) -> String {
        let is_not_ready = |component: &&ComponentStatus| component.status.as_deref() != Some("Ready");
        let listed = self.components.iter().filter(is_not_ready);
        let counted = match (self.ready_components, self.total_components) {
            (Some(ready), Some(total)) => usize::try_from(total.saturating_sub(ready)).unwrap_or(usize::MAX),
            _ => 0,
        };
        let all = listed.clone().count().max(counted);
        let names: Vec<_> = listed
            .take(NAMED)
            .map(|component| truncate(&component_name(component), MAX_NAME))
            .collect();
        match (all - names.len(), names.is_empty()) {
            (0, true) => "-".to_owned(),
            (0, false) => names.join(", "),
            (more, true) => format!("{more} components"),
            (more, false) => format!("{} and {more} more", names.join(", ")),
        }
    }

    /// What there is to say beside the conditions.
    fn remark(&self) -> Option<&'static str> {
        (!self.up_to_date && !self.deleting).then_some(
            "nobody has looked at it as it is now: see that `portolan run` is up and watches its namespace, with --controllers=application",
        )
    }
}

/// The two numbers of `componentsReady`.
fn counted(text: &str) -> Option<(u64, u64)> {
    let (ready, total) = text.split_once('/')?;
    Some((ready.parse().ok()?, total.parse().ok()?))
}

fn component_name(component: &ComponentStatus) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&component.kind), part(&component.name))
}

/// A table; below it what is wrong, and of those that were asked for by name all that is known.
fn text(views: &[View], named: bool, now: Timestamp) -> String {
    const HEADER: [&str; 8] = [
        "NAMESPACE",
        "NAME",
        "TYPE",
        "VERSION",
        "READY",
        "STATUS",
        "NOT READY",
        "AGE",
    ];
    let row = |view: &View| {
        vec![
            view.namespace.clone(),
            view.name.clone(),
            cell(&view.type_),
            cell(&view.version),
            view.counts(),
            view.status(),
            view.not_ready(),
            ages::age(view.created, now),
        ]
    };
    let mut text = output::table(&HEADER, views.iter().map(row));
    if named {
        for view in views {
            text.push('\n');
            text.push_str(&details(view, now));
        }
        return text;
    }
    for (at, (view, error)) in views
        .iter()
        .filter_map(|view| Some((view, view.error.as_ref()?)))
        .enumerate()
    {
        if at == 0 {
            text.push('\n');
        }
        text.push_str(&line(&format!("{}/{}: {error}", view.namespace, view.name)));
    }
    text
}

fn details(view: &View, now: Timestamp) -> String {
    const CONDITIONS: [&str; 5] = ["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"];
    const COMPONENTS: [&str; 4] = ["KIND", "GROUP", "COMPONENT", "STATUS"];
    let mut text = line(&format!("{}/{}", view.namespace, view.name));
    if let Some(remark) = view.remark() {
        text.push_str(&line(remark));
    }
    // Of an object that can't be read no condition tells it.
    if let (Some(error), true) = (&view.error, view.conditions.is_empty()) {
        text.push_str(&line(error));
    }
    let shown = |part: &Option<String>| cell(part.as_deref().unwrap_or_default());
    if !view.conditions.is_empty() {
        let rows = view.conditions.iter().map(|condition| {
            let since = condition.last_transition_time.as_ref().map(|time| time.0);
            let message = condition.message.as_deref().unwrap_or_default();
            vec![
                cell(&condition.type_),
                cell(&condition.status),
                ages::distance(since, now),
                shown(&condition.reason),
                truncate(message, MAX_MESSAGE),
            ]
        });
        text.push('\n');
        text.push_str(&output::table(&CONDITIONS, rows));
    }
    if !view.components.is_empty() {
        let rows = view.components.iter().map(|component| {
            vec![
                shown(&component.kind),
                shown(&component.group),
                truncate(component.name.as_deref().unwrap_or("-"), MAX_NAME),
                shown(&component.status),
            ]
        });
        text.push('\n');
        text.push_str(&output::table(&COMPONENTS, rows));
    }
    text
}

/// What somebody has written, `-` where that is nothing: an empty cell would move the others for `awk`.
fn cell(text: &str) -> String {
    match text.trim() {
        "" => "-".to_owned(),
        text => truncate(text, MAX_CELL),
    }
}

fn line(text: &str) -> String {
    printable(&truncate(text, MAX_MESSAGE)) + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(meta: &Value, spec: &Value, status: &Value) -> View {
        let mut object = json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "namespace": "shop", "name": "web", "generation": 2 }, "spec": spec, "status": status
        });
        for (name, value) in meta.as_object().unwrap() {
            object["metadata"][name] = value.clone();
        }
        View::new(serde_json::from_value(object).unwrap())
    }

    fn status(ready: &str, error: &str, counted: &str, components: &Value) -> Value {
        json!({
            "observedGeneration": 2, "componentsReady": counted, "components": components,
            "conditions": [
                { "type": "Ready", "status": ready, "reason": "Why", "message": "that is why" },
                { "type": "Error", "status": error, "message": "what is wrong" }
            ]
        })
    }

    #[test]
    fn what_is_known_stands_in_words_that_can_be_searched_for() {
        let of = |meta: Value, status: Value| view(&meta, &json!({}), &status).status();
        assert_eq!(of(json!({}), status("True", "False", "0/0", &json!([]))), "Ready");
        assert_eq!(of(json!({}), status("False", "False", "0/1", &json!([]))), "NotReady");
        assert_eq!(of(json!({}), status("True", "True", "0/0", &json!([]))), "Ready,Error");
        assert_eq!(
            of(json!({}), status("Unknown", "True", "0/0", &json!([]))),
            "Unknown,Error"
        );
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert_eq!(
            of(deleted, status("True", "False", "0/0", &json!([]))),
            "Ready,Deleting"
        );
    }

    #[test]
    fn a_status_of_another_generation_says_nothing_of_this_one() {
        let view = view(
            &json!({ "generation": 3 }),
            &json!({}),
            &status("True", "False", "1/1", &json!([])),
        );
        assert_eq!(
            (view.ready, view.up_to_date, view.status()),
            (None, false, "Unknown".to_owned())
        );
        assert!(details(&view, Timestamp::UNIX_EPOCH).contains("nobody has looked at it as it is now"));
    }

    #[test]
    fn what_is_not_ready_is_named_as_far_as_there_is_room_and_counted_beyond() {
        let of = |counted: &str, states: &[&str]| {
            let components: Vec<_> = states
                .iter()
                .enumerate()
                .map(|(at, state)| json!({ "kind": "Pod", "name": format!("p{at}"), "status": state }))
                .collect();
            view(
                &json!({}),
                &json!({}),
                &status("False", "False", counted, &json!(components)),
            )
            .not_ready()
        };
        assert_eq!(of("1/1", &["Ready"]), "-");
        assert_eq!(of("1/3", &["InProgress", "Ready", "Unknown"]), "Pod/p0, Pod/p2");
        assert_eq!(
            of("0/7", &["InProgress"; 7]),
            "Pod/p0, Pod/p1, Pod/p2, Pod/p3, Pod/p4 and 2 more"
        );
        // Those that the status had no room for.
        assert_eq!(of("1/9", &["Ready", "InProgress"]), "Pod/p1 and 7 more");
        assert_eq!(of("1/9", &["Ready"]), "8 components");
        // What nobody of ours has written.
        assert_eq!(of("some", &["InProgress"]), "Pod/p0");
        assert_eq!(of("9/1", &["Ready"]), "-");
    }

    #[test]
    fn an_object_that_can_not_be_read_is_one_line_among_the_others() {
        let view = view(&json!({}), &json!({ "componentKinds": "all" }), &json!(null));
        assert_eq!((view.name.as_str(), view.status().as_str()), ("web", "Unknown,Error"));
        let text = text(&[view], false, Timestamp::UNIX_EPOCH);
        assert!(text.contains("\nshop/web: the object can't be read: "), "{text}");
    }

    #[test]
    fn a_name_can_not_widen_what_is_asked_for() {
        assert_eq!(field_value("web"), "web");
        assert_eq!(field_value(r"a,b=c\"), r"a\,b\=c\\");
    }
}
