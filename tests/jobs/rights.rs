use std::path::PathBuf;

use super::Site;
use crate::cluster::{condition, index, message};
use crate::support::control_plane::control_plane;

/// Rights in the namespace of Jobs, as documented in docs/how-to/jobs.md.
const DOCUMENTED: [(&str, &str); 4] = [
    ("get,list,watch,create,patch,update,delete", "cronjobs.batch"),
    ("list,watch,create,patch,delete", "jobs.batch"),
    ("list,watch", "pods"),
    ("get,create,patch,delete", "secrets"),
];

/// Returns a kubeconfig of an account with the rights of the AppRepository controller, and those in the namespace of Jobs.
async fn account(site: &Site, name: &str, in_jobs: &[(&str, &str)]) -> PathBuf {
    let control_plane = control_plane().await;
    let (own, jobs) = (site.world.namespace.as_str(), site.namespace.as_str());
    let token = control_plane.token_for(own, name).await;
    let of_repositories = [
        ("get,list,watch,patch,update", "apprepositories.kubeapps.com"),
        ("get,patch,update", "apprepositories.kubeapps.com/status"),
        ("create,patch", "events.events.k8s.io"),
        ("get", "secrets"),
    ];
    let subject = format!("--serviceaccount={own}:{name}");
    let mut roles: Vec<(&str, &str, &str)> = of_repositories
        .iter()
        .map(|(verbs, kind)| (own, *verbs, *kind))
        .collect();
    roles.extend(in_jobs.iter().map(|(verbs, kind)| (jobs, *verbs, *kind)));
    for (at, (namespace, verbs, kind)) in roles.into_iter().enumerate() {
        let role = format!("{name}-{at}");
        let (verbs, kind) = (format!("--verb={verbs}"), format!("--resource={kind}"));
        control_plane
            .kubectl(&["create", "role", &role, &verbs, &kind, "-n", namespace])
            .await;
        let role_flag = format!("--role={role}");
        control_plane
            .kubectl(&["create", "rolebinding", &role, &role_flag, &subject, "-n", namespace])
            .await;
    }
    // Reads the ID of the cluster.
    let cluster_role = format!("{own}-{name}");
    let create = [
        "create",
        "clusterrole",
        &cluster_role,
        "--verb=get",
        "--resource=namespaces",
    ];
    control_plane.kubectl(&create).await;
    let role_flag = format!("--clusterrole={cluster_role}");
    let bind = ["create", "clusterrolebinding", &cluster_role, &role_flag, &subject];
    control_plane.kubectl(&bind).await;
    control_plane.kubeconfig_for(&control_plane.url(), &token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice() {
    let site = Site::new().await;
    let kubeconfig = account(&site, "sailor", &DOCUMENTED).await;
    let _portolan = site.portolan_as(&kubeconfig, &["--executor=job"]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    world.delete("stable").await;
    world.gone("stable").await;
    site.until_no_objects("stable").await;
    site.postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_end_jobs_a_repository_stalls_instead_of_syncing_twice() {
    let site = Site::new().await;
    let mut rights = DOCUMENTED;
    rights[0].0 = "get,list,watch,create,patch,update";
    let kubeconfig = account(&site, "bosun", &rights).await;
    let _portolan = site
        .portolan_as(&kubeconfig, &["--executor=job", "--allow-executor-annotation"])
        .await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    let fetched = world.server.requests("/stable/index.yaml").len();
    world.annotate("stable", "portolan.dev/executor", "in-process").await;
    world.resync("stable", "now").await;
    let object = world.until_ready_is("stable", "False", "JobsForbidden").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "JobsForbidden")));
    assert!(
        message(&object).contains("delete cronjobs.batch"),
        "{}",
        message(&object)
    );
    assert_eq!(world.server.requests("/stable/index.yaml").len(), fetched);
    // The deletion does not hang on it.
    world.delete("stable").await;
    world.gone("stable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_list_jobs_the_status_names_it() {
    let site = Site::new().await;
    let kubeconfig = account(&site, "stowaway", &[DOCUMENTED[0], DOCUMENTED[3]]).await;
    let flags = site.flags(&["--executor=job"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let world = &site.world;
    let start = world.command(&kubeconfig, &site.database_url(), &flags);
    let _portolan = crate::support::portolan::Portolan::start(start);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let object = world.until_ready_is("stable", "False", "JobsUnknown").await;
    assert!(message(&object).contains("jobs.batch"), "{}", message(&object));
}
