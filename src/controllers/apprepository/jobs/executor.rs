use crate::api::AppRepository;

pub const EXECUTOR: &str = "portolan.dev/executor";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executor {
    #[default]
    InProcess,
    Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The caches of Jobs are incomplete.
    Unknown {
        /// They should be complete by now.
        is_overdue: bool,
    },
    Jobs,
    InProcess,
}

impl Executor {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "in-process" => Some(Self::InProcess),
            "job" => Some(Self::Job),
            _ => None,
        }
    }

    /// Returns the executor of a repository. Values of the annotation that the flag does not know are ignored.
    #[must_use]
    pub fn of(object: &AppRepository, default: Self, allow_annotation: bool) -> Self {
        let chosen = object.annotation(EXECUTOR).filter(|_| allow_annotation);
        chosen.and_then(Self::parse).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_chooses_only_if_the_operator_allows_it() {
        let object = |value: &str| -> AppRepository {
            serde_json::from_value(json!({
                "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
                "metadata": { "name": "a", "annotations": { EXECUTOR: value } },
                "spec": { "type": "helm", "url": "https://charts.example" },
            }))
            .unwrap()
        };
        assert_eq!(Executor::of(&object("job"), Executor::InProcess, true), Executor::Job);
        assert_eq!(
            Executor::of(&object("job"), Executor::InProcess, false),
            Executor::InProcess
        );
        assert_eq!(
            Executor::of(&object("in-process"), Executor::Job, true),
            Executor::InProcess
        );
        assert_eq!(Executor::of(&object("elsewhere"), Executor::Job, true), Executor::Job);
    }
}
