use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::Objects;
use crate::api::NamespacedName;
use crate::runtime::kube_client::ApiError;

/// Between two patches of a repository.
const INTERVAL: Duration = Duration::from_secs(1);

/// The patches of one repository. Requests that arrive within the interval share the patch at its end, and wait for it: an
/// accepted request is never lost.
#[derive(Default)]
pub(super) struct Poll(Mutex<Option<Patched>>);

struct Patched {
    started: Instant,
    result: Result<(), ApiError>,
}

impl Poll {
    pub(super) async fn request(&self, objects: &dyn Objects, name: &NamespacedName) -> Result<(), ApiError> {
        let arrived = Instant::now();
        let mut last = self.0.lock().await;
        if let Some(patched) = &*last {
            if patched.started > arrived {
                return patched.result.clone();
            }
            sleep_until(patched.started + INTERVAL).await;
        }
        let started = Instant::now();
        let result = objects.poll(name, Timestamp::now()).await;
        *last = Some(Patched {
            started,
            result: result.clone(),
        });
        result
    }
}
