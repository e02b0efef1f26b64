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
mod environment;
mod fields;
mod kubevela;
mod point;
mod repositories;
mod run;
mod scenario;
mod state;

use std::time::Duration;

use rstest::rstest;

use campaign::{Extent, campaign};
use scenario::Scenario;

use crate::support::record::record;

const SHORT_REST: Duration = Duration::from_secs(10);
const LONG_REST: Duration = Duration::from_secs(60);

#[rstest]
#[case::repositories(Scenario::Repositories, 2)]
#[case::applications(Scenario::Applications, 2)]
#[case::kubevela(Scenario::KubeVela, 1)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_ends_the_same_after_a_sample_of_interruptions(#[case] scenario: Scenario, #[case] sample: usize) {
    let extent = Extent {
        sample: Some(sample),
        rest: SHORT_REST,
        active: 2,
        all: 12,
    };
    let results = campaign(scenario, extent).await;
    println!("{}", results.report());
    assert_eq!(results.divergences(), Vec::<String>::new());
    results.assert_reached();
}

#[rstest]
#[case::repositories(Scenario::Repositories)]
#[case::applications(Scenario::Applications)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_field_may_be_set_changed_cleared_and_invalid(#[case] scenario: Scenario) {
    let (count, changes, divergences) = fields::fields(scenario, SHORT_REST).await;
    println!("{}: {count} fields, {changes} accepted changes", scenario.name());
    assert_eq!(divergences, Vec::<String>::new());
    assert!(changes > 3 * count, "{changes} changes were accepted");
}

/// Writes docs/reliability.md.
#[rstest]
#[case::repositories(Scenario::Repositories)]
#[case::applications(Scenario::Applications)]
#[case::kubevela(Scenario::KubeVela)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes an hour: `make chaos`"]
async fn every_interruption(#[case] scenario: Scenario) {
    let sample = std::env::var("SAMPLE").ok().filter(|text| !text.is_empty());
    let extent = Extent {
        sample: sample.map(|text| text.parse().expect("SAMPLE is a number")),
        rest: LONG_REST,
        active: 4,
        all: 40,
    };
    let results = campaign(scenario, extent).await;
    let name = scenario.name();
    let [begin, end] = [
        format!("<!-- interruptions of {name}: written by `make chaos` -->"),
        format!("<!-- end of interruptions of {name} -->"),
    ];
    record("docs/reliability.md", [&begin, &end], &results.report());
    assert_eq!(results.divergences(), Vec::<String>::new());
    results.assert_reached();
}
