//! Filters whose process cannot answer.

use portolan::controllers::apprepository::sync::filter_process::FilterProcesses;
use portolan::controllers::apprepository::sync::request::{SyncError, SyncOutcome, SyncResult};
use portolan::jq::{FilterLimits, JqRule};

use super::site::Site;
use crate::support::portolan::BINARY;

fn failure(result: SyncResult) -> SyncError {
    match result.outcome {
        SyncOutcome::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_process_that_fails_is_transient_twice_and_stalled_the_third_time_until_it_works() {
    let mut site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish("quay", &["1.0.0"]);
    site.declaration.filter = Some(JqRule {
        jq: ".name == \"quay\"".to_owned(),
        ..JqRule::default()
    });
    for program in ["/none", "/bin/false", "/bin/true"] {
        site.context.filters = FilterProcesses::new(program.into(), 0, FilterLimits::default());
        site.restart();
        let error = failure(site.sync().await);
        assert_eq!(error.reason, "FilterProcessFailed", "{error:?}");
        assert_eq!(error.transient, program != "/bin/true", "{program}: {error:?}");
    }
    site.context.filters = FilterProcesses::new(BINARY.into(), 32 << 20, FilterLimits::default());
    site.restart();
    let result = site.sync().await;
    assert!(matches!(result.outcome, SyncOutcome::Synced { .. }), "{result:?}");
    assert_eq!(site.charts().await, ["quay 1.0.0"]);
}
