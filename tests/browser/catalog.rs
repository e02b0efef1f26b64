//! Catalogs that the browser looks at.

use serde_json::json;

use super::driver::Browser;
use crate::serve::{Serving, declare};
use crate::support::archives::{self, Archive, Chart};
use crate::support::portolan;
use crate::support::world::World;

pub(super) const WEB: &str = "/charts/default/stable/web";
pub(super) const TABS: [&str; 6] = ["readme", "values", "schema", "versions", "changes", "about"];
const README: &str = "# Web\n\nServes files of a volume.\n\n## Install\n\n```sh\nhelm install web stable/web --set image.tag=1.2.0 \
                      --set ingress.enabled=true --set ingress.host=web.example --wait\n```\n\n\
                      | Name | Description | Default |\n|---|---|---|\n| `image.tag` | Version of the image | `1.2.0` |\n\n\
                      - [Home](https://web.example)\n- ![Logo](https://web.example/logo.png)\n";
/// A name without a place for a line break.
const LONG: &str = "a-chart-with-a-name-that-is-as-long-as-a-label-in-kubernetes-x";

/// A database with charts, and a process that serves it on loopback without sign-in.
pub(super) struct Catalog {
    pub(super) serving: Serving,
    pub(super) world: World,
}

impl Catalog {
    /// Serves two repositories with charts of all kinds, and one that fails.
    pub(super) async fn new() -> Self {
        let edge = vec![Chart::new("web", "9.0.0-rc.1").pack()];
        let world = declare_all([("stable", stable()), ("edge", edge)]).await;
        world.declare("broken", &world.server.url("/nothing"), "");
        sync(&world).await;
        Self::serve(world).await
    }

    /// Serves one repository, whose rows these statements change.
    pub(super) async fn of(charts: Vec<Archive>, statements: &[String]) -> Self {
        let world = declare_all([("stable", charts)]).await;
        sync(&world).await;
        for statement in statements {
            assert_eq!(world.execute(statement).await, 1, "{statement}");
        }
        Self::serve(world).await
    }

    /// Serves a directory without manifests.
    pub(super) async fn empty() -> Self {
        let world = World::new().await;
        sync(&world).await;
        Self::serve(world).await
    }

    async fn serve(world: World) -> Self {
        let serving = Serving::of(&world, &world.database_url()).await;
        Self { serving, world }
    }

    pub(super) async fn browser(&self) -> Browser {
        Browser::new(&self.serving.url).await
    }
}

/// Declares repositories whose server has the index and the archives.
async fn declare_all<const N: usize>(repositories: [(&str, Vec<Archive>); N]) -> World {
    let world = World::new().await;
    for (repository, charts) in repositories {
        world.server.serve_archives(repository, &charts);
        let entries = charts.iter().map(|chart| chart.index_entry(&[&chart.file_name()]));
        declare(&world, repository, archives::index(entries));
    }
    world
}

async fn sync(world: &World) {
    // The command fails if a repository does.
    portolan::run(world.once_command(&["--chart-files=all"])).await;
}

fn stable() -> Vec<Archive> {
    let versions = ["1.2.0", "1.1.0", "1.0.0"].map(web);
    let tools = (0..30).map(|number| Chart::new(&format!("tool-{number}"), "0.1.0").pack());
    let others = [
        Chart::new("redis", "7.0.0").field("appVersion", "7.4").pack(),
        Chart::new(LONG, "1.0.0-alpha.20260101.0123456789abcdef0123456789abcdef")
            .field("description", "supercalifragilistic".repeat(10))
            .pack(),
    ];
    versions.into_iter().chain(others).chain(tools).collect()
}

fn web(version: &str) -> Archive {
    let values = format!(
        "image:\n  # Registry and name of the image\n  repository: registry.example/web\n  # Version of the image\n  \
         tag: \"{version}\"\nreplicas: {}\ningress:\n  enabled: false\n  # Host of the ingress\n  host: \"\"\n\
         long: \"{}\"\n",
        version.split('.').nth(1).unwrap(),
        "0123456789".repeat(30)
    );
    let schema = json!({ "type": "object", "properties": { "replicas": { "type": "integer", "minimum": 0 } } });
    Chart::new("web", version)
        .field("description", "Serves files of a volume over HTTP")
        .field("appVersion", version)
        .field("kubeVersion", ">=1.30.0-0")
        .field("keywords", json!(["files", "http"]))
        .field("home", "https://web.example")
        .field("sources", json!(["https://git.example/web"]))
        .field(
            "maintainers",
            json!([{ "name": "Ada", "email": "ada@web.example", "url": "https://ada.example" }]),
        )
        .field(
            "dependencies",
            json!([{ "name": "redis", "version": "7.x.x", "repository": "https://charts.example" }]),
        )
        .field(
            "annotations",
            json!({
                "category": "Web",
                "artifacthub.io/license": "Apache-2.0",
                "artifacthub.io/changes": format!("- kind: added\n  description: Release {version}\n"),
                "artifacthub.io/links": "- name: Docs\n  url: https://docs.example\n",
            }),
        )
        .file("README.md", README)
        .file("values.yaml", values)
        .file("values.schema.json", schema.to_string())
        .pack()
}
