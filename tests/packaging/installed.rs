//! A release of the chart, and Portolan with only the permissions of that release.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use portolan::api::AppRepository;
use serde_json::json;

use super::helm_output;
use super::release::{container, install};
use crate::cluster::{SOON, World, index};
use crate::support::control_plane::control_plane;
use crate::support::cue::executable;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command, run};
use crate::support::postgres::database;

/// Runs a repository through its life cycle, from creation to deletion.
async fn story(world: &World, portolan: &Portolan) {
    let url = world.serve("harbour", index(&[("beacon", &["1.0.0"])]));
    world.declare("harbour", &url).await;
    world.until_ready("harbour").await;
    world.event("harbour", "SyncSucceeded").await;

    world.serve("harbour", index(&[("beacon", &["1.1.0", "1.0.0"])]));
    world.edit("harbour", json!({ "spec": { "resyncRequests": 1 } })).await;
    let versions = |object: &AppRepository| Some(object.status.as_ref()?.last_sync.as_ref()?.versions);
    world
        .until("harbour", "two versions", |object| versions(object) == Some(2))
        .await;

    world.delete("harbour").await;
    world.gone("harbour").await;
    let refused: Vec<String> = portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("orbidden"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

fn is_forbidden<T>(answer: Result<T, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test]
async fn a_release_has_exactly_the_permissions_that_portolan_needs() {
    let world = World::new().await;
    let namespace = install(&[]).await;
    let mut command = container(&namespace, &database().await.url).await;
    // Ignores the repositories of other tests.
    command.env("PORTOLAN_WATCH_NAMESPACE", &world.namespace);
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    story(&world, &portolan).await;

    let control_plane = control_plane().await;
    let client: Client = control_plane
        .client_with(&control_plane.token_for(&namespace, "portolan").await)
        .await;
    let repositories: Api<AppRepository> = Api::namespaced(client.clone(), &world.namespace);
    world.declare("harbour", "https://charts.example.com").await;
    assert!(is_forbidden(
        repositories.delete("harbour", &DeleteParams::default()).await
    ));
    assert!(is_forbidden(
        Api::<Secret>::all(client.clone()).list(&ListParams::default()).await
    ));
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), &namespace);
    cron_jobs.list(&ListParams::default()).await.unwrap();
    assert!(is_forbidden(cron_jobs.delete("any", &DeleteParams::default()).await));
    let elsewhere: Api<CronJob> = Api::namespaced(client.clone(), &world.namespace);
    assert!(is_forbidden(elsewhere.list(&ListParams::default()).await));
    assert!(is_forbidden(
        Api::<Pod>::namespaced(client, &namespace)
            .list(&ListParams::default())
            .await
    ));
    world.delete("harbour").await;
}

#[tokio::test]
async fn a_release_for_one_namespace_has_no_permissions_in_others() {
    let world = World::new().await;
    let namespace = install(&[&format!("--set=watchNamespace={}", world.namespace)]).await;
    let portolan = Portolan::start(container(&namespace, &database().await.url).await);
    portolan.ready(SOON).await;
    story(&world, &portolan).await;

    let control_plane = control_plane().await;
    let client = control_plane
        .client_with(&control_plane.token_for(&namespace, "portolan").await)
        .await;
    let elsewhere: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    assert!(is_forbidden(elsewhere.get("any").await));
    assert!(is_forbidden(
        Api::<AppRepository>::all(client).list(&ListParams::default()).await
    ));
}

#[tokio::test]
async fn a_release_may_watch_secrets_and_delete_cron_jobs_only_in_the_configured_namespaces() {
    let control_plane = control_plane().await;
    let (team, kubeapps) = (control_plane.namespace().await, control_plane.namespace().await);
    let namespaces = format!("--set=watchNamespace={team},kubeappsNamespace={kubeapps}");
    let namespace = install(&[&namespaces, "--set=watchSecrets=true,adoptKubeapps=true"]).await;
    let token = control_plane.token_for(&namespace, "portolan").await;
    let client = control_plane.client_with(&token).await;
    let is_absent = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
    for allowed in [&team, &kubeapps] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), allowed);
        // The API server applies new roles with a short delay.
        eventually(SOON, "the permissions", async || {
            secrets.list(&ListParams::default()).await
        })
        .await;
        assert!(is_absent(&secrets.get("absent").await.unwrap_err()));
        assert!(is_forbidden(secrets.delete("absent", &DeleteParams::default()).await));
    }
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), &kubeapps);
    assert!(is_absent(
        &cron_jobs.delete("absent", &DeleteParams::default()).await.unwrap_err()
    ));
    let elsewhere: Api<CronJob> = Api::namespaced(client.clone(), &team);
    assert!(is_forbidden(elsewhere.delete("absent", &DeleteParams::default()).await));
    let elsewhere: Api<Secret> = Api::namespaced(client, &namespace);
    assert!(is_forbidden(elsewhere.get("absent").await));
}

#[tokio::test]
async fn a_release_with_applications_may_reconcile_them_and_use_leases() {
    let control_plane = control_plane().await;
    let (team, elsewhere) = (control_plane.namespace().await, control_plane.namespace().await);
    let settings = format!("--set=watchNamespace={team},applications.enabled=true,leaderElection.enabled=true");
    let namespace = install(&[&settings]).await;
    let account = format!("system:serviceaccount:{namespace}:portolan");
    let may = async |verb: &str, resource: &str, namespace: &str| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": account, "resourceAttributes": attributes(verb, resource, namespace) },
        });
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        let reviews: Api<SubjectAccessReview> = Api::all(control_plane.client().await);
        reviews
            .create(&PostParams::default(), &review)
            .await
            .unwrap()
            .status
            .unwrap()
            .allowed
    };
    // The API server applies new roles with a short delay.
    eventually(SOON, "the permissions", async || {
        may("list", "applications.app.k8s.io", &team).await.then_some(())
    })
    .await;
    for (verb, resource) in [
        ("watch", "applications.app.k8s.io"),
        ("patch", "applications.app.k8s.io/status"),
        ("update", "applications.app.k8s.io/finalizers"),
        ("watch", "deployments.apps"),
        ("patch", "ingresses.networking.k8s.io"),
    ] {
        assert!(may(verb, resource, &team).await, "{verb} {resource}");
        assert!(!may(verb, resource, &elsewhere).await, "{verb} {resource} elsewhere");
    }
    assert!(may("watch", "customresourcedefinitions.apiextensions.k8s.io", "").await);
    assert!(!may("patch", "customresourcedefinitions.apiextensions.k8s.io", "").await);
    assert!(!may("update", "deployments.apps", &team).await);
    assert!(!may("patch", "deployments.apps/scale", &team).await);
    for (verb, resource) in [
        ("watch", "secrets."),
        ("list", "roles.rbac.authorization.k8s.io"),
        ("patch", "resourcequotas."),
        ("patch", "widgets.example.com"),
    ] {
        assert!(!may(verb, resource, &team).await, "{verb} {resource}");
    }
    assert!(!may("delete", "pods.", &team).await);
    let leases = "leases.coordination.k8s.io";
    assert!(may("create", leases, &namespace).await);
    for verb in ["get", "update", "list", "delete", "patch"] {
        assert!(!may(verb, leases, &namespace).await, "{verb}");
    }
    for verb in ["get", "update"] {
        assert!(may(verb, &format!("{leases}=portolan"), &namespace).await, "{verb}");
    }
}

#[tokio::test]
async fn a_release_for_kubevelas_applications_has_the_rights_that_doctor_checks() {
    let control_plane = control_plane().await;
    for crd in portolan::api::oam::crds() {
        control_plane.install_crd(&crd).await;
    }
    let definitions = control_plane.namespace().await;
    let settings = format!(
        "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.namespace={definitions},rbac.secrets=false"
    );
    let rules = r#"--set-json=oam.rules=[{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]}]"#;
    let namespace = install(&[&settings, rules]).await;
    let token = control_plane.token_for(&namespace, "portolan").await;
    let kubeconfig = control_plane.kubeconfig_for(&control_plane.url(), &token);
    // The API server applies new roles with a short delay.
    eventually(SOON, "the rights", async || {
        let mut doctor = command(["doctor", "--controllers=apprepository,oam", "--cue-evaluator"]);
        doctor.arg(executable()).arg("--kubeconfig").arg(&kubeconfig);
        let text = String::from_utf8(run(doctor).await.stdout).unwrap();
        let mut controllers = ["apprepository", "oam"].into_iter();
        let is_sufficient =
            controllers.all(|name| text.contains(&format!("rights are sufficient for the controller {name}\n")));
        if is_sufficient { Ok(()) } else { Err(text) }
    })
    .await;
}

/// Attributes of an access review for `RESOURCE.GROUP` or `RESOURCE.GROUP/SUBRESOURCE`.
/// `resource` is `PLURAL.GROUP`, with `/SUBRESOURCE` and `=NAME` if it has them.
fn attributes(verb: &str, resource: &str, namespace: &str) -> serde_json::Value {
    let (resource, name) = resource.split_once('=').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap();
    json!({
        "verb": verb, "resource": resource, "group": group, "subresource": subresource, "name": name, "namespace": namespace,
    })
}

#[tokio::test]
async fn pods_are_admitted_to_a_restricted_namespace() {
    let control_plane = control_plane().await;
    let namespace = install(&[]).await;
    let client = control_plane.client().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    eventually(SOON, "the pod to be created", async || {
        if !pods.list(&ListParams::default()).await.unwrap().items.is_empty() {
            return Ok(());
        }
        // A rejected pod is reported here.
        let status = deployments.get("portolan").await.unwrap().status;
        Err(serde_json::to_string(&status).unwrap())
    })
    .await;

    let uninstalled = helm_output(&["uninstall", "portolan", "--no-hooks", "--namespace", &namespace]).await;
    assert!(uninstalled.contains("uninstalled"), "{uninstalled}");
    control_plane
        .kubectl(&["get", "crd", "apprepositories.kubeapps.com"])
        .await;
}

#[tokio::test]
async fn viewers_and_editors_of_a_namespace_may_view_and_edit_its_repositories() {
    let world = World::new().await;
    install(&[]).await;
    let control_plane = control_plane().await;
    for role in ["view", "edit"] {
        let account = format!("--serviceaccount={}:{role}", world.namespace);
        let arguments = [
            "-n",
            &world.namespace,
            "create",
            "rolebinding",
            role,
            "--clusterrole",
            role,
            &account,
        ];
        control_plane.kubectl(&arguments).await;
    }
    let as_who = async |role: &str| -> Api<AppRepository> {
        let token = control_plane.token_for(&world.namespace, role).await;
        Api::namespaced(control_plane.client_with(&token).await, &world.namespace)
    };
    let (viewer, editor) = (as_who("view").await, as_who("edit").await);
    let object: AppRepository = serde_json::from_value(json!({
        "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "metadata": { "name": "mine" },
        "spec": { "type": "helm", "url": "https://charts.example.com" },
    }))
    .unwrap();
    // The cluster aggregates the rules of the two roles with a short delay.
    eventually(SOON, "the editor's permissions", async || {
        editor.create(&PostParams::default(), &object).await
    })
    .await;
    eventually(SOON, "the viewer's permissions", async || viewer.get("mine").await).await;
    assert!(is_forbidden(viewer.delete("mine", &DeleteParams::default()).await));
    editor.delete("mine", &DeleteParams::default()).await.unwrap();
}
