//! The catalog as the chart serves it: by a Deployment of its own with Postgres, by the controller's pod with SQLite.

mod exposure;
mod refusals;

use serde_json::{Value, json};

use super::release::{CONTROLLER, SERVE};
use super::{KUBE_VERSION, SETTINGS, chart, documents, helm_output};
use crate::support::portolan::{command, run};

const POSTGRES: &str = "--set=serve.enabled=true,database.existingSecret=postgres";
const SQLITE: &str = "--set=serve.enabled=true";
/// Clients of the catalog and of metrics, for a NetworkPolicy.
const CLIENTS: &str = "--set=networkPolicy.enabled=true,serve.networkPolicy.from[0].podSelector.matchLabels.app=ingress,\
                       networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus";

/// Returns the objects of a release named portolan.
async fn objects(settings: &[&str]) -> Vec<Value> {
    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--namespace",
        "sea",
        "--no-hooks",
    ];
    documents(&helm_output(&[&arguments, settings].concat()).await)
}

/// Returns the object of this kind and name.
fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Returns the pod of a Deployment.
fn pod<'a>(objects: &'a [Value], deployment: &str) -> &'a Value {
    &find(objects, "Deployment", deployment)["spec"]["template"]
}

fn container<'a>(objects: &'a [Value], deployment: &str) -> &'a Value {
    &pod(objects, deployment)["spec"]["containers"][0]
}

fn arguments(container: &Value) -> Vec<String> {
    serde_json::from_value(container["args"].clone()).unwrap()
}

/// Returns a variable of a container, or null.
fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let mut variables = container["env"].as_array().unwrap().iter();
    variables
        .find(|variable| variable["name"] == name)
        .unwrap_or(&Value::Null)
}

fn ports(owner: &Value) -> Vec<&str> {
    let ports = owner["ports"].as_array().into_iter().flatten();
    ports.map(|port| port["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_catalog_is_served_only_if_enabled() {
    let objects = objects(&["--set=database.existingSecret=postgres,networkPolicy.enabled=true"]).await;
    let serving = objects
        .iter()
        .filter(|object| object["metadata"]["name"].as_str().unwrap().contains("serve"));
    assert_eq!(serving.count(), 0);
    let container = container(&objects, CONTROLLER);
    assert!(!ports(container).contains(&"catalog"));
    assert_eq!(*variable(container, "PORTOLAN_SERVE"), Value::Null);
    assert!(!arguments(container).contains(&"--icons".to_owned()));
}

#[tokio::test]
async fn with_postgres_a_deployment_of_its_own_serves() {
    let objects = objects(&[POSTGRES]).await;
    let serving = container(&objects, SERVE);
    assert_eq!(serving["args"][0], "serve");
    assert_eq!(ports(serving), ["http", "catalog"]);
    let pod = &pod(&objects, SERVE)["spec"];
    assert_eq!(pod["serviceAccountName"], SERVE);
    let controller = container(&objects, CONTROLLER);
    assert!(!ports(controller).contains(&"catalog"));
    assert_eq!(*variable(controller, "PORTOLAN_SERVE"), Value::Null);
    // The page shows icons.
    assert!(arguments(controller).contains(&"--icons".to_owned()));
    let spool = json!({ "name": "spool", "emptyDir": { "sizeLimit": "1Gi" } });
    assert_eq!(pod["volumes"], json!([spool]));
    assert_eq!(variable(serving, "PORTOLAN_SPOOL_DIR")["value"], "/tmp");
    assert_eq!(serving["volumeMounts"][0]["mountPath"], "/tmp");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(serving[probe]["httpGet"]["port"], "http", "{probe}");
    }
}

#[tokio::test]
async fn with_sqlite_the_pod_of_the_controller_serves() {
    let objects = objects(&[SQLITE, CLIENTS]).await;
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    assert_eq!(deployments.count(), 1);
    assert_eq!(
        find(&objects, "Deployment", CONTROLLER)["spec"]["strategy"]["type"],
        "Recreate"
    );
    let serving = container(&objects, CONTROLLER);
    assert_eq!(variable(serving, "PORTOLAN_SERVE")["value"], ":8090");
    assert!(ports(serving).contains(&"catalog"));
    let flags = arguments(serving);
    assert!(flags.contains(&"--icons".to_owned()), "{flags:?}");
    assert!(!flags.iter().any(|flag| flag.contains("leader-election")), "{flags:?}");
    let ingress = &find(&objects, "NetworkPolicy", CONTROLLER)["spec"]["ingress"];
    let ports = ingress.as_array().unwrap().iter().map(|rule| &rule["ports"][0]["port"]);
    assert_eq!(ports.collect::<Vec<_>>(), ["http", "catalog"]);
    let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount");
    assert_eq!(accounts.count(), 1);
}

/// Returns true if an object selects pods with these labels, by its own selector or as the selector of a monitor.
fn selects(object: &Value, labels: &Value) -> bool {
    let spec = &object["spec"];
    let selector = match object["kind"].as_str().unwrap() {
        "Service" => &spec["selector"],
        "NetworkPolicy" => &spec["podSelector"]["matchLabels"],
        _ => &spec["selector"]["matchLabels"],
    };
    let mut selector = selector.as_object().expect("a selector").iter();
    selector.all(|(name, value)| &labels[name] == value)
}

#[tokio::test]
async fn no_object_selects_the_pods_of_both_deployments() {
    let monitors = "--set=replicas=2,serve.replicas=2,metrics.podMonitor.enabled=true,uninstallHook.enabled=false";
    let objects = objects(&[POSTGRES, CLIENTS, monitors]).await;
    let mut kinds = Vec::new();
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        let has_selector = [
            "Deployment",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "PodMonitor",
            "Service",
        ];
        if !has_selector.contains(&kind) {
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap();
        let selected = [CONTROLLER, SERVE].map(|of| selects(object, &pod(&objects, of)["metadata"]["labels"]));
        assert_eq!(selected, [name == CONTROLLER, name == SERVE], "{kind} {name}");
        kinds.push(kind);
    }
    kinds.sort_unstable();
    let each_twice = [
        ["Deployment"; 2],
        ["NetworkPolicy"; 2],
        ["PodDisruptionBudget"; 2],
        ["PodMonitor"; 2],
        ["Service"; 2],
    ];
    assert_eq!(kinds, each_twice.concat());
    let spread = &pod(&objects, SERVE)["spec"]["topologySpreadConstraints"];
    for constraint in spread.as_array().unwrap() {
        assert_eq!(
            constraint["labelSelector"],
            find(&objects, "Deployment", SERVE)["spec"]["selector"]
        );
    }
}

#[tokio::test]
async fn the_selector_of_the_controller_is_the_one_of_older_releases() {
    let labels = json!({ "app.kubernetes.io/name": "portolan", "app.kubernetes.io/instance": "portolan" });
    for settings in [POSTGRES, SQLITE, "--set=serve.enabled=false"] {
        let objects = objects(&[settings]).await;
        let deployment = find(&objects, "Deployment", CONTROLLER);
        assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels, "{settings}");
    }
}

#[tokio::test]
async fn settings_become_flags_of_the_serving_process_unless_they_are_defaults() {
    const HOSTS: &str =
        "--allowed-hosts=portolan-serve,portolan-serve.sea,portolan-serve.sea.svc,portolan-serve.sea.svc.cluster.local";
    for (settings, expected) in [
        ("serve.archives=redirect", ""),
        (
            "serve.externalUrl=https://charts.example.com/a",
            "--external-url=https://charts.example.com/a",
        ),
        ("serve.anonymous={team-a,team-b}", "--anonymous=team-a,team-b"),
        ("serve.anonymous={*}", "--anonymous=*"),
        (
            "serve.trustedProxies={10.0.0.0/8,fd00::1}",
            "--trusted-proxies=10.0.0.0/8,fd00::1",
        ),
        ("serve.archives=proxy", "--archives=proxy"),
        ("serve.rate=5", "--serve-rate=5"),
        ("serve.burst=5", "--serve-burst=5"),
        ("serve.connections=2", "--serve-connections=2"),
        ("serve.catalogMemory=32Mi", "--catalog-memory=32Mi"),
    ] {
        let setting = format!("--set={settings}");
        let deployed = arguments(container(&objects(&[POSTGRES, &setting]).await, SERVE)).join(" ");
        assert_eq!(
            deployed,
            format!("serve {HOSTS} {expected}").trim_end(),
            "{settings} with Postgres"
        );
        let embedded = arguments(container(&objects(&[SQLITE, &setting]).await, CONTROLLER)).join(" ");
        assert_eq!(
            embedded,
            format!("run --icons {HOSTS} {expected}").trim_end(),
            "{settings} with SQLite"
        );
    }
    let more = arguments(container(
        &objects(&[POSTGRES, "--set=serve.allowedHosts={charts.lan}"]).await,
        SERVE,
    ));
    assert_eq!(more[1], format!("{HOSTS},charts.lan"));
}

#[tokio::test]
async fn the_deployment_shares_the_settings_of_the_cluster_and_of_outgoing_requests() {
    let shared =
        "--set=globalReposNamespace=all,database.clusterId=east,database.pooler=transaction,watchNamespace=team";
    let outgoing = "--set=serve.archives=proxy,kubeappsNamespace=apps,allowPrivateNetworks=false,allowTenantProxies=true,\
                    limits.hostBurst=5,serve.extraArgs={--apiserver=https://a}";
    let flags = |objects: &[Value]| arguments(container(objects, SERVE))[2..].join(" ");
    let redirecting = objects(&[POSTGRES, shared, outgoing, "--set=serve.archives=redirect"]).await;
    let common = "--global-repos-namespace=all --cluster-id=east --database-pooler=transaction";
    assert_eq!(flags(&redirecting), format!("{common} --apiserver=https://a"));
    let serving = container(&redirecting, SERVE);
    assert_eq!(variable(serving, "PORTOLAN_WATCH_NAMESPACE")["value"], "team");
    assert_eq!(*variable(serving, "PORTOLAN_NAMESPACE"), Value::Null);
    let proxying = objects(&[POSTGRES, shared, outgoing]).await;
    assert_eq!(
        flags(&proxying),
        format!(
            "--archives=proxy {common} --allow-private-networks=false --allow-tenant-proxies --host-burst=5 --apiserver=https://a"
        )
    );
    let serving = container(&proxying, SERVE);
    assert_eq!(variable(serving, "PORTOLAN_NAMESPACE")["value"], "apps");
}

#[tokio::test]
async fn the_program_knows_the_flags_of_the_containers() {
    let mut seen = 0;
    for settings in SETTINGS {
        if !settings.concat().contains("serve.enabled") {
            continue;
        }
        for object in objects(settings).await {
            if object["kind"] == "Deployment" {
                let mut flags = arguments(&object["spec"]["template"]["spec"]["containers"][0]);
                // Help is printed only if all flags before it are valid.
                flags.push("--help".to_owned());
                let output = run(command(&flags)).await;
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{flags:?}: {errors}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 5);
}

#[tokio::test]
async fn the_deployment_may_use_another_login_of_the_database_than_the_controller() {
    let key = |name: &str, key: &str| json!({ "secretKeyRef": { "name": name, "key": key } });
    let password = "--set=serve.enabled=true,database.url=postgres://db/charts,database.passwordSecret.name=postgres";
    let objects_of = async |more: &str| objects(&[password, more]).await;
    let same = objects_of("--set=replicas=1").await;
    for deployment in [CONTROLLER, SERVE] {
        let container = container(&same, deployment);
        assert_eq!(
            variable(container, "PORTOLAN_DATABASE_URL")["value"],
            "postgres://db/charts"
        );
        assert_eq!(
            variable(container, "DB_PASSWORD")["valueFrom"],
            key("postgres", "password")
        );
    }
    let other = objects_of("--set=serve.database.existingSecret=reader,serve.database.existingSecretKey=dsn").await;
    let serving = container(&other, SERVE);
    assert_eq!(
        variable(serving, "PORTOLAN_DATABASE_URL")["valueFrom"],
        key("reader", "dsn")
    );
    // The password of another role.
    assert_eq!(*variable(serving, "DB_PASSWORD"), Value::Null);
    let controller = container(&other, CONTROLLER);
    assert_eq!(
        variable(controller, "PORTOLAN_DATABASE_URL")["value"],
        "postgres://db/charts"
    );
}

#[tokio::test]
async fn a_pod_ends_after_the_last_requests_of_proxies() {
    let serving = objects(&[POSTGRES]).await;
    let hook = |objects: &[Value]| container(objects, SERVE)["lifecycle"].clone();
    assert_eq!(hook(&serving)["preStop"]["sleep"]["seconds"], 5);
    let seconds = pod(&serving, SERVE)["spec"]["terminationGracePeriodSeconds"].as_u64();
    assert!(seconds.unwrap() >= 35, "{seconds:?}");
    // API servers before 1.30 refuse `sleep`, and the image has no command for it.
    let older = objects(&[POSTGRES, "--kube-version=1.29.14"]).await;
    assert_eq!(hook(&older), Value::Null);
    // Responses have 25 s, syncs less.
    let embedded = objects(&[SQLITE, "--set=drainTimeout=1s"]).await;
    assert_eq!(pod(&embedded, CONTROLLER)["spec"]["terminationGracePeriodSeconds"], 40);
}
