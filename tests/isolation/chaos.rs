//! Each fault alone, in a short test; and all of them in turn, many times, in one process (`make chaos`).

use std::fmt::Write as _;
use std::time::Duration;

use rstest::rstest;

use super::arena::{Arena, Engine, Round};
use super::fault::Fault;
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
    #[values(Fault::LockedCharts, Fault::StoppedBackends, Fault::StoppedPostgres)] fault: Fault,
) {
    once(Engine::Postgres, fault).await;
}

/// Around the counts in docs/reliability.md.
const MARKS: [&str; 2] = ["<!-- counts: written by `make chaos` -->", "<!-- end of counts -->"];

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
    fn row(&self, fault: Fault, engine: Engine) -> String {
        let slowest = |durations: &mut dyn Iterator<Item = Duration>| {
            durations
                .max()
                .map_or_else(String::new, |slowest| format!("{:.1}", slowest.as_secs_f64()))
        };
        format!(
            "|{}|{}|{}|{}|{}|{}|{}|\n",
            words(fault),
            engine.name(),
            self.rounds.len() + self.errors.len(),
            slowest(&mut self.rounds.iter().filter_map(|round| round.ready)),
            slowest(&mut self.rounds.iter().filter_map(|round| round.deleted)),
            slowest(&mut self.rounds.iter().map(|round| round.recovered)),
            self.errors.len(),
        )
    }
}

/// Returns `HangingServers` as `hanging servers`.
fn words(fault: Fault) -> String {
    let mut words = String::new();
    for character in format!("{fault:?}").chars() {
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

/// Writes docs/reliability.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half an hour: `make chaos`"]
async fn chaos() {
    let (rounds, hold) = (number("ROUNDS", 3), Duration::from_secs(number("HOLD", 20)));
    let (mut table, mut errors, mut memory) = (String::new(), Vec::new(), Vec::new());
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let faults = Fault::of(engine);
        let mut arena = Arena::new(engine, RESIDENTS, true).await;
        let mut counts: Vec<Counts> = faults.iter().map(|_| Counts::default()).collect();
        let mut peak = 0;
        for _ in 0..rounds {
            for (fault, counts) in faults.iter().zip(&mut counts) {
                match arena.round(*fault, hold).await {
                    Ok(round) => counts.rounds.push(round),
                    Err(error) => counts.errors.push(format!("{fault:?} on {engine:?}: {error}")),
                }
                peak = peak.max(peak_memory(&arena.portolan));
            }
        }
        for (fault, counts) in faults.iter().zip(counts) {
            let row = counts.row(*fault, engine);
            print!("{row}");
            table.push_str(&row);
            errors.extend(counts.errors);
        }
        memory.push(format!("{peak} MiB with {}", engine.name()));
    }
    let mut text = format!(
        "{} faults, {} divergences. ",
        u64::from(table.lines().count() as u32) * rounds,
        errors.len()
    );
    let _ = writeln!(
        text,
        "Each was kept for at least {} s. Peak memory of the process: {}.\n",
        hold.as_secs(),
        memory.join(", ")
    );
    text.push_str("|fault|database|rounds|Ready beside it, s|deleted beside it, s|recovered, s|divergences|\n|---|---|---:|---:|---:|---:|---:|\n");
    text.push_str(&table);
    record("docs/reliability.md", MARKS, &text);
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
