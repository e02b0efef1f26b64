//! A real registry: the one of the CNCF's distribution project, for one test each.

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
use super::process::{Process, ScratchFolder};
use super::target_folder;
use super::tls::Authority;
use super::token_server::{ISSUER, SERVICE, Signer, TokenServer, basic_authorization};

/// The user with all permissions.
pub const USER: &str = "navigator";
/// Their password.
pub const PASSWORD: &str = "fair-winds";
/// The two as bcrypt's hash of lowest cost, made once: registries take no other.
const HTPASSWD: &str = "navigator:$2a$04$vT/FXfZi7pzp1ISuR/aBXO6skG5vWFXVwv249H/70Tw0MNYXeZfhC\n";

const START_DEADLINE: Duration = Duration::from_secs(30);

/// Settings of a registry; the default is public and without TLS.
#[derive(Default)]
pub struct Setup {
    tls: Option<(String, String, String)>,
    login: Login,
    page: Option<usize>,
}

#[derive(Default)]
enum Login {
    #[default]
    Nobody,
    Password,
    Token(String, Arc<Signer>),
}

impl Setup {
    /// With a certificate of this authority.
    pub fn tls(mut self, authority: &Authority) -> Self {
        let pems = [&authority.ca_pem, &authority.certificate_pem, &authority.key_pem];
        let [ca, certificate, key] = pems.map(Clone::clone);
        self.tls = Some((ca, certificate, key));
        self
    }

    /// Wants `USER` and `PASSWORD` by Basic authentication, for everything.
    pub fn password(mut self) -> Self {
        self.login = Login::Password;
        self
    }

    /// Wants a token of this server, for everything.
    pub fn tokens(mut self, server: &TokenServer) -> Self {
        self.login = Login::Token(server.realm(), server.signer());
        self
    }

    /// Lists no more than so many tags or repositories at once, however many a client asks for.
    pub fn pages_of(mut self, entries: usize) -> Self {
        self.page = Some(entries);
        self
    }

    fn config(&self, folder: &ScratchFolder, address: &str) -> Value {
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "info", "formatter": "text"},
            "storage": {
                // On a disk it would wait for each of a push's many small files to be safe there.
                "inmemory": {},
                "delete": {"enabled": true},
                "maintenance": {"uploadpurging": {"enabled": false}},
            },
            // Through a proxy in front of it, clients shall stay with the proxy.
            "http": {"addr": address, "secret": "of this test", "relativeurls": true},
        });
        if let Some((_, certificate, key)) = &self.tls {
            let (certificate, key) = (folder.write("tls.crt", certificate), folder.write("tls.key", key));
            config["http"]["tls"] = json!({"certificate": certificate, "key": key});
        }
        match &self.login {
            Login::Nobody => {}
            Login::Password => {
                let path = folder.write("htpasswd", HTPASSWD);
                config["auth"] = json!({"htpasswd": {"realm": "a test", "path": path}});
            }
            Login::Token(realm, signer) => {
                let keys = folder.write("keys.json", signer.key_set());
                let token = json!({"realm": realm, "service": SERVICE, "issuer": ISSUER, "jwks": keys});
                config["auth"] = json!({"token": token});
            }
        }
        if let Some(page) = self.page {
            config["tags"] = json!({"maxtags": page});
            config["catalog"] = json!({"maxentries": page});
        }
        config
    }
}

/// A running registry; it and all that it holds are gone when it is dropped.
pub struct Registry {
    /// `127.0.0.1:port`
    pub host: String,
    setup: Setup,
    client: reqwest::Client,
    log: PathBuf,
    _process: Process,
    folder: ScratchFolder,
}

impl Registry {
    /// An empty registry that answers.
    pub async fn start(setup: Setup) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let folder = ScratchFolder::new("registry");
        let host = format!("127.0.0.1:{}", free_port());
        let config = folder.write("config.yml", setup.config(&folder, &host).to_string());
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = target_folder("logs").join(format!("registry-{}-{number}.log", std::process::id()));
        let output = std::fs::File::create(&log).expect("a log can be written");
        let mut command = Command::new(tool("registry"));
        command
            .arg("serve")
            .arg(config)
            .current_dir(folder.path())
            // Settings of the environment would go before those of the file.
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
            folder,
        };
        let url = registry.url("/v2/");
        eventually(START_DEADLINE, "the registry to answer", async || {
            registry.client.get(&url).send().await.map(drop)
        })
        .await;
        registry
    }

    /// The address of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.setup.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.host)
    }

    /// The registry as the server behind a `ChartServer`, which counts, records and spoils its requests.
    pub fn upstream(&self) -> Upstream {
        Upstream::new(&self.url(""), self.setup.tls.as_ref().map(|(ca, ..)| ca.as_str()))
    }

    /// The address of a repository, or of what is above several, as helm and AppRepositories have it.
    pub fn oci_url(&self, path: &str) -> String {
        format!("oci://{}/{path}", self.host)
    }

    /// The `Authorization` header of somebody who may do everything with a repository; no request is needed for it.
    pub fn authorization(&self, repository: &str) -> Option<String> {
        match &self.setup.login {
            Login::Nobody => None,
            Login::Password => Some(basic_authorization()),
            Login::Token(_, signer) => Some(format!("Bearer {}", signer.token_for(repository))),
        }
    }

    /// Pushes a chart by `helm push`; its repository is the chart's name below `path`.
    pub async fn helm_push(&self, archive: &Archive, path: &str) {
        let file = self.folder.write(&archive.file_name(), &archive.bytes);
        let file = file.display().to_string();
        self.helm(&["push", &file, &self.oci_url(path)]).await;
    }

    /// Pulls a chart by `helm pull`: the archive's bytes.
    pub async fn helm_pull(&self, repository: &str, version: &str) -> Vec<u8> {
        let folder = ScratchFolder::new("pulled");
        let target = folder.path().display().to_string();
        let url = self.oci_url(repository);
        self.helm(&["pull", &url, "--version", version, "--destination", &target])
            .await;
        let mut files = std::fs::read_dir(folder.path()).expect("the folder is there");
        let file = files.next().expect("helm wrote a file").expect("it can be read");
        std::fs::read(file.path()).expect("it can be read")
    }

    /// Runs a command of helm against this registry, as somebody who may do everything and knows its authority.
    async fn helm(&self, arguments: &[&str]) {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        match &self.setup.tls {
            None => arguments.push("--plain-http".to_owned()),
            Some((ca, ..)) => arguments.push(format!("--ca-file={}", self.folder.write("ca.crt", ca).display())),
        }
        if !matches!(self.setup.login, Login::Nobody) {
            arguments.extend([format!("--username={USER}"), format!("--password={PASSWORD}")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        helm::prints(helm::command(self.folder.path(), &arguments)).await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(40)..].join("\n    ");
            eprintln!("what the registry wrote last ({}):\n    {tail}", self.log.display());
        }
    }
}

fn client(ca_pem: Option<&str>) -> reqwest::Client {
    portolan::http::install_crypto_provider();
    let roots = ca_pem.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).expect("a certificate"));
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only(roots);
    builder.build().expect("a client is made")
}
