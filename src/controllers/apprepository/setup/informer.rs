//! Watches AppRepositories, in a cluster or in a directory of manifests.

use futures::FutureExt;

use super::scope;
use crate::api::AppRepository;
use crate::controllers::apprepository::event_handler::RepositoryEventHandler;
use crate::controllers::apprepository::options::Options;
use crate::controllers::apprepository::{CachedRepository, RepositoryCache};
use crate::controllers::{SetupContext, Source, Task};
use crate::runtime::manifests::{self, Problems};
use crate::runtime::watch::{self, Cached, Change, ErrorPolicy, Store};

pub(super) fn informer(
    context: &SetupContext,
    options: &Options,
    store: Store<Cached<CachedRepository>>,
    event_handler: RepositoryEventHandler,
    problems: &Problems,
) -> Task {
    match &context.source {
        Source::Cluster(client) => {
            let on_change = move |change| event_handler.on_change(change);
            let cache = RepositoryCache {
                store: store.clone(),
                budget: options.sync.budgets.sixteenths(1, "repository_cache"),
                template_limit: options.template_limit(),
            };
            watch::raw_informer(
                client.clone(),
                context.ownership.selection(scope(options)),
                ErrorPolicy::Required,
                store,
                move |raw| cache.convert(raw),
                on_change,
            )
            .boxed()
        }
        Source::Directory(manifests) => {
            let problems = problems.clone();
            let events = manifests::events::<AppRepository>(manifests.clone(), data_url, problems.clone());
            let on_change = move |change| on_manifest_change(&event_handler, &problems, change);
            watch::run(events, store, on_change).boxed()
        }
    }
}

#[must_use]
pub fn data_url(manifest: &serde_json::Value) -> Option<&str> {
    manifest["spec"]["url"].as_str()
}

/// Handles removed manifests together: a volume that is not mounted removes all of them at once. An unreadable file may
/// declare any repository, so the list is complete only without errors.
fn on_manifest_change(
    event_handler: &RepositoryEventHandler,
    problems: &Problems,
    change: Change<Cached<CachedRepository>>,
) {
    let is_list = !matches!(change, Change::Applied { .. });
    match change {
        Change::Synced { .. } => {}
        Change::Deleted(old) => event_handler.on_change(Change::MissingFromList(old)),
        change => event_handler.on_change(change),
    }
    if is_list && problems.is_complete() {
        event_handler.on_change(Change::Synced { is_first: false });
    }
}
