//! The definitions that a pass resolves.

use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use super::record::SMALL_BYTES;
use crate::budget::WorkError;
use crate::controllers::oam::PASS_COPIES;
use crate::controllers::oam::definitions::{LoadError, Missing};
use crate::controllers::oam::parse::Lookup;

impl Pass<'_> {
    /// Resolves definitions. Those that are not kept decoded are loaded, and `resolve` is called again.
    pub(super) async fn with_definitions<T>(&self, resolve: impl Fn(&dyn Lookup) -> T) -> Result<T, Stop> {
        loop {
            let missing = {
                let lookup = self.reconciler.definitions.lookup(&self.loaded);
                let resolved = resolve(&lookup);
                let missing = lookup.into_missing();
                if missing.is_empty() {
                    return Ok(resolved);
                }
                missing
            };
            for definition in missing {
                self.load_definition(&*definition).await?;
            }
        }
    }

    async fn load_definition(&self, missing: &dyn Missing) -> Result<(), Stop> {
        let budgets = &self.reconciler.budgets;
        let bytes = PASS_COPIES * missing.decoded_bytes();
        let total = PASS_COPIES * self.loaded.bytes() + bytes;
        let memory = match total <= SMALL_BYTES || total <= self.spare_bytes {
            true => None,
            false => {
                let memory = budgets.memory.try_reserve_more(&self.name.namespace, bytes);
                Some(memory.ok_or(Stop::NeedsMemory(total))?)
            }
        };
        let loaded = self
            .loaded
            .load(missing, memory, &self.reconciler.client, budgets)
            .await;
        loaded.map_err(|error| match error {
            LoadError::Work(WorkError::Exhausted(_)) => Stop::NeedsMemory(total),
            // The same text would panic again.
            LoadError::Work(WorkError::Panicked) | LoadError::Invalid { .. } | LoadError::Api { .. } => {
                let failure = Failure::new(conditions::PARSED, "FailedParse", error.to_string());
                failure.in_phase(phase::RENDERING).into()
            }
        })
    }
}
