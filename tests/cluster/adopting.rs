//! Kubeapps' CronJobs in a real API server, found and removed.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use portolan::api::NamespacedName;
use portolan::controllers::apprepository::kubeapps_cronjobs::{
    CronJobError, cron_job_name, remove_cron_jobs, with_cron_jobs,
};
use serde_json::{Value, json};

use super::SOON;
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;

/// A CronJob as created by Kubeapps' controller, with a name chosen by the test.
pub fn cron_job(name: &str, repository: &NamespacedName) -> Value {
    let pod = json!({ "restartPolicy": "OnFailure", "containers": [{ "name": "sync", "image": "asset-syncer" }] });
    json!({
        "metadata": { "name": name, "labels": {
            "apprepositories.kubeapps.com/repo-name": repository.name,
            "apprepositories.kubeapps.com/repo-namespace": repository.namespace,
        } },
        "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": { "spec": pod } } } },
    })
}

pub async fn create(client: &Client, namespace: &str, cron_job: Value) -> CronJob {
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), namespace);
    let cron_job = serde_json::from_value(cron_job).unwrap();
    cron_jobs.create(&PostParams::default(), &cron_job).await.unwrap()
}

pub async fn names(client: &Client, namespace: &str) -> Vec<String> {
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), namespace);
    let list = cron_jobs.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(ResourceExt::name_any).collect()
}

pub fn repository(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[tokio::test]
async fn only_the_cron_jobs_of_a_repository_are_removed_with_their_jobs() {
    let control_plane = control_plane().await;
    let (client, kubeapps) = (control_plane.client().await, control_plane.namespace().await);
    let [ours, long, theirs] = [
        repository("team-a", "charts"),
        repository("a-namespace-with-a-long-name", "a-repository-with-a-long-name"),
        repository("team-b", "charts"),
    ];
    for name in [&ours, &long, &theirs] {
        create(&client, &kubeapps, cron_job(&cron_job_name(name), name)).await;
    }
    // Has the same labels, but another name than Kubeapps' controller gives.
    create(&client, &kubeapps, cron_job("nightly-report", &ours)).await;
    let owner = Api::<CronJob>::namespaced(client.clone(), &kubeapps)
        .get(&cron_job_name(&ours))
        .await
        .unwrap();
    let mut job = cron_job("running", &ours);
    job["spec"] = job["spec"]["jobTemplate"]["spec"].clone();
    job["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": owner.name_any(), "uid": owner.uid(),
    }]);
    let jobs: Api<Job> = Api::namespaced(client.clone(), &kubeapps);
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap())
        .await
        .unwrap();

    let managed = [ours.clone(), long.clone()];
    let twice = with_cron_jobs(&client, &kubeapps, |name| managed.contains(name))
        .await
        .unwrap();
    assert_eq!(twice, [long.clone(), ours.clone()]);

    for name in &managed {
        let removed = remove_cron_jobs(&client, &kubeapps, name).await;
        assert_eq!(removed.unwrap(), 1, "{name}");
    }
    assert_eq!(
        names(&client, &kubeapps).await,
        [cron_job_name(&theirs), "nightly-report".to_owned()]
    );
    let again = remove_cron_jobs(&client, &kubeapps, &ours).await;
    assert_eq!(again.unwrap(), 0, "the second call has nothing to remove");
    eventually(SOON, "the job to be collected", async || {
        match jobs.get_opt("running").await.unwrap() {
            None => Ok(()),
            Some(job) => Err(format!("{:?}", job.metadata)),
        }
    })
    .await;
}

#[tokio::test]
async fn names_that_are_not_label_values_have_no_cron_jobs() {
    let control_plane = control_plane().await;
    let (client, kubeapps) = (control_plane.client().await, control_plane.namespace().await);
    for name in ["a,b", "a in (b)", "", &"n".repeat(64)] {
        let removed = remove_cron_jobs(&client, &kubeapps, &NamespacedName::new("team-a", name)).await;
        assert_eq!(removed.unwrap(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_missing_permission_on_cron_jobs_is_reported() {
    let control_plane = control_plane().await;
    let kubeapps = control_plane.namespace().await;
    let token = control_plane.token_for(&kubeapps, "sailor").await;
    let sailor = control_plane.client_with(&token).await;
    let ours = repository("team-a", "charts");
    let error = with_cron_jobs(&sailor, &kubeapps, |_| true).await.unwrap_err();
    assert!(matches!(error, CronJobError::Forbidden { verb: "list", .. }), "{error}");

    create(
        &control_plane.client().await,
        &kubeapps,
        cron_job(&cron_job_name(&ours), &ours),
    )
    .await;
    let role = [
        "create",
        "role",
        "sailor",
        "--verb=list",
        "--resource=cronjobs.batch",
        "-n",
        &kubeapps,
    ];
    control_plane.kubectl(&role).await;
    let account = format!("--serviceaccount={kubeapps}:sailor");
    let binding = [
        "create",
        "rolebinding",
        "sailor",
        "--role=sailor",
        &account,
        "-n",
        &kubeapps,
    ];
    control_plane.kubectl(&binding).await;
    // The API server applies new roles with a short delay.
    eventually(SOON, "the right to list", async || {
        with_cron_jobs(&sailor, &kubeapps, |_| true).await
    })
    .await;
    let error = remove_cron_jobs(&sailor, &kubeapps, &ours).await.unwrap_err();
    assert!(
        matches!(error, CronJobError::Forbidden { verb: "delete", .. }),
        "{error}"
    );
    assert!(error.to_string().contains("adoptKubeapps"), "{error}");
}
