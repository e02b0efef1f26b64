//! One tenant takes all it can, or something breaks; others are served, and everything recovers without a restart.

mod arena;
mod chaos;
mod cluster;
mod database;
mod fairness;
mod fault;
mod finalizers;
mod objects;
mod parsed_objects;
mod preemption;
mod registries;
mod retry_after;
mod selectors;
mod statuses;

use std::time::Duration;

use crate::support::world::World;

/// Time for an honest repository, Application or deletion beside hostile tenants, in a debug build on a busy machine.
const BESIDE: Duration = Duration::from_secs(30);

const INDEX: &str = "apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.0.0, urls: [web.tgz]}\n";

/// Declares a repository in a namespace.
fn declare(world: &World, namespace: &str, name: &str, url: &str) {
    let manifest = format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{namespace: {namespace}, name: {name}}}\n\
         spec: {{type: helm, url: \"{url}\"}}\n"
    );
    world.write(&format!("{namespace}-{name}.yaml"), manifest);
}

async fn charts(world: &World, namespace: &str) -> Vec<String> {
    let statement = format!("SELECT chart_id FROM charts WHERE repo_namespace = '{namespace}'");
    world.texts(&statement).await
}
