//! Collects objects with our labels whose repository, named by its UID, is gone, and expired Leases.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Preconditions, PropagationPolicy};
use kube::core::{ObjectList, Request};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::orphans::OrphanFinder;
use super::report::GarbageKind;
use crate::api::{NamespacedName, Partial, jobs};
use crate::controllers::apprepository::origin::Origin;
use crate::runtime::kube_client::{ApiError, call};

const PAGE: u32 = 500;
/// Time after the end of a Lease in which its holder may come back. Far beyond any difference between clocks.
const LEASE_AGE: SignedDuration = SignedDuration::from_hours(24);

pub struct GarbageObjects {
    pub client: Client,
    /// The namespace of Kubeapps, with CronJobs, Jobs and copies of Secrets.
    pub namespace: String,
    /// The namespace of the Leases.
    pub lease_namespace: String,
}

pub(super) type ObjectNames = Vec<String>;

impl GarbageObjects {
    /// Collects the objects of a kind whose repository is gone. Their list is complete, or nothing is removed.
    pub(super) async fn collect(
        &self,
        kind: GarbageKind,
        orphans: &OrphanFinder,
        dry_run: bool,
    ) -> Result<ObjectNames, ApiError> {
        let gone = Gone {
            orphans,
            origin: &orphans.origin,
            checked: HashMap::new(),
        };
        let ours = jobs::selector();
        match kind {
            GarbageKind::CronJobs => {
                let cron_jobs = if_allowed(kind, self.list_metadata::<CronJob>(&ours).await)?;
                self.remove::<CronJob>(cron_jobs, gone, dry_run).await
            }
            GarbageKind::Jobs => {
                let jobs = if_allowed(kind, self.list::<Job>(&self.namespace, &ours).await)?;
                let finished = jobs.into_iter().filter(is_finished).map(|job| job.metadata);
                self.remove::<Job>(finished.collect(), gone, dry_run).await
            }
            GarbageKind::Secrets => {
                let secrets = if_allowed(kind, self.list_metadata::<Secret>(&ours).await)?;
                self.remove::<Secret>(secrets, gone, dry_run).await
            }
            GarbageKind::Leases => self.remove_leases(dry_run).await,
            GarbageKind::Repositories | GarbageKind::Files | GarbageKind::History | GarbageKind::Rows => {
                Ok(ObjectNames::new())
            }
        }
    }

    async fn remove<K: GarbageObject>(
        &self,
        objects: Vec<ObjectMeta>,
        mut gone: Gone<'_>,
        dry_run: bool,
    ) -> Result<ObjectNames, ApiError> {
        let mut removed = ObjectNames::new();
        for meta in objects {
            if gone.check_gone(&meta).await? && (dry_run || self.delete::<K>(&self.namespace, &meta).await?) {
                removed.push(name_of(&self.namespace, &meta));
            }
        }
        Ok(removed)
    }

    async fn remove_leases(&self, dry_run: bool) -> Result<ObjectNames, ApiError> {
        let leases = if_allowed(GarbageKind::Leases, self.list::<Lease>(&self.lease_namespace, "").await)?;
        let now = Timestamp::now();
        let mut removed = ObjectNames::new();
        for lease in leases
            .iter()
            .filter(|lease| jobs::is_lease(&lease.metadata) && is_expired(lease, now))
        {
            let name = name_of(&self.lease_namespace, &lease.metadata);
            if dry_run {
                removed.push(name);
                continue;
            }
            match self.delete::<Lease>(&self.lease_namespace, &lease.metadata).await {
                Ok(true) => removed.push(name),
                Ok(false) => {}
                Err(error) if error.is_forbidden() => {
                    tracing::debug!(%error, "not allowed to delete Leases, none of them are collected");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    async fn list<K: GarbageObject>(&self, namespace: &str, selector: &str) -> Result<Vec<K>, ApiError> {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let page = |parameters: ListParams| {
            let api = api.clone();
            async move { call(api.list(&parameters)).await }
        };
        all_pages(selector, page).await
    }

    /// Lists metadata in the namespace of Jobs: the contents of Secrets are not requested.
    async fn list_metadata<K: GarbageObject>(&self, selector: &str) -> Result<Vec<ObjectMeta>, ApiError> {
        let path = K::url_path(&(), Some(&self.namespace));
        let page = |parameters: ListParams| {
            let (client, request) = (self.client.clone(), Request::new(path.clone()));
            async move {
                let request = request
                    .list_metadata(&parameters)
                    .map_err(|error| ApiError::bad_request(error.to_string()))?;
                call(client.request::<ObjectList<Partial<K>>>(request)).await
            }
        };
        let objects = all_pages(selector, page).await?;
        Ok(objects.into_iter().map(|object| object.metadata).collect())
    }

    /// Deletes an object as it was listed. Returns false if it has changed since.
    async fn delete<K: GarbageObject>(&self, namespace: &str, meta: &ObjectMeta) -> Result<bool, ApiError> {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        match call(api.delete(meta.name.as_deref().unwrap_or_default(), &parameters)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

trait GarbageObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K> GarbageObject for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

/// Finds out if the repository of an object is gone: the list lacks it, and so does the API server.
struct Gone<'a> {
    orphans: &'a OrphanFinder,
    origin: &'a Arc<Origin>,
    /// Results by name and UID.
    checked: HashMap<(NamespacedName, String), bool>,
}

impl Gone<'_> {
    async fn check_gone(&mut self, meta: &ObjectMeta) -> Result<bool, ApiError> {
        let Some((name, uid)) = jobs::repository_of(meta) else {
            return Ok(false);
        };
        let cached = self.orphans.store.get(&name).and_then(|seen| seen.meta().uid.clone());
        if !self.orphans.is_watched(&name.namespace) || cached.as_ref() == Some(&uid) {
            return Ok(false);
        }
        let key = (name, uid);
        if let Some(is_gone) = self.checked.get(&key) {
            return Ok(*is_gone);
        }
        let is_gone = !self.origin.has_uid(&key.0, Some(&key.1)).await?;
        self.checked.insert(key, is_gone);
        Ok(is_gone)
    }
}

async fn all_pages<T: Clone, F>(selector: &str, page: impl Fn(ListParams) -> F) -> Result<Vec<T>, ApiError>
where
    F: Future<Output = Result<ObjectList<T>, ApiError>>,
{
    let mut parameters = ListParams::default().labels(selector).limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = page(parameters.clone()).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Returns nothing if the list is forbidden: without that right, this installation has created no objects of the kind.
fn if_allowed<T>(kind: GarbageKind, listed: Result<Vec<T>, ApiError>) -> Result<Vec<T>, ApiError> {
    listed.or_else(|error| {
        if !error.is_forbidden() {
            return Err(error);
        }
        tracing::debug!(kind = kind.label(), %error, "not collecting garbage of this kind");
        Ok(Vec::new())
    })
}

fn name_of(namespace: &str, meta: &ObjectMeta) -> String {
    format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default())
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ends = conditions.filter(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"));
    ends.any(|condition| condition.status == "True")
}

/// Returns true if a Lease has been without an active holder for a day. A Lease without times counts from its creation.
fn is_expired(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.clone().unwrap_or_default();
    let LeaseSpec {
        renew_time,
        lease_duration_seconds: seconds,
        ..
    } = spec;
    let duration = SignedDuration::from_secs(seconds.unwrap_or_default().max(0).into());
    let created = lease.creation_timestamp().map(|time| time.0);
    let used = renew_time.map(|time| time.0).or(created);
    used.is_some_and(|used| now.duration_since(used) > LEASE_AGE + duration)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::long_expired(json!({ "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15 }), true)]
    #[case::renewed_a_day_ago(json!({ "renewTime": "2026-01-02T00:00:00.000000Z", "leaseDurationSeconds": 15 }), false)]
    #[case::of_the_future(json!({ "renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15 }), false)]
    #[case::long(json!({ "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 2_000_000 }), false)]
    #[case::negative(json!({ "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": -5 }), true)]
    #[case::without_times(json!({}), true)]
    fn a_lease_expires_a_day_after_its_end(#[case] spec: Value, #[case] expected: bool) {
        let lease = json!({ "metadata": { "name": "l", "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec });
        let lease: Lease = serde_json::from_value(lease).unwrap();
        let now = "2026-01-03T00:00:10Z".parse().unwrap();
        assert_eq!(is_expired(&lease, now), expected);
    }

    #[rstest]
    #[case::running(json!({ "active": 1 }), false)]
    #[case::complete(json!({ "conditions": [{ "type": "Complete", "status": "True" }] }), true)]
    #[case::failed(json!({ "conditions": [{ "type": "Failed", "status": "True" }] }), true)]
    #[case::not_yet(json!({ "conditions": [{ "type": "Failed", "status": "False" }] }), false)]
    #[case::failing(json!({ "conditions": [{ "type": "FailureTarget", "status": "True" }] }), false)]
    fn a_job_is_finished_by_its_conditions(#[case] status: Value, #[case] expected: bool) {
        let job: Job = serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap();
        assert_eq!(is_finished(&job), expected);
    }
}
