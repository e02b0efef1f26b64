//! Objects in namespaces of a control plane, written as an administrator.

use std::ops::Range;

use futures::{StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;

use crate::support::control_plane::ControlPlane;

pub const DEPLOYMENT: &str = "apps/v1 Deployment";
const CONCURRENCY: usize = 16;

/// Namespaces in which numbered objects take turns. A kind is written as `apps/v1 Deployment`.
#[derive(Clone)]
pub struct Namespaces {
    pub names: Vec<String>,
    client: Client,
}

impl Namespaces {
    pub async fn new(control_plane: &ControlPlane, count: usize) -> Self {
        let names = stream::iter(0..count).then(|_| control_plane.namespace());
        Self {
            names: names.collect().await,
            client: control_plane.client().await,
        }
    }

    /// Creates the same namespaces in another cluster.
    pub async fn same_in(&self, control_plane: &ControlPlane) -> Self {
        for name in &self.names {
            control_plane.kubectl(&["create", "namespace", name]).await;
        }
        Self {
            names: self.names.clone(),
            client: control_plane.client().await,
        }
    }

    pub fn of(&self, number: usize, kind: &str) -> Api<DynamicObject> {
        self.within(&self.names[number % self.names.len()], kind)
    }

    pub fn within(&self, namespace: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }

    /// Returns the objects of the only namespace, or of the whole cluster.
    pub fn all(&self, kind: &str) -> Api<DynamicObject> {
        match self.names.len() {
            1 => self.of(0, kind),
            _ => Api::all_with(self.client.clone(), &resource(kind)),
        }
    }

    pub async fn list(&self, kind: &str) -> Vec<DynamicObject> {
        let list = self.all(kind).list(&ListParams::default()).await;
        list.expect("the API server lists objects").items
    }

    pub async fn create(&self, number: usize, kind: &str, mut object: Value) {
        let (version, bare) = kind.split_once(' ').expect("a version and a kind");
        object["apiVersion"] = version.into();
        object["kind"] = bare.into();
        let object = serde_json::from_value(object).expect("an object");
        let created = self.of(number, kind).create(&PostParams::default(), &object).await;
        created.expect("the API server accepts an object");
    }
}

/// Patches an object, or its status if the patch has one.
pub async fn patch(objects: &Api<DynamicObject>, name: &str, patch: Value) {
    let (parameters, is_status) = (PatchParams::default(), patch.get("status").is_some());
    let patch = Patch::Merge(patch);
    let patched = if is_status {
        objects.patch_status(name, &parameters, &patch).await
    } else {
        objects.patch(name, &parameters, &patch).await
    };
    patched.expect("the API server accepts a patch");
}

pub async fn each(numbers: Range<usize>, work: impl AsyncFn(usize)) {
    stream::iter(numbers)
        .for_each_concurrent(CONCURRENCY, async |number| work(number).await)
        .await;
}

fn resource(kind: &str) -> ApiResource {
    let (version, kind) = kind.split_once(' ').expect("a version and a kind");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
