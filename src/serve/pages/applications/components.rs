//! Trees of components and of the steps of a workflow.

use std::collections::{BTreeMap, HashMap};

use super::Kind;
use super::objects::Component;
use super::tree::{Item, Tree};
use crate::api::ComponentStatus;
use crate::api::oam::{ServiceStatus, StepStatus, TraitStatus};
use crate::serve::pages::shown::Badge;
use crate::text::sanitize;

/// Names in a sentence.
const MAX_NAMES: usize = 16;

const fn badge(class: &'static str, label: &'static str) -> Badge {
    Badge { class, label }
}

const fn health(is_healthy: bool) -> Badge {
    if is_healthy {
        badge("ok", "Healthy")
    } else {
        badge("bad", "Unhealthy")
    }
}

/// The index of a component or of a detail.
enum Above {
    Component(usize),
    Detail(usize),
}

/// Details stand before the components that wait for the same component, so they are a list of their own.
#[derive(Default)]
struct Builder {
    details: Vec<(Item, Above)>,
    components: Vec<(Item, Option<usize>)>,
}

/// Returns the components of an Application of KubeVela, each below the first one that it waits for, with their places
/// and traits.
pub(super) fn of_vela(declared: &[Component], services: &[ServiceStatus]) -> Tree {
    let mut places: BTreeMap<&str, Vec<&ServiceStatus>> = BTreeMap::new();
    for service in services {
        places.entry(&service.name).or_default().push(service);
    }
    let mut positions = HashMap::new();
    for (index, component) in declared.iter().enumerate() {
        positions.entry(component.name.as_str()).or_insert(index);
    }
    let mut builder = Builder::default();
    for component in declared {
        let places = places.remove(component.name.as_str()).unwrap_or_default();
        let mut needed = component.depends_on.iter();
        let parent = needed.find_map(|name| positions.get(name.as_str()).copied());
        builder.add(component, parent, &places);
    }
    // Of an earlier specification, or made by a step.
    for (name, places) in places {
        let component = Component {
            name: name.to_owned(),
            ..Component::default()
        };
        builder.add(&component, None, &places);
    }
    builder.build()
}

impl Builder {
    fn add(&mut self, component: &Component, parent: Option<usize>, places: &[&ServiceStatus]) {
        let index = self.components.len();
        let mut item = Item {
            name: sanitize(&component.name),
            detail: sanitize(&component.type_),
            badge: badge("unknown", "Not deployed"),
            place: String::new(),
            message: waits(&component.depends_on),
            link: None,
        };
        match places {
            [] => {}
            [service] => {
                item.badge = health(service.healthy);
                item.place = place(service);
                item.message = sanitize(&service.message);
                self.add_traits(&service.traits, || Above::Component(index));
            }
            _ => {
                item.badge = health(places.iter().all(|service| service.healthy));
                item.message = String::new();
                for service in places {
                    self.add_place(service, index);
                }
            }
        }
        self.components.push((item, parent));
    }

    fn add_place(&mut self, service: &ServiceStatus, component: usize) {
        let index = self.details.len();
        let item = Item {
            name: place(service),
            detail: String::new(),
            badge: health(service.healthy),
            place: String::new(),
            message: sanitize(&service.message),
            link: None,
        };
        self.details.push((item, Above::Component(component)));
        self.add_traits(&service.traits, || Above::Detail(index));
    }

    fn add_traits(&mut self, traits: &[TraitStatus], above: impl Fn() -> Above) {
        let item = |status: &TraitStatus| Item {
            name: sanitize(&status.type_),
            detail: "trait".to_owned(),
            badge: if status.pending {
                badge("unknown", "Pending")
            } else {
                health(status.healthy)
            },
            place: String::new(),
            message: sanitize(&status.message),
            link: None,
        };
        self.details.extend(traits.iter().map(|status| (item(status), above())));
    }

    fn build(self) -> Tree {
        let first = self.details.len();
        let details = self.details.into_iter().map(|(item, above)| {
            let parent = match above {
                Above::Component(index) => first + index,
                Above::Detail(index) => index,
            };
            (item, Some(parent))
        });
        let components = self.components.into_iter();
        let components = components.map(|(item, parent)| (item, parent.map(|index| first + index)));
        Tree::new(details.chain(components).collect())
    }
}

fn waits(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).map(String::as_str).collect();
    let more = if names.len() > MAX_NAMES { " and others" } else { "" };
    sanitize(&format!("Waits for {}{more}.", shown.join(", ")))
}

fn place(service: &ServiceStatus) -> String {
    place_of(&service.namespace, &service.cluster)
}

/// Names a namespace, and the cluster if it is another one.
pub(super) fn place_of(namespace: &str, cluster: &str) -> String {
    let is_local = cluster.is_empty() || cluster == "local";
    let text = match (namespace, is_local) {
        ("", true) => String::new(),
        (namespace, true) => format!("namespace {namespace}"),
        ("", false) => format!("cluster {cluster}"),
        (namespace, false) => format!("namespace {namespace}, cluster {cluster}"),
    };
    sanitize(&text)
}

/// Returns the components of an Application of app.k8s.io. Other Applications among them have links.
pub(super) fn of_app(prefix: &str, namespace: &str, components: &[ComponentStatus]) -> Tree {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let entries = components.iter().map(|component| {
        let (kind, group, name) = (text(&component.kind), text(&component.group), text(&component.name));
        let item = Item {
            link: Kind::of(&group, &kind).map(|kind| kind.page(prefix, namespace, &name)),
            name: sanitize(&name),
            detail: sanitize(&kind),
            badge: match component.status.as_deref() {
                Some("Ready") => badge("ok", "Ready"),
                Some("InProgress") => badge("unknown", "In progress"),
                _ => badge("unknown", "Unknown"),
            },
            place: String::new(),
            message: String::new(),
        };
        (item, None)
    });
    Tree::new(entries.collect())
}

pub(super) fn of_steps(steps: &[StepStatus]) -> Tree {
    let mut entries = Vec::new();
    add_steps(&mut entries, steps, None);
    Tree::new(entries)
}

/// The decoder limits the depth.
fn add_steps(entries: &mut Vec<(Item, Option<usize>)>, steps: &[StepStatus], parent: Option<usize>) {
    for step in steps {
        let index = entries.len();
        let message = match (step.reason.as_str(), step.message.as_str()) {
            (reason, "") => reason.to_owned(),
            ("", message) => message.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        let item = Item {
            name: sanitize(if step.name.is_empty() { &step.id } else { &step.name }),
            detail: sanitize(&step.type_),
            badge: phase(&step.phase),
            place: String::new(),
            message: sanitize(&message),
            link: None,
        };
        entries.push((item, parent));
        add_steps(entries, &step.sub_steps, Some(index));
    }
}

/// Returns the badge of a step or of a workflow.
pub(super) fn phase(phase: &str) -> Badge {
    match phase {
        "succeeded" => badge("ok", "Succeeded"),
        "failed" => badge("bad", "Failed"),
        "terminated" => badge("bad", "Terminated"),
        "skipped" => badge("unknown", "Skipped"),
        "pending" | "initializing" => badge("unknown", "Pending"),
        "running" | "executing" => badge("unknown", "Running"),
        "suspending" => badge("unknown", "Suspended"),
        _ => badge("unknown", "Unknown"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the names with their depth and the label of their badge.
    fn lines(tree: &Tree) -> Vec<String> {
        let mut depth = 0;
        let lines = tree.lines.iter().map(|line| {
            let text = format!("{}{} {}", "  ".repeat(depth), line.item.name, line.item.badge.label);
            depth += usize::from(line.has_children);
            depth -= line.ends.matches("</ul>").count();
            text
        });
        lines.collect()
    }

    fn of_vela(declared: Value, services: Value) -> Tree {
        let declared: Vec<Component> = serde_json::from_value(declared).unwrap();
        let services: Vec<ServiceStatus> = serde_json::from_value(services).unwrap();
        super::of_vela(&declared, &services)
    }

    #[test]
    fn a_component_stands_below_the_first_that_it_waits_for() {
        let declared = json!([
            { "name": "web", "type": "webservice", "dependsOn": ["nothing", "api", "db"] },
            { "name": "api", "type": "webservice", "dependsOn": ["db"] },
            { "name": "db", "type": "statefulset" },
        ]);
        let services = json!([
            { "name": "db", "healthy": true, "namespace": "shop", "traits": [{ "type": "storage", "healthy": true }] },
            { "name": "api", "healthy": false, "message": "Ready:0/1" },
        ]);
        let tree = of_vela(declared, services);
        let expected = [
            "db Healthy",
            "  storage Healthy",
            "  api Unhealthy",
            "    web Not deployed",
        ];
        assert_eq!(lines(&tree), expected);
        let item = |name: &str| &tree.lines.iter().find(|line| line.item.name == name).unwrap().item;
        assert_eq!(item("db").place, "namespace shop");
        assert_eq!(item("api").message, "Ready:0/1");
        assert_eq!(item("web").message, "Waits for nothing, api, db.");
    }

    #[test]
    fn components_that_wait_for_each_other_are_shown_once() {
        let declared = json!([
            { "name": "a", "dependsOn": ["b"] },
            { "name": "b", "dependsOn": ["a"] },
            { "name": "c", "dependsOn": ["c"] },
        ]);
        let tree = of_vela(declared, json!([]));
        assert_eq!(lines(&tree), ["a Not deployed", "  b Not deployed", "c Not deployed"]);
    }

    #[test]
    fn a_component_in_several_clusters_has_a_line_for_each() {
        let services = json!([
            { "name": "web", "healthy": true, "namespace": "shop", "cluster": "local" },
            { "name": "web", "healthy": false, "namespace": "shop", "cluster": "east",
              "traits": [{ "type": "scaler", "pending": true }] },
        ]);
        let tree = of_vela(json!([]), services);
        let expected = [
            "web Unhealthy",
            "  namespace shop Healthy",
            "  namespace shop, cluster east Unhealthy",
            "    scaler Pending",
        ];
        assert_eq!(lines(&tree), expected);
    }

    #[test]
    fn steps_have_sub_steps_with_reasons() {
        let steps = json!([
            { "id": "1", "name": "deploy", "phase": "running", "subSteps": [
                { "id": "2", "phase": "failed", "reason": "Timeout", "message": "<b>late" },
            ]},
            { "id": "3", "name": "notify", "phase": "new" },
        ]);
        let steps: Vec<StepStatus> = serde_json::from_value(steps).unwrap();
        let tree = of_steps(&steps);
        assert_eq!(lines(&tree), ["deploy Running", "  2 Failed", "notify Unknown"]);
        assert_eq!(tree.lines[1].item.message, "Timeout: <b>late");
    }

    #[test]
    fn components_of_app_k8s_io_link_to_other_applications() {
        let components = json!([
            { "kind": "Deployment", "group": "apps", "name": "web", "status": "InProgress" },
            { "kind": "Application", "group": "app.k8s.io", "name": "shop", "status": "Ready" },
            {},
        ]);
        let components: Vec<ComponentStatus> = serde_json::from_value(components).unwrap();
        let tree = of_app("/catalog", "team-a", &components);
        assert_eq!(lines(&tree), ["web In progress", "shop Ready", " Unknown"]);
        let links = tree.lines.iter().map(|line| line.item.link.as_deref());
        assert_eq!(
            links.collect::<Vec<_>>(),
            [None, Some("/catalog/applications/team-a/app/shop"), None]
        );
    }
}
