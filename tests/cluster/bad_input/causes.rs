//! All ways in which an index may fail, side by side in one process.

use futures::future::join_all;

use super::table::Then::{Retried, Stalled};
use super::table::{Breakage, Case, LIMITS, cases, good_index};
use super::*;
use crate::support::chart_server::ChartServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_input_is_reported_and_affects_no_charts_or_other_repositories() {
    let fixture = Fixture::new(&LIMITS).await;
    let (world, secure) = (&fixture.world, ChartServer::start_tls().await);
    let cases = cases(&world.server, &secure);

    // All repositories are synced first.
    let names = || cases.iter().map(|case| case.name).chain(["bystander"]);
    join_all(names().map(async |name| world.declare(name, &world.serve(name, good_index())).await)).await;
    join_all(names().map(|name| world.until_ready(name))).await;
    let before = join_all(names().map(|name| fixture.rows(name))).await;
    assert!(before.iter().all(|rows| rows.len() == 2));

    // Then all but one break.
    let requests = join_all(cases.iter().map(|case| break_repository(&fixture, case))).await;
    world.serve("bystander", index(&[("web", &["2.0.0"])]));
    fixture.world.resync("bystander", "now").await;
    join_all(cases.iter().map(|case| check_report(&fixture, case))).await;

    // The healthy one is synced meanwhile.
    let object = fixture.world.resync_and_wait("bystander", "again").await;
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
    assert_eq!(fixture.charts("bystander").await, ["web"]);
    for (case, before) in cases.iter().zip(&before) {
        assert_eq!(&fixture.rows(case.name).await, before, "{}", case.name);
    }

    // Transient failures recover automatically, the others after a request.
    join_all(cases.iter().map(|case| repair(&fixture, case))).await;
    join_all(cases.iter().map(|case| world.until_ready(case.name))).await;
    for ((case, before), requests) in cases.iter().zip(&before).zip(requests) {
        assert_eq!(&fixture.rows(case.name).await, before, "{}", case.name);
        if case.then == Stalled && case.name != "circle" && !matches!(case.breakage, Breakage::Url(_)) {
            let more = fixture.requests(case.name) - requests;
            assert_eq!(
                more, 2,
                "{} is requested once after the failure and once after the repair",
                case.name
            );
        }
    }
    let panics: Vec<String> = fixture
        .portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("panic"))
        .collect();
    assert!(panics.is_empty(), "{panics:?}");
}

/// Breaks a repository; returns the number of index requests so far.
async fn break_repository(fixture: &Fixture, case: &Case) -> usize {
    let (server, path) = (&fixture.world.server, index_path(case.name));
    let requests = fixture.requests(case.name);
    match &case.breakage {
        Breakage::Fault(fault) => server.break_path(&path, fault.clone()),
        Breakage::Page(page) => server.serve(&path, page.clone()),
        Breakage::Url(url) => {
            fixture.world.edit(case.name, json!({ "spec": { "url": url } })).await;
            return requests;
        }
    }
    fixture.world.resync(case.name, "broken").await;
    requests
}

async fn check_report(fixture: &Fixture, case: &Case) {
    let Case {
        name,
        then,
        reason,
        texts,
        ..
    } = case;
    let object = fixture.world.until_ready_is(name, "False", reason).await;
    let expected = match then {
        Retried => (Some(("True", "Retrying")), None),
        Stalled => (None, Some(("True", *reason))),
    };
    assert_eq!(
        (condition(&object, "Reconciling"), condition(&object, "Stalled")),
        expected,
        "{name}"
    );
    let message = message(&object);
    for text in [texts, &["remain available"][..]].concat() {
        assert!(message.contains(text), "{name}: {text:?} is missing in {message}");
    }
    let event = match then {
        Retried => "SyncFailed",
        Stalled => "SyncStalled",
    };
    fixture.event_with(name, event, &[&[*reason], *texts].concat()).await;
}

async fn repair(fixture: &Fixture, case: &Case) {
    let path = index_path(case.name);
    fixture.world.server.clear_faults(&path);
    let url = fixture.world.serve(case.name, good_index());
    match (&case.breakage, case.then) {
        (Breakage::Url(_), _) => drop(fixture.world.edit(case.name, json!({ "spec": { "url": url } })).await),
        (_, Stalled) => fixture.world.resync(case.name, "repaired").await,
        (_, Retried) => {}
    }
}
