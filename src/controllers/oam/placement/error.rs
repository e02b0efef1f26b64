#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("policy {0} not found")]
    PolicyNotFound(String),
    #[error("{type_} policy {name} must not have empty properties")]
    Empty { type_: &'static str, name: String },
    #[error("failed to parse {type_} policy {name}: {cause}")]
    Invalid {
        type_: &'static str,
        name: String,
        cause: String,
    },
    #[error("invalid parameters of a deploy step: {0}")]
    InvalidParameters(String),
    #[error("parallelism cannot be smaller than 1")]
    Parallelism,
    #[error("failed to get cluster {0}: no such cluster")]
    NoSuchCluster(String),
    /// With the reason.
    #[error("{0}")]
    ClustersUnknown(String),
    #[error("failed to find any cluster matches given labels")]
    NoCluster,
    #[error("cannot cross namespace")]
    OtherNamespace,
    #[error("failed to apply override policy {policy}: {cause}")]
    Override { policy: String, cause: OverrideError },
    #[error("failed to apply replicate policy {policy}: no component selected to replicate")]
    NothingToReplicate { policy: String },
    #[error("{count} {what} exceed the limit of {limit} in one deploy step; split the step or the application")]
    TooMany {
        count: usize,
        what: &'static str,
        limit: usize,
    },
    #[error(
        "{count} {what} exceed the limit of {limit} for all deploy steps of an application; deploy fewer components or to \
         fewer placements, or split the application"
    )]
    TooLarge {
        count: usize,
        what: &'static str,
        limit: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("component {0} not found; set its type to add it")]
    ComponentNotFound(String),
    #[error("properties of component {0} are not an object")]
    Properties(String),
    #[error("properties of trait {type_} of component {component} are not an object")]
    TraitProperties { component: String, type_: String },
    #[error("a name pattern of {0} bytes exceeds the limit of {limit}", limit = super::pattern::MAX_BYTES)]
    LongPattern(usize),
}
