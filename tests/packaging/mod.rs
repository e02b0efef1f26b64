//! The Helm chart, rendered and installed by the real helm and validated by a real API server.

mod definitions;
mod installed;
mod permissions;

use std::process::Output;

use tokio::process::Command;

use crate::support::control_plane::control_plane;
use crate::support::process::ScratchDir;
use crate::support::{helm, project, target_dir};

/// Kubernetes version for `helm template`; a helm built from its module assumes a very old one.
const KUBE_VERSION: &str = "--kube-version=1.35.4";

/// Settings that cover the branches of the templates.
const SETTINGS: [&[&str]; 13] = [
    &[],
    &["--set=oam.enabled=true,oam.definitions.install=true,oam.definitions.namespace=kube-public"],
    &[
        "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.namespace=kube-public,leaderElection.enabled=true",
        "--set-json=oam.rules=[{\"apiGroups\":[\"apps\"],\"resources\":[\"deployments\"],\"verbs\":[\"*\"]}]",
    ],
    &["--set=applications.enabled=true,leaderElection.enabled=true"],
    &[
        "--set=applications.enabled=true,watchNamespace=default",
        "--set-json=applications.kinds=[\"*\",\"+example.com/Widget\",\"+Secret\"]",
    ],
    &["--set=watchNamespace=default,kubeappsNamespace=kube-public,watchSecrets=true,adoptKubeapps=true"],
    &["--set=chartFiles=latest,icons=true,allowPrivateNetworks=false,keepRemovedVersions=720h,rbac.secrets=false"],
    &[
        "--set=database.sqlite.persistence.enabled=false",
        "--set=log.level=debug",
        "--set=fullnameOverride=a",
    ],
    &["--set=database.sqlite.persistence.existingClaim=charts"],
    &[
        "--set=metrics.port=9090,metrics.auth=true,networkPolicy.enabled=true",
        "--set-json=networkPolicy.metricsFrom=[{\"namespaceSelector\":{\"matchLabels\":{\"name\":\"monitoring\"}}}]",
        "--set=allowLoopback=true,allowTenantProxies=true,globalReposNamespace=kube-public",
    ],
    &[
        "--set=database.existingSecret=postgres",
        "--set=watchNamespace=default",
        "--set=rbac.aggregate=false",
    ],
    &[
        "--set=database.url=postgres://db/charts",
        "--set=database.passwordSecret.name=postgres",
        "--set=image.tag=edge",
    ],
    &[
        "--set=serviceAccount.create=false",
        "--set=serviceAccount.name=captain",
        "--set=rbac.create=false",
        "--set=extraArgs={--debug,--min-interval=10s}",
        "--set=extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy",
        "--set=podAnnotations.ports=all,podLabels.crew=small,nodeSelector.zone=a,priorityClassName=system-cluster-critical",
        "--set=extraVolumes[0].name=ca,extraVolumes[0].secret.secretName=ca",
        "--set=extraVolumeMounts[0].name=ca,extraVolumeMounts[0].mountPath=/etc/ca",
    ],
];

/// Returns a helm command with administrator permissions in the shared control plane.
async fn helm_command(arguments: &[&str]) -> Command {
    let mut command = helm::command(&target_dir("helm"), arguments);
    command.env("KUBECONFIG", control_plane().await.kubeconfig());
    command
}

async fn helm(arguments: &[&str]) -> Output {
    helm::run(helm_command(arguments).await).await
}

/// Runs helm, which must succeed, and returns its output.
async fn helm_output(arguments: &[&str]) -> String {
    helm::output(helm_command(arguments).await).await
}

fn chart() -> String {
    project("charts/portolan").display().to_string()
}

#[tokio::test]
async fn helm_lint_accepts_all_settings() {
    for settings in SETTINGS {
        helm_output(&[&["lint", "--strict", KUBE_VERSION, &chart()], settings].concat()).await;
    }
}

#[tokio::test]
async fn rendered_objects_are_accepted_by_the_api_server() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace().await;
    let directory = ScratchDir::new("rendered");
    for settings in SETTINGS {
        let arguments = ["template", "try", &chart(), KUBE_VERSION, "--namespace", &namespace];
        let rendered = helm_output(&[&arguments, settings].concat()).await;
        let file = directory.write("all.yaml", rendered).display().to_string();
        // Strict: unknown fields are errors.
        let apply = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            &file,
        ];
        let accepted = control_plane.kubectl(&apply).await;
        assert!(accepted.contains("deployment.apps/"), "{accepted}");
    }
}

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
    ] {
        let output = helm(&["template", "try", &chart(), KUBE_VERSION, "--set", setting]).await;
        let errors = String::from_utf8_lossy(&output.stderr).replace('.', "/");
        assert!(!output.status.success(), "{setting} is refused");
        assert!(errors.contains(&complaint.replace('.', "/")), "{setting}: {errors}");
    }
}

#[tokio::test]
async fn monitors_are_rendered_only_if_enabled() {
    let arguments = ["template", "try", &chart(), KUBE_VERSION];
    assert!(!helm_output(&arguments).await.contains("PodMonitor"));
    let rendered = helm_output(&[&arguments[..], &["--set=metrics.podMonitor.enabled=true"]].concat()).await;
    assert!(rendered.contains("kind: PodMonitor"));
}

#[tokio::test]
async fn a_network_policy_admits_only_the_readers_of_metrics() {
    let arguments = ["template", "try", &chart(), KUBE_VERSION];
    assert!(!helm_output(&arguments).await.contains("NetworkPolicy"));
    let policy = async |settings: &[&str]| {
        let only = "--show-only=templates/networkpolicy.yaml";
        let rendered =
            helm_output(&[&arguments[..], &["--set=networkPolicy.enabled=true", only], settings].concat()).await;
        serde_yaml::from_str::<serde_json::Value>(&rendered).unwrap()["spec"].clone()
    };
    let closed = policy(&[]).await;
    assert_eq!(closed["policyTypes"], serde_json::json!(["Ingress"]));
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
async fn container(settings: &str) -> serde_json::Value {
    pod(settings).await["containers"][0].take()
}

/// Returns the pod of the rendered Deployment.
async fn pod(settings: &str) -> serde_json::Value {
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
    let mut deployment: serde_json::Value = serde_yaml::from_str(&rendered).unwrap();
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
        serde_json::json!(["install-crds"]),
        serde_json::json!(["definitions", "apply", "-n", "vela"]),
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
            "oam.enabled=true",
            "--leader-election-namespace=vela-system --cue-memory=128MiB",
        ),
        (
            "oam.enabled=true,oam.definitions.namespace=vela,oam.args={--controllers=oam}",
            "--leader-election-namespace=vela --system-definition-namespace=vela --controllers=oam",
        ),
    ] {
        assert_eq!(flags(settings).await, format!("run {expected}"), "{settings}");
    }
}
