use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;

use super::StorageLimits;
use super::connection::PoolSettings;
use crate::budget::ResourceMetrics;

pub const DEFAULT_POSTGRES_CONNECTIONS: u32 = 10;

const APPLICATION_NAME: &str = "portolan";

/// Others are refused: the driver would ignore a misspelled key and log its value, which may be a password.
const POSTGRES_PARAMETERS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];

#[derive(Clone, Debug)]
pub struct CatalogSettings {
    pub database: Database,
    /// Maximum number of Postgres connections. SQLite always has one writer and four readers.
    pub postgres_connections: u32,
    pub pooler: Pooler,
    pub migrations: Migrations,
    pub limits: StorageLimits,
    pub metrics: ResourceMetrics,
}

/// Treatment of tables of an earlier release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migrations {
    #[default]
    Run,
    /// Fails on them. A Job may outlive the release that created it, and must not migrate the tables of another one.
    Refuse,
}

/// The mode of a connection pooler between Portolan and Postgres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooler {
    /// No pooler, or one that gives a client its own session.
    #[default]
    Session,
    /// A session serves another client after each transaction, so that nothing may be set in it.
    Transaction,
}

impl CatalogSettings {
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self {
            database,
            postgres_connections: DEFAULT_POSTGRES_CONNECTIONS,
            pooler: Pooler::default(),
            migrations: Migrations::default(),
            limits: StorageLimits::default(),
            metrics: ResourceMetrics::unregistered(),
        }
    }

    pub(super) fn pools(&self) -> PoolSettings<'_> {
        PoolSettings {
            connections: self.postgres_connections,
            pooler: self.pooler,
            metrics: &self.metrics,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub(super) String);

impl Password {
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// `--database-user`, `--database-name` and `DB_PASSWORD`, as Kubeapps' programs have them. The URL takes precedence.
#[derive(Clone, Debug, Default)]
pub struct Login {
    pub user: Option<String>,
    pub database: Option<String>,
    pub password: Option<Password>,
}

/// A database, parsed from `--database-url`. `Debug` and `Display` omit the password.
#[derive(Clone)]
pub enum Database {
    /// A file, created if it does not exist.
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl Database {
    /// Accepts `sqlite://FILE`, `postgres://…`, `postgresql://…`, or Kubeapps' `HOST:PORT`. Errors never repeat it.
    pub fn parse(url: &str, login: &Login) -> Result<Self, SettingsError> {
        let url = url.trim();
        if let Some(file) = url.strip_prefix("sqlite://") {
            sqlite(file)
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            postgres(url, login)
        } else {
            host_and_port(url, login)
        }
    }

    #[must_use]
    pub fn sqlite_path(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(options) => {
                write!(f, "postgres://{}@", options.get_username())?;
                match options.get_socket() {
                    Some(socket) => write!(f, "{}", socket.display())?,
                    None => write!(f, "{}:{}", options.get_host(), options.get_port())?,
                }
                write!(f, "/{}", options.get_database().unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self})")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error(
        "--database-url must be sqlite://FILE, postgres://USER@HOST/DATABASE, or HOST:PORT with --database-user and --database-name"
    )]
    Form,
    #[error("--database-url sqlite://FILE must name a file without parameters; in-memory databases are not supported")]
    SqliteFile,
    #[error(
        "--database-url is not a valid postgres:// URL: {0}; percent-encode characters such as @ / ? # in the password"
    )]
    Postgres(String),
    #[error(
        "--database-url has the unknown parameter {0:?}; known are sslmode, sslrootcert, sslcert, sslkey, host, port, dbname, user, password, application_name and options"
    )]
    Parameter(String),
}

fn sqlite(file: &str) -> Result<Database, SettingsError> {
    if file.is_empty() || file.contains(['?', '\0']) || file.contains(":memory:") || file.ends_with('/') {
        return Err(SettingsError::SqliteFile);
    }
    Ok(Database::Sqlite(PathBuf::from(file)))
}

fn postgres(text: &str, login: &Login) -> Result<Database, SettingsError> {
    let url = Url::parse(text).map_err(|error| SettingsError::Postgres(error.to_string()))?;
    let mut keys: Vec<String> = Vec::new();
    for (key, _) in url.query_pairs() {
        let is_known = POSTGRES_PARAMETERS.contains(&&*key) || (key.starts_with("options[") && key.ends_with(']'));
        if !is_known {
            return Err(SettingsError::Parameter(crate::text::printable(&key)));
        }
        keys.push(key.into_owned());
    }
    let has_key = |key: &str| keys.iter().any(|k| k == key);
    // The message of the driver may contain the value.
    let mut options = PgConnectOptions::from_str(text)
        .map_err(|_| SettingsError::Postgres("a parameter has an unknown value".to_owned()))?;
    if let Some(user) = &login.user
        && url.username().is_empty()
        && !has_key("user")
    {
        options = options.username(user);
    }
    if let Some(Password(password)) = &login.password
        && url.password().is_none()
        && !has_key("password")
    {
        options = options.password(password);
    }
    if let Some(database) = &login.database
        && url.path().trim_start_matches('/').is_empty()
        && !has_key("dbname")
    {
        options = options.database(database);
    }
    if !has_key("application_name") {
        options = options.application_name(APPLICATION_NAME);
    }
    Ok(Database::Postgres(Box::new(options)))
}

/// Parses Kubeapps' form. TLS is used if the server offers it, unlike in Kubeapps.
fn host_and_port(text: &str, login: &Login) -> Result<Database, SettingsError> {
    let (host, port) = text.rsplit_once(':').ok_or(SettingsError::Form)?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().map_err(|_| SettingsError::Form)?;
    if host.is_empty() || host.contains(['/', '@', ' ', '?']) {
        return Err(SettingsError::Form);
    }
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(host)
        .port(port)
        .ssl_mode(PgSslMode::Prefer)
        .application_name(APPLICATION_NAME);
    if let Some(user) = &login.user {
        options = options.username(user);
    }
    if let Some(database) = &login.database {
        options = options.database(database);
    }
    if let Some(Password(password)) = &login.password {
        options = options.password(password);
    }
    Ok(Database::Postgres(Box::new(options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login {
            user: Some("flag-user".into()),
            database: Some("flag-database".into()),
            password: Some(Password::new("hunter2")),
        }
    }

    #[test]
    fn a_sqlite_url_names_a_file() {
        let database = Database::parse("sqlite://portolan.db", &Login::default()).unwrap();
        assert_eq!(database.sqlite_path(), Some(Path::new("portolan.db")));
        let database = Database::parse("sqlite:///var/lib/a b.db", &Login::default()).unwrap();
        assert_eq!(database.sqlite_path(), Some(Path::new("/var/lib/a b.db")));
        for refused in [
            "sqlite://",
            "sqlite://:memory:",
            "sqlite://x.db?mode=ro",
            "sqlite:///dir/",
        ] {
            assert_eq!(
                Database::parse(refused, &Login::default()).unwrap_err(),
                SettingsError::SqliteFile,
                "{refused}"
            );
        }
    }

    #[test]
    fn kubeapps_form_takes_user_database_and_password_from_the_flags() {
        let database = Database::parse("db.example:5433", &login()).unwrap();
        assert_eq!(
            database.to_string(),
            "postgres://flag-user@db.example:5433/flag-database"
        );
        let Database::Postgres(options) = database else {
            panic!("not Postgres")
        };
        assert!(matches!(options.get_ssl_mode(), PgSslMode::Prefer));
        let v6 = Database::parse("[::1]:5432", &login()).unwrap();
        assert_eq!(v6.to_string(), "postgres://flag-user@::1:5432/flag-database");
    }

    #[test]
    fn a_postgres_url_takes_precedence_over_the_flags() {
        let complete = Database::parse("postgres://u:p@h:1/d?sslmode=verify-full", &login()).unwrap();
        assert_eq!(complete.to_string(), "postgres://u@h:1/d");
        let Database::Postgres(options) = complete else {
            panic!("not Postgres")
        };
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyFull));
        let without_login = Database::parse("postgresql://h", &login()).unwrap();
        assert_eq!(without_login.to_string(), "postgres://flag-user@h:5432/flag-database");
        let with_parameters = Database::parse("postgres://h/?user=q&dbname=r", &login()).unwrap();
        assert_eq!(with_parameters.to_string(), "postgres://q@h:5432/r");
    }

    #[test]
    fn the_password_is_never_printed() {
        for url in [
            "db:5432",
            "postgres://u@h/d",
            "postgres://u:hunter2@h/d",
            "postgres://h/d?password=hunter2",
        ] {
            let login = login();
            let settings = CatalogSettings::new(Database::parse(url, &login).unwrap());
            let printed = format!("{settings:?} {} {login:?}", settings.database);
            assert!(!printed.contains("hunter2"), "{printed}");
        }
        for url in [
            "postgres://u:hunter2@h:port/d",
            "postgres://h/d?passwrd=hunter2",
            "postgres://h/d?sslmode=hunter2",
            "hunter2",
            "user:hunter2@h:1/d",
        ] {
            let error = Database::parse(url, &Login::default()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for refused in ["", "localhost", ":5432", "mysql://h/d", "h:x", "a/b:1"] {
            assert!(Database::parse(refused, &Login::default()).is_err(), "{refused}");
        }
    }
}
