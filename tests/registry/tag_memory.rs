//! The memory of tags.

use portolan::budget::{Budgets, Sizes};
use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;

use super::site::{Site, syncer};

/// A quarter of it is for tags.
const MEMORY: u64 = 4 * 64 * 1024;

#[tokio::test]
async fn a_registry_with_too_many_tags_fails_alone_until_it_has_fewer() {
    let mut site = Site::new(&["harbour"]).await;
    site.context.budgets = Budgets::new(Sizes {
        memory: MEMORY,
        ..Sizes::default()
    });
    site.syncer = syncer(&site.context);
    let tags: Vec<String> = (0..1_000).map(|number| format!("1.{number}.0")).collect();
    site.list("harbour", &tags);
    let SyncOutcome::Failed(failed) = site.attempt(SyncMode::Complete).await.outcome else {
        panic!("the tags exceed their memory");
    };
    assert!(failed.transient, "{failed:?}");
    assert_eq!(failed.reason, "ResourceExhausted");
    assert!(failed.message.contains("--memory-budget"), "{}", failed.message);
    assert_eq!(site.context.budgets.tags.used(), 0);

    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.sync().await;
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0"]);
    assert_eq!(site.context.budgets.tags.used(), 0);
}
