//! A Postgres server for the tests: one for the whole process, a fresh database for each test.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sqlx::{Connection, Executor, PgConnection};
use tokio::sync::OnceCell;

/// A database of its own; it goes with the server.
pub struct TestDatabase {
    /// How to reach it, as a superuser.
    pub url: String,
}

/// A fresh, empty database on the server that all tests share.
pub async fn database() -> TestDatabase {
    static SHARED: OnceCell<PostgresServer> = OnceCell::const_new();
    SHARED.get_or_init(PostgresServer::start).await.database().await
}

/// A running server. It accepts connections with and without TLS.
pub struct PostgresServer {
    port: u16,
    /// The certificate of the authority that signed the server's, for localhost and 127.0.0.1.
    pub ca_file: PathBuf,
    /// Its standard input is what ends the server: the pipe closes when this process ends, however it ends.
    _shell: Child,
}

impl PostgresServer {
    /// Starts one.
    pub async fn start() -> Self {
        let server = tokio::task::spawn_blocking(start).await.unwrap();
        connect(server.port).await;
        server
    }

    /// A new empty database.
    pub async fn database(&self) -> TestDatabase {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut connection = connect(self.port).await;
        connection
            .execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await
            .unwrap();
        TestDatabase {
            url: format!("postgres://postgres:anchors@127.0.0.1:{}/{name}", self.port),
        }
    }
}

/// Makes the certificates, and gives away what the server needs of them.
fn make_certificates(folder: &Path, data: &Path) -> PathBuf {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca_file = folder.join("ca.crt");
    fs::write(&ca_file, params.self_signed(&ca_key).unwrap().pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &Issuer::new(params, ca_key))
        .unwrap();
    let owner = fs::metadata(data).unwrap();
    for (name, content) in [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())] {
        let path = data.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    ca_file
}

fn start() -> PostgresServer {
    let bin = newest_bin();
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let folder = tempfile::Builder::new()
        .prefix("postgres-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
        .keep();
    if root {
        assert!(
            Command::new("chown")
                .arg("postgres")
                .arg(&folder)
                .status()
                .unwrap()
                .success()
        );
    }
    let data = folder.join("data");
    let as_user = |program: &Path| {
        // Postgres refuses to run as root.
        let mut command = if root {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/");
        command
    };
    let made = as_user(&bin.join("initdb"))
        .args([
            "--auth=trust",
            "--username=postgres",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "-D",
        ])
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let ca_file = make_certificates(&folder, &data);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let postgres = as_user(&bin.join("postgres"));
    let shell = Command::new("sh")
        .args([
            "-c",
            r#"folder=$1; shift; "$@" & pid=$!; read -r _; kill -QUIT $pid; wait $pid; rm -rf "$folder""#,
            "sh",
        ])
        .arg(&folder)
        .arg(postgres.get_program())
        .args(postgres.get_args())
        .arg("-D")
        .arg(&data)
        .args([
            "-p",
            &port.to_string(),
            "-h",
            "127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
        ])
        .args([
            "-c",
            "full_page_writes=off",
            "-c",
            "max_connections=500",
            "-c",
            "ssl=on",
        ])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    PostgresServer {
        port,
        ca_file,
        _shell: shell,
    }
}

async fn connect(port: u16) -> PgConnection {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
    let begun = std::time::Instant::now();
    loop {
        match PgConnection::connect(&url).await {
            Ok(connection) => return connection,
            Err(error) if begun.elapsed() > Duration::from_secs(60) => panic!("Postgres did not start: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn newest_bin() -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .expect("install Postgres: apt-get install postgresql")
        .map(|entry| entry.unwrap().path().join("bin"))
        .collect();
    found.sort();
    found.pop().expect("install Postgres: apt-get install postgresql")
}
