//! Definitions: their caches, and the controllers that record their revisions.
//!
//! ```text
//!  informers ─► DefinitionCaches ─► parse::Lookup
//!      │              ▲ assume
//!      ├─► EventHandler ─► queue ─► DefinitionReconciler ─► DefinitionRevisions, status
//!      └─► DefinitionChange, for the Applications that use the definition
//! ```

mod caches;
mod event_handler;
mod kinds;
mod revision_index;

pub use caches::DefinitionCaches;
pub use event_handler::enqueue_all;
pub use kinds::{ChangedKind, DefinitionChange};

use crate::api::oam::DefinitionKind;

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
