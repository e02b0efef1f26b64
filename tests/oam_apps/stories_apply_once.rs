//! `--apply-once-only`.

use rstest::rstest;
use serde_json::json;

use super::apps::{config, spec};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::Portolan;

async fn passes(portolan: &Portolan) -> f64 {
    let metrics = portolan.metrics().await;
    metrics.sum("portolan_oam_passes_total", &[]).unwrap_or_default()
}

#[rstest]
#[case("on", true)]
#[case("force", false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_change_stays_and_what_they_delete_is_created_again_unless_forced(
    #[case] mode: &str,
    #[case] is_created_again: bool,
) {
    let site = Site::new().await;
    let mode = format!("--apply-once-only={mode}");
    let portolan = site.portolan(&[&mode]).await;
    site.declare("shop", spec(&[config("changed", "one"), config("deleted", "one")]))
        .await;
    site.until_running("shop").await;
    site.edit(CONFIG_MAP, "changed", json!({ "data": { "key": "other" } }))
        .await;
    site.delete(CONFIG_MAP, "deleted").await;
    // The second pass begins after both.
    let before = passes(&portolan).await;
    for number in 1..=2 {
        let note = json!({ "metadata": { "annotations": { "note": number.to_string() } } });
        site.edit(APPLICATION, "shop", note).await;
        eventually(SOON, "another pass", async || {
            let passes = passes(&portolan).await - before;
            if passes >= f64::from(number) {
                Ok(())
            } else {
                Err(passes)
            }
        })
        .await;
    }
    if is_created_again {
        site.until(CONFIG_MAP, "deleted", "created again", |object| {
            object["data"]["key"] == "one"
        })
        .await;
    } else {
        assert_eq!(site.get(CONFIG_MAP, "deleted").await, None);
    }
    assert_eq!(site.get(CONFIG_MAP, "changed").await.unwrap()["data"]["key"], "other");
    site.declare("shop", spec(&[config("changed", "two"), config("deleted", "two")]))
        .await;
    for name in ["changed", "deleted"] {
        site.until(CONFIG_MAP, name, "as declared", |object| object["data"]["key"] == "two")
            .await;
    }
}
