use rstest::rstest;

use super::*;

fn defaults() -> Resources {
    Resources {
        requests: [("memory".to_owned(), "128Mi".to_owned())].into(),
        limits: [("memory".to_owned(), "1Gi".to_owned())].into(),
    }
}

fn limited(template: &Value) -> Result<PodParts, RefusedField> {
    merge(Some(template), TemplatePolicy::Limited, &defaults())
}

fn full(template: &Value) -> Result<PodParts, RefusedField> {
    merge(Some(template), TemplatePolicy::Full, &defaults())
}

fn container(container: Value) -> Value {
    json!({ "spec": { "containers": [container] } })
}

#[rstest]
#[case("spec.serviceAccountName", json!({ "serviceAccountName": "portolan" }))]
#[case("spec.hostNetwork", json!({ "hostNetwork": true }))]
#[case("spec.hostPID", json!({ "hostPID": true }))]
#[case("spec.hostIPC", json!({ "hostIPC": true }))]
#[case("spec.nodeName", json!({ "nodeName": "control-plane" }))]
#[case("spec.initContainers", json!({ "initContainers": [{ "image": "evil" }] }))]
#[case("spec.shareProcessNamespace", json!({ "shareProcessNamespace": true }))]
#[case("spec.unknownOfTheFuture", json!({ "unknownOfTheFuture": "x" }))]
#[case("spec.volumes[0].hostPath", json!({ "volumes": [{ "name": "root", "hostPath": { "path": "/" } }] }))]
#[case("spec.volumes[0].projected", json!({ "volumes": [{ "name": "token", "projected": { "sources": [{}] } }] }))]
#[case("spec.securityContext.runAsUser", json!({ "securityContext": { "runAsUser": 0 } }))]
#[case("spec.securityContext.sysctls", json!({ "securityContext": { "sysctls": [{ "name": "kernel.x" }] } }))]
#[case("spec.containers[0].securityContext.privileged",
    json!({ "containers": [{ "securityContext": { "privileged": true } }] }))]
#[case("spec.containers[0].securityContext.capabilities",
    json!({ "containers": [{ "securityContext": { "capabilities": { "add": ["SYS_ADMIN"] } } }] }))]
#[case("spec.containers[0].envFrom", json!({ "containers": [{ "envFrom": [{ "secretRef": { "name": "db" } }] }] }))]
#[case("spec.containers[1]", json!({ "containers": [{}, { "image": "evil" }] }))]
fn a_hostile_field_is_refused_by_name_whatever_the_operator_allows(#[case] field: &str, #[case] spec: Value) {
    let template = json!({ "spec": spec });
    for result in [limited(&template), full(&template)] {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains(&format!("spec.syncJobPodTemplate.{field} is")),
            "{error}"
        );
    }
    assert_eq!(
        merge(Some(&template), TemplatePolicy::None, &defaults())
            .unwrap()
            .resources,
        defaults()
    );
}

#[rstest]
#[case("tolerations", json!([{ "operator": "Exists" }]))]
#[case("affinity", json!({ "nodeAffinity": {} }))]
#[case("priorityClassName", json!("system-node-critical"))]
#[case("runtimeClassName", json!("gvisor"))]
fn scheduling_needs_the_policy_full(#[case] field: &str, #[case] value: Value) {
    let template = json!({ "spec": { field: value } });
    let error = limited(&template).unwrap_err().to_string();
    assert!(
        error.contains(field) && error.contains("--job-pod-template=full"),
        "{error}"
    );
    assert_eq!(full(&template).unwrap().spec[field], value);
}

#[test]
fn a_node_selector_ids_and_lower_resources_are_merged() {
    let template = json!({ "spec": {
        "nodeSelector": { "disk": "ssd" },
        "securityContext": { "runAsUser": 1001, "fsGroup": 1001 },
        "containers": [{
            "env": [{ "name": "https_proxy", "value": "http://proxy:3128" }],
            "resources": { "limits": { "memory": "64Mi" } },
        }],
    } });
    let parts = limited(&template).unwrap();
    assert_eq!(parts.spec["nodeSelector"]["disk"], "ssd");
    assert_eq!(
        Value::from(parts.security_context),
        json!({ "runAsUser": 1001, "fsGroup": 1001 })
    );
    assert!(parts.env.is_empty(), "proxies are flags of the command");
    assert_eq!(parts.resources.limits["memory"], "64Mi");
    assert_eq!(
        parts.resources.requests["memory"], "64Mi",
        "a request never exceeds the limit"
    );
}

#[rstest]
#[case("2Gi")]
#[case("lots")]
#[case("-1")]
fn resources_above_the_limit_of_the_operator_are_refused(#[case] memory: &str) {
    for kind in ["limits", "requests"] {
        let error = limited(&container(json!({ "resources": { kind: { "memory": memory } } })));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains(&format!("resources.{kind}.memory"))
        );
    }
}

#[rstest]
#[case("0")]
#[case("0m")]
#[case("0Ki")]
fn a_limit_of_zero_is_refused_since_it_means_none(#[case] quantity: &str) {
    for resource in ["cpu", "memory"] {
        let error = limited(&container(json!({ "resources": { "limits": { resource: quantity } } })));
        let expected = format!("resources.limits.{resource}");
        assert!(error.unwrap_err().to_string().contains(&expected));
    }
    assert!(limited(&container(json!({ "resources": { "requests": { "cpu": quantity } } }))).is_ok());
}

#[test]
fn a_spec_that_kubeapps_wrote_into_yields_only_the_users_part() {
    let template = json!({
        "metadata": { "creationTimestamp": null, "labels": { REPOSITORY_NAME: "x", "pod-label": "a" } },
        "spec": {
            "containers": [{
                "name": "sync", "image": "docker.io/bitnami/kubeapps-asset-syncer:2.12.1", "command": ["/asset-syncer"],
                "args": ["sync", "--database-url=x"], "imagePullPolicy": "IfNotPresent", "resources": {},
                "env": [
                    { "name": "HTTPS_PROXY", "value": "http://old:1" },
                    { "name": "HTTPS_PROXY", "value": "http://proxy:3128" },
                    { "name": "DB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "postgres", "key": "p" } } },
                    { "name": "DB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "postgres", "key": "p" } } },
                ],
                "volumeMounts": [{ "name": "auth", "mountPath": "/usr/local/share/ca-certificates" }],
            }],
            "restartPolicy": "OnFailure", "imagePullSecrets": [{ "name": "pull" }],
            "volumes": [{ "name": "auth", "secret": { "secretName": "x" } }],
        },
    });
    for parts in [limited(&template).unwrap(), full(&template).unwrap()] {
        assert!(parts.env.is_empty() && parts.spec.is_empty() && !parts.labels.contains_key(REPOSITORY_NAME));
    }
    assert!(limited(&template).unwrap().labels.is_empty());
    assert_eq!(full(&template).unwrap().labels["pod-label"], "a");
}

#[test]
fn variables_never_refer_to_secrets_or_replace_ours() {
    let template = container(json!({ "env": [
        { "name": "NOTE", "value": "$(DB_PASSWORD)" },
        { "name": "Https_Proxy", "value": "http://evil" },
        { "name": "http_proxy", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } },
        { "name": "DB_PASSWORD", "value": "x" },
        { "name": "PORTOLAN_DATABASE_URL", "value": "postgres://evil" },
        { "name": "LD_PRELOAD", "value": "/evil.so" },
        { "name": "PGHOST", "value": "evil" },
        { "name": "TZ", "value": "UTC" },
    ] }));
    assert!(limited(&template).unwrap().env.is_empty());
    assert_eq!(
        full(&template).unwrap().env,
        [
            json!({ "name": "NOTE", "value": "$$(DB_PASSWORD)" }),
            json!({ "name": "TZ", "value": "UTC" })
        ]
    );
}

#[test]
fn labels_of_kubernetes_are_never_merged() {
    let template = json!({ "metadata": {
        "labels": { "app.kubernetes.io/name": "portolan", "job-name": "x", "team": "a" },
        "annotations": { "portolan.dev/repository": "other/one", "note": "b" },
    } });
    let parts = full(&template).unwrap();
    assert_eq!(parts.labels.keys().collect::<Vec<_>>(), ["team"]);
    assert_eq!(parts.annotations.keys().collect::<Vec<_>>(), ["note"]);
}

#[test]
fn values_that_go_clients_write_for_nothing_are_allowed() {
    let template = json!({ "metadata": { "creationTimestamp": null }, "spec": {
        "containers": null, "hostNetwork": false, "serviceAccountName": "", "tolerations": [], "affinity": null,
        "schedulerName": "default-scheduler", "serviceAccount": "default",
    } });
    assert_eq!(limited(&template).unwrap().resources, defaults());
}
