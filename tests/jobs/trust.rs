use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Site, stays};
use crate::cluster::{condition, index, message};
use crate::support::eventually::{SOON, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_template_is_refused_and_its_objects_are_ended() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let host_path = json!({ "spec": { "volumes": [{ "name": "root", "hostPath": { "path": "/" } }] } });
    let spec = json!({ "type": "helm", "url": url, "syncJobPodTemplate": host_path });
    world.declare_with("stable", json!({ "spec": spec })).await;
    let object = world.until_ready_is("stable", "False", "PodTemplateRefused").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "PodTemplateRefused")));
    assert!(
        message(&object).contains("spec.syncJobPodTemplate.spec.volumes[0].hostPath"),
        "{}",
        message(&object)
    );
    assert!(stays(async || site.jobs("stable").await.is_empty()).await);

    world
        .edit(
            "stable",
            json!({ "spec": { "syncJobPodTemplate": { "spec": { "volumes": null } } } }),
        )
        .await;
    world.until_ready("stable").await;

    world
        .edit(
            "stable",
            json!({ "spec": { "syncJobPodTemplate": { "spec": { "serviceAccountName": "portolan" } } } }),
        )
        .await;
    world.until_ready_is("stable", "False", "PodTemplateRefused").await;
    site.until_no_objects("stable").await;
    // A refused template does not block the deletion.
    world.delete("stable").await;
    world.gone("stable").await;
    site.postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_that_is_refused_is_news_until_a_job_succeeds() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    // Its Secret does not exist, so that the news stays in the database.
    world.annotate("stable", "portolan.dev/news", "hook").await;
    let until_news = async |kind: &str| {
        let count = format!("SELECT count(*) FROM portolan_news WHERE event LIKE '%\"kind\":\"{kind}\"%'");
        eventually(SOON, kind, async || {
            (site.postgres.rows.count(&count).await == 1).then_some(())
        })
        .await;
    };
    let run_as =
        |account: Value| json!({ "spec": { "syncJobPodTemplate": { "spec": { "serviceAccountName": account } } } });
    world.edit("stable", run_as(json!("portolan"))).await;
    until_news("failed").await;
    world.edit("stable", run_as(Value::Null)).await;
    world.resync("stable", "again").await;
    until_news("recovered").await;
    until_news("failed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_names_a_variable_never_sends_the_password() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    let url = format!("{}/$(DB_PASSWORD)", world.server.url("/evil"));
    world.declare("evil", &url).await;
    site.until_ended(1).await;
    let ended = site.kubelet.ended();
    let password = crate::support::postgres::PASSWORD;
    assert!(ended.iter().all(|ended| !ended.output.contains(password)), "{ended:?}");
    assert!(world.server.requests("/evil/anchors-aweigh/index.yaml").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_of_a_tenant_in_a_private_network_is_refused_by_the_job() {
    let site = Site::new().await;
    let flags = ["--allow-tenant-proxies", "--allow-private-networks=false"];
    let _portolan = site.portolan(&flags).await;
    let world = &site.world;
    let environment = json!([{ "name": "http_proxy", "value": "http://10.1.2.3:3128" }]);
    let spec = json!({
        "type": "helm", "url": "http://charts.example.com/stable",
        "syncJobPodTemplate": { "spec": { "containers": [{ "env": environment }] } },
    });
    world.declare_with("stable", json!({ "spec": spec })).await;
    let object = world.until_ready_is("stable", "False", "AddressRefused").await;
    assert!(message(&object).contains("10.1.2.3"), "{}", message(&object));
    assert_eq!(site.jobs("stable").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cronjob_of_another_program_is_not_taken_over() {
    let site = Site::new().await;
    let world = &site.world;
    let name = format!("apprepo-{}-sync-stable", world.namespace);
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a" }] });
    let foreign = json!({
        "metadata": { "name": name },
        "spec": { "schedule": "@yearly", "jobTemplate": { "spec": { "template": { "spec": pod } } } },
    });
    site.cron_jobs()
        .create(&Default::default(), &serde_json::from_value(foreign).unwrap())
        .await
        .unwrap();
    let _portolan = site.portolan(&[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let object = world.until_ready_is("stable", "False", "CronJobExists").await;
    assert!(message(&object).contains(&name), "{}", message(&object));
    assert!(site.cron_jobs().get(&name).await.unwrap().labels().is_empty());
    site.cron_jobs().delete(&name, &Default::default()).await.unwrap();
    world.until_ready("stable").await;
}
