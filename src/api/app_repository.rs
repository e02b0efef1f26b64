//! The AppRepository: a chart repository to sync into the catalog.

use std::collections::BTreeMap;

use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::lenient::{self, is_false, null_as_default};
use super::{AppRepositoryStatus, PodTemplate, SUSPEND};

/// Specification of a chart repository.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kubeapps.com",
    version = "v1alpha1",
    kind = "AppRepository",
    plural = "apprepositories",
    shortname = "apprepos",
    namespaced,
    status = "AppRepositoryStatus",
    derive = "PartialEq",
    doc = "A chart repository that is synced into the catalog.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".status.suspended"),
    printcolumn(name = "Charts", type_ = "integer", json_path = ".status.lastSync.charts"),
    printcolumn(name = "Last sync", type_ = "date", json_path = ".status.lastSyncTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AppRepositorySpec {
    /// Type of the repository: `helm` for an index, `oci` for a registry.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    #[schemars(extend("enum" = ["helm", "oci"]))]
    pub type_: String,

    /// URL of the repository. OCI registries use `oci://`, `https://` or `http://`.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,

    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,

    /// Credentials and certificate authority of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,

    /// Image pull secrets for releases installed from the repository. Not used by syncs.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub docker_registry_secrets: Vec<String>,

    /// Skips verification of the repository's certificate.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub tls_insecure_skip_verify: bool,

    /// Also sends the credentials to other hosts that serve charts or icons.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub pass_credentials: bool,

    /// Sync interval: a cron expression in UTC (`0 3 * * *`) or a Go duration (`10m`).
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interval: String,

    /// Filter of charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_rule: Option<FilterRule>,

    /// Names of the repositories to sync from an OCI registry, relative to the path of its URL.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub oci_repositories: Vec<String>,

    /// Any change of this number requests a resync.
    // Always serialized, and without a format in the schema, as in Kubeapps.
    #[serde(default, deserialize_with = "lenient::integer")]
    #[schemars(schema_with = "integer_schema")]
    pub resync_requests: i64,

    /// Pod template of Kubeapps' sync jobs. Only proxy variables and other environment variables are used.
    // Accepts any object, because Kubeapps' controller stored its own image, arguments and duplicate variables here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template_schema")]
    pub sync_job_pod_template: Option<PodTemplate>,

    /// Suspends syncs. Charts remain in the catalog.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// Credentials and certificate authority of a repository.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<AuthHeader>,
    /// Additional certificate authorities to trust.
    #[serde(default, rename = "customCA", skip_serializing_if = "Option::is_none")]
    pub custom_ca: Option<AuthCustomCa>,
}

/// Source of the credentials.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthHeader {
    /// The key `.dockerconfigjson` contains a Docker configuration, any other key an `Authorization` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// Source of the certificates.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthCustomCa {
    /// Key with certificates in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A key of a Secret.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub key: String,
}

impl SecretKeyRef {
    /// Returns false for empty references, which Go clients write instead of omitting them.
    fn is_set(&self) -> bool {
        !self.name.is_empty() || !self.key.is_empty()
    }
}

/// Filter of charts.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterRule {
    /// jq expression evaluated for each chart. The chart is kept if the first output is true.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub jq: String,
    /// Variables of the expression. Names include the `$`.
    #[serde(
        default,
        deserialize_with = "lenient::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub variables: BTreeMap<String, String>,
}

impl AppRepository {
    /// Returns the reference to the credentials unless it is empty.
    #[must_use]
    pub fn auth_header(&self) -> Option<&SecretKeyRef> {
        let header = self.spec.auth.as_ref()?.header.as_ref()?;
        header.secret_key_ref.as_ref().filter(|key| key.is_set())
    }

    /// Returns the reference to the certificates unless it is empty.
    #[must_use]
    pub fn custom_ca(&self) -> Option<&SecretKeyRef> {
        let custom_ca = self.spec.auth.as_ref()?.custom_ca.as_ref()?;
        custom_ca.secret_key_ref.as_ref().filter(|key| key.is_set())
    }

    /// Returns the filter unless its expression is empty.
    #[must_use]
    pub fn filter(&self) -> Option<&FilterRule> {
        self.spec.filter_rule.as_ref().filter(|rule| !rule.jq.trim().is_empty())
    }

    /// Returns true if `spec.suspend` or the annotation [`SUSPEND`] is set. Kubeapps' own CRD prunes the field.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend || self.annotation(SUSPEND) == Some("true")
    }

    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations().get(name).map(String::as_str)
    }

    /// Returns the URL without surrounding whitespace, as Kubeapps does.
    #[must_use]
    pub fn url(&self) -> &str {
        self.spec.url.trim()
    }
}

fn integer_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

fn pod_template_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "metadata": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    })
}

#[cfg(test)]
mod tests {
    use kube::Resource;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::AppRepositoryStatus;

    fn object(spec: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "kubeapps.com/v1alpha1",
            "kind": "AppRepository",
            "metadata": { "name": "charts", "namespace": "team-a" },
            "spec": { "type": "helm", "url": "https://charts.example.com" },
        });
        for (name, value) in spec.as_object().into_iter().flatten() {
            object["spec"][name] = value.clone();
        }
        object
    }

    fn repository(spec: &Value) -> AppRepository {
        serde_json::from_value(object(spec)).unwrap()
    }

    #[rstest]
    #[case::auth(json!({ "auth": {} }))]
    #[case::auth_parts(json!({ "auth": { "header": {}, "customCA": {} } }))]
    #[case::auth_null_parts(json!({ "auth": { "header": null, "customCA": { "secretKeyRef": null } } }))]
    #[case::auth_zero(json!({ "auth": { "header": { "secretKeyRef": { "name": "", "key": "" } } } }))]
    #[case::auth_null_names(json!({ "auth": { "header": { "secretKeyRef": { "name": null, "key": null } } } }))]
    #[case::filter(json!({ "filterRule": { "jq": "" } }))]
    #[case::filter_null(json!({ "filterRule": { "jq": null, "variables": null } }))]
    #[case::filter_blank(json!({ "filterRule": { "jq": " ", "variables": { "$var0": "a" } } }))]
    #[case::filter_variables(json!({ "filterRule": { "variables": { "$var0": null } } }))]
    #[case::nulls(json!({
        "description": null, "auth": null, "dockerRegistrySecrets": null, "tlsInsecureSkipVerify": null, "interval": null,
        "passCredentials": null, "filterRule": null, "ociRepositories": null, "resyncRequests": null,
        "syncJobPodTemplate": null, "suspend": null,
    }))]
    #[case::zeros(json!({
        "description": "", "dockerRegistrySecrets": [], "tlsInsecureSkipVerify": false, "interval": "",
        "passCredentials": false, "ociRepositories": [null], "resyncRequests": 0, "suspend": false,
    }))]
    fn null_and_zero_values_mean_absent_fields(#[case] spec: Value) {
        let read = repository(&spec);
        assert!(read.auth_header().is_none() && read.custom_ca().is_none() && read.filter().is_none());
        assert!(!read.is_suspended());
        let bare = AppRepositorySpec {
            auth: None,
            filter_rule: None,
            ..read.spec
        };
        assert_eq!(bare, repository(&json!({})).spec);
    }

    #[rstest]
    #[case(json!(0), 0)]
    #[case(json!(7), 7)]
    #[case(json!(3.0), 3)]
    #[case(json!(-1), -1)]
    #[case(json!(u64::MAX), i64::MAX)]
    #[case(json!(1e30), i64::MAX)]
    fn resync_requests_accepts_all_numbers(#[case] written: Value, #[case] read: i64) {
        assert_eq!(
            repository(&json!({ "resyncRequests": written })).spec.resync_requests,
            read
        );
    }

    #[test]
    fn values_of_the_wrong_type_are_rejected() {
        for spec in [
            json!({ "resyncRequests": 1.5 }),
            json!({ "resyncRequests": "1" }),
            json!({ "url": 7 }),
            json!({ "ociRepositories": "a" }),
            json!({ "suspend": "true" }),
            json!({ "auth": [1] }),
        ] {
            assert!(
                serde_json::from_value::<AppRepository>(object(&spec)).is_err(),
                "{spec}"
            );
        }
        let without_url = json!({ "metadata": { "name": "a" }, "spec": { "type": "helm" } });
        let error = serde_json::from_value::<AppRepository>(without_url).unwrap_err();
        assert!(error.to_string().contains("url"), "{error}");
    }

    #[test]
    fn objects_of_the_kubeapps_dashboard_are_decoded() {
        let mut written = object(&json!({
            "auth": {},
            "description": "",
            "filterRule": { "jq": "" },
            "interval": "10m",
            "resyncRequests": 0,
            "syncJobPodTemplate": { "metadata": { "creationTimestamp": null }, "spec": { "containers": null } },
        }));
        written["metadata"]["creationTimestamp"] = Value::Null;
        written["status"] = json!({ "status": "" });
        let read: AppRepository = serde_json::from_value(written).unwrap();
        assert_eq!(read.spec.interval, "10m");
        assert_eq!(
            read.status,
            Some(AppRepositoryStatus {
                status: Some(String::new()),
                ..Default::default()
            })
        );
        assert_eq!(
            read.spec.sync_job_pod_template.unwrap().parse().unwrap()["spec"]["containers"],
            Value::Null
        );
    }

    #[test]
    fn pod_templates_of_kubeapps_controller_are_preserved() {
        let template = json!({ "spec": { "containers": [
            { "image": "x", "env": [{ "name": "DB_PASSWORD" }, { "name": "DB_PASSWORD" }, { "name": "https_proxy" }] },
        ] } });
        let read = repository(&json!({ "syncJobPodTemplate": template }));
        assert_eq!(
            serde_json::to_value(read).unwrap()["spec"]["syncJobPodTemplate"],
            template
        );
    }

    #[test]
    fn a_complete_object_survives_a_round_trip() {
        let spec = json!({
            "type": "oci",
            "url": " oci://registry.example.com/charts ",
            "description": "everything set",
            "auth": {
                "header": { "secretKeyRef": { "name": "auth", "key": "authorizationHeader" } },
                "customCA": { "secretKeyRef": { "name": "auth", "key": "ca.crt" } },
            },
            "dockerRegistrySecrets": ["pull-1"],
            "tlsInsecureSkipVerify": true,
            "passCredentials": true,
            "interval": "2h",
            "filterRule": { "jq": ".name == $var0", "variables": { "$var0": "loki" } },
            "ociRepositories": ["a", "b/c"],
            "resyncRequests": 1,
            "syncJobPodTemplate": { "spec": { "nodeSelector": { "disk": "ssd" } } },
            "suspend": true,
        });
        let read = repository(&spec);
        assert!(read.auth_header().is_some() || read.custom_ca().is_some());
        assert!(read.filter().is_some() && read.is_suspended());
        assert_eq!(read.auth_header().unwrap().key, "authorizationHeader");
        assert_eq!(read.custom_ca().unwrap().key, "ca.crt");
        assert_eq!(read.url(), "oci://registry.example.com/charts");
        assert_eq!(serde_json::to_value(&read).unwrap(), object(&spec));
    }

    #[test]
    fn a_minimal_object_is_serialized_as_in_kubeapps() {
        let written = serde_json::to_value(repository(&json!({}))).unwrap();
        assert_eq!(written, object(&json!({ "resyncRequests": 0 })));
    }

    #[rstest]
    #[case(json!({}), json!({}), false)]
    #[case(json!({ "suspend": true }), json!({}), true)]
    #[case(json!({}), json!({ SUSPEND: "true" }), true)]
    #[case(json!({ "suspend": true }), json!({ SUSPEND: "false" }), true)]
    #[case(json!({}), json!({ SUSPEND: "yes" }), false)]
    fn a_repository_is_suspended_by_spec_or_annotation(
        #[case] spec: Value,
        #[case] annotations: Value,
        #[case] suspended: bool,
    ) {
        let mut written = object(&spec);
        written["metadata"]["annotations"] = annotations;
        let read: AppRepository = serde_json::from_value(written).unwrap();
        assert_eq!(read.is_suspended(), suspended);
    }

    #[rstest]
    #[case(json!({}))]
    #[case(json!({ "status": null, "conditions": null, "lastSync": null, "observedGeneration": null }))]
    #[case(json!({ "conditions": [{ "type": "Ready" }], "lastSyncTime": "yesterday", "suspended": "no" }))]
    #[case(json!({ "conditions": "none", "lastSync": 7, "observedGeneration": "x", "status": {} }))]
    #[case(json!({ "phase": "of another controller" }))]
    fn an_invalid_status_does_not_fail_the_object(#[case] status: Value) {
        let mut written = object(&json!({}));
        written["status"] = status;
        let read: AppRepository = serde_json::from_value(written).unwrap();
        assert_eq!(read.status, Some(AppRepositoryStatus::default()));
    }

    #[test]
    fn group_and_kind_are_those_of_kubeapps() {
        assert_eq!(AppRepository::api_version(&()), "kubeapps.com/v1alpha1");
        assert_eq!(AppRepository::kind(&()), "AppRepository");
        assert_eq!(AppRepository::plural(&()), "apprepositories");
    }
}
