//! Builds CronJobs and Jobs. Pure: from the spec of a repository and the operator's settings.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::JobSettings;
use super::expansion::escape;
use super::names::{cleanup_job, cron_job, labels, sync_job};
use super::template::{PodParts, Resources, TemplatePolicy};
use crate::api::jobs::{REPOSITORY, REPOSITORY_GENERATION, REPOSITORY_UID, START_DELAY};
use crate::api::{NamespacedName, SecretKeyRef};
use crate::controllers::apprepository::spec::RepositorySpec;

/// The path at which Kubeapps mounts the certificate authority of a repository; `portolan sync` reads it.
const CA_DIRECTORY: &str = "/usr/local/share/ca-certificates";
/// Key of a Docker configuration, as in Kubeapps.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// Bytes of the temporary files of a sync.
const TMP_BYTES: &str = "2Gi";

/// Keys of Secrets in Portolan's namespace with the credentials of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSecrets {
    pub header: Option<SecretKeyRef>,
    pub ca: Option<SecretKeyRef>,
}

#[derive(Clone, Debug)]
pub struct JobRepository<'a> {
    pub spec: &'a RepositorySpec,
    pub parts: &'a PodParts,
    pub secrets: &'a JobSecrets,
    /// Marks the rows; see `origin::Origin::id`.
    pub origin: &'a str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRun {
    /// Identifies the request: the same request has the same Job.
    pub request: String,
    /// The UID of the stored rows, which the repository takes over.
    pub replaces_uid: Option<String>,
    /// The revision of the stored rows of a later generation, which the API server does not know since a restore.
    pub replaces_revision: Option<i64>,
}

impl JobSettings {
    #[must_use]
    pub fn cron_job(&self, repository: &JobRepository<'_>, schedule: &str) -> Value {
        let spec = repository.spec;
        let mut spec_of_job = self.job_spec(self.sync_pod(repository, None), self.deadline_seconds);
        // Released within the limits of unfinished Jobs; see `admission`.
        spec_of_job["suspend"] = json!(true);
        let mut annotations = self.annotations(spec);
        annotations.insert(START_DELAY.to_owned(), spec.jitter().as_secs().to_string());
        json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": self.metadata(&cron_job(&spec.name), spec),
            "spec": {
                "schedule": schedule,
                "suspend": spec.suspended,
                "concurrencyPolicy": self.concurrency_policy,
                "successfulJobsHistoryLimit": self.successful_history,
                "failedJobsHistoryLimit": self.failed_history,
                "jobTemplate": {
                    "metadata": { "labels": self.labels(&spec.name), "annotations": annotations },
                    "spec": spec_of_job,
                },
            },
        })
    }

    #[must_use]
    pub fn sync_job(&self, repository: &JobRepository<'_>, run: &SyncRun) -> Value {
        let spec = repository.spec;
        let mut spec_of_job = self.job_spec(self.sync_pod(repository, Some(run)), self.deadline_seconds);
        spec_of_job["suspend"] = json!(true);
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(&sync_job(&spec.name, &run.request), spec),
            "spec": spec_of_job,
        })
    }

    /// Returns the Job that removes the charts of a deleted repository. Nothing in it is the tenant's choice but names.
    #[must_use]
    pub fn cleanup_job(&self, name: &NamespacedName, uid: &str, deadline_seconds: u64) -> Value {
        let mut arguments = vec![
            "delete".to_owned(),
            name.name.clone(),
            format!("--namespace={}", name.namespace),
        ];
        arguments.extend(self.database_arguments());
        arguments.push(format!("--uid={uid}"));
        let arguments = arguments.iter().map(|argument| escape(argument)).collect();
        let parts = PodParts {
            resources: self.resources.clone(),
            ..PodParts::default()
        };
        let mut pod = self.pod("delete", arguments, name, &parts, &JobSecrets::default());
        pod["metadata"]["annotations"] = json!(self.annotations_of(name, uid));
        pod["spec"]["restartPolicy"] = json!("Never");
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": cleanup_job(name, uid),
                "namespace": self.namespace,
                "labels": self.labels(name),
                "annotations": self.annotations_of(name, uid),
            },
            "spec": self.job_spec(pod, Some(deadline_seconds)),
        })
    }

    fn metadata(&self, name: &str, spec: &RepositorySpec) -> Value {
        let mut metadata = json!({
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(&spec.name),
            "annotations": self.annotations(spec),
        });
        // An owner in another namespace is not allowed; the labels are the link then.
        if spec.name.namespace == self.namespace {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "kubeapps.com/v1alpha1",
                "kind": "AppRepository",
                "name": spec.name.name,
                "uid": spec.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }]);
        }
        metadata
    }

    fn labels(&self, name: &NamespacedName) -> BTreeMap<String, String> {
        let mut all = self.labels.clone();
        all.extend(labels(name));
        all
    }

    fn annotations(&self, spec: &RepositorySpec) -> BTreeMap<String, String> {
        let mut all = self.annotations_of(&spec.name, &spec.uid);
        let generation = spec.generation.unwrap_or_default().to_string();
        all.insert(REPOSITORY_GENERATION.to_owned(), generation);
        all
    }

    fn annotations_of(&self, name: &NamespacedName, uid: &str) -> BTreeMap<String, String> {
        let mut all = self.annotations.clone();
        all.insert(REPOSITORY.to_owned(), name.to_string());
        all.insert(REPOSITORY_UID.to_owned(), uid.to_owned());
        all
    }

    fn job_spec(&self, pod: Value, deadline_seconds: Option<u64>) -> Value {
        let mut spec = json!({ "template": pod });
        if let Some(seconds) = self.ttl_seconds {
            spec["ttlSecondsAfterFinished"] = json!(seconds);
        }
        if let Some(seconds) = deadline_seconds {
            spec["activeDeadlineSeconds"] = json!(seconds);
        }
        spec
    }

    fn sync_pod(&self, repository: &JobRepository<'_>, run: Option<&SyncRun>) -> Value {
        let JobRepository { spec, parts, .. } = repository;
        let arguments = self.sync_arguments(repository, run);
        let parts = &PodParts {
            env: [self.proxy_variables(spec), parts.env.clone()].concat(),
            ..(*parts).clone()
        };
        let mut pod = self.pod("sync", arguments, &spec.name, parts, repository.secrets);
        let mut annotations = parts.annotations.clone();
        annotations.extend(self.annotations(spec));
        pod["metadata"]["annotations"] = json!(annotations);
        pod["spec"]["restartPolicy"] = json!("OnFailure");
        pod
    }

    /// The operator's proxies are variables. Proxies of a repository are flags, which obey the address policy.
    fn proxy_variables(&self, spec: &RepositorySpec) -> Vec<Value> {
        let of_repository = (spec.access.proxies.as_ref()).filter(|_| self.template != TemplatePolicy::None);
        let all = [("", Some(&self.proxies)), ("PORTOLAN_", of_repository)];
        let declared = all.into_iter().filter_map(|(prefix, proxies)| Some((prefix, proxies?)));
        declared
            .flat_map(|(prefix, proxies)| {
                let values = [
                    ("HTTP_PROXY", &proxies.http),
                    ("HTTPS_PROXY", &proxies.https),
                    ("NO_PROXY", &proxies.no_proxy),
                ];
                let values = values
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value.as_ref()?)));
                values.map(move |(name, value)| json!({ "name": format!("{prefix}{name}"), "value": escape(value) }))
            })
            .collect()
    }

    fn sync_arguments(&self, repository: &JobRepository<'_>, run: Option<&SyncRun>) -> Vec<String> {
        let spec = repository.spec;
        let mut arguments = vec!["sync".to_owned()];
        arguments.extend(self.database_arguments());
        arguments.extend(self.flags_for(spec));
        arguments.push(format!("--namespace={}", spec.name.namespace));
        let positional = [spec.name.name.as_str(), &spec.url, spec.kind.as_str()];
        arguments.extend(positional.map(str::to_owned));
        if !spec.oci_repositories.is_empty() {
            let names: Vec<String> = spec.oci_repositories.iter().map(|name| csv_field(name)).collect();
            arguments.push(format!("--oci-repositories={}", names.join(",")));
        }
        if spec.access.insecure {
            arguments.push("--tls-insecure-skip-verify".to_owned());
        }
        if spec.access.pass_credentials {
            arguments.push("--pass-credentials".to_owned());
        }
        if let Some(rule) = &spec.filter {
            let mut filter = Map::from_iter([("jq".to_owned(), json!(rule.jq))]);
            if !rule.variables.is_empty() {
                filter.insert("variables".to_owned(), json!(rule.variables));
            }
            arguments.extend(["--filter-rules".to_owned(), Value::from(filter).to_string()]);
        }
        arguments.extend(self.identity_arguments(repository, run));
        arguments.iter().map(|argument| escape(argument)).collect()
    }

    /// Returns the flags that bind the rows of the Job to the declared repository.
    fn identity_arguments(&self, repository: &JobRepository<'_>, run: Option<&SyncRun>) -> Vec<String> {
        let spec = repository.spec;
        let mut arguments = vec![
            format!("--uid={}", spec.uid),
            format!("--generation={}", spec.generation.unwrap_or_default()),
            format!("--spec-hash={}", spec.spec_hash),
            format!("--origin={}", repository.origin),
        ];
        let mut optional = |flag: &str, value: Option<&str>| {
            arguments.extend(value.map(|value| format!("--{flag}={value}")));
        };
        optional("schedule", spec.schedule.as_deref());
        let sinks = (!spec.news_sinks.is_empty()).then(|| spec.news_sinks.join(","));
        optional("news-sinks", sinks.as_deref());
        if let Some(run) = run {
            let requests = &spec.requests;
            optional("resync-requests", Some(&requests.resync_requests.to_string()));
            optional("requested-at", requests.requested_at.as_deref());
            optional("flux-requested-at", requests.flux_requested_at.as_deref());
            optional("poll-at", requests.poll_at.as_deref());
            optional("allow-shrink", spec.allow_shrink.as_deref());
            optional("replaces-uid", run.replaces_uid.as_deref());
            let revision = run.replaces_revision.map(|revision| revision.to_string());
            optional("replaces-revision", revision.as_deref());
        }
        arguments
    }

    fn database_arguments(&self) -> Vec<String> {
        let database = &self.database;
        vec![
            format!("--database-url={}", database.url),
            format!("--database-user={}", database.user),
            format!("--database-name={}", database.name),
        ]
    }

    /// Returns the operator's flags for syncs, lowered by the annotations of the repository.
    fn flags_for(&self, spec: &RepositorySpec) -> Vec<String> {
        let mut flags: BTreeMap<&str, String> = BTreeMap::new();
        for (flag, value) in &self.sync_flags {
            flags.insert(flag, value.clone());
        }
        if spec.index_max_bytes != self.index_max_bytes {
            flags.insert("index-max-bytes", spec.index_max_bytes.to_string());
        }
        if let Some(timeout) = spec
            .fetch_timeout
            .filter(|timeout| !timeout.is_zero() && *timeout < self.fetch_timeout)
        {
            flags.insert("fetch-timeout", format!("{}s", timeout.as_secs().max(1)));
        }
        flags
            .into_iter()
            .map(|(flag, value)| format!("--{flag}={value}"))
            .collect()
    }

    fn pod(
        &self,
        container: &str,
        arguments: Vec<String>,
        name: &NamespacedName,
        parts: &PodParts,
        secrets: &JobSecrets,
    ) -> Value {
        let mut labels = parts.labels.clone();
        labels.extend(self.labels(name));
        let mut volumes = vec![json!({ "name": "tmp", "emptyDir": { "sizeLimit": TMP_BYTES } })];
        let mut mounts = vec![json!({ "name": "tmp", "mountPath": "/tmp" })];
        if let Some(ca) = &secrets.ca {
            let items = json!([{ "key": ca.key, "path": "ca.crt" }]);
            volumes.push(json!({ "name": "ca", "secret": { "secretName": ca.name, "items": items } }));
            mounts.push(json!({ "name": "ca", "mountPath": CA_DIRECTORY, "readOnly": true }));
        }
        let mut spec = parts.spec.clone();
        spec.extend(object(json!({
            "containers": [{
                "name": container,
                "image": self.image,
                "imagePullPolicy": "IfNotPresent",
                "command": [self.command],
                "args": arguments,
                "env": self.variables(parts, secrets),
                "resources": resources(&parts.resources),
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "readOnlyRootFilesystem": true,
                },
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
        })));
        let mut context = parts.security_context.clone();
        context.extend(object(
            json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } }),
        ));
        spec.insert("securityContext".to_owned(), Value::from(context));
        if !self.pull_secrets.is_empty() {
            let names = self.pull_secrets.iter().map(|name| json!({ "name": name }));
            spec.insert("imagePullSecrets".to_owned(), names.collect());
        }
        json!({ "metadata": { "labels": labels }, "spec": spec })
    }

    fn variables(&self, parts: &PodParts, secrets: &JobSecrets) -> Vec<Value> {
        let mut variables = parts.env.clone();
        if let Some(password) = &self.database.secret {
            variables.push(secret_variable("DB_PASSWORD", password));
        }
        if let Some(header) = &secrets.header {
            let variable = if header.key == DOCKER_CONFIG {
                "DOCKER_CONFIG_JSON"
            } else {
                "AUTHORIZATION_HEADER"
            };
            variables.push(secret_variable(variable, header));
        }
        variables
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn secret_variable(variable: &str, secret: &SecretKeyRef) -> Value {
    json!({ "name": variable, "valueFrom": { "secretKeyRef": { "name": secret.name, "key": secret.key } } })
}

fn resources(resources: &Resources) -> Value {
    let mut fields = Map::new();
    for (kind, values) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        if !values.is_empty() {
            fields.insert(kind.to_owned(), json!(values));
        }
    }
    Value::from(fields)
}

/// Quotes a field of a CSV record, so that a name with a comma stays one name.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"']) || text.is_empty() {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
