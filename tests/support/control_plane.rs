//! A real Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager.
//!
//! There is no scheduler and no kubelet: pods stay Pending. Everything else works as in a cluster, including garbage
//! collection, namespace deletion, RBAC and pod security.

mod processes;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use rcgen::KeyPair;
use serde_json::json;
use tokio::sync::OnceCell;

use super::eventually::eventually;
use super::ports::free_port;
use super::process::{Process, ScratchDir};
use super::tls::Authority;
use super::{project, target_dir};
use processes::{start_api_server, start_controller_manager, start_etcd};

/// The bearer token of a member of system:masters, in the API server's static token file.
pub const ADMIN_TOKEN: &str = "admin";
/// Usually takes seconds; longer with a cold disk on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// A control plane that tests share, or nothing if it did not start.
type Shared = OnceCell<Option<ControlPlane>>;

/// The control plane shared by all tests, started on first use.
pub async fn control_plane() -> &'static ControlPlane {
    static SHARED: Shared = OnceCell::const_new();
    shared(&SHARED).await
}

/// The control planes of the clusters that tests join to `control_plane()`, each shared and started on first use.
pub async fn joined_control_plane(index: usize) -> &'static ControlPlane {
    static SHARED: [Shared; 2] = [const { OnceCell::const_new() }; 2];
    shared(&SHARED[index]).await
}

async fn shared(cell: &'static Shared) -> &'static ControlPlane {
    // A failed start is not repeated by every test: each attempt would take the whole deadline.
    let start = async || {
        std::panic::AssertUnwindSafe(ControlPlane::start())
            .catch_unwind()
            .await
            .ok()
    };
    cell.get_or_init(start)
        .await
        .as_ref()
        .expect("the control plane starts; see the failure of the first test that needs it")
}

/// A running control plane.
pub struct ControlPlane {
    number: usize,
    port: u16,
    /// More flags of the API server.
    flags: &'static [&'static str],
    etcd_url: String,
    authority: Authority,
    api_server: Mutex<Option<Process>>,
    _controller_manager: Process,
    _etcd: Process,
    directory: ScratchDir,
}

impl ControlPlane {
    /// Starts a separate control plane, for tests that stop the API server or install other CRDs.
    pub async fn start() -> Self {
        Self::start_with("*").await
    }

    /// Starts one for many objects of the largest size, of which the cache of the API server would take gigabytes.
    pub async fn start_for_large_objects() -> Self {
        Self::start_with_flags("*", &["--watch-cache=false"]).await
    }

    /// Starts one whose controller manager runs these controllers: `*` means all, a leading `-` excludes one.
    pub async fn start_with(controllers: &str) -> Self {
        Self::start_with_flags(controllers, &[]).await
    }

    async fn start_with_flags(controllers: &str, flags: &'static [&'static str]) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = ScratchDir::new("control-plane");
        let authority = Authority::new();
        directory.write("ca.crt", &authority.ca_pem);
        directory.write("tls.crt", &authority.certificate_pem);
        directory.write("tls.key", &authority.key_pem);
        let service_accounts = KeyPair::generate().expect("ring generates keys");
        directory.write("service-accounts.key", service_accounts.serialize_pem());
        directory.write("service-accounts.pub", service_accounts.public_key_pem());
        directory.write("tokens.csv", format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"));

        let (etcd_url, etcd) = start_etcd(number, &directory);
        let port = free_port();
        let api_server = start_api_server(number, &directory, (port, flags), &etcd_url);
        let kubeconfig = kubeconfig_text(&format!("https://127.0.0.1:{port}"), &authority.ca_pem, ADMIN_TOKEN);
        let controller_manager = start_controller_manager(
            number,
            &directory,
            directory.write("admin.kubeconfig", kubeconfig),
            controllers,
        );
        let control_plane = Self {
            number,
            port,
            flags,
            etcd_url,
            authority,
            api_server: Mutex::new(Some(api_server)),
            _controller_manager: controller_manager,
            _etcd: etcd,
            directory,
        };
        control_plane.wait_until_ready().await;
        control_plane
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the authority that signed the API server's certificate.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the certificate of that authority.
    pub fn ca_pem(&self) -> &str {
        &self.authority.ca_pem
    }

    /// Returns the certificate and the key of an administrator, valid until the end of this year.
    pub fn admin_pem(&self, last_year: i32) -> (String, String) {
        self.authority.client_pem("admin", "system:masters", last_year)
    }

    /// Returns an administrator's client. Each test needs its own, because connections belong to its runtime.
    pub async fn client(&self) -> Client {
        self.client_with(ADMIN_TOKEN).await
    }

    /// Returns a client that uses this token.
    pub async fn client_with(&self, token: &str) -> Client {
        portolan::http::install_crypto_provider();
        let text = kubeconfig_text(&self.url(), self.ca_pem(), token);
        let kubeconfig = Kubeconfig::from_yaml(&text).expect("our kubeconfig is valid");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("our kubeconfig is complete")).expect("the client is valid")
    }

    /// Returns the path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// Writes a kubeconfig for `server` (this API server or a proxy in front of it) and a token; returns its path.
    pub fn kubeconfig_for(&self, server: &str, token: &str) -> PathBuf {
        static WRITTEN: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}.kubeconfig", WRITTEN.fetch_add(1, Ordering::Relaxed));
        self.directory
            .write(&name, kubeconfig_text(server, self.ca_pem(), token))
    }

    /// Creates a namespace.
    pub async fn namespace(&self) -> String {
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        let new: Namespace =
            serde_json::from_value(json!({"metadata": {"generateName": "test-"}})).expect("a namespace");
        namespaces
            .create(&PostParams::default(), &new)
            .await
            .expect("the namespace is created")
            .name_any()
    }

    /// Installs or replaces a CRD, and waits until its objects are served.
    pub async fn install_crd(&self, crd: &CustomResourceDefinition) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client().await);
        let name = crd.name_any();
        // `apply` requires apiVersion and kind, which the types do not serialize.
        let mut document = serde_json::to_value(crd).expect("a CRD is JSON");
        document["apiVersion"] = json!("apiextensions.k8s.io/v1");
        document["kind"] = json!("CustomResourceDefinition");
        let apply = PatchParams::apply("tests").force();
        crds.patch(&name, &apply, &Patch::Apply(document))
            .await
            .expect("the CRD is accepted");
        let established = kube::runtime::conditions::is_crd_established();
        eventually(Duration::from_secs(30), "the CRD to be established", async || {
            let crd = crds.get(&name).await.ok();
            kube::runtime::wait::Condition::matches_object(&established, crd.as_ref()).then_some(())
        })
        .await;
        // Until the storage is there, lists are refused.
        let version = crd.spec.versions.iter().find(|version| version.served);
        let version = &version.expect("a version is served").name;
        let kind = GroupVersionKind::gvk(&crd.spec.group, version, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        let objects: Api<DynamicObject> = Api::all_with(self.client().await, &resource);
        eventually(Duration::from_secs(30), "lists of the kind", async || {
            match objects.list(&ListParams::default().limit(1)).await {
                Err(kube::Error::Api(status)) if status.code == 429 => Err(status.message),
                _ => Ok(()),
            }
        })
        .await;
    }

    /// Returns a token of a service account, which is created if needed.
    pub async fn token_for(&self, namespace: &str, service_account: &str) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await, namespace);
        let apply = PatchParams::apply("tests");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": service_account}});
        accounts
            .patch(service_account, &apply, &Patch::Apply(account))
            .await
            .expect("the service account is created");
        let request = TokenRequest {
            spec: TokenRequestSpec::default(),
            ..Default::default()
        };
        let answer = accounts
            .create_token_request(service_account, &PostParams::default(), &request)
            .await;
        answer
            .expect("the token is created")
            .status
            .expect("the response has a token")
            .token
    }

    /// Runs kubectl with administrator permissions and returns its output. A failure fails the test.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = tokio::process::Command::new(tool("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            .stdin(Stdio::null());
        let output = command.output().await.expect("kubectl can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("kubectl prints UTF-8")
    }

    /// Kills the API server, as a crash of its node would. etcd keeps running.
    pub fn stop_api_server(&self) {
        self.api_server.lock().expect("mutex is not poisoned").take();
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn start_api_server(&self) {
        let process = start_api_server(self.number, &self.directory, (self.port, self.flags), &self.etcd_url);
        *self.api_server.lock().expect("mutex is not poisoned") = Some(process);
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&self) {
        let client = self.client().await;
        let log = target_dir("logs").join(format!("kube-apiserver-{}.log", self.number));
        eventually(
            START_DEADLINE,
            &format!("the API server to be ready (its log: {})", log.display()),
            async || {
                if let Some(process) = self.api_server.lock().expect("mutex is not poisoned").as_mut() {
                    let ended = process.exit_status();
                    assert!(
                        ended.is_none(),
                        "the API server ended ({ended:?}); its log: {}",
                        log.display()
                    );
                }
                client
                    .request_text(http::Request::get("/readyz").body(Vec::new()).expect("a request"))
                    .await
            },
        )
        .await;
    }
}

/// Returns the path of a tool: from a variable such as `KUBEBUILDER_ASSETS` or `HELM`, or as installed by `make tools`.
pub fn tool(name: &str) -> PathBuf {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let built = project("target/tools").join(name);
    let path = match name {
        "helm" => variable("HELM").unwrap_or(built),
        "helm4" => variable("HELM4").unwrap_or(built),
        "registry" => variable("REGISTRY").unwrap_or(built),
        "chromium" => variable("CHROME").unwrap_or(built),
        "chromedriver" => variable("CHROMEDRIVER").unwrap_or(built),
        "axe.min.js" => built,
        _ => variable("KUBEBUILDER_ASSETS").map_or(built, |directory| directory.join(name)),
    };
    assert!(
        path.exists(),
        "{} is missing: run `make tools` first, or use `make test`",
        path.display()
    );
    path
}

fn kubeconfig_text(server: &str, ca_pem: &str, token: &str) -> String {
    let authority = if server.starts_with("https:") {
        json!({"certificate-authority-data": base64(ca_pem)})
    } else {
        json!({})
    };
    let mut cluster = authority;
    cluster["server"] = json!(server);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    })
    .to_string()
}

fn base64(text: &str) -> String {
    // k8s-openapi serializes byte strings as base64.
    let value = serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).expect("bytes are JSON");
    value.as_str().expect("bytes are serialized as text").to_owned()
}
