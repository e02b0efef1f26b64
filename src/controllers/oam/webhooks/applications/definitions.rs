//! Definitions for one review.

use kube::Client;

use crate::budget::{Budgets, leave_runtime_if_large};
use crate::controllers::oam::PASS_COPIES;
use crate::controllers::oam::definitions::{DefinitionCaches, Loaded, Missing};
use crate::controllers::oam::parse::Lookup;
use crate::controllers::oam::webhooks::serve::reserve_more;

pub trait ReviewDefinitions: Sync {
    /// Calls `resolve` with all definitions, once they are known.
    ///
    /// # Errors
    /// A definition can't be read, with the cause for the author.
    fn resolve<T: Send>(
        &self,
        resolve: impl Fn(&dyn Lookup) -> T + Send + Sync,
    ) -> impl Future<Output = Result<T, String>> + Send;
}

/// The definitions in the caches. Those that the caches do not hold decoded are loaded, and kept until the review ends.
pub struct CachedDefinitions<'a> {
    pub caches: &'a DefinitionCaches,
    pub client: &'a Client,
    pub budgets: &'a Budgets,
    pub loaded: Loaded,
}

impl ReviewDefinitions for CachedDefinitions<'_> {
    async fn resolve<T: Send>(&self, resolve: impl Fn(&dyn Lookup) -> T + Send + Sync) -> Result<T, String> {
        // Before that, definitions that exist would seem to be missing.
        self.caches.wait_until_synced().await;
        loop {
            let missing = {
                let lookup = self.caches.lookup(&self.loaded);
                let resolved = resolve(&lookup);
                let missing = lookup.into_missing();
                if missing.is_empty() {
                    return Ok(resolved);
                }
                missing
            };
            for definition in missing {
                self.load(&*definition).await?;
            }
            leave_runtime_if_large(usize::try_from(self.loaded.bytes()).unwrap_or(usize::MAX)).await;
        }
    }
}

impl CachedDefinitions<'_> {
    async fn load(&self, missing: &dyn Missing) -> Result<(), String> {
        let bytes = PASS_COPIES * missing.decoded_bytes();
        let memory = reserve_more(self.budgets, PASS_COPIES * self.loaded.bytes(), bytes)?;
        let loaded = self.loaded.load(missing, memory, self.client, self.budgets);
        loaded.await.map_err(|error| error.to_string())
    }
}
