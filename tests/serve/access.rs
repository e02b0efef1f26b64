//! Access by tokens of ServiceAccounts, which a real API server reviews.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::json;

use super::{SOON, Serving};
use crate::catalog::On;
use crate::cluster::{World, index, rows::one_shot};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::postgres;
use crate::support::process::ScratchDir;

/// Allows a ServiceAccount to list AppRepositories in its namespace, and returns a token of it.
pub(crate) async fn reader(namespace: &str) -> String {
    let control_plane = control_plane().await;
    let token = control_plane.token_for(namespace, "reader").await;
    let resource = "--resource=apprepositories.kubeapps.com";
    control_plane
        .kubectl(&["create", "role", "reader", "--verb=list", resource, "-n", namespace])
        .await;
    let account = format!("--serviceaccount={namespace}:reader");
    control_plane
        .kubectl(&[
            "create",
            "rolebinding",
            "reader",
            "--role=reader",
            &account,
            "-n",
            namespace,
        ])
        .await;
    until_reviewed(namespace, true).await;
    token
}

/// Takes the right of [`reader`] away.
pub(super) async fn revoke(namespace: &str) {
    let control_plane = control_plane().await;
    control_plane
        .kubectl(&["delete", "rolebinding", "reader", "-n", namespace])
        .await;
    until_reviewed(namespace, false).await;
}

/// Waits until the API server knows the role: a refusal would be kept for a while.
async fn until_reviewed(namespace: &str, is_allowed: bool) {
    let reviews: Api<SubjectAccessReview> = Api::all(control_plane().await.client().await);
    let review = json!({ "metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{namespace}:reader"),
        "resourceAttributes": {
            "namespace": namespace, "verb": "list", "group": "kubeapps.com", "resource": "apprepositories",
        },
    }});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    eventually(SOON, "the rights of the reader", async || {
        let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
        let status = reviewed.status.unwrap();
        if status.allowed == is_allowed {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
}

/// Two namespaces with a repository each, in one database.
pub(crate) struct Site {
    pub(crate) ours: String,
    pub(crate) theirs: String,
    database_url: String,
    world: World,
    _directory: ScratchDir,
}

impl Site {
    pub(crate) async fn new(on: On) -> Self {
        let (world, directory) = (World::new().await, ScratchDir::new("serve"));
        let database_url = match on {
            On::Sqlite => format!("sqlite://{}", directory.join("portolan.db").display()),
            On::Postgres => postgres::database().await.url,
        };
        let theirs = control_plane().await.namespace().await;
        for (namespace, repository, chart) in [(&world.namespace, "ours", "web"), (&theirs, "theirs", "redis")] {
            let url = world.serve(repository, index(&[(chart, &["1.0.0"])]));
            one_shot(namespace, repository, &url, &database_url).await;
        }
        Self {
            ours: world.namespace.clone(),
            theirs,
            database_url,
            world,
            _directory: directory,
        }
    }

    pub(crate) async fn serve(&self, flags: &[&str]) -> Serving {
        let kubeconfig = self.world.kubeconfig.display().to_string();
        Serving::start(&self.database_url, &[&["--kubeconfig", &kubeconfig], flags].concat()).await
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_see_the_namespaces_in_which_they_may_list_repositories(#[values(On::Sqlite, On::Postgres)] on: On) {
    let site = Site::new(on).await;
    let (ours, theirs) = (site.ours.as_str(), site.theirs.as_str());
    let serving = site.serve(&[]).await;
    let token = reader(ours).await;

    let whoami = serving.get_as(&token, "/whoami").await.json();
    let user = format!("system:serviceaccount:{ours}:reader");
    assert_eq!(
        whoami,
        json!({ "user": user, "allNamespaces": false, "namespaces": [ours] })
    );
    // No list has a row of another namespace.
    for path in [
        "/charts",
        "/charts?q=redis",
        "/charts?repository=theirs",
        "/repositories",
    ] {
        let answer = serving.get_as(&token, path).await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            answer.status == 200 && !body.contains(theirs) && !body.contains("redis"),
            "{path}: {body}"
        );
    }
    assert_eq!(super::names(&serving.get_as(&token, "/charts").await.json()), ["web"]);
    assert_eq!(
        serving.get_as(&token, &format!("/charts/{ours}/ours/web")).await.status,
        200
    );
    serving
        .get_as(&token, &format!("/charts/{ours}/theirs/redis"))
        .await
        .problem(404);

    // A namespace that is refused and one that does not exist get the same answer.
    let missing = format!("{theirs}-missing");
    for rest in [
        "/charts?namespace={}",
        "/repositories?namespace={}",
        "/repositories/{}/theirs",
        "/charts/{}/theirs/redis",
    ] {
        let refused = serving.get_as(&token, &rest.replace("{}", theirs)).await.problem(403);
        let unknown = serving.get_as(&token, &rest.replace("{}", &missing)).await.problem(403);
        assert_eq!(refused.replace(theirs, "x"), unknown.replace(&missing, "x"), "{rest}");
        assert!(
            refused.contains("apprepositories") && refused.contains(theirs),
            "{refused}"
        );
    }

    // An administrator sees both.
    let all = serving.get_as("admin", "/charts").await.json();
    assert_eq!(super::names(&all), ["redis", "web"]);
}

/// Sends requests with tokens until one is refused by a limit, and returns its detail.
async fn until_limited(serving: &Serving, token: impl Fn(usize) -> String) -> String {
    for batch in 0..1000 {
        let tokens: Vec<String> = (8 * batch..8 * batch + 8).map(&token).collect();
        let answers = tokens.iter().map(|token| serving.get_as(token, "/whoami"));
        let answers = join_all(answers).await;
        if let Some(limited) = answers.iter().find(|answer| answer.status == 429) {
            return limited.problem(429);
        }
        assert!(
            answers.iter().all(|answer| [200, 401].contains(&answer.status)),
            "{answers:?}"
        );
    }
    panic!("8000 requests were served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_and_guessed_tokens_do_not_use_up_the_limits_of_other_callers() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let token = reader(&site.ours).await;
    assert_eq!(serving.get_as("admin", "/whoami").await.status, 200);
    let limited = until_limited(&serving, |_| token.clone()).await;
    assert!(limited.contains("this caller"), "{limited}");
    // All have the same address.
    let limited = until_limited(&serving, |number| format!("guess-{number}")).await;
    assert!(limited.contains("too many"), "{limited}");
    assert_eq!(serving.get_as("admin", "/whoami").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_valid_token_nothing_is_shown() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    for path in ["/whoami", "/charts", "/repositories", "/charts/default/stable/web"] {
        serving.get_as("forged", path).await.problem(401);
        let answer = serving.get(path).await;
        answer.problem(401);
        assert_eq!(answer.header("www-authenticate"), "Bearer");
    }
    assert_eq!(serving.get("/openapi.json").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_without_a_token_see_the_anonymous_namespaces() {
    let site = Site::new(On::Sqlite).await;
    let (ours, theirs) = (site.ours.as_str(), site.theirs.as_str());
    let anonymous = format!("--anonymous={ours}");
    let serving = site
        .serve(&[&anonymous, "--external-url=https://charts.example/catalog"])
        .await;
    let get = async |path: &str| serving.request(&format!("/catalog/api/v1{path}"), &[]).await;
    assert_eq!(super::names(&get("/charts").await.json()), ["web"]);
    assert_eq!(get("/whoami").await.json()["user"], json!(null));
    let refused = get(&format!("/charts?namespace={theirs}")).await;
    assert!([401, 403].contains(&refused.status), "{refused:?}");
    let document = get("/openapi.json").await.json();
    assert_eq!(document["servers"], json!([{ "url": "/catalog/api/v1" }]));
    serving.get("/charts").await.problem(404);
    for (host, status) in [("charts.example", 200), ("evil.example", 421)] {
        let answer = serving.request("/catalog/api/v1/charts", &[("host", host)]).await;
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repositories_of_a_running_controller_are_served_with_their_health() {
    let site = Site::new(On::Postgres).await;
    let _controller = site.world.portolan(&site.database_url, &["--crontab=@yearly"]).await;
    let url = site.world.serve("declared", index(&[("tide", &["1.0.0"])]));
    site.world.declare("declared", &url).await;
    site.world.until_ready("declared").await;
    let serving = site.serve(&["--watch-namespace", &site.ours]).await;
    let path = format!("/repositories/{}/declared", site.ours);
    let repository = serving.get_as("admin", &path).await.json();
    assert_eq!(
        [&repository["ready"], &repository["reason"], &repository["url"]],
        [&json!(true), &json!("Synced"), &json!(url)]
    );
    let charts = serving.get_as("admin", "/charts").await.json();
    assert_eq!(super::names(&charts), ["tide", "web"]);
    // Other namespaces are not served, whatever the rights in them.
    let (token, path) = (reader(&site.theirs).await, format!("/charts?namespace={}", site.theirs));
    serving.get_as(&token, &path).await.problem(403);
    // A change is served without a restart.
    site.world
        .serve("declared", index(&[("tide", &["1.0.0"]), ("sea", &["1.0.0"])]));
    site.world.resync_and_wait("declared", "1").await;
    eventually(SOON, "the new chart", async || {
        let charts = serving.get_as("admin", "/charts").await.json();
        let names = super::names(&charts);
        if names == ["sea", "tide", "web"] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
}
