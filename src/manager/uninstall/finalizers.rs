use std::fmt::Debug;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::pages::{Pages, retry};
use super::{Log, StepOutcome, UninstallOptions};
use crate::api::{Application, NamespacedName, Partial, Raw};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::application::cached::CachedApplication;
use crate::controllers::application::owners::finalizer::{
    Released, has_finalizer, must_release, release, remove_finalizer,
};
use crate::runtime::kube_client::{ApiError, call};

const CONCURRENCY: usize = 16;
/// Passes over all objects: some may be created meanwhile, or a list may expire.
const PASSES: usize = 3;
/// Attempts of a write that conflicts with others.
const CONFLICTS: usize = 5;

/// The finalizers of a kind that are ours.
pub(super) struct Finalizers<'a> {
    pub(super) kind: &'static str,
    pub(super) ours: &'a [&'static str],
    /// Labels of the objects; `None` for all.
    pub(super) selector: Option<String>,
    /// Returns false for objects that belong to another release although they have the labels.
    pub(super) is_selected: &'a (dyn Fn(&ObjectMeta) -> bool + Sync),
    pub(super) dry_run: bool,
}

impl Finalizers<'_> {
    /// Removes our finalizers from all objects. `api` returns the API of a namespace, or the API to list all objects.
    pub(super) async fn remove<K>(&self, log: &Log<'_>, api: impl Fn(Option<&str>) -> Api<Partial<K>>) -> StepOutcome
    where
        K: Resource<DynamicType = ()>,
        Partial<K>: Clone + Debug + DeserializeOwned,
    {
        let mut outcome = StepOutcome::default();
        for _ in 0..PASSES {
            let pass = self.pass(log, &api).await;
            let is_last = self.dry_run || pass == StepOutcome::default();
            outcome.done += pass.done;
            outcome.failures = pass.failures;
            if is_last {
                return outcome;
            }
        }
        outcome
    }

    async fn pass<K>(&self, log: &Log<'_>, api: &impl Fn(Option<&str>) -> Api<Partial<K>>) -> StepOutcome
    where
        K: Resource<DynamicType = ()>,
        Partial<K>: Clone + Debug + DeserializeOwned,
    {
        let (all, mut outcome) = (api(None), StepOutcome::default());
        let mut pages = Pages::new(&all, self.selector.as_deref());
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => return outcome,
                Err(error) => {
                    outcome.fail(log, format!("failed to list the kind {}: {error}", self.kind));
                    return outcome;
                }
            };
            let metas = page.into_iter().map(|object| object.metadata);
            let metas = metas.filter(|meta| (self.is_selected)(meta));
            let metas: Vec<ObjectMeta> = metas.filter(|meta| self.others(meta).is_some()).collect();
            if self.dry_run {
                outcome.done += metas.len();
                continue;
            }
            let removals = metas.iter().map(|meta| async {
                let api = api(meta.namespace.as_deref());
                self.remove_from(&api, meta)
                    .await
                    .map_err(|error| self.failure(meta, &error))
            });
            let mut removals = stream::iter(removals).buffer_unordered(CONCURRENCY);
            while let Some(removed) = removals.next().await {
                match removed {
                    Ok(()) => outcome.done += 1,
                    Err(failure) => outcome.fail(log, failure),
                }
            }
        }
    }

    /// Returns the other finalizers; `None` if none is ours.
    fn others(&self, meta: &ObjectMeta) -> Option<Vec<String>> {
        let all = meta.finalizers.iter().flatten();
        let others: Vec<String> = all.filter(|one| !self.ours.contains(&one.as_str())).cloned().collect();
        (others.len() < meta.finalizers.as_ref().map_or(0, Vec::len)).then_some(others)
    }

    async fn remove_from<K>(&self, api: &Api<Partial<K>>, listed: &ObjectMeta) -> Result<(), ApiError>
    where
        K: Resource<DynamicType = ()>,
        Partial<K>: Clone + Debug + DeserializeOwned,
    {
        let name = listed.name.as_deref().unwrap_or_default();
        let mut meta = listed.clone();
        let mut tries = 0;
        while let Some(others) = self.others(&meta) {
            // The version keeps finalizers that others add now.
            let change = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": others });
            let patch = Patch::Merge(json!({ "metadata": change }));
            let parameters = PatchParams::apply(FIELD_MANAGER);
            tries += 1;
            match retry(|| call(api.patch(name, &parameters, &patch))).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_conflict() && tries < CONFLICTS => {
                    match retry(|| call(api.get_opt(name))).await? {
                        // Another object of the name is handled by the next pass.
                        Some(live) if live.metadata.uid == listed.uid => meta = live.metadata,
                        _ => return Ok(()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn failure(&self, meta: &ObjectMeta, error: &ApiError) -> String {
        let name = NamespacedName::of(meta).unwrap_or_default();
        format!("failed to remove the finalizer of {} {name}: {error}", self.kind)
    }
}

/// Removes our finalizer from Applications of app.k8s.io. If deletion has begun, components are released before.
pub(super) async fn remove_adoptions(client: &Client, options: &UninstallOptions, log: &Log<'_>) -> StepOutcome {
    let api: Api<Raw<Application>> = match options.namespace.as_deref() {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut outcome = StepOutcome::default();
    let mut pages = Pages::new(&api, options.label_selector.as_deref());
    loop {
        let page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return outcome,
            Err(error) => {
                outcome.fail(log, format!("failed to list the kind Application: {error}"));
                return outcome;
            }
        };
        for cached in page.into_iter().map(CachedApplication::convert) {
            // An object that can't be decoded has never adopted anything.
            let application = cached
                .object()
                .filter(|application| has_finalizer(&application.metadata));
            let Some(application) = application else { continue };
            // A failure that a tenant causes must not stop the others.
            match remove_adoption(client, application, options.dry_run).await {
                Ok(()) => outcome.done += 1,
                Err(error) => {
                    let name = &application.spec.name;
                    outcome.fail(
                        log,
                        format!("failed to remove the finalizer of Application {name}: {error}"),
                    );
                }
            }
        }
    }
}

async fn remove_adoption(client: &Client, application: &CachedApplication, dry_run: bool) -> Result<(), String> {
    let meta = &application.metadata;
    if dry_run {
        return Ok(());
    }
    if meta.deletion_timestamp.is_some() && must_release(meta, false) {
        loop {
            let released = release(client, application)
                .await
                .map_err(|error| format!("failed to release its components: {error}"))?;
            if released != Released::Incomplete {
                break;
            }
        }
    }
    let removed = retry(|| remove_finalizer(client, application)).await;
    removed.map_err(|error| error.to_string())
}
