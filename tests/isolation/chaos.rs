//! Each fault alone, in a short test; and all of them in turn, many times, in one process (`make chaos`).

use std::fmt::Write as _;
use std::time::Duration;

use rstest::rstest;

use super::arena::{Arena, Engine, Round};
use super::cluster::Cluster;
use super::fault::Fault;
use super::objects::ObjectFault;
use crate::support::portolan::peak_memory;
use crate::support::record::record;

/// More than any fault adds: the removal of most repositories at once would have to be confirmed.
const RESIDENTS: usize = 80;

async fn once(engine: Engine, fault: Fault) {
    let needs_clock = matches!(fault, Fault::ClockBack | Fault::ClockForward);
    // Only with this fault do hostile repositories have charts to remove.
    let residents = if fault == Fault::HangingArchives { RESIDENTS } else { 2 };
    let mut arena = Arena::new(engine, residents, needs_clock).await;
    if let Err(error) = arena.round(fault, Duration::ZERO).await {
        panic!("{fault:?}: {error}");
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_tenant_stops_no_other(
    #[values(
        Fault::TricklingServers,
        Fault::SilentServers,
        Fault::HangingArchives,
        Fault::FailingServers,
        Fault::NamelessEntries,
        Fault::LargeRegistries,
        Fault::IndexAmongManifests,
        Fault::IdleConnections
    )]
    fault: Fault,
) {
    once(Engine::Sqlite, fault).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_recovers_after_a_fault_of_process_or_clock(
    #[values(Fault::Killed, Fault::ClockBack, Fault::ClockForward)] fault: Fault,
) {
    once(Engine::Sqlite, fault).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_recovers_after_a_fault_of_sqlite(#[values(Fault::FullDisk, Fault::DeletedDatabase)] fault: Fault) {
    once(Engine::Sqlite, fault).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_recovers_after_a_fault_of_postgres(
    #[values(
        Fault::LockedCharts,
        Fault::StoppedBackends,
        Fault::StoppedPostgres,
        Fault::OneConnection
    )]
    fault: Fault,
) {
    once(Engine::Postgres, fault).await;
}

/// With a margin for busy machines.
const DRAIN: Duration = Duration::from_secs(2 + 2 + 4);

#[rstest]
#[case::fetches(Engine::Sqlite, Fault::HangingServers)]
#[case::archives(Engine::Sqlite, Fault::HangingArchives)]
#[case::filters(Engine::Sqlite, Fault::Filters)]
#[case::decodes(Engine::Sqlite, Fault::WideIndexes)]
#[case::registries(Engine::Sqlite, Fault::LargeRegistries)]
#[case::a_lock(Engine::Postgres, Fault::LockedCharts)]
#[case::sessions(Engine::Postgres, Fault::StoppedBackends)]
#[case::a_database(Engine::Postgres, Fault::StoppedPostgres)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_ends_soon_after_its_drain_timeout_although_something_hangs(
    #[case] engine: Engine,
    #[case] fault: Fault,
) {
    let mut arena = Arena::new(engine, 2, false).await;
    let injected = fault.inject(&mut arena).await;
    let took = arena.stop().await;
    assert!(took < DRAIN, "{took:?}");
    fault.lift(&arena, injected).await;
}

#[derive(Default)]
struct Counts {
    rounds: Vec<Round>,
    errors: Vec<String>,
}

impl Counts {
    fn add(&mut self, fault: &str, round: Result<Round, String>) {
        match round {
            Ok(round) => self.rounds.push(round),
            Err(error) => self.errors.push(format!("{fault}: {error}")),
        }
    }

    fn row(&self, fault: &str) -> String {
        let slowest = |durations: &mut dyn Iterator<Item = Duration>| {
            durations
                .max()
                .map_or_else(String::new, |slowest| format!("{:.1}", slowest.as_secs_f64()))
        };
        format!(
            "|{}|{}|{}|{}|{}|{}|\n",
            words(fault),
            self.rounds.len() + self.errors.len(),
            slowest(&mut self.rounds.iter().filter_map(|round| round.ready)),
            slowest(&mut self.rounds.iter().filter_map(|round| round.deleted)),
            slowest(&mut self.rounds.iter().map(|round| round.recovered)),
            self.errors.len(),
        )
    }
}

/// Returns `HangingServers` as `hanging servers`.
fn words(fault: &str) -> String {
    let mut words = String::new();
    for character in fault.chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
        Err(_) => default,
    }
}

/// The faults of one process.
#[derive(Default)]
struct Campaign {
    table: String,
    errors: Vec<String>,
    peak: u64,
}

impl Campaign {
    fn end(faults: &[String], counts: Vec<Counts>, peak: u64) -> Self {
        let mut campaign = Self {
            peak,
            ..Self::default()
        };
        for (fault, counts) in faults.iter().zip(counts) {
            let row = counts.row(fault);
            print!("{row}");
            campaign.table.push_str(&row);
            campaign.errors.extend(counts.errors);
        }
        campaign
    }
}

async fn on_engine(engine: Engine, rounds: u64, hold: Duration) -> Campaign {
    let faults = Fault::of(engine);
    let names: Vec<String> = faults.iter().map(|fault| format!("{fault:?}")).collect();
    let mut arena = Arena::new(engine, RESIDENTS, true).await;
    let mut counts: Vec<Counts> = faults.iter().map(|_| Counts::default()).collect();
    let mut peak = 0;
    for _ in 0..rounds {
        for ((fault, name), counts) in faults.iter().zip(&names).zip(&mut counts) {
            counts.add(name, arena.round(*fault, hold).await);
            peak = peak.max(peak_memory(&arena.portolan));
        }
    }
    Campaign::end(&names, counts, peak)
}

async fn in_cluster(rounds: u64, hold: Duration) -> Campaign {
    let names = ObjectFault::ALL.map(|fault| format!("{fault:?}"));
    let mut cluster = Cluster::new().await;
    cluster.declare("resident", "0").await;
    let mut counts = ObjectFault::ALL.map(|_| Counts::default());
    for _ in 0..rounds {
        for ((fault, name), counts) in ObjectFault::ALL.iter().zip(&names).zip(&mut counts) {
            counts.add(name, cluster.round(*fault, hold).await);
        }
    }
    let peak = peak_memory(&cluster.portolan);
    Campaign::end(&names, counts.into(), peak)
}

#[derive(Clone, Copy, Debug)]
enum Process {
    Engine(Engine),
    Cluster,
}

/// Writes the table of one process in docs/explanation/reliability.md.
#[rstest]
#[case::sqlite(Process::Engine(Engine::Sqlite))]
#[case::postgres(Process::Engine(Engine::Postgres))]
#[case::cluster(Process::Cluster)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes an hour: `make chaos`"]
async fn chaos(#[case] process: Process) {
    let (rounds, hold) = (number("ROUNDS", 3), Duration::from_secs(number("HOLD", 20)));
    let (name, campaign) = match process {
        Process::Engine(engine) => (engine.name(), on_engine(engine, rounds, hold).await),
        Process::Cluster => ("a cluster", in_cluster(rounds, hold).await),
    };
    let Campaign { table, errors, peak } = campaign;
    let mut text = format!(
        "With {name}: {} faults, {} divergences. ",
        u64::from(table.lines().count() as u32) * rounds,
        errors.len()
    );
    let seconds = hold.as_secs();
    let _ = writeln!(
        text,
        "Each was kept for at least {seconds} s. Peak memory: {peak} MiB.\n"
    );
    text.push_str("|fault|rounds|Ready beside it, s|deleted beside it, s|recovered, s|divergences|\n");
    text.push_str("|---|---:|---:|---:|---:|---:|\n");
    text.push_str(&table);
    let marks = [
        format!("<!-- faults with {name}: written by `make chaos` -->"),
        format!("<!-- end of faults with {name} -->"),
    ];
    record(
        "docs/explanation/reliability.md",
        marks.each_ref().map(String::as_str),
        &text,
    );
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
