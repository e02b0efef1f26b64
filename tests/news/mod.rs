//! News of repositories, from the commit of a sync to the server that a Secret names, with the real binary.

mod delivery;
mod expiry;
mod shared_database;
pub mod sink_server;

use serde_json::{Value, json};

use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::world::{SOON, World};

const KEY: &str = "a key of a receiver";

impl World {
    /// Serves the versions of the chart `web` of a repository.
    fn release(&self, repository: &str, versions: &[&str]) {
        let index = crate::cluster::index(&[("web", versions)]);
        self.server
            .serve(&format!("/{repository}/index.yaml"), Page::new(index));
    }

    /// Declares a repository, synced each second, whose news goes to the Secret `hook-NAME`.
    fn declare_with_news(&self, namespace: &str, name: &str) {
        let url = self.server.url(&format!("/{name}"));
        let object = json!({
            "apiVersion": "kubeapps.com/v1alpha1",
            "kind": "AppRepository",
            "metadata": {
                "namespace": namespace,
                "name": name,
                "annotations": { "portolan.dev/news": format!("hook-{name}") },
            },
            "spec": { "type": "helm", "url": url, "interval": "* * * * * *" },
        });
        self.write(&format!("{name}.yaml"), object.to_string());
    }

    /// Writes the Secret `hook-NAME`.
    fn write_sink(&self, namespace: &str, name: &str, values: &Value) {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "namespace": namespace, "name": format!("hook-{name}") },
            "stringData": values,
        });
        self.write(&format!("hook-{name}.yaml"), secret.to_string());
    }

    async fn run_with_news(&self) -> Portolan {
        self.run(&["--min-interval=1s", "--news-private-networks"]).await
    }

    async fn news_ids(&self) -> Vec<String> {
        self.texts("SELECT id FROM portolan_news ORDER BY created, id").await
    }

    async fn until_outbox_is_empty(&self) {
        eventually(SOON, "the outbox to be empty", async || match self.news_ids().await {
            rows if rows.is_empty() => Ok(()),
            rows => Err(format!("{rows:?}")),
        })
        .await;
    }
}
