//! A real Postgres server with one database per test.

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
use super::process::{Process, ScratchDir};
use super::target_dir;
use super::tls::Authority;

/// The superuser of each server.
pub const USER: &str = "postgres";
/// Not empty, so that tests notice a password that is not passed on.
pub const PASSWORD: &str = "anchors-aweigh";

const START_DEADLINE: Duration = Duration::from_secs(60);

/// Returns a new database on the server shared by all tests.
pub async fn database() -> TestDatabase {
    static SHARED: OnceCell<Option<PostgresServer>> = OnceCell::const_new();
    // A failed start is not repeated by every test.
    let start = async || {
        std::panic::AssertUnwindSafe(PostgresServer::start())
            .catch_unwind()
            .await
            .ok()
    };
    let server = SHARED.get_or_init(start).await.as_ref();
    server
        .expect("Postgres starts; see the failure of the first test that needs it")
        .database()
        .await
}

/// An empty database.
pub struct TestDatabase {
    /// `postgres://user:password@host:port/name`
    pub url: String,
    pub name: String,
    server: SocketAddr,
}

impl TestDatabase {
    /// Deletes the database, with its connections. Only for tests that need many.
    pub async fn delete(self) {
        let server = self.url.replace(&format!("/{}", self.name), "/postgres");
        let mut connection = PgConnection::connect(&server).await.expect("Postgres answers");
        let statement = format!("drop database {} with (force)", self.name);
        connection
            .execute(AssertSqlSafe(statement))
            .await
            .expect("the database is deleted");
    }

    /// Returns the address of its server.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns the URL for a new user who owns the database, and may have this number of connections.
    pub async fn with_limit(&self, connections: i64) -> String {
        let user = format!("limited_{}", self.name);
        let mut connection = PgConnection::connect(&self.url).await.expect("Postgres answers");
        // The limit does not apply to superusers.
        let statements = format!(
            "CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT {connections};
             ALTER DATABASE {} OWNER TO {user}; GRANT ALL ON SCHEMA public TO {user};
             GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {user}",
            self.name
        );
        connection
            .execute(AssertSqlSafe(statements))
            .await
            .expect("the user is created");
        self.url
            .replace(&format!("{USER}:{PASSWORD}@"), &format!("{user}:{PASSWORD}@"))
    }

    /// Changes the number of connections of that user, and ends those that are open.
    pub async fn limit(&self, connections: i64) {
        let user = format!("limited_{}", self.name);
        let mut connection = PgConnection::connect(&self.url).await.expect("Postgres answers");
        let statements = format!(
            "ALTER ROLE {user} CONNECTION LIMIT {connections};
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'"
        );
        connection
            .execute(AssertSqlSafe(statements))
            .await
            .expect("the limit is changed");
    }

    /// Returns a gate in front of the server, and this database's URL through it.
    pub async fn behind_gate(&self) -> (Gate, String) {
        let gate = Gate::in_front_of(self.server).await;
        let url = self.url.replace(&self.server.to_string(), &gate.address().to_string());
        (gate, url)
    }
}

/// A running Postgres server. It accepts connections with and without TLS.
pub struct PostgresServer {
    number: usize,
    port: u16,
    process: Mutex<Option<Process>>,
    directory: ScratchDir,
    /// The certificate of the authority that signed the server's.
    pub ca_file: PathBuf,
}

impl PostgresServer {
    /// Starts a separate server, for tests that stop it.
    pub async fn start() -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let directory = ScratchDir::new("postgres");
        let authority = Authority::new();
        let ca_file = directory.write("ca.crt", &authority.ca_pem);
        directory.write("password", PASSWORD);
        if let Some(user) = other_user() {
            std::os::unix::fs::chown(directory.path(), Some(user), None).expect("root can change owners");
        }

        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let server = Self {
            number,
            port: free_port(),
            process: Mutex::new(None),
            directory,
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
            let path = server.directory.write(&format!("data/{name}"), content);
            // Postgres refuses a key that is readable by others or has another owner.
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .expect("the file has the same owner");
            if let Some(user) = other_user() {
                std::os::unix::fs::chown(&path, Some(user), None).expect("root can change owners");
            }
        }
        server.start_again().await;
        server
    }

    /// Starts a stopped server and waits until it responds.
    pub async fn start_again(&self) {
        let log_path = target_dir("logs").join(format!("postgres-{}.log", self.number));
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
            // No data is needed after the tests.
            "fsync=off",
            "full_page_writes=off",
            // It would visit the databases of all tests in turn, several in a second.
            "autovacuum=off",
        ];
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let process = Process::spawn(&mut command, "QUIT"); // ends at once, and leaves no shared memory behind
        *self.process.lock().expect("mutex is not poisoned") = Some(process);
        eventually(
            START_DEADLINE,
            &format!("Postgres to respond (its log: {})", log_path.display()),
            async || PgConnection::connect(&self.url("postgres")).await,
        )
        .await;
    }

    /// Kills the server, as a crash would. Its databases are available again after `start_again`.
    pub fn stop(&self) {
        self.process.lock().expect("mutex is not poisoned").take();
    }

    pub async fn database(&self) -> TestDatabase {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}", MADE.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&self.url("postgres"))
            .await
            .expect("Postgres answers");
        // `create database` reads the template, so that concurrent calls may conflict; hence the retry.
        let statement = format!("create database {name}");
        eventually(Duration::from_secs(30), "a database to be created", async || {
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
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .env("HOME", self.directory.path());
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
        .map(|directory| directory.join(program))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{program} is missing: run `make tools`"))
}

/// Returns the user for Postgres, which refuses to run as root: the user of its package, or `nobody`.
fn other_user() -> Option<u32> {
    let id = |arguments: &[&str]| {
        let output = Command::new("id").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse::<u32>().ok()
    };
    let us = id(&["-u"]).expect("id prints the user");
    (us == 0).then(|| {
        id(&["-u", "postgres"])
            .or_else(|| id(&["-u", "nobody"]))
            .expect("there is an unprivileged user")
    })
}
