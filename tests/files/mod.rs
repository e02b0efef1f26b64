//! The import of chart files and icons, and retained versions, with the real binary.

mod archive_urls;
mod changing;
mod failing;
mod icons;
mod importing;
mod memory;
mod metadata;
mod model;
mod quota;
mod replay;
mod retention;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::archives::{self, Archive, Chart};
use crate::support::chart_server::{Page, RecordedRequest};
use crate::support::eventually::eventually;
use crate::support::world::{SOON, World};

const ALL: &str = "--chart-files=all";

impl World {
    /// Serves these archives and an index next to them, and returns the repository's URL.
    fn serve(&self, name: &str, archives: &[Archive]) -> String {
        self.server.serve_archives(name, archives);
        self.serve_index(name, archives)
    }

    /// Serves an index of these archives, without the archives.
    fn serve_index(&self, name: &str, archives: &[Archive]) -> String {
        let entries = archives
            .iter()
            .map(|archive| archive.index_entry(&[&archive.file_name()]));
        self.serve_entries(name, entries)
    }

    fn serve_entries(&self, name: &str, entries: impl IntoIterator<Item = Value>) -> String {
        let index = archives::index(entries);
        self.server.serve(&format!("/{name}/index.yaml"), Page::new(index));
        self.server.url(&format!("/{name}"))
    }

    /// Requests for an archive of a repository.
    fn archive_requests(&self, name: &str, archive: &Archive) -> Vec<RecordedRequest> {
        self.server.requests(&format!("/{name}/{}", archive.file_name()))
    }

    /// Paths of all requests for these archives, in order.
    fn requested_paths(&self, name: &str, archives: &[Archive]) -> Vec<String> {
        let mut seen: Vec<RecordedRequest> = archives
            .iter()
            .flat_map(|archive| self.archive_requests(name, archive))
            .collect();
        seen.sort_by_key(|seen| seen.at);
        seen.into_iter()
            .map(|seen| seen.path.trim_start_matches(&format!("/{name}/")).to_owned())
            .collect()
    }

    /// All file rows by ID; empty if the table does not exist.
    async fn files(&self) -> BTreeMap<String, Value> {
        by_id(&self.texts("SELECT info FROM files").await)
    }

    /// The stored chart.
    async fn chart(&self, chart_id: &str) -> Option<Value> {
        let statement = format!("SELECT info FROM charts WHERE chart_id = '{chart_id}'");
        let rows = self.texts(&statement).await;
        rows.first().map(|info| serde_json::from_str(info).unwrap())
    }

    /// Waits until the file rows match, and returns them.
    async fn until_files(
        &self,
        what: &str,
        fits: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        eventually(SOON, what, async || {
            let files = self.files().await;
            if fits(&files) {
                Ok(files)
            } else {
                Err(format!("{:?}", readmes(&files)))
            }
        })
        .await
    }
}

fn by_id(rows: &[String]) -> BTreeMap<String, Value> {
    rows.iter()
        .map(|info| {
            let info: Value = serde_json::from_str(info).unwrap();
            (text(&info["ID"]), info)
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn readmes(files: &BTreeMap<String, Value>) -> BTreeMap<&str, &str> {
    files
        .iter()
        .map(|(id, info)| (id.as_str(), info["Readme"].as_str().expect("a text")))
        .collect()
}

fn chart(name: &str, version: &str) -> Archive {
    Chart::new(name, version)
        .file("README.md", readme(name, version))
        .file("values.yaml", "replicas: 1\n")
        .pack()
}

fn readme(name: &str, version: &str) -> String {
    format!("# {name} {version}\n")
}
