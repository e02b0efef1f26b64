//! Archives: redirects, and archives that are fetched with the credentials of their repository.

use rstest::rstest;

use super::{AUTH, PROXY, archive_path, chart, declare, get, require_credentials, serve};
use crate::catalog::On;
use crate::serve::{Serving, database, sync};
use crate::support::archives::index;
use crate::support::chart_server::Page;
use crate::support::world::World;

#[tokio::test]
async fn archives_of_a_public_repository_are_redirected_to_its_server() {
    let world = World::new().await;
    let url = world.database_url();
    let archive = chart("harbour", "1.0.0");
    declare(&world, std::slice::from_ref(&archive), "");
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let answer = client
        .get(format!("{}{}", serving.url, archive_path(&archive)))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 302);
    assert_eq!(
        answer.headers()["location"],
        world.server.url("/stable/harbour-1.0.0.tgz")
    );
    for missing in [
        "harbour/9.9.9/harbour-9.9.9.tgz",
        "harbour/1.0.0/other-1.0.0.tgz",
        "other/1.0.0/other-1.0.0.tgz",
        "..%2Fharbour/1.0.0/harbour-1.0.0.tgz",
        "harbour%00/1.0.0/harbour-1.0.0.tgz",
    ] {
        get(&serving, &format!("/helm/default/stable/archives/{missing}"))
            .await
            .problem(404);
    }
}

#[rstest]
#[tokio::test]
async fn archives_of_a_private_repository_are_served_by_the_proxy_only(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let archive = chart("harbour", "1.0.0");
    require_credentials(&world);
    declare(&world, std::slice::from_ref(&archive), AUTH);
    sync(&world, &url).await;
    let redirecting = Serving::of(&world, &url).await;
    let refused = get(&redirecting, &archive_path(&archive)).await.problem(403);
    assert!(refused.contains("--archives=proxy"), "{refused}");

    let serving = serve(&world, &url, &[PROXY]).await;
    let answer = serving
        .request(&archive_path(&archive), &[("authorization", "Bearer of-the-caller")])
        .await;
    assert_eq!((answer.status, &answer.body), (200, &archive.bytes));
    assert_eq!(answer.header("warning"), "");
    // Nothing of the response of the source is passed on.
    assert_eq!((answer.header("etag"), answer.header("last-modified")), ("", ""));
    let fetched = world.server.requests("/stable/harbour-1.0.0.tgz");
    assert!(!fetched.is_empty());
    assert!(
        fetched
            .iter()
            .all(|request| request.authorization() == Some("Bearer hush")),
        "{fetched:?}"
    );
    let head = serving
        .client
        .head(format!("{}{}", serving.url, archive_path(&archive)))
        .send()
        .await
        .unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(world.server.count("/stable/harbour-1.0.0.tgz"), fetched.len());
}

#[tokio::test]
async fn an_archive_without_digest_is_served_with_a_warning() {
    let world = World::new().await;
    let url = world.database_url();
    let archive = chart("harbour", "1.0.0");
    declare(&world, std::slice::from_ref(&archive), "");
    let mut entry = archive.index_entry(&[&archive.file_name()]);
    entry["digest"] = "".into();
    world.server.serve("/stable/index.yaml", Page::new(index([entry])));
    sync(&world, &url).await;
    let serving = serve(&world, &url, &[PROXY]).await;
    let answer = get(&serving, &archive_path(&archive)).await;
    assert_eq!((answer.status, &answer.body), (200, &archive.bytes));
    assert!(answer.header("warning").starts_with("299 "), "{answer:?}");
}

#[tokio::test]
async fn stored_urls_get_no_credentials_of_a_repository_that_was_changed_or_deleted() {
    let world = World::new().await;
    let url = world.database_url();
    let archive = chart("harbour", "1.0.0");
    require_credentials(&world);
    declare(&world, std::slice::from_ref(&archive), AUTH);
    sync(&world, &url).await;
    let fetched = world.server.count("/stable/harbour-1.0.0.tgz");
    let serving = serve(&world, &url, &[PROXY]).await;

    world.declare("stable", &world.server.url("/moved"), AUTH);
    let changed = get(&serving, &archive_path(&archive)).await.problem(502);
    assert!(changed.ends_with("RepositoryChanged"), "{changed}");
    std::fs::remove_file(world.directory.join("manifests/stable.yaml")).unwrap();
    let deleted = get(&serving, &archive_path(&archive)).await.problem(502);
    assert!(deleted.ends_with("RepositoryNotFound"), "{deleted}");
    assert_eq!(world.server.count("/stable/harbour-1.0.0.tgz"), fetched);
}
