//! Fixtures shared by the tests of pure modules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::readiness::{ComponentState, Readiness};
use super::spec::AppSpec;
use crate::api::NamespacedName;
use crate::runtime::watch::{GroupKind, KindState, KindView, Object, Resource};

mod owner_plan;
mod status;

/// An Application `shop` in the namespace `team` that selects `app: shop`.
fn app_spec(spec: Value) -> AppSpec {
    app_spec_named("shop", spec)
}

fn app_spec_named(name: &str, mut spec: Value) -> AppSpec {
    if spec.get("selector").is_none() {
        spec["selector"] = json!({ "matchLabels": { "app": "shop" } });
    }
    if spec.get("componentKinds").is_none() {
        let kinds = ["Service", "Pod", "Secret", "ConfigMap"].map(|kind| json!({ "group": "", "kind": kind }));
        let others = [
            ("apps", "Deployment"),
            ("batch", "Job"),
            ("example.com", "Widget"),
            ("app.k8s.io", "Application"),
        ];
        let others = others.map(|(group, kind)| json!({ "group": group, "kind": kind }));
        spec["componentKinds"] = kinds.into_iter().chain(others).collect();
    }
    let application = serde_json::from_value(json!({
        "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
        "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}") },
        "spec": spec
    }));
    let name = NamespacedName {
        namespace: "team".to_owned(),
        name: name.to_owned(),
    };
    AppSpec::of(&name, &application.unwrap())
}

fn readiness(state: ComponentState, message: &str) -> Readiness {
    Readiness {
        state,
        message: Some(message).filter(|message| !message.is_empty()).map(Into::into),
    }
}

fn ready() -> Readiness {
    readiness(ComponentState::Ready, "")
}

/// An object with the label `app: shop`.
fn object(name: &str, projection: Readiness) -> Object<Readiness> {
    labeled(name, "shop", projection)
}

fn labeled(name: &str, app: &str, projection: Readiness) -> Object<Readiness> {
    let meta = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("team".to_owned()),
        uid: Some(format!("uid-{name}")),
        labels: Some([("app".to_owned(), app.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Object::new(meta, projection)
}

fn view(kind: &GroupKind, objects: Vec<Object<Readiness>>) -> KindView<Readiness> {
    let gvk = kube::core::GroupVersionKind::gvk(&kind.group, "v1", &kind.kind);
    KindView {
        resource: Resource {
            api: kube::core::ApiResource::from_gvk(&gvk),
            is_namespaced: true,
            can_list: true,
        },
        objects: objects.into_iter().map(std::sync::Arc::new).collect(),
        polled: None,
    }
}

fn listed(group: &str, kind: &str, objects: Vec<Object<Readiness>>) -> (GroupKind, KindState<Readiness>) {
    let kind = GroupKind::new(group, kind);
    let state = KindState::Objects(view(&kind, objects));
    (kind, state)
}
