mod view;

use clap::Args;
use jiff::Timestamp;
use kube::{Api, Client, api::ListParams};

use super::flags::{OutputFormat, QueryFlags, cluster::ClusterFlags};
use super::{Error, output};
use crate::api::{Application, Guarded};
use crate::runtime::kube_client::ApiError;
use crate::text::{sanitize, truncate};
use view::{ApplicationView, MAX_NAME};

/// The number of objects per page. A status can have a megabyte.
const PAGE_SIZE: u32 = 100;
/// The maximum length of user-defined text in a cell, in bytes.
const MAX_CELL: usize = 100;

/// Show the status of Applications (app.k8s.io)
///
/// With a name, also shows conditions and all components. `portolan run` updates the status.
#[derive(Args, Debug)]
pub struct Apps {
    /// Name of the Applications (default: all)
    pub name: Option<String>,
    #[command(flatten)]
    pub query: QueryFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Apps {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let client = self.cluster.client().await?;
        let namespace = self.query.namespace();
        let views = list(client, namespace, self.name.as_deref()).await?;
        let within = namespace.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
        match (&self.name, self.query.output) {
            (Some(name), _) if views.is_empty() => Err(Error::Failed(format!(
                "Application {name} not found{within}; `portolan apps` lists all Applications"
            ))),
            (_, OutputFormat::Json) => output::print_json(&views),
            (None, OutputFormat::Table) if views.is_empty() => {
                output::print(&line(&format!("no Applications found{within}")))
            }
            (name, OutputFormat::Table) => output::print(&text(&views, name.is_some(), Timestamp::now())),
        }
    }
}

/// Lists Applications page by page, and keeps only the fields to show.
async fn list(client: Client, namespace: Option<&str>, name: Option<&str>) -> Result<Vec<ApplicationView>, Error> {
    // One invalid object must not hide the others.
    let applications: Api<Guarded<Application>> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    if let Some(name) = name {
        parameters = parameters.fields(&format!("metadata.name={}", escape_field_value(name)));
    }
    let mut views = Vec::new();
    loop {
        let page = applications
            .list(&parameters)
            .await
            .map_err(|error| list_error(error, namespace))?;
        views.extend(page.items.into_iter().map(ApplicationView::new));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(views),
        }
    }
}

fn escape_field_value(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace(',', "\\,");
    escaped.replace('=', "\\=")
}

fn list_error(error: kube::Error, namespace: Option<&str>) -> Error {
    let error = ApiError::from(error);
    let advice = match (error.code, namespace) {
        (Some(404), _) => {
            return Error::Failed(
                "CRD applications.app.k8s.io is not installed; install it with `portolan crds applications --apply`"
                    .to_owned(),
            );
        }
        (Some(403), None) => "; use -n NAMESPACE if you have access to one namespace only",
        _ => "",
    };
    Error::Failed(format!("failed to list Applications: {error}{advice}"))
}

/// Formats a table and the errors below it, or with `is_detailed` all conditions and components.
fn text(views: &[ApplicationView], is_detailed: bool, now: Timestamp) -> String {
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
    let row = |view: &ApplicationView| {
        let counts = view.counts().map(|(ready, total)| format!("{ready}/{total}"));
        vec![
            view.namespace.clone(),
            view.name.clone(),
            cell(&view.type_),
            cell(&view.version),
            counts.unwrap_or_else(|| "-".to_owned()),
            view.status(),
            view.not_ready(),
            output::age(view.created, now),
        ]
    };
    let table = output::table(&HEADER, views.iter().map(row));
    if is_detailed {
        let details: String = views.iter().map(|view| details(view, now)).collect();
        return table + &details;
    }
    let errors = views.iter().filter_map(|view| {
        let error = format!("{}: {}", view.full_name(), view.error.as_ref()?);
        Some(error)
    });
    table + &output::section("\n", errors)
}

fn details(view: &ApplicationView, now: Timestamp) -> String {
    const CONDITIONS: [&str; 5] = ["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"];
    const COMPONENTS: [&str; 4] = ["KIND", "GROUP", "COMPONENT", "STATUS"];
    let mut text = "\n".to_owned() + &line(&view.full_name());
    if view.is_outdated() {
        text.push_str(
            "status is out of date; check that the controller is running, watches this namespace, and is enabled \
             with --controllers=application\n",
        );
    }
    // An object that cannot be decoded has no conditions.
    if let (Some(error), true) = (&view.error, view.conditions.is_empty()) {
        text.push_str(&line(error));
    }
    let optional_cell = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
    if !view.conditions.is_empty() {
        let rows = view.conditions.iter().map(|condition| {
            let since = condition.last_transition_time.as_ref().map(|time| time.0);
            let message = condition.message.as_deref().unwrap_or_default();
            vec![
                cell(&condition.type_),
                cell(&condition.status),
                output::distance(since, now),
                optional_cell(&condition.reason),
                message.to_owned(),
            ]
        });
        text.push('\n');
        text.push_str(&output::table(&CONDITIONS, rows));
    }
    if !view.components.is_empty() {
        let rows = view.components.iter().map(|component| {
            vec![
                optional_cell(&component.kind),
                optional_cell(&component.group),
                truncate(component.name.as_deref().unwrap_or("-"), MAX_NAME),
                optional_cell(&component.status),
            ]
        });
        text.push('\n');
        text.push_str(&output::table(&COMPONENTS, rows));
    }
    text
}

/// Returns `-` instead of an empty cell, which would shift the columns for `awk`.
fn cell(text: &str) -> String {
    match text.trim() {
        "" => "-".to_owned(),
        text => truncate(text, MAX_CELL),
    }
}

fn line(text: &str) -> String {
    sanitize(text) + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(meta: &Value, spec: &Value, status: &Value) -> ApplicationView {
        let mut object = json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "namespace": "shop", "name": "web", "generation": 2 }, "spec": spec, "status": status
        });
        for (name, value) in meta.as_object().unwrap() {
            object["metadata"][name] = value.clone();
        }
        ApplicationView::new(serde_json::from_value(object).unwrap())
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
    fn the_status_names_readiness_errors_and_deletion() {
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
    fn an_outdated_status_is_unknown() {
        let view = view(
            &json!({ "generation": 3 }),
            &json!({}),
            &status("True", "False", "1/1", &json!([])),
        );
        assert_eq!(
            (view.ready, view.up_to_date, view.status()),
            (None, false, "Unknown".to_owned())
        );
        assert!(details(&view, Timestamp::UNIX_EPOCH).contains("status is out of date"));
    }

    #[test]
    fn the_first_components_that_are_not_ready_are_named_and_the_others_counted() {
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
        // Components that were omitted from the status.
        assert_eq!(of("1/9", &["Ready", "InProgress"]), "Pod/p1 and 7 more");
        assert_eq!(of("1/9", &["Ready"]), "8 components");
        // A status that another controller has written.
        assert_eq!(of("some", &["InProgress"]), "Pod/p0");
        assert_eq!(of("9/1", &["Ready"]), "-");
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_one_line() {
        let view = view(&json!({}), &json!({ "componentKinds": "all" }), &json!(null));
        assert_eq!((view.name.as_str(), view.status().as_str()), ("web", "Unknown,Error"));
        let text = text(&[view], false, Timestamp::UNIX_EPOCH);
        assert!(text.contains("\nshop/web: failed to decode the object: "), "{text}");
    }

    #[test]
    fn names_are_escaped_in_field_selectors() {
        assert_eq!(escape_field_value("web"), "web");
        assert_eq!(escape_field_value(r"a,b=c\"), r"a\,b\=c\\");
    }
}
