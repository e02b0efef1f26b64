//! What the real binary imports beside charts: files of their archives, icons; and what it keeps of versions that went.

mod changing;
mod failing;
mod icons;
mod importing;
mod kept;
mod memory;
mod model;
mod places;
mod replay;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::archives::{self, Archive, Chart};
use crate::support::chart_server::{Page, Seen};
use crate::support::eventually::eventually;
use crate::support::world::{SOON, World};

/// The flag that has files imported.
const ALL: &str = "--chart-files=all";

impl World {
    /// Serves these archives and an index of them, each beside it, and gives the repository's URL.
    fn serve(&self, name: &str, archives: &[Archive]) -> String {
        let url = self.serve_index(name, archives);
        for archive in archives {
            let path = format!("/{name}/{}", archive.file_name());
            self.server.serve(&path, Page::new(archive.bytes.clone()));
        }
        url
    }

    /// Serves an index of these archives, and not the archives.
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

    /// The requests for an archive of a repository.
    fn asked(&self, name: &str, archive: &Archive) -> Vec<Seen> {
        self.server.seen(&format!("/{name}/{}", archive.file_name()))
    }

    /// Those for all of these, as their paths in the order in which they came in.
    fn asked_in_order(&self, name: &str, archives: &[Archive]) -> Vec<String> {
        let mut seen: Vec<Seen> = archives.iter().flat_map(|archive| self.asked(name, archive)).collect();
        seen.sort_by_key(|seen| seen.at);
        seen.into_iter()
            .map(|seen| seen.path.trim_start_matches(&format!("/{name}/")).to_owned())
            .collect()
    }

    /// All rows of files by their ids. Nothing where the tables are not there yet.
    async fn files(&self) -> BTreeMap<String, Value> {
        by_id(&self.texts("SELECT info FROM files").await)
    }

    /// The chart of a repository as it is stored.
    async fn chart(&self, chart_id: &str) -> Option<Value> {
        let statement = format!("SELECT info FROM charts WHERE chart_id = '{chart_id}'");
        let rows = self.texts(&statement).await;
        rows.first().map(|info| serde_json::from_str(info).unwrap())
    }

    /// Waits until the rows of files are as they should be, and gives them.
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

/// The READMEs by the ids of the rows.
fn readmes(files: &BTreeMap<String, Value>) -> BTreeMap<&str, &str> {
    files
        .iter()
        .map(|(id, info)| (id.as_str(), info["Readme"].as_str().expect("a text")))
        .collect()
}

/// A chart whose README names it.
fn chart(name: &str, version: &str) -> Archive {
    Chart::new(name, version)
        .file("README.md", readme(name, version))
        .file("values.yaml", "replicas: 1\n")
        .pack()
}

fn readme(name: &str, version: &str) -> String {
    format!("# {name} {version}\n")
}
