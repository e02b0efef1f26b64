//! Tenants and faults that must not stop others.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use sqlx::{Executor, PgConnection};

use super::INDEX;
use super::arena::{Arena, Database, Engine, UNLIMITED, roll_back};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::{ChartServer, Fault as ServerFault, Page};
use crate::support::eventually::eventually;
use crate::support::world::SOON;
use crate::threats::{budgets, icons};

/// Repositories with a server of their own.
const SERVERS: usize = 64;
/// Imports of chart files at once.
const IMPORTS: usize = 4;
/// Repositories that use one server.
const TENANTS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Servers that stop in the middle of a body.
    HangingServers,
    /// Servers that send one byte per second.
    TricklingServers,
    /// Servers that accept connections and never respond.
    SilentServers,
    /// Servers whose archives stop in the middle.
    HangingArchives,
    /// Servers that fail at once.
    FailingServers,
    /// Filters that fill memory or compute without end.
    Filters,
    /// Indexes of 49,000 versions with 20 URLs each.
    WideIndexes,
    /// Indexes whose aliases expand.
    Aliases,
    /// Indexes of 10,000 entries without a name.
    NamelessEntries,
    /// An icon of 100,000 x 100,000 pixels.
    HugeIcon,
    /// Registries of 100,000 tags without manifests.
    LargeRegistries,
    /// An index that looks like a manifest, among the manifests.
    IndexAmongManifests,
    /// 300 connections to the HTTP server that stay open.
    IdleConnections,
    Killed,
    ClockBack,
    ClockForward,
    /// Another session that locks the charts.
    LockedCharts,
    StoppedBackends,
    StoppedPostgres,
    /// A server that ends all connections and grants one.
    OneConnection,
    FullDisk,
    DeletedDatabase,
}

/// What [`Fault::lift`] needs.
pub enum Injected {
    Nothing,
    Repositories(Vec<ChartServer>, Vec<TcpListener>),
    Connections(Vec<TcpStream>),
    Session(Box<PgConnection>),
    Processes(Vec<i32>),
}

impl Fault {
    /// Returns the faults that apply to a database engine.
    pub fn of(engine: Engine) -> Vec<Self> {
        let tenants = [
            Self::HangingServers,
            Self::TricklingServers,
            Self::SilentServers,
            Self::HangingArchives,
            Self::FailingServers,
            Self::Filters,
            Self::WideIndexes,
            Self::Aliases,
            Self::NamelessEntries,
            Self::HugeIcon,
            Self::LargeRegistries,
            Self::IndexAmongManifests,
            Self::IdleConnections,
            Self::Killed,
            Self::ClockBack,
            Self::ClockForward,
        ];
        let database: &[Self] = match engine {
            Engine::Sqlite => &[Self::FullDisk, Self::DeletedDatabase],
            Engine::Postgres => &[
                Self::LockedCharts,
                Self::StoppedBackends,
                Self::StoppedPostgres,
                Self::OneConnection,
            ],
        };
        [&tenants[..], database].concat()
    }

    /// Returns true if nothing can be committed until the fault is lifted.
    pub fn stops_commits(self) -> bool {
        matches!(
            self,
            Self::LockedCharts | Self::StoppedBackends | Self::StoppedPostgres | Self::FullDisk | Self::DeletedDatabase
        )
    }

    /// Returns true if syncs of honest repositories fail until the fault is lifted.
    pub fn fails_syncs(self) -> bool {
        self.stops_commits() && self != Self::DeletedDatabase
    }

    pub async fn inject(self, arena: &mut Arena) -> Injected {
        match self {
            Self::HangingServers => servers(arena, "/index.yaml", ServerFault::StallAfter(10), SERVERS / 2).await,
            Self::TricklingServers => {
                servers(
                    arena,
                    "/index.yaml",
                    ServerFault::Drip(1, Duration::from_secs(1)),
                    SERVERS / 2,
                )
                .await
            }
            Self::FailingServers => servers(arena, "/index.yaml", ServerFault::status(500), SERVERS / 2).await,
            Self::SilentServers => silent_servers(arena),
            Self::HangingArchives => servers(arena, "/web.tgz", ServerFault::StallAfter(10), IMPORTS).await,
            Self::Filters => {
                let charts = (0..50).map(|number| {
                    let chart = Chart::new(&format!("boat-{number}"), "1.0.0");
                    chart.pack().index_entry(&["a.tgz"])
                });
                let page = Page::new(index(charts));
                repositories(arena, page, |number| budgets::filter(&budgets::RULES[number])).await
            }
            Self::WideIndexes => repositories(arena, Page::new(budgets::many_urls(49_000)), |_| String::new()).await,
            Self::Aliases => repositories(arena, Page::new(budgets::aliases(75_000)), |_| String::new()).await,
            Self::NamelessEntries => {
                let entries = "  - {version: 1.0.0, urls: [a]}\n".repeat(10_000);
                let text = format!("apiVersion: v1\nentries:\n  web:\n{entries}");
                repositories(arena, Page::new(text), |_| String::new()).await
            }
            Self::HugeIcon => {
                arena.hostile.serve("/huge.png", Page::new(icons::claims(100_000)));
                let mut entry = Chart::new("boat", "1.0.0").pack().index_entry(&["a.tgz"]);
                entry["icon"] = arena.hostile.url("/huge.png").into();
                repositories(arena, Page::new(index([entry])), |_| String::new()).await
            }
            Self::LargeRegistries => large_registries(arena).await,
            Self::IndexAmongManifests => {
                let text = format!("kind: AppRepository\napiVersion: kubeapps.com/v1alpha1\n{INDEX}");
                arena.world.write("index.yaml", text);
                Injected::Nothing
            }
            Self::IdleConnections => connections(arena),
            Self::Killed => {
                arena.portolan.signal("KILL");
                arena.portolan.exit(SOON).await;
                arena.start_again().await;
                Injected::Nothing
            }
            Self::ClockBack => {
                set_clock(arena, "-7200").await;
                Injected::Nothing
            }
            Self::ClockForward => {
                set_clock(arena, "+7200").await;
                Injected::Nothing
            }
            Self::LockedCharts => {
                let mut session = arena.session().await;
                let lock = "BEGIN; LOCK TABLE charts IN ACCESS EXCLUSIVE MODE";
                session.execute(lock).await.unwrap();
                Injected::Session(Box::new(session))
            }
            Self::StoppedBackends => {
                let query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'portolan'";
                let backends = sqlx::query_scalar(query).fetch_all(&mut arena.session().await).await;
                let backends: Vec<i32> = backends.unwrap();
                assert!(!backends.is_empty());
                signal("STOP", &backends);
                Injected::Processes(backends)
            }
            Self::StoppedPostgres | Self::OneConnection | Self::FullDisk | Self::DeletedDatabase => {
                match &arena.database {
                    Database::Postgres(_, database, _) if self == Self::OneConnection => database.limit(1).await,
                    Database::Postgres(server, ..) => server.stop(),
                    Database::Sqlite(disk) if self == Self::FullDisk => disk.fill(),
                    Database::Sqlite(disk) => disk.remove("portolan.db"),
                }
                Injected::Nothing
            }
        }
    }

    /// Ends the fault and removes what hostile tenants declared.
    pub async fn lift(self, arena: &Arena, injected: Injected) {
        match injected {
            Injected::Repositories(servers, listeners) => {
                let directory = std::fs::read_dir(arena.world.manifests()).unwrap();
                let files = directory.map(|entry| entry.unwrap().path());
                let is_hostile = |path: &std::path::PathBuf| path.to_string_lossy().contains("/hostile-");
                for path in files.filter(is_hostile) {
                    std::fs::remove_file(path).unwrap();
                }
                drop((servers, listeners));
            }
            Injected::Connections(connections) => drop(connections),
            Injected::Session(session) => roll_back(*session).await,
            Injected::Processes(processes) => signal("CONT", &processes),
            Injected::Nothing => {}
        }
        match (self, &arena.database) {
            (Self::StoppedPostgres, Database::Postgres(server, ..)) => server.start_again().await,
            (Self::OneConnection, Database::Postgres(_, database, _)) => database.limit(UNLIMITED).await,
            (Self::FullDisk, Database::Sqlite(disk)) => disk.free(),
            (Self::ClockBack | Self::ClockForward, _) => set_clock(arena, "+0").await,
            (Self::IndexAmongManifests, _) => {
                std::fs::remove_file(format!("{}/index.yaml", arena.world.manifests())).unwrap();
            }
            _ => {}
        }
    }
}

/// Sets the clock of the process and waits until it has noticed.
async fn set_clock(arena: &Arena, offset: &str) {
    arena.portolan.forget_lines();
    arena.set_clock(offset);
    arena.portolan.line_with("the wall clock was set", SOON).await;
}

/// Declares repositories in eight namespaces, each with a server of its own that breaks a path, and waits until `asked` of
/// the servers were asked for it.
async fn servers(arena: &Arena, path: &str, fault: ServerFault, asked: usize) -> Injected {
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        let server = ChartServer::start().await;
        server.serve("/index.yaml", Page::new(INDEX));
        server.serve("/web.tgz", Page::new("not an archive"));
        server.break_path(path, fault.clone());
        let namespace = format!("hostile-{}", number % TENANTS);
        arena.write(&namespace, &format!("r{number}-{}", arena.rounds), &server.url(""), "");
        servers.push(server);
    }
    eventually(SOON, "the hostile servers to be asked", async || {
        let now = servers.iter().filter(|server| server.count(path) > 0).count();
        if now >= asked { Ok(()) } else { Err(now) }
    })
    .await;
    Injected::Repositories(servers, Vec::new())
}

fn silent_servers(arena: &Arena) -> Injected {
    let mut listeners = Vec::new();
    for number in 0..SERVERS {
        // The kernel accepts connections for it.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        arena.write(
            &format!("hostile-{}", number % TENANTS),
            &format!("r{number}-{}", arena.rounds),
            &url,
            "",
        );
        listeners.push(listener);
    }
    Injected::Repositories(Vec::new(), listeners)
}

/// Declares a repository with the same index in each of eight namespaces, and waits until one was fetched.
async fn repositories(arena: &Arena, page: Page, more: impl Fn(usize) -> String) -> Injected {
    let path = "/index.yaml";
    let asked = arena.hostile.count(path);
    arena.hostile.serve(path, page);
    for number in 0..TENANTS {
        arena.write(
            &format!("hostile-{number}"),
            &format!("attack-{}", arena.rounds),
            &arena.hostile.url(""),
            &more(number),
        );
    }
    eventually(SOON, "the hostile index to be fetched", async || {
        (arena.hostile.count(path) > asked).then_some(())
    })
    .await;
    Injected::Repositories(Vec::new(), Vec::new())
}

async fn large_registries(arena: &Arena) -> Injected {
    let tags: Vec<String> = (0..100_000).map(|number| format!("1.0.{number}")).collect();
    arena.hostile.serve("/v2/", Page::new("{}"));
    let path = "/v2/harbour/boat/tags/list";
    let asked = arena.hostile.count(path);
    arena.hostile.serve(
        path,
        Page::new(json!({ "name": "harbour/boat", "tags": tags }).to_string()),
    );
    for number in 0..TENANTS {
        let url = arena.hostile.url("/harbour");
        arena.write(
            &format!("hostile-{number}"),
            &format!("registry-{}", arena.rounds),
            &url,
            "  ociRepositories: [boat]\n",
        );
    }
    eventually(SOON, "the tags to be fetched", async || {
        (arena.hostile.count(path) > asked).then_some(())
    })
    .await;
    Injected::Repositories(Vec::new(), Vec::new())
}

fn connections(arena: &Arena) -> Injected {
    let open = |number: usize| {
        let mut connection = TcpStream::connect(arena.portolan.address()).unwrap();
        // Half of them send a request and wait for another.
        if number.is_multiple_of(2) {
            let request = b"GET /livez HTTP/1.1\r\nHost: portolan\r\n\r\n";
            // The server may have closed it already.
            drop(connection.write_all(request));
        }
        connection
    };
    Injected::Connections((0..300).map(open).collect())
}

fn signal(name: &str, processes: &[i32]) {
    let mut command = Command::new("kill");
    command
        .arg(format!("-{name}"))
        .args(processes.iter().map(i32::to_string));
    assert!(command.status().unwrap().success());
}
