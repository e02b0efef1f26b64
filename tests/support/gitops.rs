//! Objects of Flux and Argo CD without their controllers. Their CRDs have the fields that Portolan reads: the API server drops
//! others.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::control_plane::ControlPlane;

/// Of charts in registries.
pub const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

#[derive(Clone, Copy)]
pub struct Kind {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
}

pub const HELM_RELEASE: Kind = Kind {
    group: "helm.toolkit.fluxcd.io",
    version: "v2",
    name: "HelmRelease",
    plural: "helmreleases",
};
pub const HELM_REPOSITORY: Kind = Kind {
    group: "source.toolkit.fluxcd.io",
    version: "v1",
    name: "HelmRepository",
    plural: "helmrepositories",
};
pub const OCI_REPOSITORY: Kind = Kind {
    group: "source.toolkit.fluxcd.io",
    version: "v1",
    name: "OCIRepository",
    plural: "ocirepositories",
};
pub const APPLICATION: Kind = Kind {
    group: "argoproj.io",
    version: "v1alpha1",
    name: "Application",
    plural: "applications",
};

/// Installs the kinds, which all tests of a control plane share.
pub async fn install_crds(control_plane: &ControlPlane) {
    let source = json!({ "kind": "", "name": "", "namespace": "" });
    let snapshot = json!({
        "name": "", "version": 0, "status": "", "chartName": "", "chartVersion": "", "ociDigest": "",
    });
    let helm_release = json!({
        "spec": {
            "chart": { "spec": { "chart": "", "sourceRef": source.clone() } }, "chartRef": source,
            "releaseName": "", "storageNamespace": "", "targetNamespace": "",
        },
        "status": { "storageNamespace": "", "history": [snapshot] },
    });
    let oci_repository = json!({
        "spec": { "url": "", "layerSelector": { "mediaType": "" } }, "status": { "artifact": { "revision": "" } },
    });
    let source = json!({ "repoURL": "", "chart": "", "targetRevision": "" });
    let application = json!({
        "spec": { "source": source.clone(), "sources": [source] },
        "status": {
            "sync": { "status": "", "revision": "", "revisions": [""] },
            "history": [{ "revision": "", "revisions": [""] }],
        },
    });
    for (kind, example) in [
        (HELM_RELEASE, helm_release),
        (HELM_REPOSITORY, json!({ "spec": { "url": "" } })),
        (OCI_REPOSITORY, oci_repository),
        (APPLICATION, application),
    ] {
        control_plane.install_crd(&kind.crd(&example)).await;
    }
}

impl Kind {
    fn crd(self, example: &Value) -> CustomResourceDefinition {
        let Self { group, plural, .. } = self;
        let names = json!({ "kind": self.name, "plural": plural, "singular": self.name.to_lowercase() });
        let version = json!({
            "name": self.version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema(example) },
        });
        let crd = json!({
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": { "group": group, "scope": "Namespaced", "names": names, "versions": [version] },
        });
        serde_json::from_value(crd).expect("a CRD")
    }

    pub fn objects(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.name);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        Api::namespaced_with(client.clone(), namespace, &resource)
    }

    /// Creates an object with this spec and status.
    pub async fn create(self, client: &Client, namespace: &str, name: &str, mut object: Value) {
        object["apiVersion"] = format!("{}/{}", self.group, self.version).into();
        object["kind"] = self.name.into();
        object["metadata"] = json!({ "name": name });
        let object = serde_json::from_value(object).expect("an object");
        let objects = self.objects(client, namespace);
        let created = objects.create(&PostParams::default(), &object).await;
        created.expect("the object is created");
    }

    /// Replaces the status, as its controller does.
    pub async fn report(self, client: &Client, namespace: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let objects = self.objects(client, namespace);
        let patched = objects.patch(name, &PatchParams::default(), &patch).await;
        patched.expect("the status is written");
    }
}

/// Returns the schema of objects that have the fields of an example.
fn schema(example: &Value) -> Value {
    match example {
        Value::Object(fields) => {
            let properties = fields.iter().map(|(name, value)| (name.clone(), schema(value)));
            let properties: Map<String, Value> = properties.collect();
            json!({ "type": "object", "properties": properties })
        }
        Value::Array(items) => json!({ "type": "array", "items": schema(&items[0]) }),
        Value::Number(_) => json!({ "type": "integer" }),
        _ => json!({ "type": "string" }),
    }
}
