//! The Helm repositories of the catalog, used by helm 3 and 4, and by the rules of Flux.

mod archives;
mod clients;
mod flux;
mod hostile;
mod hub;
mod index;
mod tokens;

use super::{Answer, Serving, sync};
use crate::support::archives::{Archive, Chart, index as index_of};
use crate::support::chart_server::Page;
use crate::support::world::World;

const INDEX: &str = "/helm/default/stable/index.yaml";
const PROXY: &str = "--archives=proxy";
const AUTH: &str = "  auth:\n    header:\n      secretKeyRef: {name: keys, key: header}\n";

fn chart(name: &str, version: &str) -> Archive {
    Chart::new(name, version)
        .file("values.yaml", "berths: 3\n")
        .file(
            "templates/berth.yaml",
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: berth}\n",
        )
        .pack()
}

/// Serves the repository `stable` with these archives, and declares it; `more` is appended to its spec.
fn declare(world: &World, archives: &[Archive], more: &str) {
    world.server.serve_archives("stable", archives);
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    world.server.serve("/stable/index.yaml", Page::new(index_of(entries)));
    world.declare("stable", &world.server.url("/stable"), more);
}

/// Requires credentials for the chart server, and declares them.
fn require_credentials(world: &World) {
    world.server.demand("Bearer hush");
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {namespace: default, name: keys}\nstringData: {header: Bearer hush}\n";
    world.write("secret.yaml", secret);
}

/// Serves the manifests of a world with flags.
async fn serve(world: &World, database_url: &str, flags: &[&str]) -> Serving {
    let manifests = world.manifests();
    Serving::start(database_url, &[&["--manifests", manifests.as_str()], flags].concat()).await
}

/// Returns the path of an archive in the repository `stable`.
fn archive_path(archive: &Archive) -> String {
    let (name, version) = (archive.name(), archive.version());
    format!("/helm/default/stable/archives/{name}/{version}/{name}-{version}.tgz")
}

async fn get(serving: &Serving, path: &str) -> Answer {
    serving.request(path, &[]).await
}
