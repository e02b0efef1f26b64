//! CronJobs and Jobs equal those that Kubeapps' controller created, but for the exceptions in docs/reference/kubeapps.md.

mod recorded;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::api::{AppRepository, PodTemplate, SecretKeyRef};
use crate::controllers::apprepository::jobs::objects::{JobRepository, JobSecrets, SyncRun};
use crate::controllers::apprepository::jobs::template::merge;
use crate::controllers::apprepository::spec::{Defaults, RepositorySpec};

/// The settings of the Kubeapps that created the goldens.
fn kubeapps() -> JobSettings {
    JobSettings {
        executor: Executor::Job,
        allow_annotation: false,
        namespace: "kubeapps".to_owned(),
        image: "docker.io/bitnami/kubeapps-asset-syncer:2.12.1".to_owned(),
        command: "/asset-syncer".to_owned(),
        pull_secrets: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        successful_history: 3,
        failed_history: 1,
        ttl_seconds: Some(3600),
        deadline_seconds: None,
        concurrency_policy: "Replace",
        resources: Resources::default(),
        template: TemplatePolicy::Full,
        template_limit: 64 << 10,
        limits: JobLimits {
            total: 20,
            per_namespace: 5,
        },
        database: DatabaseAccess {
            url: "kubeapps-postgresql:5432".to_owned(),
            user: "postgres".to_owned(),
            name: "assets".to_owned(),
            secret: Some(SecretKeyRef {
                name: "kubeapps-postgresql".to_owned(),
                key: "postgres-password".to_owned(),
            }),
        },
        proxies: Proxies::default(),
        sync_flags: vec![("user-agent-comment".to_owned(), "kubeapps/2.12.1".to_owned())],
        index_max_bytes: 100 << 20,
        fetch_timeout: Duration::from_secs(180),
    }
}

fn repository(namespace: &str, name: &str, spec: Value) -> AppRepository {
    serde_json::from_value(json!({
        "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
        "metadata": { "namespace": namespace, "name": name, "uid": "efa92175-0511-447e-b9a0-d567fc50df0d", "generation": 2 },
        "spec": spec,
    }))
    .unwrap()
}

/// The repositories of the goldens.
fn plain() -> AppRepository {
    repository(
        "kubeapps",
        "plain",
        json!({ "type": "helm", "url": "https://charts.example.test/plain" }),
    )
}

fn full(name: &str, containers: Value) -> AppRepository {
    let key = |key: &str| json!({ "secretKeyRef": { "name": "full-auth", "key": key } });
    let spec = json!({
        "type": "helm", "url": "https://charts.example.test/full", "description": "everything set", "interval": "2h",
        "resyncRequests": 1, "passCredentials": true, "tlsInsecureSkipVerify": true,
        "auth": { "header": key("authorizationHeader"), "customCA": key("ca.crt") },
        "filterRule": { "jq": ".name == $var1 or .name == $var2", "variables": { "$var1": "loki", "$var2": "tempo" } },
        "dockerRegistrySecrets": ["pull-1"],
        "syncJobPodTemplate": {
            "metadata": { "labels": { "pod-label": "a" }, "annotations": { "pod-annotation": "b" } },
            "spec": {
                "nodeSelector": { "disk": "ssd" }, "tolerations": [{ "key": "k", "operator": "Exists" }],
                "securityContext": { "runAsUser": 1001 }, "containers": containers,
            },
        },
    });
    repository("team-a", name, spec)
}

fn with_proxy() -> AppRepository {
    full(
        "full",
        json!([{
            "env": [{ "name": "https_proxy", "value": "http://proxy.example.test:3128" }],
            "resources": { "limits": { "memory": "256Mi" } },
        }]),
    )
}

struct Objects {
    cron_job: Value,
    job: Value,
    cleanup_job: Value,
}

fn objects(settings: &JobSettings, object: &AppRepository) -> Objects {
    let spec = RepositorySpec::of(object, &Defaults::usual(), false);
    let template = object.spec.sync_job_pod_template.as_ref().and_then(PodTemplate::parse);
    let parts = merge(template.as_ref(), settings.template, &settings.resources).unwrap();
    let copy = |key: &SecretKeyRef| SecretKeyRef {
        name: format!("{}-apprepo-{}", spec.name.namespace, spec.name.name),
        key: key.key.clone(),
    };
    let secrets = JobSecrets {
        header: spec.access.auth_header.as_ref().map(copy),
        ca: spec.access.custom_ca.as_ref().map(copy),
    };
    let repository = JobRepository {
        spec: &spec,
        parts: &parts,
        secrets: &secrets,
        origin: "cluster",
    };
    let schedule = spec.cron.for_kubernetes().unwrap();
    Objects {
        cron_job: settings.cron_job(&repository, &schedule),
        job: settings.sync_job(&repository, &SyncRun::default()),
        cleanup_job: settings.cleanup_job(&spec.name, &spec.uid, 120),
    }
}

/// Reads a golden; the first item of a list.
fn golden(file: &str) -> Option<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/goldens/kubeapps-jobs");
    let text = fs::read_to_string(directory.join(file)).ok()?;
    let mut value: Value = serde_yaml::from_str(&text).unwrap();
    if value["kind"] == "List" {
        value = value["items"][0].take();
    }
    Some(value)
}

/// Fields that the API server sets.
const DEFAULTS: [&str; 24] = [
    "creationTimestamp",
    "resourceVersion",
    "uid",
    "generation",
    "generateName",
    "status",
    "selector",
    "completionMode",
    "completions",
    "manualSelector",
    "parallelism",
    "podReplacementPolicy",
    "backoffLimit",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "dnsPolicy",
    "schedulerName",
    "terminationGracePeriodSeconds",
    "defaultMode",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
    "finalizers",
];

/// Lists the leaves of a golden that an object lacks.
fn differences(golden: &Value, ours: &Value, path: &str, found: &mut Vec<String>) {
    match (golden, ours) {
        (Value::Object(golden), ours) => {
            for (key, value) in golden.iter().filter(|(key, _)| !DEFAULTS.contains(&key.as_str())) {
                differences(value, &ours[key], &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(golden), Value::Array(ours)) => {
            let mut from = 0;
            for item in golden {
                let fits = |ours: &Value| {
                    let mut found = Vec::new();
                    differences(item, ours, "", &mut found);
                    // Ours gives volumes names of its own.
                    found.retain(|path| {
                        !(path.starts_with(".name: ") && item.get("value").is_none() && item.get("image").is_none())
                    });
                    found.is_empty() || item.get("image").is_some()
                };
                match ours.iter().skip(from).position(fits) {
                    Some(at) if item.get("image").is_some() => {
                        differences(item, &ours[from + at], &format!("{path}[]"), found)
                    }
                    Some(at) => from += at + 1,
                    None => found.push(format!("{path}: {item}")),
                }
            }
        }
        (golden, ours) if golden == ours => {}
        (golden, _) => found.push(format!("{path}: {golden}")),
    }
}

fn assert_like(file: &str, ours: &Value, exceptions: &[&str]) {
    let Some(golden) = golden(file) else {
        println!("skipped: ../shared/goldens/kubeapps-jobs does not exist");
        return;
    };
    let mut found = Vec::new();
    differences(&golden, ours, "", &mut found);
    // Exceptions of all goldens: an argument without effect; ours runs within limits, and has a name per request.
    found.retain(|path| {
        !path.contains("--global-repos-namespace")
            && path != ".spec.suspend: false"
            && !path.starts_with(".metadata.name: \"apprepo")
            && !path.starts_with(".metadata.ownerReferences: ")
    });
    assert_eq!(found, exceptions, "{file}: {ours:#}");
}

#[test]
fn objects_of_a_plain_repository_are_those_of_kubeapps() {
    let objects = objects(&kubeapps(), &plain());
    assert_like("plain.cronjob.yaml", &objects.cron_job, &[]);
    assert_eq!(objects.cron_job["metadata"]["name"], "apprepo-kubeapps-sync-plain");
    assert_like("plain.job.yaml", &objects.job, &[]);
    assert_like("plain.cleanup-job.yaml", &objects.cleanup_job, &[]);
}

#[test]
fn objects_of_a_repository_with_everything_set_are_those_of_kubeapps() {
    let object = full("full-no-containers", Value::Null);
    let objects = objects(&kubeapps(), &object);
    assert_like("full-no-containers.cronjob.yaml", &objects.cron_job, &[]);
    assert_eq!(
        objects.cron_job["metadata"]["name"],
        "apprepo-team-a-sync-full-no-containers"
    );
    assert!(objects.cron_job["metadata"].get("ownerReferences").is_none());
    // Kubeapps swaps labels and annotations of Jobs, so that those of the pod become its labels.
    let of_job = [r#".metadata.labels.pod-label: "a""#];
    assert_like("full-no-containers.job.yaml", &objects.job, &of_job);
}

#[test]
fn a_repository_with_containers_mounts_the_certificate_once() {
    let objects = objects(&kubeapps(), &with_proxy());
    // It is a flag of `portolan sync`, so that its address is checked.
    let env = ".spec.jobTemplate.spec.template.spec.containers[].env";
    let proxy = r#"{"name":"https_proxy","value":"http://proxy.example.test:3128"}"#;
    assert_like("full.cronjob.yaml", &objects.cron_job, &[&format!("{env}: {proxy}")]);
    let mounts = &objects.cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    let paths: Vec<_> = mounts
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/tmp", "/usr/local/share/ca-certificates"]);
}

#[test]
fn proxies_of_the_operator_are_variables_and_those_of_a_repository_are_flags() {
    let settings = JobSettings {
        proxies: Proxies {
            http: Some("http://operator:3128/$(DB_PASSWORD)".to_owned()),
            https: None,
            no_proxy: Some(".svc".to_owned()),
        },
        ..kubeapps()
    };
    let env = |settings: &JobSettings, object: &AppRepository, kind: &str| {
        let objects = objects(settings, object);
        let job = if kind == "sync" {
            objects.job
        } else {
            objects.cleanup_job
        };
        let all = job["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let all = all.as_array().unwrap().iter();
        let all = all.filter_map(|one| Some(format!("{}={}", one["name"].as_str()?, one["value"].as_str()?)));
        all.collect::<Vec<_>>()
    };
    let of_operator = ["HTTP_PROXY=http://operator:3128/$$(DB_PASSWORD)", "NO_PROXY=.svc"];
    assert_eq!(env(&settings, &plain(), "sync"), of_operator);
    let of_repository = "PORTOLAN_HTTPS_PROXY=http://proxy.example.test:3128";
    let both = [&of_operator[..], &[of_repository]].concat();
    assert_eq!(env(&settings, &with_proxy(), "sync"), both);
    assert!(env(&settings, &with_proxy(), "cleanup").is_empty());
    let without_template = JobSettings {
        template: TemplatePolicy::None,
        ..settings
    };
    assert_eq!(env(&without_template, &with_proxy(), "sync"), of_operator);
}

#[test]
fn the_cleanup_job_takes_nothing_from_the_template_of_a_tenant() {
    let Some(golden) = golden("full-no-containers.cleanup-job.yaml") else {
        return;
    };
    assert_eq!(
        golden["spec"]["template"]["spec"]["nodeSelector"]["disk"], "ssd",
        "Kubeapps takes all of it"
    );
    let job = objects(&kubeapps(), &full("full-no-containers", Value::Null)).cleanup_job;
    let text = job.to_string();
    for taken in [
        "ssd",
        "tolerations",
        "pod-label",
        "1001",
        "AUTHORIZATION_HEADER",
        "full-auth",
        "proxy",
    ] {
        assert!(!text.contains(taken), "{taken}: {text}");
    }
}
