use rstest::rstest;
use serde_json::json;

use super::{Watching, names, object_name};
use crate::catalog::On;
use crate::cluster::SOON;
use crate::serve::document::differences;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiRequest, FaultProxy};

/// Other lists of Secrets look for what Jobs have left behind.
fn is_list_of_releases(request: &ApiRequest) -> bool {
    let selector = request.query.get("labelSelector");
    request.is_of("secrets") && selector.is_some_and(|selector| selector.contains("owner=helm"))
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_compared_again_when_it_or_the_catalog_changes(#[values(On::Sqlite, On::Postgres)] on: On) {
    let watching = Watching::start(on, &["--releases"]).await;
    watching.declare(&["1.0.0"]).await;
    watching.install("web", 1, "1.0.0").await;
    let item = watching.until_status("web", "current").await;
    let repository = json!([{ "namespace": watching.namespace(), "name": "stable" }]);
    assert_eq!(item["repositories"], repository, "{item}");
    assert_eq!(watching.metric("web", "major").await, None);

    watching.list_versions(&["2.0.0", "1.1.0", "1.0.1", "1.0.0"]);
    watching.world.resync_and_wait("stable", "newer").await;
    let item = watching.until_status("web", "major").await;
    let newest = ["newestPatch", "newestMinor", "newestMajor"].map(|field| item["verdict"][field].clone());
    assert_eq!(newest, ["1.0.1", "1.1.0", "2.0.0"].map(|version| json!(version)));
    assert_eq!(watching.metric("web", "major").await, Some(1.0));
    let (status, page) = watching.page_as(ADMIN_TOKEN, "/outdated?status=outdated").await;
    let link = format!("/repositories/{}/stable", watching.namespace());
    for part in [
        "Major version available",
        "1.0.1",
        "1.1.0",
        "2.0.0",
        &link,
        ">Releases</a>",
    ] {
        assert!(status == 200 && page.contains(part), "{part} in {page}");
    }

    watching.supersede("web", 1).await;
    watching.install("web", 2, "2.0.0").await;
    let item = watching.until_status("web", "current").await;
    assert_eq!(item["revision"], 2, "{item}");
    assert_eq!(watching.metric("web", "major").await, None);
    let outdated = watching.list_as(ADMIN_TOKEN, "?status=outdated").await;
    assert!(names(&outdated).is_empty(), "{outdated}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_in_config_maps_are_listed_and_a_list_continues_by_its_cursor() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    watching.declare(&["1.0.0"]).await;
    watching.install_in_config_map("a", "1.0.0").await;
    watching.install("b", 1, "1.0.0").await;
    watching.install("c", 1, "1.0.0").await;
    for release in ["a", "b", "c"] {
        watching.until_status(release, "current").await;
    }
    let first = watching.list_as(ADMIN_TOKEN, "?limit=2").await;
    let (_, document) = watching.get_as(ADMIN_TOKEN, "/api/v1/openapi.json", "*/*").await;
    let schema = json!({ "$ref": "#/components/schemas/ReleaseList" });
    let differences = differences(&serde_json::from_str(&document).unwrap(), &schema, &first, "");
    assert!(differences.is_empty(), "{differences:#?}");
    let next = first["next"].as_str().unwrap();
    let second = watching.list_as(ADMIN_TOKEN, &format!("?cursor={next}")).await;
    assert_eq!((names(&first), names(&second)), (vec!["a", "b"], vec!["c"]));
    assert_eq!((&first["incomplete"], second.get("next")), (&json!(false), None));
    let (status, body) = watching.get_as(ADMIN_TOKEN, "/api/v1/releases?status=new", "*/*").await;
    assert!(status == 400 && body.contains("outdated"), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_release_is_named_and_keeps_no_other_from_being_listed() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    watching.declare(&["1.0.0"]).await;
    for (name, data) in [
        ("no-base64", json!({ "release": "%" })),
        ("no-gzip", json!({ "release": "H4sIAAAA" })),
        ("no-key", json!({ "other": "" })),
    ] {
        watching.write_secret(&object_name(name, 1), name, data).await;
    }
    watching.install("web", 1, "1.0.0").await;
    watching.until_status("web", "current").await;
    let list = watching.list_as(ADMIN_TOKEN, "").await;
    let unreadable = list["unreadable"].to_string();
    for name in ["no-base64", "no-gzip", "no-key"] {
        assert!(unreadable.contains(name), "{name} in {unreadable}");
    }
    assert_eq!((names(&list), &list["incomplete"]), (vec!["web"], &json!(true)));
    let metrics = watching.portolan.metrics().await;
    assert_eq!(metrics.sum("portolan_releases", &[("state", "unreadable")]), Some(3.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_read_once_however_often_it_is_shown() {
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    let watching = Watching::start_at(&proxy.url(), On::Sqlite, &["--releases"]).await;
    watching.declare(&["1.0.0"]).await;
    watching.install("web", 1, "1.0.0").await;
    watching.until_status("web", "current").await;
    for _ in 0..20 {
        watching.list_as(ADMIN_TOKEN, "").await;
    }
    // A change of another release: the first is not read again.
    watching.install("other", 1, "1.0.0").await;
    watching.until_status("other", "current").await;
    let requests = proxy.requests();
    let reads = |release: &str| {
        let name = object_name(release, 1);
        requests.iter().filter(|request| request.is_of(&name)).count()
    };
    assert_eq!((reads("web"), reads("other")), (1, 1));
    let lists: Vec<_> = requests.iter().filter(|request| is_list_of_releases(request)).collect();
    assert!(
        !lists.is_empty() && lists.iter().all(|request| request.is_partial()),
        "{lists:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_flag_no_secret_is_listed_and_the_page_says_how_to_turn_it_on() {
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    let watching = Watching::start_at(&proxy.url(), On::Sqlite, &[]).await;
    watching.declare(&["1.0.0"]).await;
    let page = eventually(SOON, "the page", async || {
        let (status, page) = watching.page_as(ADMIN_TOKEN, "/outdated").await;
        if status == 200 { Ok(page) } else { Err(page) }
    })
    .await;
    assert!(page.contains("--releases") && !page.contains(">Releases</a>"), "{page}");
    let (status, body) = watching.get_as(ADMIN_TOKEN, "/api/v1/releases", "*/*").await;
    assert!(status == 404 && body.contains("--releases"), "{body}");
    assert!(!proxy.requests().iter().any(is_list_of_releases));
}
