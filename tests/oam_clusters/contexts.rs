//! Templates see the cluster that they are rendered for, and kinds that exist only there.

use serde_json::json;

use super::fleet::{Fleet, PATIENT, placed};
use crate::oam_apps::apps::objects;
use crate::oam_apps::stories_hostile::define;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};

const WHERE: &str = r#"
    output: {
        apiVersion: "v1"
        kind:       "ConfigMap"
        data: {
            cluster: context.cluster
            minor:   "\(context.clusterVersion.minor)"
            version: context.clusterVersion.gitVersion
        }
    }
    parameter: {}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_sees_name_and_version_of_its_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    define(site, "where", WHERE).await;
    let _portolan = fleet.portolan(&[]).await;
    let component = json!({ "name": "place", "type": "where", "properties": {} });
    site.declare("shop", placed(&[component], &["local", "east"])).await;
    site.until_running("shop").await;
    for (name, cluster) in [("local", site), ("east", east)] {
        let client = cluster.control_plane.client().await;
        let version = client.apiserver_version().await.unwrap();
        let found = cluster.get(CONFIG_MAP, "place").await.unwrap();
        let expected = json!({ "cluster": name, "minor": version.minor, "version": version.git_version });
        assert_eq!(found["data"], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_only_the_other_cluster_has_is_deployed_kept_and_deleted_there() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let kind = format!("{}/v1 Widget", east.group());
    let widget = json!({
        "apiVersion": format!("{}/v1", east.group()), "kind": "Widget", "metadata": { "name": "gear" },
        "spec": { "teeth": 12 },
    });
    site.declare("shop", placed(&[objects("gear", &[widget])], &["east"]))
        .await;
    site.until_said("shop", "no matches for kind \"Widget\"").await;
    east.define("Widget").await;
    site.until_running("shop").await;
    assert_eq!(east.get(&kind, "gear").await.unwrap()["spec"]["teeth"], 12);

    east.edit(&kind, "gear", json!({ "spec": { "teeth": 3 } })).await;
    east.until(&kind, "gear", "restored", |widget| widget["spec"]["teeth"] == 12)
        .await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(&kind, "gear").await, None);
}
