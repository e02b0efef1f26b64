use std::sync::Arc;

use kube::core::DeserializeGuard;
use kube::{Api, ResourceExt};

use crate::api::oam::ResourceTracker;
use crate::api::{Guarded, NamespacedName};
use crate::controllers::oam::cache::{CachedTracker, DecodedApplication};
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::reconciler::failure::{Failure, FailureKind, Stop};
use crate::controllers::oam::reconciler::observed::Observed;
use crate::controllers::oam::reconciler::revise;
use crate::controllers::oam::trackers::{Inventory, InventoryError, Tracker};
use crate::runtime::kube_client::call;
use crate::runtime::watch::Cached;

impl Observed {
    pub fn of(DecodedApplication { app, too_large }: DecodedApplication) -> Self {
        Self {
            app,
            too_large,
            latest: Ok(None),
        }
    }
}

/// Reads the latest revision. A pass may not need it, so its failure is kept.
pub async fn read_latest(env: &Env<'_>, observed: &mut Observed) -> Result<(), Stop> {
    let status = observed.app.status.as_ref();
    let latest = status.and_then(|status| status.latest_revision.as_ref());
    observed.latest = match latest {
        Some(latest) => Stop::split(revise::read_named(env, latest).await)?,
        None => Ok(None),
    };
    Ok(())
}

pub async fn read_trackers(env: &Env<'_>, observed: &Observed) -> Result<Inventory, Stop> {
    let trackers = trackers_of(env, env.name).await?;
    Ok(Inventory::of(&observed.identity(env), trackers).map_err(failed)?)
}

/// Returns the trackers of an Application. Their memory is reserved.
pub async fn trackers_of(env: &Env<'_>, application: &NamespacedName) -> Result<Vec<Tracker>, Stop> {
    let mut trackers = Vec::new();
    for cached in env.reconciler.caches.trackers_of(application) {
        let tracker = match cached {
            Cached::Object(tracker) => load_entries(env, &tracker).await?,
            Cached::Invalid { meta, error } => {
                let (tracker, cause) = (meta.name.clone().unwrap_or_default(), error);
                return Err(failed(InventoryError::Invalid { tracker, cause }).into());
            }
        };
        trackers.push(Tracker::decode(tracker).map_err(failed)?);
    }
    Ok(trackers)
}

fn failed(error: InventoryError) -> Failure {
    Failure::new(FailureKind::Collect, error.to_string())
}

async fn load_entries(env: &Env<'_>, cached: &CachedTracker) -> Result<Arc<ResourceTracker>, Stop> {
    if let Some(whole) = cached.whole() {
        return Ok(Arc::clone(whole));
    }
    // Decoded as leniently as trackers in the cache.
    let trackers: Api<Guarded<ResourceTracker>> = Api::all(env.reconciler.client.clone());
    let failed = |error: String| Failure::new(FailureKind::Collect, error).into();
    match call(trackers.get_opt(&cached.name_any())).await {
        Ok(Some(Guarded(DeserializeGuard(tracker)))) => {
            tracker.map(Arc::new).map_err(|error| failed(error.to_string()))
        }
        // The cache is behind.
        Ok(None) => Err(Stop::Stale),
        Err(error) => Err(failed(error.to_string())),
    }
}
