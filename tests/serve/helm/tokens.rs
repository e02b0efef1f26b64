//! helm with the token of a ServiceAccount as password, reviewed by a real API server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rstest::rstest;
use serde_json::json;

use super::{Serving, chart};
use crate::cluster::World;
use crate::serve::SOON;
use crate::serve::access::reader;
use crate::support::archives::index;
use crate::support::chart_server::Page;
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::helm;
use crate::support::postgres;
use crate::support::process::ScratchDir;

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_uses_a_private_repository_with_the_token_of_a_service_account(#[values("helm", "helm4")] release: &str) {
    let (world, database) = (World::new().await, postgres::database().await);
    let archive = chart("harbour", "1.0.0");
    world.server.demand("Bearer hush");
    world.server.serve_archives("stable", [&archive]);
    let entry = archive.index_entry(&[&archive.file_name()]);
    world.server.serve("/stable/index.yaml", Page::new(index([entry])));
    world
        .write_secret(&world.namespace, "keys", json!({ "header": "Bearer hush" }))
        .await;
    let key = json!({ "secretKeyRef": { "name": "keys", "key": "header" } });
    let spec = json!({ "type": "helm", "url": world.server.url("/stable"), "auth": { "header": key } });
    let _controller = world.portolan(&database.url, &["--crontab=@yearly"]).await;
    world.declare_with("stable", json!({ "spec": spec })).await;
    world.until_ready("stable").await;

    let kubeconfig = world.kubeconfig.display().to_string();
    let flags = ["--kubeconfig", &kubeconfig, "--archives=proxy"];
    let serving = Serving::start(&database.url, &flags).await;
    let repository = format!("/helm/{}/stable", world.namespace);
    let anonymous = serving.request(&format!("{repository}/index.yaml"), &[]).await;
    anonymous.problem(401);
    assert!(
        anonymous.header("www-authenticate").starts_with("Basic"),
        "{anonymous:?}"
    );

    let token = reader(&world.namespace).await;
    let home = ScratchDir::new("helm");
    let run = async |arguments: &[&str]| helm::output(helm::command_of(release, home.path(), arguments)).await;
    let url = format!("{}{repository}", serving.url);
    run(&["repo", "add", "ours", &url, "--username", "any", "--password", &token]).await;
    run(&["repo", "update"]).await;
    let directory = home.path().display().to_string();
    run(&["pull", "ours/harbour", "--destination", &directory]).await;
    assert!(std::fs::read(home.join("harbour-1.0.0.tgz")).unwrap() == archive.bytes);

    // A ServiceAccount of another namespace gets neither the index nor an archive, also if it knows the ETag.
    let other = control_plane().await.namespace().await;
    let stranger = reader(&other).await;
    let stranger = format!("Basic {}", BASE64_STANDARD.encode(format!("any:{stranger}")));
    let ours = format!("Basic {}", BASE64_STANDARD.encode(format!("any:{token}")));
    let index = format!("{repository}/index.yaml");
    let known = serving.request(&index, &[("authorization", &ours)]).await;
    let etag = known.header("etag");
    for path in [
        index.clone(),
        format!("{repository}/archives/harbour/1.0.0/harbour-1.0.0.tgz"),
    ] {
        let headers = [("authorization", stranger.as_str()), ("if-none-match", etag)];
        serving.request(&path, &headers).await.problem(403);
    }

    // The Secret is read for each archive.
    world
        .write_secret(&world.namespace, "keys", json!({ "header": "Bearer other" }))
        .await;
    let archive = format!("{repository}/archives/harbour/1.0.0/harbour-1.0.0.tgz");
    eventually(SOON, "the source to refuse the credentials", async || {
        let answer = serving.request(&archive, &[("authorization", &ours)]).await;
        if answer.status == 502 {
            Ok(())
        } else {
            Err(answer.status.to_string())
        }
    })
    .await;
}
