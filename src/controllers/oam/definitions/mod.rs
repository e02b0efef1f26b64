//! Definitions: their caches, and the controllers that record their revisions.
//!
//! ```text
//!  informers ─► DefinitionCaches ─► LoadedLookup ─► parse::Lookup
//!      │              ▲ assume
//!      ├─► EventHandler ─► queue ─► DefinitionReconciler ─► DefinitionRevisions, ConfigMaps, status
//!      └─► DefinitionChange, for the Applications that use the definition
//! ```

mod cached;
mod caches;
mod decide;
mod event_handler;
mod failure;
mod kinds;
mod loaded;
mod reconciler;
mod record;
mod recorder;
mod revision_index;
mod schema;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use cached::{DefinitionBudgets, LoadError};
pub use caches::DefinitionCaches;
pub use decide::{Naming, NamingError, naming};
pub use event_handler::enqueue_all;
pub use kinds::{ChangedKind, DefinitionChange, RecordedKind};
pub use loaded::{Loaded, LoadedLookup, Missing};
pub use reconciler::{DefinitionParts, DefinitionSettings, IsInUse};
pub use record::is_recorded_in;

use reconciler::DefinitionReconciler;

use crate::api::oam::{ComponentDefinition, DefinitionKind, PolicyDefinition, TraitDefinition, WorkflowStepDefinition};
use crate::runtime::controller::{Class, Reconcile};

/// Returns the class of the objects of a kind in the work queue.
#[must_use]
pub const fn class(kind: DefinitionKind) -> &'static str {
    match kind {
        DefinitionKind::Component => "oam/componentdefinition",
        DefinitionKind::Trait => "oam/traitdefinition",
        DefinitionKind::Policy => "oam/policydefinition",
        DefinitionKind::WorkflowStep => "oam/workflowstepdefinition",
    }
}

/// Returns the classes that record revisions of definitions. They write, so they run on the leader only.
pub fn classes(parts: &DefinitionParts) -> Vec<Class> {
    DefinitionKind::ALL
        .map(|kind| {
            let reconciler: Arc<dyn Reconcile> = match kind {
                DefinitionKind::Component => Arc::new(DefinitionReconciler::<ComponentDefinition>::new(parts)),
                DefinitionKind::Trait => Arc::new(DefinitionReconciler::<TraitDefinition>::new(parts)),
                DefinitionKind::Policy => Arc::new(DefinitionReconciler::<PolicyDefinition>::new(parts)),
                DefinitionKind::WorkflowStep => Arc::new(DefinitionReconciler::<WorkflowStepDefinition>::new(parts)),
            };
            Class {
                name: class(kind),
                workers: 1,
                reconciler,
            }
        })
        .into()
}
