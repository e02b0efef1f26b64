//! The campaign of interruptions, on the model of Sieve and Acto.
//!
//! ```text
//! undisturbed run ─► requests, commits, pages, events ─► points ─► interruptions
//!        │                                                              │ a run each
//!        └────────────── end: objects and tables ◄── compare ───────────┘
//! ```
//!
//! A run has its own namespace, database and process. The proxies between them inject one interruption, and report
//! whether it was reached. `make chaos` runs all of them, `make test` a sample.

mod applications;
mod campaign;
mod clusters;
mod environment;
mod fields;
mod garbage;
mod jobs;
mod journal;
mod kubevela;
mod news;
mod point;
mod repositories;
mod run;
mod scenario;
mod state;
mod values;
mod webhooks;

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use rstest::rstest;

use campaign::{Extent, campaign};
use scenario::Scenario;

const SHORT_REST: Duration = Duration::from_secs(10);
const LONG_REST: Duration = Duration::from_secs(60);

#[rstest]
#[case::repositories(Scenario::Repositories, 2)]
#[case::applications(Scenario::Applications, 2)]
#[case::kubevela(Scenario::KubeVela, 1)]
#[case::clusters(Scenario::Clusters, 2)]
#[case::webhooks(Scenario::Webhooks, 2)]
#[case::jobs(Scenario::Jobs, 1)]
#[case::garbage(Scenario::Garbage, 1)]
#[case::news(Scenario::News, 1)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_ends_the_same_after_a_sample_of_interruptions(#[case] scenario: Scenario, #[case] sample: usize) {
    let extent = Extent {
        sample: Some(sample),
        rest: SHORT_REST,
        active: 2,
        all: 12,
        goes_on: None,
    };
    let results = campaign(scenario, extent).await;
    println!("{}", results.report());
    results.assert_has_place();
    assert_eq!(results.divergences(), Vec::<String>::new());
    results.assert_reached();
}

#[rstest]
#[case::repositories(Scenario::Repositories)]
#[case::applications(Scenario::Applications)]
#[case::kubevela(Scenario::KubeVela)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_field_may_be_set_changed_cleared_and_invalid(#[case] scenario: Scenario) {
    let (count, changes, divergences) = fields::fields(scenario, SHORT_REST).await;
    println!("{}: {count} fields, {changes} accepted changes", scenario.name());
    assert_eq!(divergences, Vec::<String>::new());
    assert!(changes > 3 * count, "{changes} changes were accepted");
}

/// Writes docs/explanation/reliability.md.
#[rstest]
#[case::repositories(Scenario::Repositories)]
#[case::applications(Scenario::Applications)]
#[case::kubevela(Scenario::KubeVela)]
#[case::jobs(Scenario::Jobs)]
#[case::garbage(Scenario::Garbage)]
#[case::clusters(Scenario::Clusters)]
#[case::webhooks(Scenario::Webhooks)]
#[case::news(Scenario::News)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes hours: `make chaos`"]
async fn every_interruption(#[case] scenario: Scenario) {
    let sample: Option<usize> = variable("SAMPLE");
    let extent = Extent {
        sample,
        rest: LONG_REST,
        active: variable("ACTIVE").unwrap_or(8),
        all: variable("ALL").unwrap_or(60),
        goes_on: Some(variable::<u8>("RESUME").is_some()),
    };
    let results = campaign(scenario, extent).await;
    assert_eq!(results.divergences(), Vec::<String>::new());
    results.assert_reached();
}

/// Returns a number from the environment.
fn variable<N: FromStr<Err: Debug>>(name: &str) -> Option<N> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty());
    text.map(|text| {
        text.parse()
            .unwrap_or_else(|error| panic!("{name} is no number: {error:?}"))
    })
}
