//! Versions of Applications in other clusters.

use serde_json::{Value, json};

use super::fleet::{Fleet, has, placed};
use crate::oam_apps::apps::config;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};

const COMPONENTS: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_fails_is_rolled_back_in_the_cluster_of_the_one_before() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&["--max-workflow-step-error-retry-times=3"]).await;
    let declare = async |version: &str, value: &str, clusters: &[&str]| {
        let annotations = json!({ "app.oam.dev/publishVersion": version });
        let spec = placed(&[config("settings", value)], clusters);
        let app = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        site.apply(APPLICATION, "shop", app).await;
    };
    declare("release-one", "one", &["east"]).await;
    site.until_running("shop").await;
    declare("release-two", "two", &["nowhere"]).await;
    site.until_phase("shop", "workflowFailed").await;
    assert!(has("one")(&east.get(CONFIG_MAP, "settings").await.unwrap()));

    site.app(&["rollback", "shop", "--yes"]).await;
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["latestRevision"]["name"], "shop-v1");
    assert_eq!(app["status"]["services"][0]["cluster"], "east");
    assert!(has("one")(&east.get(CONFIG_MAP, "settings").await.unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_of_many_components_is_deployed_and_deleted_in_another_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let components: Vec<_> = (0..COMPONENTS)
        .map(|number| config(&format!("settings-{number}"), "one"))
        .collect();
    let mut spec = placed(&components, &["east"]);
    let properties = json!({ "policies": ["topology"], "parallelism": 10 });
    spec["workflow"] = json!({ "steps": [{ "name": "deploy", "type": "deploy", "properties": properties }] });
    site.declare("shop", spec).await;
    site.until_running("shop").await;
    assert_eq!(east.managed(CONFIG_MAP).await.len(), COMPONENTS);
    assert_eq!(fleet.records("shop", "east").await.len(), COMPONENTS);
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.managed(CONFIG_MAP).await, Vec::<Value>::new());
}
