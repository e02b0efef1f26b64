use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;

use super::PlacementError;
use super::limits::{MAX_PLACED, check_limit};
use super::properties::decode;
use crate::api::lenient::list;
use crate::api::oam::{AppPolicy, Component};
use crate::controllers::oam::policies::REPLICATION;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Replication {
    #[serde(deserialize_with = "list")]
    keys: Vec<String>,
    #[serde(deserialize_with = "list")]
    selector: Vec<String>,
}

/// A component with its replica key, which is empty without replication.
pub(super) type Replica = (Arc<Component>, String);

/// Replaces the components that policies select by a replica for each key, after the other components.
pub(super) fn replicate(
    policies: &[Cow<'_, AppPolicy>],
    components: Vec<Arc<Component>>,
) -> Result<Vec<Replica>, PlacementError> {
    let mut replicated = HashSet::new();
    let mut replicas: Vec<Replica> = Vec::new();
    let mut seen = HashSet::new();
    for policy in policies.iter().filter(|policy| policy.type_ == REPLICATION) {
        if policy.properties.is_none() {
            continue;
        }
        let replication: Replication = decode(policy, "replicate")?;
        let names: HashSet<&str> = replication.selector.iter().map(String::as_str).collect();
        let selected = || components.iter().filter(|one| names.contains(one.name.as_str()));
        if selected().next().is_none() {
            return Err(PlacementError::NothingToReplicate {
                policy: policy.name.clone(),
            });
        }
        let count = selected().count().saturating_mul(replication.keys.len());
        check_limit(count.saturating_add(replicas.len()), "replicas", MAX_PLACED)?;
        for component in selected() {
            replicated.insert(component.name.clone());
            for key in &replication.keys {
                if seen.insert((component.name.clone(), key.clone())) {
                    replicas.push((Arc::clone(component), key.clone()));
                }
            }
        }
    }
    let others = components.into_iter().filter(|one| !replicated.contains(&one.name));
    Ok(others.map(|one| (one, String::new())).chain(replicas).collect())
}
