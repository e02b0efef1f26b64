use std::collections::HashMap;
use std::collections::hash_map::Entry;

use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, Error};

use super::GroupKind;

/// The API resource of a kind, in the version that the API server prefers.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub api: ApiResource,
    pub is_namespaced: bool,
    /// False for kinds that only support create, such as TokenReview.
    pub can_list: bool,
}

impl Resource {
    /// Returns the name that `kubectl` and RBAC use, such as `deployments.apps`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.api.group.as_str() {
            "" => self.api.plural.clone(),
            group => format!("{}.{group}", self.api.plural),
        }
    }

    pub(super) fn of<K: kube::Resource<DynamicType = ()>>(is_namespaced: bool) -> Self {
        Self {
            api: ApiResource::erase::<K>(&()),
            is_namespaced,
            can_list: true,
        }
    }
}

/// Returns all kinds that the API server serves. Needs two requests.
pub async fn discover(client: &Client) -> Result<HashMap<GroupKind, Resource>, Error> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        // Servers before Kubernetes 1.26 lack aggregated discovery and send a document that cannot be decoded.
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

/// Adds a resource unless its kind already has one. A resource that can be listed replaces one that cannot.
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
    fn the_first_listable_resource_of_a_kind_is_used() {
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
