//! A real Postgres server; a database for each test.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::sync::OnceCell;

use super::eventually::eventually;
use super::gate::Gate;
use super::ports::free_port;
use super::process::{Process, ScratchFolder};
use super::target_folder;
use super::tls::Authority;

/// The superuser of each server, and its password.
pub const USER: &str = "postgres";
/// Not empty, so that a test notices when a password is not passed on.
pub const PASSWORD: &str = "anchors-aweigh";

const START_DEADLINE: Duration = Duration::from_secs(60);

/// A database of its own for a test, on the server that all tests share.
pub async fn database() -> TestDatabase {
    static SHARED: OnceCell<Option<PostgresServer>> = OnceCell::const_new();
    // A start that fails is not tried by every test again.
    let start = async || {
        std::panic::AssertUnwindSafe(PostgresServer::start())
            .catch_unwind()
            .await
            .ok()
    };
    let server = SHARED.get_or_init(start).await.as_ref();
    server
        .expect("Postgres starts; the first test that asked for it says what failed")
        .database()
        .await
}

/// An empty database.
pub struct TestDatabase {
    /// `postgres://user:password@host:port/name`
    pub url: String,
    /// Its name on the server.
    pub name: String,
    server: SocketAddr,
}

impl TestDatabase {
    /// A gate before the server, and this database's URL through it: closed, the database is away for whoever uses that.
    pub async fn behind_gate(&self) -> (Gate, String) {
        let gate = Gate::before(self.server).await;
        let url = self.url.replace(&self.server.to_string(), &gate.address().to_string());
        (gate, url)
    }
}

/// A running Postgres server. It accepts connections with and without TLS.
pub struct PostgresServer {
    number: usize,
    port: u16,
    process: Mutex<Option<Process>>,
    folder: ScratchFolder,
    /// The certificate of the authority that signed the server's.
    pub ca_file: PathBuf,
}

impl PostgresServer {
    /// Starts one for a test that needs it for itself, because it stops it.
    pub async fn start() -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let folder = ScratchFolder::new("postgres");
        let authority = Authority::new();
        let ca_file = folder.write("ca.crt", &authority.ca_pem);
        folder.write("password", PASSWORD);
        if let Some(user) = other_user() {
            std::os::unix::fs::chown(folder.path(), Some(user), None).expect("root may give folders away");
        }

        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let server = Self {
            number,
            port: free_port(),
            process: Mutex::new(None),
            folder,
            ca_file,
        };
        let mut initdb = server.command("initdb");
        initdb.args([
            "--pgdata=data",
            "--auth=password",
            "--pwfile=password",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        initdb.arg(format!("--username={USER}"));
        let output = initdb.output().expect("initdb can be run");
        assert!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for (name, content) in [("tls.crt", &authority.certificate_pem), ("tls.key", &authority.key_pem)] {
            let path = server.folder.write(&format!("data/{name}"), content);
            // Postgres refuses a key that others may read, or that is not its user's.
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("our own file");
            if let Some(user) = other_user() {
                std::os::unix::fs::chown(&path, Some(user), None).expect("root may give files away");
            }
        }
        server.start_again().await;
        server
    }

    /// Starts a server that was stopped and waits until it answers.
    pub async fn start_again(&self) {
        let log_path = target_folder("logs").join(format!("postgres-{}.log", self.number));
        let log = std::fs::File::create(&log_path).expect("a log can be written");
        let mut command = self.command("postgres");
        command
            .args(["-D", "data", "-p", &self.port.to_string()])
            .stdout(Stdio::null())
            .stderr(log);
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=300",
            "ssl=on",
            "ssl_cert_file=tls.crt",
            "ssl_key_file=tls.key",
            // Nothing here outlives the tests.
            "fsync=off",
            "full_page_writes=off",
        ];
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let process = Process::spawn(&mut command, "QUIT"); // ends at once, and leaves no shared memory behind
        *self.process.lock().expect("no panic while it is held") = Some(process);
        eventually(
            START_DEADLINE,
            &format!("Postgres to answer (its log: {})", log_path.display()),
            async || PgConnection::connect(&self.url("postgres")).await,
        )
        .await;
    }

    /// Ends the server at once, as a crash would. Its databases are there again after `start_again`.
    pub fn stop(&self) {
        self.process.lock().expect("no panic while it is held").take();
    }

    /// A new empty database.
    pub async fn database(&self) -> TestDatabase {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}", MADE.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&self.url("postgres"))
            .await
            .expect("Postgres answers");
        // The template is read by every `create database`: two at once may get in each other's way, hence the second look.
        let statement = format!("create database {name}");
        eventually(Duration::from_secs(30), "a database to be made", async || {
            connection.execute(AssertSqlSafe(statement.clone())).await
        })
        .await;
        connection.close().await.expect("a connection is closed");
        TestDatabase {
            url: self.url(&name),
            name,
            server: (Ipv4Addr::LOCALHOST, self.port).into(),
        }
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find(program));
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env("HOME", self.folder.path());
        if let Some(user) = other_user() {
            command.uid(user);
        }
        command
    }
}

fn find(program: &str) -> PathBuf {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let debian = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"));
    on_path
        .chain(debian)
        .map(|folder| folder.join(program))
        .find(|path| path.exists())
        .unwrap_or_else(|| {
            panic!("there is no {program}: run `make tools`, which installs Postgres or says what to install")
        })
}

/// Postgres refuses to run as root: then it runs as the user that its package made, or as nobody.
fn other_user() -> Option<u32> {
    let id = |arguments: &[&str]| {
        let output = Command::new("id").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse::<u32>().ok()
    };
    let us = id(&["-u"]).expect("id tells the user");
    (us == 0).then(|| {
        id(&["-u", "postgres"])
            .or_else(|| id(&["-u", "nobody"]))
            .expect("there is a user beside root")
    })
}
