//! The AppRepository: a chart repository that is to be kept in the catalogue.

use std::collections::BTreeMap;

use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AppRepositoryStatus, SUSPEND, lenient};

/// The chart repository and how it is to be synced.
#[expect(clippy::duplicated_attributes, reason = "the columns are alike in their types")]
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
    doc = "A chart repository whose charts are kept in the catalogue.",
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
    /// The kind of repository: `helm` for one with an index, `oci` for a registry.
    #[serde(rename = "type", deserialize_with = "lenient::null_as_default")]
    #[schemars(extend("enum" = ["helm", "oci"]))]
    pub type_: String,

    /// The address of the repository; of an OCI registry `oci://`, `https://` or `http://`.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub url: String,

    /// What the repository is, for people.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,

    /// How to authenticate to the repository, and which authority to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,

    /// Image pull secrets for what is installed from the repository; syncs don't use them.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub docker_registry_secrets: Vec<String>,

    /// Does not verify the repository's certificate.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "lenient::is_false"
    )]
    pub tls_insecure_skip_verify: bool,

    /// Sends the credentials to other hosts too, where charts and icons may lie.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "lenient::is_false"
    )]
    pub pass_credentials: bool,

    /// How often to sync: a cron expression (`0 3 * * *`), in UTC, or a duration as Go writes it (`10m`).
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interval: String,

    /// Which charts are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_rule: Option<FilterRule>,

    /// Names of the repositories to take from an OCI registry, below the path of its URL.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub oci_repositories: Vec<String>,

    /// Any change of this number asks for a resync.
    // Always written, as by Kubeapps' clients; without a format, which Kubeapps' schema has not either.
    #[serde(default, deserialize_with = "lenient::integer")]
    #[schemars(schema_with = "integer_schema")]
    pub resync_requests: i64,

    /// The template of the pods in which Kubeapps ran its syncs. Of it the proxy variables and other environment count.
    // Kubeapps' controller has saved its own image, arguments and duplicate variables into the objects of its users:
    // any object is taken here, and readers pick what is the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template_schema")]
    pub sync_job_pod_template: Option<Value>,

    /// Stops syncing until it is false again; the charts stay as they are.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "lenient::is_false"
    )]
    pub suspend: bool,
}

/// How to authenticate to a repository, and which authority to trust.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// The credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<AuthHeader>,
    /// Certificates of authorities to trust beside the system's.
    #[serde(default, rename = "customCA", skip_serializing_if = "Option::is_none")]
    pub custom_ca: Option<AuthCustomCa>,
}

/// Where the credentials are.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthHeader {
    /// The key `.dockerconfigjson` holds a Docker configuration, any other the value of the `Authorization` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// Where the authorities' certificates are.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthCustomCa {
    /// A key that holds certificates in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A key of a Secret.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub name: String,
    /// The key in it.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub key: String,
}

impl SecretKeyRef {
    /// Whether it names anything: Go's clients write an empty one where there is none.
    fn is_set(&self) -> bool {
        !self.name.is_empty() || !self.key.is_empty()
    }
}

/// Which charts of a repository are taken.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterRule {
    /// A jq expression over a chart; a chart is taken where its first output is true.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub jq: String,
    /// Variables of the expression; the names include the `$`.
    #[serde(
        default,
        deserialize_with = "lenient::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub variables: BTreeMap<String, String>,
}

impl AppRepository {
    /// The reference to the credentials, where one is given.
    #[must_use]
    pub fn auth_header(&self) -> Option<&SecretKeyRef> {
        let header = self.spec.auth.as_ref()?.header.as_ref()?;
        header.secret_key_ref.as_ref().filter(|key| key.is_set())
    }

    /// The reference to the authorities' certificates, where one is given.
    #[must_use]
    pub fn custom_ca(&self) -> Option<&SecretKeyRef> {
        let custom_ca = self.spec.auth.as_ref()?.custom_ca.as_ref()?;
        custom_ca.secret_key_ref.as_ref().filter(|key| key.is_set())
    }

    /// Whether credentials or authorities are given. An empty `auth` is as none.
    #[must_use]
    pub fn auth_is_set(&self) -> bool {
        self.auth_header().is_some() || self.custom_ca().is_some()
    }

    /// The filter, where one is given. An empty expression is as none, whatever variables stand beside it.
    #[must_use]
    pub fn filter(&self) -> Option<&FilterRule> {
        self.spec.filter_rule.as_ref().filter(|rule| !rule.jq.trim().is_empty())
    }

    /// Whether a filter is given.
    #[must_use]
    pub fn filter_is_set(&self) -> bool {
        self.filter().is_some()
    }

    /// Whether syncs are stopped: by `spec.suspend`, or by the annotation [`SUSPEND`], which works under Kubeapps' own
    /// CRD too.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend || self.annotation(SUSPEND) == Some("true")
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations().get(name).map(String::as_str)
    }

    /// The repository's address without the white space around it, which Kubeapps takes off too.
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
    use serde_json::json;

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
    fn a_null_or_a_zero_value_is_as_an_absent_field(#[case] spec: Value) {
        let read = repository(&spec);
        assert!(!read.auth_is_set() && !read.filter_is_set() && !read.is_suspended());
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
    fn a_counter_of_resyncs_is_read_however_it_is_written(#[case] written: Value, #[case] read: i64) {
        assert_eq!(
            repository(&json!({ "resyncRequests": written })).spec.resync_requests,
            read
        );
    }

    #[test]
    fn what_is_no_value_of_its_field_is_refused() {
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
    fn an_object_as_kubeapps_dashboard_writes_it_is_read() {
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
            read.spec.sync_job_pod_template.unwrap()["spec"]["containers"],
            Value::Null
        );
    }

    #[test]
    fn a_pod_template_that_kubeapps_controller_has_filled_is_kept_as_it_is() {
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
    fn an_object_with_everything_set_survives_a_round_trip() {
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
        assert!(read.auth_is_set() && read.filter_is_set() && read.is_suspended());
        assert_eq!(read.auth_header().unwrap().key, "authorizationHeader");
        assert_eq!(read.custom_ca().unwrap().key, "ca.crt");
        assert_eq!(read.url(), "oci://registry.example.com/charts");
        assert_eq!(serde_json::to_value(&read).unwrap(), object(&spec));
    }

    #[test]
    fn an_object_with_nothing_set_is_written_as_kubeapps_writes_it() {
        let written = serde_json::to_value(repository(&json!({}))).unwrap();
        assert_eq!(written, object(&json!({ "resyncRequests": 0 })));
    }

    #[rstest]
    #[case(json!({}), json!({}), false)]
    #[case(json!({ "suspend": true }), json!({}), true)]
    #[case(json!({}), json!({ SUSPEND: "true" }), true)]
    #[case(json!({ "suspend": true }), json!({ SUSPEND: "false" }), true)]
    #[case(json!({}), json!({ SUSPEND: "yes" }), false)]
    fn a_repository_is_suspended_if_spec_or_annotation_says_so(
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
    fn a_status_of_any_shape_never_fails_its_object(#[case] status: Value) {
        let mut written = object(&json!({}));
        written["status"] = status;
        let read: AppRepository = serde_json::from_value(written).unwrap();
        assert_eq!(read.status, Some(AppRepositoryStatus::default()));
    }

    #[test]
    fn the_kind_is_kubeapps_own() {
        assert_eq!(AppRepository::api_version(&()), "kubeapps.com/v1alpha1");
        assert_eq!(AppRepository::kind(&()), "AppRepository");
        assert_eq!(AppRepository::plural(&()), "apprepositories");
    }
}
