use serde_json::Value;

use super::decide::ObjectIdentity;

/// A stage of a trait. Its objects are applied once the objects of the stage before are healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    PreDispatch,
    /// The workload and its traits.
    #[default]
    DefaultDispatch,
    PostDispatch,
}

impl Stage {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "DefaultDispatch" => Ok(Self::DefaultDispatch),
            "PreDispatch" => Ok(Self::PreDispatch),
            "PostDispatch" => Ok(Self::PostDispatch),
            other => Err(format!(
                "unknown stage type {other}; expected PreDispatch, DefaultDispatch or PostDispatch"
            )),
        }
    }
}

/// Objects of a stage keep their order. The default stage is always there, for the health of the workload, which has no
/// object if a trait manages it.
#[must_use]
pub fn stages<T>(objects: impl IntoIterator<Item = (Stage, T)>) -> Vec<(Stage, Vec<T>)> {
    let mut stages: Vec<(Stage, Vec<T>)> = [Stage::PreDispatch, Stage::DefaultDispatch, Stage::PostDispatch]
        .map(|stage| (stage, Vec::new()))
        .into();
    for (stage, object) in objects {
        if let Some((_, objects)) = stages.iter_mut().find(|(name, _)| *name == stage) {
            objects.push(object);
        }
    }
    stages.retain(|(stage, objects)| *stage == Stage::DefaultDispatch || !objects.is_empty());
    stages
}

/// Splits the objects of a stage into prerequisites, without which others are not accepted, and the others.
#[must_use]
pub fn waves<T>(objects: Vec<T>, manifest: impl Fn(&T) -> &Value) -> [Vec<T>; 2] {
    let is_prerequisite = |object: &T| {
        let ObjectIdentity { api_version, kind, .. } = ObjectIdentity::of(manifest(object));
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        matches!(
            (group, kind),
            ("apiextensions.k8s.io", "CustomResourceDefinition") | ("", "Namespace")
        )
    };
    let (first, others) = objects.into_iter().partition(is_prerequisite);
    [first, others]
}
