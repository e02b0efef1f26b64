use std::fmt::Debug;

use futures::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::pages::{Pages, retry};
use super::selected::SelectedObjects;
use super::{Log, StepOutcome, UninstallOptions};
use crate::api::Partial;
use crate::api::jobs::{self, LEASE};
use crate::manager::leader::NAME;
use crate::runtime::kube_client::{ApiError, call};

const CONCURRENCY: usize = 16;

/// The objects of a kind that are ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnedSelection<'a> {
    /// Objects of AppRepositories, in Kubeapps' namespace. Releases for other AppRepositories may share it.
    Owned(&'a SelectedObjects),
    /// The Lease `portolan` and labeled Leases, or the Leases of a name, in Portolan's namespace.
    Leases,
}

/// Deletes the objects with what belongs to them, such as the pods of Jobs.
pub(super) async fn delete<K>(
    client: &Client,
    options: &UninstallOptions,
    log: &Log<'_>,
    selection: OwnedSelection<'_>,
) -> StepOutcome
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    Partial<K>: Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let namespace = match selection {
        OwnedSelection::Owned(_) => &options.kubeapps_namespace,
        OwnedSelection::Leases => &options.portolan_namespace,
    };
    let api: Api<Partial<K>> = Api::namespaced(client.clone(), namespace);
    let mut outcome = StepOutcome::default();
    let metas = match find(&api, selection, options).await {
        Ok(metas) => metas,
        Err(error) => {
            outcome.fail(log, format!("failed to list {kind}s in namespace {namespace}: {error}"));
            return outcome;
        }
    };
    if options.dry_run {
        outcome.done = metas.len();
        return outcome;
    }
    let deletions = metas.iter().map(|meta| async {
        let name = meta.name.as_deref().unwrap_or_default();
        let deleted = delete_one(client, namespace, meta, std::marker::PhantomData::<K>).await;
        deleted.map_err(|error| format!("failed to delete {kind} {namespace}/{name}: {error}"))
    });
    let mut deletions = stream::iter(deletions).buffer_unordered(CONCURRENCY);
    while let Some(deleted) = deletions.next().await {
        match deleted {
            Ok(()) => outcome.done += 1,
            Err(failure) => outcome.fail(log, failure),
        }
    }
    outcome
}

async fn find<K>(
    api: &Api<Partial<K>>,
    selection: OwnedSelection<'_>,
    options: &UninstallOptions,
) -> Result<Vec<ObjectMeta>, ApiError>
where
    K: Resource<DynamicType = ()>,
    Partial<K>: Clone + Debug + DeserializeOwned,
{
    let (selector, is_ours): (_, &dyn Fn(&ObjectMeta) -> bool) = match selection {
        OwnedSelection::Owned(selected) => (Some(jobs::selector()), &|meta| {
            let namespace = options.namespace.as_deref();
            namespace.is_none_or(|namespace| is_in(meta, namespace)) && selected.has_object(meta)
        }),
        OwnedSelection::Leases => (None, &|meta| is_lease(meta, options.lease.as_deref())),
    };
    let mut pages = Pages::new(api, selector.as_deref());
    let mut metas: Vec<ObjectMeta> = Vec::new();
    while let Some(page) = pages.next().await? {
        metas.extend(page.into_iter().map(|object| object.metadata).filter(is_ours));
    }
    Ok(metas)
}

/// Returns true for our Leases, with a name for Leases of that name. An earlier release labeled only Leases of shards.
pub(super) fn is_lease(meta: &ObjectMeta, name: Option<&str>) -> bool {
    let is_single = meta.name.as_deref() == Some(name.unwrap_or(NAME));
    let label = meta.labels.as_ref().and_then(|labels| labels.get(LEASE));
    let has_label = |name: &str| label.is_some_and(|label| label == name);
    is_single || name.map_or_else(|| jobs::is_lease(meta), has_label)
}

fn is_in(meta: &ObjectMeta, namespace: &str) -> bool {
    jobs::repository_of(meta).is_some_and(|(repository, _)| repository.namespace == namespace)
}

async fn delete_one<K>(
    client: &Client,
    namespace: &str,
    meta: &ObjectMeta,
    _kind: std::marker::PhantomData<K>,
) -> Result<(), ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = meta.name.as_deref().unwrap_or_default();
    match retry(|| call(api.delete(name, &parameters))).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
