//! Which kinds the API server serves, and how.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, Error};

use super::GroupKind;

/// How objects of a kind are asked for: in the version that the API server prefers of those that have the kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Group, version, kind and plural.
    pub api: ApiResource,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// Whether its objects can be listed at all: some kinds are only ever posted.
    pub can_list: bool,
}

impl Resource {
    /// Its name as `kubectl` and RBAC know it: `deployments.apps`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.api.group.as_str() {
            "" => self.api.plural.clone(),
            group => format!("{}.{group}", self.api.plural),
        }
    }
}

/// All kinds that the API server serves now, which takes two requests.
///
/// # Errors
/// The API server does not answer, or refuses.
pub(super) async fn discover(client: &Client) -> Result<HashMap<GroupKind, Resource>, Error> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        // Servers before Kubernetes 1.26 answer by the older form, which can't be read as this one.
        Err(Error::SerdeError(_)) => Discovery::new(client.clone()).run().await?,
        discovery => discovery?,
    };
    let mut kinds = HashMap::new();
    for group in discovery.groups() {
        let preferred = group.preferred_version_or_latest();
        for version in std::iter::once(preferred).chain(group.versions()) {
            for (api, capabilities) in group.versioned_resources(version) {
                let resource = Resource {
                    is_namespaced: capabilities.scope == Scope::Namespaced,
                    can_list: capabilities.supports_operation(verbs::LIST),
                    api,
                };
                add(&mut kinds, resource);
            }
        }
    }
    Ok(kinds)
}

/// Adds a resource, unless its kind is known already by one that is as good. Objects of a kind may also come and go by a resource
/// that only posts them.
fn add(kinds: &mut HashMap<GroupKind, Resource>, resource: Resource) {
    let kind = GroupKind::new(resource.api.group.clone(), resource.api.kind.clone());
    match kinds.entry(kind) {
        Entry::Vacant(entry) => {
            entry.insert(resource);
        }
        Entry::Occupied(mut entry) if resource.can_list && !entry.get().can_list => {
            entry.insert(resource);
        }
        Entry::Occupied(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn of_two_resources_of_a_kind_the_first_is_taken_that_can_be_listed() {
        let mut kinds = HashMap::new();
        for (plural, can_list) in [("posts", false), ("lists", true), ("others", true), ("more", false)] {
            let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
            let resource = Resource {
                api: ApiResource::from_gvk_with_plural(&kind, plural),
                is_namespaced: true,
                can_list,
            };
            add(&mut kinds, resource);
        }
        assert_eq!(kinds[&GroupKind::new("example.com", "Widget")].api.plural, "lists");
    }
}
