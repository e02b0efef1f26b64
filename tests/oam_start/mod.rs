//! The start of the controller of KubeVela's Applications, against a real API server.

mod cluster;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;

use futures::FutureExt;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portolan::api::oam::crds;
use portolan::runtime::leader_election::{Candidacy, LeaderElectionMetrics, Marks, Timing, WriteFence};
use rstest::rstest;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::support::control_plane::ControlPlane;
use crate::support::cue::executable;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::{Portolan, command};
use crate::support::ports::free_port;
use crate::support::process::ScratchDir;
use crate::support::tls::Authority;

/// Returns a control plane for these tests: their processes watch all namespaces, and would change the objects of others.
async fn control_plane() -> &'static ControlPlane {
    static OWN: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
    let start = async || AssertUnwindSafe(ControlPlane::start()).catch_unwind().await.ok();
    let own = OWN.get_or_init(start).await.as_ref();
    own.expect("the control plane starts; see the failure of the first test that needs it")
}

/// A namespace of that control plane with KubeVela's CRDs; the Lease is in it.
struct Site {
    control_plane: &'static ControlPlane,
    namespace: String,
}

impl Site {
    async fn new() -> Self {
        let control_plane = control_plane().await;
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        Self {
            control_plane,
            namespace: control_plane.namespace().await,
        }
    }

    fn start(&self, more: &[&str]) -> Portolan {
        Portolan::start(self.command(more))
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = run(
            &self.control_plane.kubeconfig(),
            &["--leader-election-namespace", &self.namespace],
        );
        command.args(more);
        command
    }

    async fn holder(&self, lease: &str) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.control_plane.client().await, &self.namespace);
        leases.get_opt(lease).await.unwrap()?.spec?.holder_identity
    }
}

fn run(kubeconfig: &Path, more: &[&str]) -> Command {
    let mut command = command(["run", "--controllers=oam", "--kubeconfig"]);
    command.arg(kubeconfig).arg("--cue-evaluator").arg(executable());
    command.args(more);
    command
}

#[rstest]
#[case(include_str!("chart-1.3.txt"))]
#[case(include_str!("chart-1.9.txt"))]
#[case(include_str!("chart-newest.txt"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_arguments_of_kubevelas_charts_reach_readiness(#[case] chart: &str) {
    let site = Site::new().await;
    let certificate = Authority::new();
    let directory = ScratchDir::new("certificate");
    directory.write("tls.crt", &certificate.certificate_pem);
    directory.write("tls.key", &certificate.key_pem);
    let directory = format!("--webhook-cert-dir={}", directory.path().display());
    let port = format!("--webhook-port={}", free_port());
    let mut arguments: Vec<&str> = chart.lines().collect();
    arguments.extend(["--trust-identity-annotations", &directory, &port]);
    let portolan = site.start(&arguments);
    portolan.ready(SOON).await;
    portolan.line_with("started leading", SOON).await;
    assert!(site.holder("kubevela").await.is_some_and(|holder| !holder.is_empty()));
    let lines = portolan.lines();
    let has_line = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(!has_line("unknown flag"), "{lines:#?}");
    assert!(has_line("serving webhooks"), "{lines:#?}");
    let first = [
        "starting the controller oam",
        "disabled capabilities",
        "definition namespace",
        "Use storage driver",
    ];
    let informing = lines.iter().filter(|line| !line.contains(" DEBUG "));
    for (line, text) in informing.zip(first) {
        assert!(line.contains(text), "{line}");
    }
    let (_, checks) = portolan.get("/readyz?verbose").await.unwrap();
    let expected = ["caches", "lease", "crds", "evaluator", "shutdown"].map(|check| format!("[+]{check} ok\n"));
    assert_eq!(checks, format!("{}readyz check passed\n", expected.concat()));
    for path in ["/readyz/ping", "/healthz/ping"] {
        assert_eq!(portolan.get(path).await.unwrap(), (200, "ok".to_owned()));
    }
    let info = r#"{"compatVersion":"v1.11.0-alpha.4","storageDriver":"Local","version":"0.1.0"}"#;
    assert_eq!(portolan.get("/info").await.unwrap(), (200, info.to_owned()));
    let metrics = portolan.metrics().await;
    assert!(metrics.sum("portolan_cue_resident_memory_bytes", &[]).is_some());
}

/// A webhook for Applications. No test here writes one while it exists.
fn webhook(name: &str, url: &str, failure_policy: &str) -> MutatingWebhookConfiguration {
    let webhook = json!({
        "metadata": { "name": name },
        "webhooks": [{
            "name": "mutating.core.oam.dev.v1beta1.applications",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": failure_policy,
            "clientConfig": { "url": url },
            "rules": [{
                "apiGroups": ["core.oam.dev"], "apiVersions": ["v1beta1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["applications"],
            }],
        }],
    });
    serde_json::from_value(webhook).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_of_identities_needs_a_webhook_that_answers() {
    const GATE: &str = "--feature-gates=AuthenticateApplication=true";
    let site = Site::new().await;
    let is_refused = async || {
        let mut refused = site.start(&[GATE]);
        assert_eq!(refused.exit(SOON).await.code(), Some(1));
        let expected = "error: feature gate AuthenticateApplication needs a mutating webhook for Applications";
        let lines = refused.lines();
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{lines:?}");
    };
    is_refused().await;

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/mutate", listener.local_addr().unwrap());
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(site.control_plane.client().await);
    let created = webhooks
        .create(&PostParams::default(), &webhook(&site.namespace, &url, "Ignore"))
        .await;
    created.unwrap();
    is_refused().await;
    let fails =
        json!({ "webhooks": [{ "name": "mutating.core.oam.dev.v1beta1.applications", "failurePolicy": "Fail" }] });
    let patched = webhooks
        .patch(&site.namespace, &PatchParams::default(), &Patch::Strategic(fails))
        .await;
    patched.unwrap();
    let portolan = site.start(&[GATE]);
    portolan.ready(SOON).await;
    portolan
        .line_with("this webhook has to write and protect the identities", SOON)
        .await;
    let metrics = portolan.metrics().await;
    assert_eq!(metrics.sum("portolan_oam_identities_unprotected", &[]), Some(0.0));
    webhooks
        .delete(&site.namespace, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_waits_for_the_lease_until_the_first_ends() {
    let site = Site::new().await;
    let flags = ["--enable-leader-election", "--leader-election-retry-period=500ms"];
    let mut first = site.start(&flags);
    first.line_with("started leading", SOON).await;
    let second = site.start(&flags);
    second.line_with("lease held by another replica, waiting", SOON).await;
    second.ready(SOON).await;
    let holder = site.holder("kubevela").await;
    first.signal("TERM");
    assert!(first.exit(SOON).await.success());
    second.line_with("started leading", SOON).await;
    assert_ne!(site.holder("kubevela").await, holder);
}

#[rstest]
#[case::a_single_leader(1, "kubevela")]
#[case::the_leader_of_a_shard(3, "kubevela-")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_leader_election_the_start_is_refused_while_another_process_renews_the_lease(
    #[case] shards: u32,
    #[case] lease: &str,
) {
    let site = Site::new().await;
    let client = site.control_plane.client().await;
    let timing = Timing {
        retry_period: std::time::Duration::from_millis(500),
        ..Timing::default()
    };
    let marks = Marks {
        lease: "kubevela".to_owned(),
        shards,
        ..Marks::default()
    };
    let shared = (&WriteFence::default(), &LeaderElectionMetrics::default());
    let mut candidacy = Candidacy::new(&client, &site.namespace, &marks, "vela-core_1", timing, shared);
    let (_, guard) = candidacy.acquire().await;
    let mut refused = site.start(&[]);
    assert_eq!(refused.exit(SOON).await.code(), Some(1));
    let expected = format!("error: vela-core_1 holds the Lease {}/{lease}", site.namespace);
    assert!(
        refused.lines().iter().any(|line| line.starts_with(&expected)),
        "{:?}",
        refused.lines()
    );

    guard.release().await;
    let allowed = site.start(&[]);
    allowed.ready(SOON).await;
    assert_eq!(site.holder("kubevela").await.unwrap_or_default(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_flag_is_a_warning_with_the_controller_and_an_error_without() {
    let site = Site::new().await;
    let portolan = site.start(&["--brand-new", "value", "--feature-gates=Newer=true"]);
    portolan.line_with("unknown flag --brand-new ignored", SOON).await;
    portolan.line_with("unknown feature gate Newer ignored", SOON).await;
    portolan.ready(SOON).await;
    let mut refused = Portolan::start(command(["run", "--controllers=application", "--brand-new"]));
    assert_eq!(refused.exit(SOON).await.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_evaluator_keeps_the_process_alive_but_not_ready() {
    let site = Site::new().await;
    let portolan = site.start(&["--cue-evaluator=/nowhere/portolan-cue"]);
    portolan.line_with("failed to start the CUE evaluator", SOON).await;
    eventually(SOON, "only the evaluator to be missing", async || {
        let (status, checks) = portolan
            .get("/readyz?verbose")
            .await
            .map_err(|error| error.to_string())?;
        let failed: Vec<_> = checks.lines().filter(|line| line.starts_with("[-]")).collect();
        let expected = ["[-]evaluator failed: see log for reason"];
        if status == 503 && failed == expected {
            Ok(())
        } else {
            Err(checks)
        }
    })
    .await;
    assert_eq!(portolan.get("/livez").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_profiling_address_serves_the_arguments_without_secrets() {
    let site = Site::new().await;
    let address = format!("127.0.0.1:{}", free_port());
    let profiling = format!("--profiling-addr={address}");
    let portolan = site.start(&[&profiling, "--database-url=postgres://me:secret@db/x"]);
    portolan.ready(SOON).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()
        .unwrap();
    let get = async |path: &str| {
        let response = client
            .get(format!("http://{address}/debug/pprof/{path}"))
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (status, arguments) = get("cmdline").await;
    assert_eq!(status, 200);
    assert!(
        arguments.starts_with("portolan\0run\0") && arguments.contains(&profiling),
        "{arguments:?}"
    );
    assert!(!arguments.contains("secret"), "{arguments:?}");
    assert!(get("").await.1.contains("cmdline"));
    for path in ["heap", "symbol", "trace"] {
        let (status, text) = get(path).await;
        assert_eq!((status, text.contains("not available")), (404, true));
    }
    // The second one is refused while the first takes its second.
    let (first, second) = tokio::join!(get("profile?seconds=1"), get("profile?seconds=1"));
    let mut statuses = [first.0, second.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_also_written_to_the_log_file() {
    let (site, directory) = (Site::new().await, ScratchDir::new("log"));
    let path = directory.join("portolan.log");
    let settings = ["--storage-driver=Shelf", "--disable-caps=rollout"];
    let portolan = site.start(&["--log-file-path", path.to_str().unwrap(), settings[0], settings[1]]);
    portolan.ready(SOON).await;
    portolan.line_with("CUE evaluator ready", SOON).await;
    let text = std::fs::read_to_string(path).unwrap();
    for words in ["CUE evaluator ready", "Use storage driver", "Shelf", "rollout"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let mut refused = site.start(&["--log-file-path=/nowhere/portolan.log"]);
    assert_eq!(refused.exit(SOON).await.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profiling_address_in_use_ends_the_start() {
    let site = Site::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut portolan = site.start(&[&format!("--profiling-addr={address}")]);
    assert_eq!(portolan.exit(SOON).await.code(), Some(1));
    let lines = portolan.lines();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("choose another address with --profiling-addr")),
        "{lines:?}"
    );
}
