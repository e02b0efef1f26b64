//! `portolan cluster`, with two control planes and with servers that do not answer like an API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::{Output, Site, assert_line};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::control_plane::{ADMIN_TOKEN, joined_control_plane};
use crate::support::eventually::SOON;
use crate::support::portolan::{command, run};
use crate::support::ports::free_port;
use crate::support::tls::Authority;

pub(super) const TOKEN: &str = "ServiceAccountToken";
const CERTIFICATE: &str = "X509Certificate";
/// The last years of certificates.
const VALID: i32 = 2090;
const EXPIRED: i32 = 2021;

impl Site {
    /// Joins a cluster, as `vela cluster join` does.
    pub(super) async fn join(&self, name: &str, type_: &str, data: Value) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": data,
            "metadata": { "name": name, "labels": { "cluster.core.oam.dev/cluster-credential-type": type_ } },
        });
        self.create_secret(secret).await;
    }

    async fn create_secret(&self, secret: Value) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Runs `portolan cluster …` for the clusters of the namespace.
    async fn cluster(&self, arguments: &[&str]) -> Output {
        let namespace = ["--system-definition-namespace", &self.namespace];
        self.run(&[&["cluster"], arguments, &namespace].concat()).await
    }

    /// Same in a pod, where loopback needs a flag.
    async fn cluster_in_pod(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.control_plane.kubeconfig();
        let mut command = command([&["cluster"], arguments].concat());
        command
            .arg("--system-definition-namespace")
            .arg(&self.namespace)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_remove("PORTOLAN_ALLOW_LOOPBACK")
            .env("KUBERNETES_SERVICE_HOST", "10.96.0.1")
            .env("KUBERNETES_SERVICE_PORT", "443");
        let output = run(command).await;
        Output {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(super) fn token(endpoint: &str, ca: &str, token: &str) -> Value {
    json!({ "endpoint": endpoint, "ca.crt": ca, "token": token })
}

fn certificate(endpoint: &str, ca: &str, (certificate, key): (String, String)) -> Value {
    json!({ "endpoint": endpoint, "ca.crt": ca, "tls.crt": certificate, "tls.key": key })
}

/// Returns what the command prints for a cluster, with the kind of the line.
fn result<'a>(text: &'a str, name: &str) -> (&'a str, &'a str) {
    let prefix = format!("{name}: ");
    let found = text.lines().find_map(|line| {
        let (kind, rest) = line.split_once(' ')?;
        Some((kind, rest.trim_start().strip_prefix(&prefix)?))
    });
    found.unwrap_or_else(|| panic!("{name} in {text}"))
}

fn assert_problem(text: &str, name: &str, expected: &str) {
    let (kind, problem) = result(text, name);
    assert!(kind == "problem" && problem.contains(expected), "{name}: {problem}");
}

fn assert_no_secrets(output: &Output) {
    for hidden in ["hunter2", "BEGIN", "PRIVATE"] {
        assert!(!format!("{output:?}").contains(hidden), "{output:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_reached_with_a_token_and_with_a_certificate_beside_others_that_fail() {
    let site = Site::new().await;
    let other = joined_control_plane(0).await;
    let (url, ca) = (other.url(), other.ca_pem());
    site.join("token", TOKEN, token(&url, ca, ADMIN_TOKEN)).await;
    let admin = certificate(&url, ca, other.admin_pem(VALID));
    site.join("certificate", CERTIFICATE, admin).await;
    let namespace = other.namespace().await;
    let limited = other.token_for(&namespace, "default").await;
    site.join("limited", TOKEN, token(&url, ca, &limited)).await;

    site.join("wrong-token", TOKEN, token(&url, ca, "hunter2")).await;
    let expired = certificate(&url, ca, other.admin_pem(EXPIRED));
    site.join("expired", CERTIFICATE, expired).await;
    let own = site.control_plane;
    site.join("wrong-ca", TOKEN, token(&url, own.ca_pem(), "hunter2")).await;
    site.join("own", TOKEN, token(&own.url(), own.ca_pem(), "hunter2"))
        .await;
    site.join("dynamic", "Dynamic", token(&url, ca, "hunter2")).await;
    let dead = format!("https://127.0.0.1:{}", free_port());
    site.join("dead", TOKEN, token(&dead, ca, "hunter2")).await;
    // Connections stay in its queue.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("https://{}", silent.local_addr().unwrap());
    site.join("silent", TOKEN, token(&silent_url, ca, "hunter2")).await;

    let output = site.cluster(&["check"]).await;
    assert_no_secrets(&output);
    let text = &output.stdout;
    for good in ["token", "certificate"] {
        let (kind, version) = result(text, good);
        assert!(kind == "ok" && version.starts_with("version v1."), "{kind} {version}");
    }
    let (kind, warning) = result(text, "limited");
    assert!(
        kind == "warning" && warning.contains("does not have all rights"),
        "{kind} {warning}"
    );
    for (name, expected) in [
        ("wrong-token", "does not accept the credential; renew it in the Secret"),
        ("expired", "does not accept the credential; renew it in the Secret"),
        ("wrong-ca", "is not trusted: "),
        ("own", "it is the API server"),
        (
            "dynamic",
            "it runs a command; use X509Certificate or ServiceAccountToken",
        ),
        ("dead", "failed to connect to 127.0.0.1:"),
        ("silent", "failed to connect to 127.0.0.1:"),
    ] {
        assert_problem(text, name, expected);
    }
    assert_eq!(output.failed(1), "error: 7 clusters failed\n");

    let good = site.cluster(&["check", "token", "certificate"]).await.ok();
    assert_eq!(good.lines().count(), 2, "{good}");
    let missing = site.cluster(&["check", "token", "nowhere"]).await;
    assert_problem(
        &missing.stdout,
        "nowhere",
        "no such cluster; `portolan cluster list` shows all",
    );
    assert_eq!(missing.failed(1), "error: 1 cluster failed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_api_server_gets_no_more_than_its_limits() {
    let site = Site::new().await;
    let authority = Authority::new();
    let server = ChartServer::start_tls_with(&authority).await;
    let faults = [
        (
            "redirect",
            Fault::redirect("https://169.254.169.254/"),
            "redirects are not followed here",
        ),
        (
            "hanging",
            Fault::Delay(Duration::from_secs(3600)),
            "no response within ",
        ),
        (
            "page",
            Fault::html(),
            "the response of /version is not that of an API server; check the endpoint",
        ),
        ("stalled", Fault::StallAfter(4), "no response within "),
    ];
    for (name, fault, _) in &faults {
        let path = format!("/{name}/version");
        server.serve(&path, Page::new("{\"gitVersion\":\"v1.35.0\"}"));
        server.break_path(&path, fault.clone());
    }
    server.serve("/endless/version", Page::new(vec![b' '; 100 << 20]));
    let more = (0..6).map(|number| (format!("hanging-{number}"), "hanging"));
    let named = faults.iter().map(|(name, ..)| ((*name).to_owned(), *name));
    for (name, path) in named.chain([("endless".to_owned(), "endless")]).chain(more) {
        let endpoint = server.url(&format!("/{path}"));
        site.join(&name, TOKEN, token(&endpoint, &authority.ca_pem, "hunter2"))
            .await;
    }

    let started = Instant::now();
    let output = site.cluster(&["check"]).await;
    // Servers that hang would take 80 s if they were asked one after another.
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_no_secrets(&output);
    for (name, _, expected) in faults {
        assert_problem(&output.stdout, name, expected);
    }
    assert_problem(&output.stdout, "endless", "response is larger than 16777216 bytes");
    assert_eq!(output.failed(1), "error: 11 clusters failed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_and_clusters_that_are_not_verified_need_permission() {
    let site = Site::new().await;
    let other = joined_control_plane(0).await;
    let insecure = json!({ "endpoint": other.url(), "token": ADMIN_TOKEN });
    site.join("unverified", TOKEN, insecure).await;
    let refused = site.cluster(&["check"]).await;
    assert_problem(
        &refused.stdout,
        "unverified",
        "add it, or use --allow-insecure-clusters",
    );
    refused.failed(1);
    let text = site.cluster(&["check", "--allow-insecure-clusters"]).await.ok();
    assert_eq!(result(&text, "unverified").0, "ok");

    let allowed = ["check", "--allow-insecure-clusters", "--allow-loopback"];
    let refused = site.cluster_in_pod(&allowed[..2]).await;
    assert_problem(
        &refused.stdout,
        "unverified",
        "it is this machine; see --allow-loopback",
    );
    refused.failed(1);
    site.cluster_in_pod(&allowed).await.ok();
    let private = [&allowed[..], &["--allow-private-networks=false"]].concat();
    let refused = site.cluster_in_pod(&private).await;
    assert_problem(&refused.stdout, "unverified", "private networks are disabled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_listed_with_the_reasons_why_some_are_refused() {
    let site = Site::new().await;
    let text = site.cluster(&["list"]).await.ok();
    assert!(text.starts_with("no cluster is joined in namespace "), "{text}");
    let prod = token("https://10.1.2.3:6443", &Authority::new().ca_pem, "hunter2");
    site.create_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": prod,
        "metadata": {
            "name": "prod",
            "labels": {
                "cluster.core.oam.dev/cluster-credential-type": TOKEN,
                "cluster.core.oam.dev/cluster-endpoint-type": "Const",
                "region": "eu",
            },
            "annotations": { "cluster.core.oam.dev/cluster-alias": "Production" },
        },
    }))
    .await;
    site.join(
        "broken",
        CERTIFICATE,
        certificate("https://10.1.2.4", "hunter2", ("x".to_owned(), "hunter2".to_owned())),
    )
    .await;
    let output = site.cluster(&["list"]).await;
    assert_no_secrets(&output);
    let text = output.ok();
    assert_line(&text, "NAME ALIAS CREDENTIAL ENDPOINT ACCEPTED LABELS");
    assert_line(
        &text,
        "prod Production ServiceAccountToken https://10.1.2.3:6443 yes region=eu",
    );
    assert_line(&text, "broken - X509Certificate https://10.1.2.4 no -");
    assert_line(
        &text,
        "broken: the authority (ca.crt or ca) contains no certificate; store certificates in PEM",
    );

    let json: Value = serde_json::from_str(&site.cluster(&["list", "-o", "json"]).await.ok()).unwrap();
    assert_eq!(
        json[1],
        json!({
            "name": "prod", "alias": "Production", "credentialType": TOKEN, "endpoint": "https://10.1.2.3:6443",
            "labels": { "region": "eu" }, "problem": null,
        })
    );
    assert_eq!(
        json[0]["problem"],
        "the authority (ca.crt or ca) contains no certificate; store certificates in PEM"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_type_cluster_proxy_is_accepted_and_needs_cluster_gateway() {
    let site = Site::new().await;
    site.create_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": { "token": "hunter2" },
        "metadata": {
            "name": "proxied",
            "labels": {
                "cluster.core.oam.dev/cluster-credential-type": TOKEN,
                "cluster.core.oam.dev/cluster-endpoint-type": "ClusterProxy",
            },
        },
    }))
    .await;
    let text = site.cluster(&["list"]).await.ok();
    assert_line(&text, "proxied - ServiceAccountToken ClusterProxy yes -");
    let output = site.cluster(&["check"]).await;
    assert_no_secrets(&output);
    assert_problem(
        &output.stdout,
        "proxied",
        "install cluster-gateway, or join the cluster with endpoint type Const",
    );
    assert_eq!(output.failed(1), "error: 1 cluster failed\n");
}
