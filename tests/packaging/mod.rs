//! The Helm chart, rendered and installed by the real helm and validated by a real API server.

mod combinations;
mod definitions;
mod image;
mod installed;
mod monitoring;
pub mod operations;
mod permissions;
mod readme;
mod receivers;
mod release;
mod rights;
mod serve;
mod uninstalling;
mod values;
mod vela;
mod webhooks;

use std::process::Output;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::control_plane::control_plane;
use crate::support::process::ScratchDir;
use crate::support::{helm, project, target_dir};

/// Kubernetes version for `helm template`; a helm built from its module assumes a very old one.
const KUBE_VERSION: &str = "--kube-version=1.35.4";

/// Settings that cover the branches of the templates.
const SETTINGS: [&[&str]; 22] = [
    &[],
    &[
        "--set=oam.enabled=true,oam.definitions.install=true,oam.definitions.namespace=kube-public",
        "--set=oam.velaCompat=true,image.tag=v1.11.0",
    ],
    &[
        "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.namespace=kube-public,leaderElection.enabled=true",
        "--set-json=oam.rules=[{\"apiGroups\":[\"apps\"],\"resources\":[\"deployments\"],\"verbs\":[\"*\"]}]",
    ],
    &[
        "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.namespace=kube-public,oam.args={--enable-sharding}",
        "--set=oam.webhooks.enabled=true,networkPolicy.enabled=true",
    ],
    &[
        "--set=oam.enabled=true,oam.webhooks.enabled=true,oam.webhooks.port=9444,oam.definitions.namespace=kube-public",
        "--set=oam.webhooks.certificateSecret=mine,oam.webhooks.injectCaFrom=sea/mine",
    ],
    &["--set=applications.enabled=true,leaderElection.enabled=true"],
    &[
        "--set=applications.enabled=true,watchNamespace=default",
        "--set-json=applications.kinds=[\"*\",\"+example.com/Widget\",\"+Secret\"]",
    ],
    &[
        "--set=watchNamespace=default,kubeappsNamespace=kube-public,watchSecrets=true,adoptKubeapps=true,releases.enabled=true",
    ],
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
        "--set=replicas=3,shards=2,database.existingSecret=postgres,gc.interval=6h",
        "--set=leaderElection.leaseDuration=20s,leaderElection.renewDeadline=15s,leaderElection.retryPeriod=3s",
        "--set=tracing.otlpEndpoint=http://collector:4318,watchLabelSelector=team=a",
        "--set=metrics.podMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true",
        "--set=networkPolicy.enabled=true,podDisruptionBudget.maxUnavailable=50%",
        "--set-json=networkPolicy.egress=[{\"ports\":[{\"port\":443,\"protocol\":\"TCP\"}]}]",
        "--set-json=networkPolicy.metricsFrom=[{\"podSelector\":{}}]",
    ],
    &[
        "--set=initialRepos[0].name=public,initialRepos[0].url=https://charts.example.com",
        "--set=initialRepos[1].name=registry,initialRepos[1].url=https://registry.example.com/charts",
        "--set=initialRepos[1].type=oci,initialRepos[1].ociRepositories={nginx,redis}",
        "--set=initialRepos[1].namespace=default,initialRepos[1].basicAuth.user=a,initialRepos[1].basicAuth.password=b",
        "--set=initialRepos[1].filterRule.jq=.name == $var0,initialRepos[1].filterRule.variables.$var0=nginx",
        "--set=metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.prometheusRule.runbookUrl=https://a",
        "--set=initialRepos[1].nodeSelector.zone=a,executor.mode=job,executor.allowAnnotation=true",
        "--set=database.url=postgres://db/charts,database.passwordSecret.name=postgres",
    ],
    &[
        "--set=oam.enabled=true,oam.args={--controllers=oam},oam.definitions.namespace=kube-public,replicas=2,database.sqlite.persistence.enabled=false",
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
    &[
        "--set=serve.enabled=true,serve.archives=proxy,serve.externalUrl=http://charts.example.com:8080,metrics.port=9090",
        "--set=serve.trustedProxies={10.0.0.0/8,fd00::1},serve.rate=5,serve.burst=6,serve.connections=2,serve.catalogMemory=32Mi",
        "--set=serve.ingress.enabled=true,metrics.serviceMonitor.enabled=true,networkPolicy.enabled=true",
        "--set-json=networkPolicy.metricsFrom=[{\"podSelector\":{}}]",
        "--set-json=serve.networkPolicy.from=[{\"namespaceSelector\":{}}]",
    ],
    &[
        "--set=serve.enabled=true,serve.replicas=2,database.existingSecret=postgres,database.pooler=transaction",
        "--set=serve.database.existingSecret=reader,serve.anonymous={default},serve.allowedHosts={charts},database.clusterId=a",
        "--set=serve.externalUrl=https://charts.example.com/catalog,serve.service.port=80,globalReposNamespace=kube-public",
        "--set=serve.ingress.enabled=true,serve.ingress.className=public,serve.ingress.tlsSecret=charts",
        "--set=serve.ingress.annotations.a=b,serve.service.annotations.a=b,serve.httpRoute.annotations.a=b",
        "--set=serve.httpRoute.enabled=true,serve.httpRoute.parentRefs[0].name=public,metrics.serviceMonitor.enabled=true",
        "--set=networkPolicy.enabled=true",
        "--set-json=networkPolicy.metricsFrom=[{\"podSelector\":{}}]",
        "--set-json=serve.networkPolicy.from=[{\"namespaceSelector\":{}}]",
        "--set-json=serve.networkPolicy.egress=[{\"ports\":[{\"port\":5432,\"protocol\":\"TCP\"}]}]",
    ],
    &[
        "--set=serve.enabled=true,serve.archives=proxy,serve.spool.limit=1Gi,serve.anonymous={*}",
        "--set=database.url=postgres://db/charts,database.passwordSecret.name=postgres",
        "--set=watchNamespace=default,kubeappsNamespace=kube-public,allowPrivateNetworks=false,limits.hostBurst=5",
        "--set=serve.serviceAccount.create=false,serve.serviceAccount.name=reader,metrics.podMonitor.enabled=true",
        "--set=serve.extraArgs={--apiserver=https://a},serve.extraEnv[0].name=HTTPS_PROXY,serve.extraEnv[0].value=http://proxy",
        "--set=serve.podAnnotations.a=b,serve.podLabels.crew=small",
        "--set-json=serve.affinity={\"podAntiAffinity\":{\"preferredDuringSchedulingIgnoredDuringExecution\":[]}}",
        "--set=serve.extraVolumes[0].name=ca,serve.extraVolumes[0].secret.secretName=ca",
        "--set=serve.extraVolumeMounts[0].name=ca,serve.extraVolumeMounts[0].mountPath=/etc/ca",
    ],
    &[
        "--set=receivers.enabled=true,receivers.namespaces[0].name=default,receivers.namespaces[0].secrets={push}",
        "--set=receivers.namespaces[1].name=kube-public,receivers.replicas=2,receivers.trustedProxies={10.0.0.0/8}",
        "--set=receivers.service.port=80,receivers.service.annotations.a=b,receivers.serviceAccount.annotations.a=b",
        "--set=metrics.serviceMonitor.enabled=true,networkPolicy.enabled=true",
        "--set-json=networkPolicy.metricsFrom=[{\"podSelector\":{}}]",
        "--set-json=receivers.networkPolicy.from=[{\"namespaceSelector\":{}}]",
    ],
];

/// Returns CRDs in place of those of the Prometheus Operator and the Gateway API, which are not tested here.
fn foreign_crds() -> impl Iterator<Item = CustomResourceDefinition> {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let monitoring = ["PodMonitor", "PrometheusRule", "ServiceMonitor"].map(|kind| ("monitoring.coreos.com", kind));
    let all = monitoring
        .into_iter()
        .chain([("gateway.networking.k8s.io", "HTTPRoute")]);
    all.map(move |(group, kind)| {
        let plural = format!("{}s", kind.to_lowercase());
        let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        let crd = json!({
            "metadata": {
                "name": format!("{plural}.{group}"),
                // Required of groups below k8s.io.
                "annotations": { "api-approved.kubernetes.io": "unapproved, for tests" },
            },
            "spec": {
                "group": group, "scope": "Namespaced", "names": { "kind": kind, "plural": plural },
                "versions": [version],
            }
        });
        serde_json::from_value(crd).unwrap()
    })
}

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

/// Returns the documents of a rendering that have content.
fn documents(rendered: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(rendered);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
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
    for crd in portolan::api::crds().into_iter().chain(foreign_crds()) {
        control_plane.install_crd(&crd).await;
    }
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
