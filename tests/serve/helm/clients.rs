//! helm 3 and 4 with a filtered repository, a private one and a registry.

use rstest::rstest;

use super::{AUTH, PROXY, chart, declare, require_credentials, serve, sync};
use crate::catalog::On;
use crate::serve::{Serving, database};
use crate::support::archives::Archive;
use crate::support::helm;
use crate::support::process::ScratchDir;
use crate::support::registry::{Registry, Setup};
use crate::support::world::{World, manifest};

/// A helm with a state of its own.
struct Client {
    release: &'static str,
    home: ScratchDir,
}

impl Client {
    fn new(release: &'static str) -> Self {
        Self {
            release,
            home: ScratchDir::new("helm"),
        }
    }

    async fn run(&self, arguments: &[&str]) -> String {
        helm::output(helm::command_of(self.release, self.home.path(), arguments)).await
    }

    /// Adds a repository as `ours`, updates and searches it, and uses one of its charts.
    async fn use_repository(&self, url: &str, expected: &Archive, hidden: &str) {
        self.run(&["repo", "add", "ours", url]).await;
        self.run(&["repo", "update"]).await;
        let (name, version) = (expected.name(), expected.version());
        let found = self.run(&["search", "repo", "ours", "--versions"]).await;
        assert!(
            found.contains(&format!("ours/{name}")) && found.contains(version),
            "{found}"
        );
        assert!(!found.contains(hidden), "{found}");
        let full_name = format!("ours/{name}");
        let directory = self.home.path().display().to_string();
        self.run(&["pull", &full_name, "--version", version, "--destination", &directory])
            .await;
        let pulled = std::fs::read(self.home.join(&expected.file_name())).unwrap();
        assert!(pulled == expected.bytes, "another archive was pulled");
        let rendered = self.run(&["template", "ours", &full_name, "--version", version]).await;
        assert!(rendered.contains("name: berth"), "{rendered}");
    }
}

#[rstest]
#[tokio::test]
async fn helm_uses_a_filtered_repository(
    #[values("helm", "helm4")] release: &'static str,
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let archives = [
        chart("harbour", "1.1.0"),
        chart("harbour", "1.0.0+b.1"),
        chart("tide", "1.0.0"),
    ];
    declare(&world, &archives, "  filterRule:\n    jq: .name == \"harbour\"\n");
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    let repository = format!("{}/helm/default/stable", serving.url);
    let client = Client::new(release);
    client.use_repository(&repository, &archives[1], "tide").await;
}

#[rstest]
#[tokio::test]
async fn helm_uses_a_private_repository_without_its_credentials(#[values("helm", "helm4")] release: &'static str) {
    let world = World::new().await;
    let url = world.database_url();
    let archives = [chart("harbour", "1.0.0")];
    require_credentials(&world);
    declare(&world, &archives, AUTH);
    sync(&world, &url).await;
    let serving = serve(&world, &url, &[PROXY]).await;
    let repository = format!("{}/helm/default/stable", serving.url);
    Client::new(release)
        .use_repository(&repository, &archives[0], "hush")
        .await;
}

#[rstest]
#[tokio::test]
async fn helm_uses_a_registry_as_an_ordinary_repository(#[values("helm", "helm4")] release: &'static str) {
    let (world, registry) = (World::new().await, Registry::start(Setup::default()).await);
    let url = world.database_url();
    let archive = chart("harbour", "1.0.0+b.1");
    registry.push_chart("ports/harbour", "1.0.0_b.1", &archive).await;
    let declared = manifest("stable", &registry.url("/ports"), "  ociRepositories: [harbour]\n");
    world.write("stable.yaml", declared.replace("type: helm", "type: oci"));
    sync(&world, &url).await;
    let serving = serve(&world, &url, &[PROXY]).await;
    let index = super::get(&serving, super::INDEX).await.json();
    let entry = &index["entries"]["harbour"][0];
    assert_eq!(entry.get("digest"), None, "{entry}");
    let repository = format!("{}/helm/default/stable", serving.url);
    Client::new(release)
        .use_repository(&repository, &archive, "oci://")
        .await;

    // A tag that was moved since the last sync gives no other archive.
    registry
        .push_chart("ports/harbour", "1.0.0_b.1", &chart("harbour", "9.9.9"))
        .await;
    let path = entry["urls"][0].as_str().unwrap();
    let again = super::get(&serving, &format!("/helm/default/stable/{path}")).await;
    assert!(again.status == 200 && again.body == archive.bytes, "{}", again.status);

    let linking = Serving::of(&world, &url).await;
    let index = super::get(&linking, super::INDEX).await.json();
    let linked = index["entries"]["harbour"][0]["urls"][0].as_str().unwrap();
    assert_eq!(linked, format!("oci://{}/ports/harbour:1.0.0_b.1", registry.host));
}
