//! Registries that are too much for one attempt.

use portolan::repository::decide::Mode;
use portolan::repository::execute::Verdict;
use serde_json::json;

use super::site::Site;

#[tokio::test]
async fn a_large_registry_is_pulled_in_parts_that_are_one_sync_and_nothing_goes_before_its_end() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", 700);
    site.publish("quay", &["1.0.0"]);
    let first = site.sync().await;
    assert!(matches!(first.verdict, Verdict::Synced { is_complete: false, .. }));
    let state = &first.record.state;
    assert_eq!((state.ready, &*state.reason), (None, "Pulling"));
    assert!(
        state.message.starts_with("500 of 701 versions are pulled"),
        "{}",
        state.message
    );
    assert_eq!((site.shown(0).await, site.successes().await), (499, 0));
    site.sync().await;
    assert_eq!((site.shown(0).await, site.successes().await), (700, 1));
    let told = "SELECT added * 100 + changed * 10 + removed FROM portolan_syncs WHERE result = 'Succeeded'";
    assert_eq!(
        site.number(told).await,
        200,
        "two charts were added, whatever became of them in between"
    );

    // The memory is lost, and one of the charts has left the registry meanwhile.
    site.forget(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    site.list("quay", &[]);
    site.push("harbour", "1.3.0", &json!({"appVersion": "another"}));
    let part = site.attempt(Mode::Complete).await;
    assert!(matches!(part.verdict, Verdict::Synced { is_complete: false, .. }));
    assert_eq!(
        (site.shown(0).await, site.shown(1).await, site.successes().await),
        (700, 1, 1)
    );
    let whole = site.sync().await;
    assert!(matches!(whole.verdict, Verdict::Synced { is_complete: true, .. }));
    assert_eq!(
        (site.shown(0).await, site.shown(1).await, site.successes().await),
        (700, 0, 2)
    );
    assert_eq!(site.number("SELECT count(*) FROM portolan_kept_versions").await, 0);
}
