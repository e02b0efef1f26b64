use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::core::discovery::v2::APIGroupDiscovery;
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::verbs;
use kube::{Client, Error};

use super::GroupKind;

/// Freshness of a version whose aggregated API server could not be asked; its resources are from the last answer.
const STALE: &str = "Stale";
/// Joined clusters are not trusted, and their kinds stay in memory. Large clusters serve 3,000.
pub(super) const MAX_KINDS: usize = 20_000;

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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    kinds: HashMap<GroupKind, Resource>,
    /// Groups with a version that could not be asked: its aggregated API server is down. They may have more kinds.
    incomplete_groups: BTreeSet<Arc<str>>,
}

impl Served {
    #[must_use]
    pub fn get(&self, kind: &GroupKind) -> Option<&Resource> {
        self.kinds.get(kind)
    }

    /// `name` is singular or plural. An empty group means any: the core group first, then the others in their order.
    #[must_use]
    pub fn find(&self, group: &str, name: &str) -> Option<&Resource> {
        let has_name = |resource: &&Resource| {
            let api = &resource.api;
            (group.is_empty() || api.group == group) && (api.plural == name || api.kind.to_lowercase() == name)
        };
        let listable = self.kinds.values().filter(|resource| resource.can_list);
        listable.filter(has_name).min_by_key(|resource| &resource.api.group)
    }

    /// Returns true if all kinds of a group are known.
    #[must_use]
    pub fn is_complete(&self, group: &str) -> bool {
        !self.incomplete_groups.contains(group)
    }

    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.kinds.keys().any(|kind| *kind.group == *group)
    }

    pub(super) fn keep(&mut self, before: &Self) {
        for (kind, resource) in &before.kinds {
            if self.incomplete_groups.contains(&kind.group) && self.kinds.len() < MAX_KINDS {
                self.kinds.entry(kind.clone()).or_insert_with(|| resource.clone());
            }
        }
    }

    /// Adds a resource unless its kind has a resource. A resource that can be listed replaces a resource that cannot.
    pub(super) fn add(&mut self, resource: Resource) {
        let kind = GroupKind::new(resource.api.group.clone(), resource.api.kind.clone());
        match self.kinds.entry(kind) {
            Entry::Vacant(entry) => {
                entry.insert(resource);
            }
            Entry::Occupied(mut entry) if resource.can_list && !entry.get().can_list => {
                entry.insert(resource);
            }
            Entry::Occupied(_) => {}
        }
    }

    fn check_number(&self) -> Result<(), Error> {
        if self.kinds.len() > MAX_KINDS {
            return Err(Error::Service(Box::new(TooManyKinds { limit: MAX_KINDS })));
        }
        Ok(())
    }

    fn add_group(&mut self, group: APIGroupDiscovery) {
        let name = group.metadata.and_then(|meta| meta.name).unwrap_or_default();
        // The preferred version comes first.
        for version in group.versions {
            if version.freshness.as_deref() == Some(STALE) {
                self.incomplete_groups.insert(name.as_str().into());
            }
            let version_name = version.version.unwrap_or_default();
            for resource in version.resources {
                let kind = resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default();
                self.add(Resource {
                    api: api_resource(&name, &version_name, kind, resource.resource.unwrap_or_default()),
                    is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
                    can_list: resource.verbs.iter().any(|verb| verb == verbs::LIST),
                });
            }
        }
    }

    fn add_version(&mut self, group: &str, version: &str, list: APIResourceList) {
        for resource in list.resources {
            let is_subresource = resource.name.contains('/');
            if !is_subresource {
                self.add(Resource {
                    api: api_resource(group, version, resource.kind, resource.name),
                    is_namespaced: resource.namespaced,
                    can_list: resource.verbs.iter().any(|verb| verb == verbs::LIST),
                });
            }
        }
    }
}

fn api_resource(group: &str, version: &str, kind: String, plural: String) -> ApiResource {
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    ApiResource::from_gvk_with_plural(&gvk, &plural)
}

#[derive(Debug, thiserror::Error)]
#[error("the API server serves more than {limit} kinds")]
struct TooManyKinds {
    limit: usize,
}

/// Returns all kinds that the API server serves. Needs two requests.
pub async fn discover(client: &Client) -> Result<Served, Error> {
    let core = match client.list_core_api_versions_aggregated().await {
        // Servers before Kubernetes 1.26 lack aggregated discovery and send another document.
        Err(Error::SerdeError(_)) => return discover_by_version(client).await,
        Ok(core) if core.items.is_empty() => return discover_by_version(client).await,
        core => core?,
    };
    let groups = client.list_api_groups_aggregated().await?;
    let mut served = Served::default();
    for group in groups.items.into_iter().chain(core.items) {
        served.add_group(group);
    }
    served.check_number()?;
    Ok(served)
}

/// Returns all kinds with a request for each version of a group.
async fn discover_by_version(client: &Client) -> Result<Served, Error> {
    let mut served = Served::default();
    for group in client.list_api_groups().await?.groups {
        let preferred = group.preferred_version.as_ref().map(|version| &version.version);
        let mut versions = group.versions.clone();
        versions.sort_by_key(|version| Some(&version.version) != preferred);
        for version in versions {
            match client.list_api_group_resources(&version.group_version).await {
                Ok(list) => {
                    served.add_version(&group.name, &version.version, list);
                    served.check_number()?;
                }
                Err(Error::Api(_)) => {
                    served.incomplete_groups.insert(group.name.as_str().into());
                }
                Err(error) => return Err(error),
            }
        }
    }
    for version in client.list_core_api_versions().await?.versions {
        let list = client.list_core_api_resources(&version).await?;
        served.add_version("", &version, list);
        served.check_number()?;
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::kube_client::ApiError;

    #[test]
    fn the_number_of_kinds_is_limited() {
        let mut served = Served::default();
        for number in 0..=MAX_KINDS {
            assert!(served.check_number().is_ok());
            served.add(Resource {
                api: api_resource("example.com", "v1", number.to_string(), number.to_string()),
                is_namespaced: true,
                can_list: true,
            });
        }
        let error = served.check_number().unwrap_err();
        assert!(ApiError::from(error).message.contains("more than 20000 kinds"));
    }

    #[test]
    fn the_first_listable_resource_of_a_kind_is_used() {
        let mut served = Served::default();
        for (plural, can_list) in [("posts", false), ("lists", true), ("others", true), ("more", false)] {
            let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
            let resource = Resource {
                api: ApiResource::from_gvk_with_plural(&kind, plural),
                is_namespaced: true,
                can_list,
            };
            served.add(resource);
        }
        let found = served.get(&GroupKind::new("example.com", "Widget"));
        assert_eq!(found.map(|resource| resource.api.plural.as_str()), Some("lists"));
    }

    #[test]
    fn a_resource_is_found_by_its_singular_or_plural_name_first_in_the_core_group() {
        let mut served = Served::default();
        for (group, kind, plural) in [
            ("b.example.com", "Event", "events"),
            ("", "Event", "events"),
            ("b.example.com", "Widget", "widgets"),
            ("a.example.com", "Widget", "widgets"),
        ] {
            let kind = GroupVersionKind::gvk(group, "v1", kind);
            served.add(Resource {
                api: ApiResource::from_gvk_with_plural(&kind, plural),
                is_namespaced: true,
                can_list: true,
            });
        }
        let find = |group, name| served.find(group, name).map(|found| found.api.group.as_str());
        assert_eq!((find("", "event"), find("", "events")), (Some(""), Some("")));
        assert_eq!(find("b.example.com", "event"), Some("b.example.com"));
        assert_eq!(find("", "widget"), Some("a.example.com"));
        assert_eq!((find("", "Widget"), find("c.example.com", "widget")), (None, None));
    }

    /// A server without aggregated discovery. The group `down.example.com` has no API server now.
    fn old_server() -> Client {
        let group = |name: &str| {
            let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
            json!({ "name": name, "versions": [version], "preferredVersion": version })
        };
        let list = |version: &str, kind: &str, plural: &str| {
            let resource = |name: String| json!({ "name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": ["list"] });
            json!({
                "kind": "APIResourceList", "groupVersion": version,
                "resources": [resource(plural.to_owned()), resource(format!("{plural}/status"))],
            })
        };
        let service = tower::service_fn(move |request: axum::http::Request<Body>| {
            let (code, body): (u16, Value) = match request.uri().path() {
                "/apis" => {
                    let groups = [group("example.com"), group("down.example.com")];
                    (200, json!({ "kind": "APIGroupList", "groups": groups }))
                }
                "/api" => (
                    200,
                    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
                ),
                "/apis/example.com/v1" => (200, list("example.com/v1", "Widget", "widgets")),
                "/api/v1" => (200, list("v1", "Pod", "pods")),
                _ => {
                    let reason = "ServiceUnavailable";
                    (
                        503,
                        json!({ "kind": "Status", "status": "Failure", "code": 503, "reason": reason }),
                    )
                }
            };
            let response = axum::http::Response::builder().status(code);
            ready(Ok::<_, Infallible>(
                response.body(Body::from(body.to_string().into_bytes())).unwrap(),
            ))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn an_old_server_is_asked_by_version_and_one_group_that_is_down_does_not_hide_the_others() {
        let served = discover(&old_server()).await.unwrap();
        let name = |group: &str, kind: &str| served.get(&GroupKind::new(group, kind)).map(Resource::name);
        assert_eq!(name("example.com", "Widget").as_deref(), Some("widgets.example.com"));
        assert_eq!(name("", "Pod").as_deref(), Some("pods"));
        assert!(served.is_complete("example.com") && !served.is_complete("down.example.com"));
    }
}
