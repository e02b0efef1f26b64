//! Definitions: their caches, and the controllers that record their revisions.
//!
//! ```text
//!  informers ─► DefinitionCaches ─► parse::Lookup
//!      │              ▲ assume
//!      ├─► EventHandler ─► queue ─► DefinitionReconciler ─► DefinitionRevisions, status
//!      └─► DefinitionChange, for the Applications that use the definition
//! ```

mod caches;
mod decide;
mod event_handler;
mod kinds;
mod reconciler;
mod record;
mod revision_index;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use caches::DefinitionCaches;
pub use event_handler::enqueue_all;
pub use kinds::{ChangedKind, DefinitionChange};
pub use reconciler::{IsInUse, Settings};

use reconciler::DefinitionReconciler;

use crate::api::oam::{ComponentDefinition, DefinitionKind, PolicyDefinition, TraitDefinition, WorkflowStepDefinition};
use crate::runtime::controller::{Class, Reconcile};

/// The classes of keys, one for each kind of definitions.
pub const CLASSES: [&str; 4] = [
    class(DefinitionKind::Component),
    class(DefinitionKind::Trait),
    class(DefinitionKind::Policy),
    class(DefinitionKind::WorkflowStep),
];

const fn class(kind: DefinitionKind) -> &'static str {
    match kind {
        DefinitionKind::Component => "oam/componentdefinition",
        DefinitionKind::Trait => "oam/traitdefinition",
        DefinitionKind::Policy => "oam/policydefinition",
        DefinitionKind::WorkflowStep => "oam/workflowstepdefinition",
    }
}

/// Returns the classes that record revisions of definitions. They write, so they run on the leader only.
pub fn classes(
    client: &Client,
    caches: &DefinitionCaches,
    settings: &Settings,
    is_in_use: &IsInUse,
    stopping: &CancellationToken,
) -> Vec<Class> {
    let reconcilers: [(DefinitionKind, Arc<dyn Reconcile>); 4] = [
        (
            DefinitionKind::Component,
            Arc::new(DefinitionReconciler::<ComponentDefinition>::new(
                client, caches, settings, is_in_use, stopping,
            )),
        ),
        (
            DefinitionKind::Trait,
            Arc::new(DefinitionReconciler::<TraitDefinition>::new(
                client, caches, settings, is_in_use, stopping,
            )),
        ),
        (
            DefinitionKind::Policy,
            Arc::new(DefinitionReconciler::<PolicyDefinition>::new(
                client, caches, settings, is_in_use, stopping,
            )),
        ),
        (
            DefinitionKind::WorkflowStep,
            Arc::new(DefinitionReconciler::<WorkflowStepDefinition>::new(
                client, caches, settings, is_in_use, stopping,
            )),
        ),
    ];
    let classes = reconcilers.into_iter().map(|(kind, reconciler)| Class {
        name: class(kind),
        workers: 1,
        reconciler,
    });
    classes.collect()
}
