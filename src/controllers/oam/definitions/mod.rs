//! Definitions: their caches, and the controllers that record their revisions.

/// The classes of keys, one for each kind of definitions.
pub const CLASSES: [&str; 4] = [
    "oam/componentdefinition",
    "oam/traitdefinition",
    "oam/policydefinition",
    "oam/workflowstepdefinition",
];
