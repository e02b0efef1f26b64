//! Values of the chart: what they render, and which are refused.

use serde_json::{Value, json};

use super::{KUBE_VERSION, chart, documents, helm, helm_output};

#[tokio::test]
async fn invalid_settings_are_rejected() {
    for (setting, complaint) in [
        ("databse.url=postgres://db/charts", "databse"),
        ("database.url=mysql://db/charts", "/database/url"),
        ("log.format=xml", "/log/format"),
        ("watchNamespace=Not A Name", "/watchNamespace"),
        ("kubeappsNamespace=Not A Name", "/kubeappsNamespace"),
        ("chartFiles=some", "/chartFiles"),
        ("icons=perhaps", "/icons"),
        ("applications.enabled=perhaps", "/applications/enabled"),
        (
            "applications.componentRules[0].resources[0]=pods",
            "/applications/componentRules/0",
        ),
        ("applications.kinds[0]=apps/v1/Deployment", "/applications/kinds/0"),
        ("oam.enabled=perhaps", "/oam/enabled"),
        ("oam.definitions.namespace=Not A Name", "/oam/definitions/namespace"),
        ("oam.rules[0].resources[0]=pods", "/oam/rules/0"),
        ("oam.velaCompat=perhaps", "/oam/velaCompat"),
        ("oam.clusters.enabled=perhaps", "/oam/clusters/enabled"),
        (
            "oam.enabled=true,oam.velaCompat=true",
            "set image.digest, or a tag such as v1.11.0",
        ),
        ("leaderElection.enabled=perhaps", "/leaderElection/enabled"),
        ("metrics.port=8080", "/metrics/port"),
        ("limits.httpConnections=8", "/limits/httpConnections"),
        ("networkPolicy.metricsFrom=monitoring", "/networkPolicy/metricsFrom"),
        ("globalReposNamespace=Not A Name", "/globalReposNamespace"),
        (
            "database.url=postgres://db/charts,database.existingSecret=both",
            "/database",
        ),
        ("serviceAccount.create=false", "serviceAccount.name"),
        ("database.url=postgres://user:password@db/charts", "/database/url"),
        ("replicas=0", "/replicas"),
        (
            "replicas=2",
            "replicas=2 needs Postgres: set database.existingSecret or database.url",
        ),
        ("shards=2", "shards=2 needs Postgres"),
        ("executor.mode=job", "syncs as Jobs need Postgres"),
        ("executor.allowAnnotation=true", "syncs as Jobs need Postgres"),
        ("executor.podTemplate=all", "/executor/podTemplate"),
        (
            "executor.mode=job,database.existingSecret=postgres",
            "set database.url and database.passwordSecret",
        ),
        ("executor.mode=cron", "/executor/mode"),
        ("gc.interval=often", "/gc/interval"),
        ("keepRemovedVersions=30d", "/keepRemovedVersions"),
        ("leaderElection.leaseDuration=15", "/leaderElection/leaseDuration"),
        ("drainTimeout=30", "/drainTimeout"),
        (
            "tracing.otlpEndpoint=http://user:password@collector:4318",
            "/tracing/otlpEndpoint",
        ),
        ("resources.limits.memory=much", "/resources/limits/memory"),
        ("resources.memory=1Gi", "/resources"),
        (
            "database.sqlite.persistence.size=8GB",
            "/database/sqlite/persistence/size",
        ),
        ("podSecurityContext.privileged=true", "/podSecurityContext"),
        ("securityContext.runAsRoot=true", "/securityContext"),
        ("tolerations[0].name=a", "/tolerations/0"),
        ("affinity.podAffinities=a", "/affinity"),
        ("imagePullSecrets[0]=registry", "/imagePullSecrets/0"),
        ("extraEnv[0].key=a", "/extraEnv/0"),
        (
            "podDisruptionBudget.maxUnavailable=0",
            "/podDisruptionBudget/maxUnavailable",
        ),
        ("topologySpreadConstraints[0].maxSkew=1", "/topologySpreadConstraints/0"),
        ("metrics.prometheusRule.rules=1", "/metrics/prometheusRule"),
        ("initialRepos[0].name=a", "/initialRepos/0"),
        (
            "initialRepos[0].name=a,initialRepos[0].url=ftp://x",
            "/initialRepos/0/url",
        ),
        (
            "initialRepos[0].name=a,initialRepos[0].url=https://x,initialRepos[0].namespace=other,watchNamespace=team",
            "the namespace other of a is not watchNamespace",
        ),
        (
            "initialRepos[0].name=a,initialRepos[0].url=https://x,initialRepos[0].existingSecret=b,initialRepos[0].caCert=-----BEGIN c",
            "a has an existingSecret, so it needs no other credentials",
        ),
    ] {
        let output = helm(&["template", "try", &chart(), KUBE_VERSION, "--set", setting]).await;
        let errors = String::from_utf8_lossy(&output.stderr).replace('.', "/");
        assert!(!output.status.success(), "{setting} is refused");
        assert!(errors.contains(&complaint.replace('.', "/")), "{setting}: {errors}");
    }
}

/// Returns the objects of a kind that the chart renders with these settings.
pub async fn rendered(kind: &str, settings: &[&str]) -> Vec<Value> {
    let arguments = [
        "template",
        "try",
        &chart(),
        KUBE_VERSION,
        "--namespace",
        "sea",
        "--no-hooks",
    ];
    let objects = documents(&helm_output(&[&arguments, settings].concat()).await);
    objects.into_iter().filter(|object| object["kind"] == kind).collect()
}

#[tokio::test]
async fn only_several_replicas_have_a_disruption_budget_and_are_spread() {
    let one = ["--set=leaderElection.enabled=true"];
    assert_eq!(rendered("PodDisruptionBudget", &one).await, [Value::Null; 0]);
    let deployment = &rendered("Deployment", &one).await[0]["spec"];
    assert_eq!(deployment["template"]["spec"]["topologySpreadConstraints"], Value::Null);
    // A SQLite file has one writer.
    assert_eq!(deployment["strategy"]["type"], "Recreate");

    let several = ["--set=replicas=3,database.existingSecret=postgres"];
    let budgets = rendered("PodDisruptionBudget", &several).await;
    assert_eq!(budgets[0]["spec"]["maxUnavailable"], 1);
    let deployment = &rendered("Deployment", &several).await[0]["spec"];
    assert_eq!(deployment["replicas"], 3);
    assert_eq!(deployment["strategy"]["type"], "RollingUpdate");
    let constraints = deployment["template"]["spec"]["topologySpreadConstraints"]
        .as_array()
        .unwrap();
    assert_eq!(constraints.len(), 2);
    for constraint in constraints {
        assert_eq!(constraint["labelSelector"], deployment["selector"]);
    }
}

#[tokio::test]
async fn credentials_of_initial_repositories_are_in_secrets_only() {
    let repository = "--set=initialRepos[0].name=private,initialRepos[0].url=https://charts.example.com,\
                      initialRepos[0].namespace=team,initialRepos[0].basicAuth.user=captain,\
                      initialRepos[0].basicAuth.password=hunter2,initialRepos[0].caCert=-----BEGIN CERTIFICATE-----";
    let names = |secrets: Vec<Value>| -> Vec<String> {
        let name = |secret: Value| format!("{}/{}", secret["metadata"]["namespace"], secret["metadata"]["name"]);
        secrets
            .into_iter()
            .map(|secret| name(secret).replace('"', ""))
            .collect()
    };
    let secrets = rendered("Secret", &[repository]).await;
    // Base64 of captain:hunter2.
    assert_eq!(
        secrets[0]["stringData"]["authorizationHeader"],
        "Basic Y2FwdGFpbjpodW50ZXIy"
    );
    assert_eq!(names(secrets), ["team/apprepo-private-secrets"]);
    let spec = &rendered("AppRepository", &[repository]).await[0]["spec"];
    let key = |key: &str| json!({ "secretKeyRef": { "name": "apprepo-private-secrets", "key": key } });
    let auth = json!({ "header": key("authorizationHeader"), "customCA": key("ca.crt") });
    assert_eq!(spec["auth"], auth);
    assert!(!spec.to_string().contains("hunter2"));
}

#[tokio::test]
async fn the_password_is_a_variable_by_reference_for_commands_in_the_pod() {
    let settings = "database.url=postgres://db/charts,database.passwordSecret.name=postgres";
    let key = json!({ "secretKeyRef": { "name": "postgres", "key": "password" } });
    let password = json!({ "name": "DB_PASSWORD", "valueFrom": key });
    for more in ["", ",executor.mode=job", ",executor.allowAnnotation=true"] {
        let variables = container(&format!("{settings}{more}")).await["env"].take();
        assert!(variables.as_array().unwrap().contains(&password), "{more}: {variables}");
    }
    let variables = container("").await["env"].to_string();
    assert!(!variables.contains("DB_PASSWORD"), "{variables}");
}

#[tokio::test]
async fn a_network_policy_limits_outgoing_traffic_only_by_given_rules() {
    let enabled = "--set=networkPolicy.enabled=true";
    assert_eq!(
        rendered("NetworkPolicy", &[enabled]).await[0]["spec"]["egress"],
        Value::Null
    );
    let egress = r#"--set-json=networkPolicy.egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]"#;
    let spec = &rendered("NetworkPolicy", &[enabled, egress]).await[0]["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(spec["egress"][0]["to"][0]["ipBlock"]["cidr"], "10.0.0.0/8");
}

#[tokio::test]
async fn a_network_policy_limits_pods_of_jobs_in_kubeapps_namespace() {
    let settings = "--set=networkPolicy.enabled=true,kubeappsNamespace=kubeapps,executor.mode=job,\
                    database.url=postgres://db/charts,database.passwordSecret.name=postgres";
    let egress = r#"--set-json=networkPolicy.egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]"#;
    let policies = rendered("NetworkPolicy", &[settings, egress]).await;
    let [controller, _, jobs] = &policies[..] else {
        panic!("{policies:#?}")
    };
    assert_eq!(jobs["metadata"]["namespace"], "kubeapps");
    assert_eq!(jobs["spec"]["egress"], controller["spec"]["egress"]);
    assert_eq!(jobs["spec"]["ingress"], Value::Null);
    let labels =
        portolan::controllers::apprepository::jobs::names::labels(&portolan::api::NamespacedName::new("a", "b"));
    let selector = &jobs["spec"]["podSelector"];
    for (key, value) in selector["matchLabels"].as_object().unwrap() {
        assert_eq!(labels.get(key).map(String::as_str), value.as_str(), "{key}");
    }
    assert!(labels.contains_key(selector["matchExpressions"][0]["key"].as_str().unwrap()));
}

#[tokio::test]
async fn a_network_policy_admits_only_the_readers_of_metrics() {
    let arguments = ["template", "try", &chart(), KUBE_VERSION];
    assert!(!helm_output(&arguments).await.contains("NetworkPolicy"));
    let policy = async |settings: &[&str]| {
        let only = "--show-only=templates/networkpolicy.yaml";
        let rendered =
            helm_output(&[&arguments[..], &["--set=networkPolicy.enabled=true", only], settings].concat()).await;
        documents(&rendered)[0]["spec"].clone()
    };
    let closed = policy(&[]).await;
    assert_eq!(closed["policyTypes"], json!(["Ingress"]));
    assert!(closed["ingress"].is_null(), "{closed}");
    let from = "--set-json=networkPolicy.metricsFrom=[{\"podSelector\":{\"matchLabels\":{\"app\":\"prometheus\"}}}]";
    for (port, name) in [
        ("--set=metrics.port=null", "http"),
        ("--set=metrics.port=9090", "metrics"),
    ] {
        let open = policy(&[from, port]).await;
        assert_eq!(open["ingress"][0]["ports"][0]["port"], name);
        assert_eq!(
            open["ingress"][0]["from"][0]["podSelector"]["matchLabels"]["app"],
            "prometheus"
        );
    }
}

/// Returns the container of the rendered Deployment.
async fn container(settings: &str) -> Value {
    pod(settings).await["containers"][0].take()
}

/// Returns the pod of the rendered Deployment.
pub async fn pod(settings: &str) -> Value {
    let arguments = [
        "template",
        "try",
        &chart(),
        KUBE_VERSION,
        "--namespace",
        "sea",
        "--set",
        settings,
    ];
    let rendered = helm_output(&[&arguments[..], &["--show-only=templates/deployment.yaml"]].concat()).await;
    let mut deployment: Value = serde_yaml::from_str(&rendered).unwrap();
    deployment["spec"]["template"]["spec"].take()
}

#[tokio::test]
async fn definitions_are_installed_before_the_controller_starts_only_if_enabled() {
    let pod_without = pod("oam.enabled=true").await;
    assert!(pod_without["initContainers"].is_null(), "{pod_without}");
    let pod = pod("oam.enabled=true,oam.definitions.install=true,oam.definitions.namespace=vela").await;
    let commands: Vec<_> = pod["initContainers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["args"])
        .collect();
    let expected = [
        json!(["crds", "core.oam.dev", "--apply"]),
        json!(["vela", "definitions", "apply", "-n", "vela"]),
    ];
    assert_eq!(commands, expected.iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn applications_are_reconciled_only_if_enabled() {
    for (settings, expected) in [
        ("", "apprepository"),
        ("applications.enabled=true", "apprepository,application"),
        ("oam.enabled=true", "apprepository,oam"),
        (
            "oam.enabled=true,applications.enabled=true",
            "apprepository,application,oam",
        ),
    ] {
        let container = container(settings).await;
        let environment = container["env"].as_array().unwrap();
        let variable = environment
            .iter()
            .find(|variable| variable["name"] == "PORTOLAN_CONTROLLERS");
        assert_eq!(variable.unwrap()["value"], expected, "{settings}");
    }
}

#[tokio::test]
async fn settings_become_flags_unless_they_are_defaults() {
    let flags = async |settings: &str| {
        let arguments = container(settings).await["args"].take();
        serde_json::from_value::<Vec<String>>(arguments).unwrap().join(" ")
    };
    assert_eq!(flags("kubeappsNamespace=sea").await, "run");
    for (settings, expected) in [
        ("kubeappsNamespace=apps", "--namespace=apps"),
        ("watchNamespace=team", "--namespace=team"),
        ("watchNamespace=team,kubeappsNamespace=apps", "--namespace=apps"),
        ("watchSecrets=true", "--watch-secrets"),
        ("adoptKubeapps=true", "--adopt-kubeapps"),
        ("releases.enabled=true", "--releases"),
        ("chartFiles=none", "--chart-files=none"),
        ("icons=true", "--icons"),
        ("allowPrivateNetworks=false", "--allow-private-networks=false"),
        ("keepRemovedVersions=720h", "--keep-removed-versions=720h"),
        ("database.connections=20", "--database-connections=20"),
        ("database.pooler=transaction", "--database-pooler=transaction"),
        ("database.maxRepositoryBytes=2Gi", "--max-repository-bytes=2Gi"),
        ("database.maxNamespaceBytes=20Gi", "--max-namespace-bytes=20Gi"),
        ("database.clusterId=east", "--cluster-id=east"),
        ("allowLoopback=true", "--allow-loopback"),
        ("allowTenantProxies=true", "--allow-tenant-proxies"),
        ("globalReposNamespace=all", "--global-repos-namespace=all"),
        ("metrics.port=9090", "--metrics-bind-address=:9090"),
        ("metrics.auth=true", "--metrics-auth"),
        ("limits.hostRequestsAtOnce=4", "--host-requests-at-once=4"),
        ("limits.hostRequestsPerSecond=5", "--host-requests-per-second=5"),
        ("limits.hostBurst=5", "--host-burst=5"),
        ("limits.kubeApiInflight=8", "--kube-api-inflight=8"),
        ("limits.kubeApiQps=20", "--kube-api-qps=20"),
        ("limits.httpConnections=64", "--http-connections=64"),
        (
            "applications.kinds[0]=*,applications.kinds[1]=+/Secret",
            "--application-kinds=*,+/Secret",
        ),
        ("leaderElection.enabled=true", "--enable-leader-election"),
        (
            "replicas=2,database.existingSecret=postgres,leaderElection.leaseDuration=20s",
            "--enable-leader-election --leader-election-lease-duration=20s",
        ),
        (
            "shards=4,database.existingSecret=postgres",
            "--enable-leader-election --shards=4",
        ),
        ("watchLabelSelector=team=a", "--watch-label-selector=team=a"),
        (
            "watchLabelSelector=team=a,leaderElection.enabled=true",
            "--enable-leader-election --watch-label-selector=team=a --leader-election-name=try-portolan",
        ),
        (
            "executor.mode=job,executor.resources.limits.cpu=2,executor.resources.limits.memory=2Gi,executor.podTemplate=none,\
             executor.podTemplateLimit=32Ki,imagePullSecrets[0].name=registry,database.url=postgres://db/charts,database.passwordSecret.name=postgres",
            "--executor=job --job-image=portolan:0.1.0 --job-pull-secrets=registry --job-pod-template=none \
             --job-pod-template-limit=32Ki --job-limits=cpu=2,memory=2Gi --database-secret-name=postgres --database-secret-key=password",
        ),
        ("gc.interval=6h", "--gc-interval=6h"),
        ("drainTimeout=60s", "--drain-timeout=60s"),
        (
            "tracing.otlpEndpoint=http://collector:4318",
            "--otlp-endpoint=http://collector:4318",
        ),
        (
            "oam.enabled=true",
            "--leader-election-namespace=vela-system --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.identity.defaultServiceAccount=default,oam.identity.required=true,\
             oam.identity.trustAnnotations=true,oam.identity.privilegedNamespaces={vela-system,platform},\
             oam.identity.redactSecretsInRevisions=true",
            "--leader-election-namespace=vela-system --default-service-account=default --require-identity \
             --trust-identity-annotations --privileged-namespaces=vela-system,platform --redact-secrets-in-revisions \
             --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.clusters.allowInsecure=true",
            "--leader-election-namespace=vela-system --allow-insecure-clusters --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.clusterAdmin=false",
            "--leader-election-namespace=vela-system --joined-clusters=false --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.clusterAdmin=false,oam.clusters.enabled=true",
            "--leader-election-namespace=vela-system --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.velaCompat=true,image.tag=v1.11.0",
            "--leader-election-namespace=vela-system --compat-metrics --privileged-namespaces=vela-system \
             --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.velaCompat=true,image.tag=main,oam.identity.privilegedNamespaces={platform}",
            "--leader-election-namespace=vela-system --compat-metrics --privileged-namespaces=platform,vela-system \
             --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.definitions.namespace=vela,oam.args={--controllers=oam}",
            "--leader-election-namespace=vela --system-definition-namespace=vela --controllers=oam",
        ),
    ] {
        assert_eq!(flags(settings).await, format!("run {expected}"), "{settings}");
    }
}

#[tokio::test]
async fn commands_in_the_container_accept_the_clusters_that_the_controller_accepts() {
    for (setting, name, value) in [
        (
            "oam.definitions.namespace=apps",
            "PORTOLAN_SYSTEM_DEFINITION_NAMESPACE",
            "apps",
        ),
        (
            "oam.clusters.allowInsecure=true",
            "PORTOLAN_ALLOW_INSECURE_CLUSTERS",
            "true",
        ),
        ("allowPrivateNetworks=false", "PORTOLAN_ALLOW_PRIVATE_NETWORKS", "false"),
        ("allowLoopback=true", "PORTOLAN_ALLOW_LOOPBACK", "true"),
    ] {
        let container = container(&format!("oam.enabled=true,{setting}")).await;
        let mut variables = container["env"].as_array().unwrap().iter();
        let variable = variables.find(|variable| variable["name"] == name);
        assert_eq!(variable.map(|found| &found["value"]), Some(&json!(value)), "{name}");
    }
}
