use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::{Watching, names};
use crate::catalog::On;
use crate::cluster::SOON;
use crate::serve::access::reader;
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::process::ScratchDir;

/// Allows a ServiceAccount to list releases in its namespace.
pub(crate) async fn allow_releases(namespace: &str, account: &str) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "releases" },
        "rules": [{ "apiGroups": ["portolan.dev"], "resources": ["releases"], "verbs": ["list"] }],
    });
    let directory = ScratchDir::new("role");
    let file = directory.write("role.json", role.to_string()).display().to_string();
    let account = format!("{namespace}:{account}");
    let control_plane = control_plane().await;
    control_plane.kubectl(&["apply", "-n", namespace, "-f", &file]).await;
    let subject = format!("--serviceaccount={account}");
    let binding = [
        "create",
        "rolebinding",
        "releases",
        "--role=releases",
        &subject,
        "-n",
        namespace,
    ];
    control_plane.kubectl(&binding).await;
    let reviews: Api<SubjectAccessReview> = Api::all(control_plane.client().await);
    let review = json!({ "metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{account}"),
        "resourceAttributes": { "namespace": namespace, "verb": "list", "group": "portolan.dev", "resource": "releases" },
    }});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    eventually(SOON, "the right to list releases", async || {
        let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
        reviewed.status.unwrap().allowed.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_callers_who_may_list_releases_see_them() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    let namespace = watching.namespace();
    watching.declare(&["1.0.0"]).await;
    watching.install("web", 1, "1.0.0").await;
    watching.until_status("web", "current").await;

    // A right to the repositories alone shows no release.
    let repositories = reader(namespace).await;
    assert!(names(&watching.list_as(&repositories, "").await).is_empty());
    let (status, page) = watching.page_as(&repositories, "/outdated").await;
    assert!(status == 200 && page.contains("releases.portolan.dev"), "{page}");
    let path = format!("/api/v1/releases?namespace={namespace}");
    let (status, body) = watching.get_as(&repositories, &path, "*/*").await;
    assert!(status == 403 && body.contains("releases.portolan.dev"), "{body}");

    // A right to releases alone shows no repository.
    let releases = control_plane().await.token_for(namespace, "viewer").await;
    allow_releases(namespace, "viewer").await;
    let list = watching.list_as(&releases, "").await;
    assert_eq!(names(&list), ["web"]);
    assert_eq!(list["items"][0]["matched"], "unknown", "{list}");
    assert!(!list.to_string().contains("stable"), "{list}");

    let (status, _) = watching.get_as("guessed", "/api/v1/releases", "*/*").await;
    assert_eq!(status, 401);
    let anonymous = watching.client.get(format!("{}/api/v1/releases", watching.url));
    assert_eq!(anonymous.send().await.unwrap().status(), 401);
}
