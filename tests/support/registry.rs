//! A real registry (CNCF distribution), one per test.

pub mod push;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::archives::Archive;
use super::control_plane::tool;
use super::eventually::eventually;
use super::forward::Upstream;
use super::helm;
use super::ports::free_port;
use super::process::{Process, ScratchDir};
use super::target_dir;
use super::tls::Authority;
use super::token_server::{ISSUER, SERVICE, Signer, TokenServer, basic_authorization};

/// The user with all permissions.
pub const USER: &str = "navigator";
/// Its password.
pub const PASSWORD: &str = "fair-winds";
/// Both as a bcrypt hash of the lowest cost, the only format that registries accept.
const HTPASSWD: &str = "navigator:$2a$04$vT/FXfZi7pzp1ISuR/aBXO6skG5vWFXVwv249H/70Tw0MNYXeZfhC\n";

const START_DEADLINE: Duration = Duration::from_secs(30);

/// Settings of a registry; the default is public and without TLS.
#[derive(Default)]
pub struct Setup {
    tls: Option<(String, String, String)>,
    login: Login,
    page: Option<usize>,
    notified: Option<(String, String)>,
}

#[derive(Default)]
enum Login {
    #[default]
    Nobody,
    Password,
    Token(String, Arc<Signer>),
}

impl Setup {
    /// Uses a certificate of this authority.
    pub fn tls(mut self, authority: &Authority) -> Self {
        let pems = [&authority.ca_pem, &authority.certificate_pem, &authority.key_pem];
        let [ca, certificate, key] = pems.map(Clone::clone);
        self.tls = Some((ca, certificate, key));
        self
    }

    /// Requires `USER` and `PASSWORD` by Basic authentication.
    pub fn password(mut self) -> Self {
        self.login = Login::Password;
        self
    }

    /// Requires a token of this server.
    pub fn tokens(mut self, server: &TokenServer) -> Self {
        self.login = Login::Token(server.realm(), server.signer());
        self
    }

    /// Limits pages of tags and repositories, regardless of the requested size.
    pub fn pages_of(mut self, entries: usize) -> Self {
        self.page = Some(entries);
        self
    }

    /// Sends notifications of all events to this URL, with this `Authorization` header.
    pub fn notify(mut self, url: &str, authorization: &str) -> Self {
        self.notified = Some((url.to_owned(), authorization.to_owned()));
        self
    }

    fn config(&self, directory: &ScratchDir, address: &str) -> Value {
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "info", "formatter": "text"},
            "storage": {
                // A disk would be slower, because each of a push's small files is synced.
                "inmemory": {},
                "delete": {"enabled": true},
                "maintenance": {"uploadpurging": {"enabled": false}},
            },
            // Behind a proxy, clients must stay on the proxy.
            "http": {"addr": address, "secret": "of this test", "relativeurls": true},
        });
        if let Some((_, certificate, key)) = &self.tls {
            let (certificate, key) = (directory.write("tls.crt", certificate), directory.write("tls.key", key));
            config["http"]["tls"] = json!({"certificate": certificate, "key": key});
        }
        match &self.login {
            Login::Nobody => {}
            Login::Password => {
                let path = directory.write("htpasswd", HTPASSWD);
                config["auth"] = json!({"htpasswd": {"realm": "a test", "path": path}});
            }
            Login::Token(realm, signer) => {
                let keys = directory.write("keys.json", signer.key_set());
                let token = json!({"realm": realm, "service": SERVICE, "issuer": ISSUER, "jwks": keys});
                config["auth"] = json!({"token": token});
            }
        }
        if let Some((url, authorization)) = &self.notified {
            config["notifications"] = json!({"endpoints": [{
                "name": "portolan", "url": url, "headers": {"Authorization": [authorization]},
                "timeout": "5s", "threshold": 3, "backoff": "1s",
            }]});
        }
        if let Some(page) = self.page {
            config["tags"] = json!({"maxtags": page});
            config["catalog"] = json!({"maxentries": page});
        }
        config
    }
}

/// A running registry; deleted with its content on drop.
pub struct Registry {
    /// `127.0.0.1:port`
    pub host: String,
    setup: Setup,
    client: reqwest::Client,
    log: PathBuf,
    _process: Process,
    directory: ScratchDir,
}

impl Registry {
    /// Starts an empty registry and waits until it responds.
    pub async fn start(setup: Setup) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let directory = ScratchDir::new("registry");
        let host = format!("127.0.0.1:{}", free_port());
        let config = directory.write("config.yml", setup.config(&directory, &host).to_string());
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = target_dir("logs").join(format!("registry-{}-{number}.log", std::process::id()));
        let output = std::fs::File::create(&log).expect("a log can be written");
        let mut command = Command::new(tool("registry"));
        command
            .arg("serve")
            .arg(config)
            .current_dir(directory.path())
            // Environment variables would take precedence over the file.
            .env_clear()
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file has two handles"))
            .stderr(output);
        let registry = Self {
            client: client(setup.tls.as_ref().map(|(ca, ..)| ca.as_str())),
            _process: Process::spawn(&mut command, "KILL"),
            host,
            setup,
            log,
            directory,
        };
        let url = registry.url("/v2/");
        eventually(START_DEADLINE, "the registry to respond", async || {
            registry.client.get(&url).send().await.map(drop)
        })
        .await;
        registry
    }

    /// Returns the URL of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.setup.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.host)
    }

    /// Returns the registry as the server behind a `ChartServer`, which records requests and injects faults.
    pub fn upstream(&self) -> Upstream {
        Upstream::new(&self.url(""), self.setup.tls.as_ref().map(|(ca, ..)| ca.as_str()))
    }

    /// Returns the URL of one or more repositories, as helm and AppRepositories use it.
    pub fn oci_url(&self, path: &str) -> String {
        format!("oci://{}/{path}", self.host)
    }

    /// Returns an `Authorization` header with all permissions on a repository, without a request.
    pub fn authorization(&self, repository: &str) -> Option<String> {
        match &self.setup.login {
            Login::Nobody => None,
            Login::Password => Some(basic_authorization()),
            Login::Token(_, signer) => Some(format!("Bearer {}", signer.token_for(repository))),
        }
    }

    /// Pushes a chart by `helm push`; its repository is the chart's name below `path`.
    pub async fn helm_push(&self, archive: &Archive, path: &str) {
        let file = self.directory.write(&archive.file_name(), &archive.bytes);
        let file = file.display().to_string();
        self.helm(&["push", &file, &self.oci_url(path)]).await;
    }

    /// Pulls a chart by `helm pull` and returns the archive's bytes.
    pub async fn helm_pull(&self, repository: &str, version: &str) -> Vec<u8> {
        let directory = ScratchDir::new("pulled");
        let target = directory.path().display().to_string();
        let url = self.oci_url(repository);
        self.helm(&["pull", &url, "--version", version, "--destination", &target])
            .await;
        let mut files = std::fs::read_dir(directory.path()).expect("the directory exists");
        let file = files.next().expect("helm writes a file").expect("the file is readable");
        std::fs::read(file.path()).expect("the file is readable")
    }

    /// Runs a helm command against this registry with all permissions and its CA.
    async fn helm(&self, arguments: &[&str]) {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        match &self.setup.tls {
            None => arguments.push("--plain-http".to_owned()),
            Some((ca, ..)) => arguments.push(format!("--ca-file={}", self.directory.write("ca.crt", ca).display())),
        }
        if !matches!(self.setup.login, Login::Nobody) {
            arguments.extend([format!("--username={USER}"), format!("--password={PASSWORD}")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        helm::output(helm::command(self.directory.path(), &arguments)).await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(40)..].join("\n    ");
            eprintln!("last lines of the registry's log ({}):\n    {tail}", self.log.display());
        }
    }
}

fn client(ca_pem: Option<&str>) -> reqwest::Client {
    portolan::http::install_crypto_provider();
    let roots = ca_pem.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).expect("a certificate"));
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only(roots);
    builder.build().expect("the client is valid")
}
