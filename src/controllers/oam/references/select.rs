//! From requests to recorded objects, and from these to the properties of components.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use url::Url;

use super::objects::{add_cluster, add_source, clean, cluster, identity, remove_source, source};
use super::request::{Sources, resources, sources};
use super::{
    FetchObjects, MAX_BYTES, MAX_OBJECTS, MAX_REFERENCES, MAX_RESOLVED_BYTES, MAX_URLS, ObjectKind, ObjectRequest,
    ObjectSelector, REF_OBJECTS, ReferenceError, ReferenceScope,
};
use crate::api::oam::Component;
use crate::controllers::oam::trackers::is_local;
use crate::text;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// By the name of their component.
    components: BTreeMap<String, Sources>,
}

impl References {
    /// `kind_of` finds the kind of a group and resource; an empty group means any. Fails for what the scope excludes.
    pub fn parse(
        components: &[Component],
        namespace: &str,
        scope: ReferenceScope,
        kind_of: impl Fn(&str, &str) -> Option<ObjectKind>,
    ) -> Result<Self, ReferenceError> {
        let mut references = Self::default();
        for component in components.iter().filter(|component| component.type_ == REF_OBJECTS) {
            let sources = sources(component, namespace, scope, &kind_of)?;
            references.components.insert(component.name.clone(), sources);
            let count = references.requests().count();
            if count > MAX_REFERENCES {
                return Err(ReferenceError::TooManyReferences(count));
            }
            let count = references.urls().len();
            if count > MAX_URLS {
                return Err(ReferenceError::TooManyUrls(count));
            }
        }
        Ok(references)
    }

    /// Returns groups and names of the resources that components refer to without a kind.
    #[must_use]
    pub fn resources(components: &[Component]) -> BTreeSet<(String, String)> {
        let components = components.iter().filter(|component| component.type_ == REF_OBJECTS);
        components.flat_map(resources).take(MAX_REFERENCES).collect()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    pub fn requests(&self) -> impl Iterator<Item = &ObjectRequest> {
        self.components.values().flat_map(|sources| &sources.requests)
    }

    #[must_use]
    pub fn has_urls(&self) -> bool {
        self.components.values().any(|sources| !sources.urls.is_empty())
    }

    fn urls(&self) -> BTreeSet<&String> {
        self.components.values().flat_map(|sources| &sources.urls).collect()
    }

    /// Returns objects as the revision records them: existing objects cleaned, objects of a manifest with its URL, objects
    /// of a joined cluster with its name, each once, in the order of their kinds and names.
    pub async fn fetch(&self, source: &impl FetchObjects) -> Result<Vec<Value>, ReferenceError> {
        let mut fetched = FoundObjects::default();
        for request in self.requests() {
            fetched.add(fetch_one(request, source).await?, "")?;
        }
        for url in self.urls() {
            fetched.add(load_one(url, source).await?, url)?;
        }
        Ok(fetched.objects.into_values().collect())
    }

    /// Sets objects as properties, as their template reads them. Components without references stay as they are. KubeVela
    /// records no clusters: an object for which nothing in the controller's own was requested comes from another.
    pub fn resolve(&self, components: &[Component], recorded: &[Value]) -> Result<Vec<Component>, ReferenceError> {
        let mut bytes = 0;
        let is_requested = |object: &Value| {
            let mut local = self.requests().filter(|request| is_local(&request.cluster));
            local.any(|request| request.selects(object))
        };
        let lacks_cluster = |object: &Value| is_local(cluster(object)) && !is_requested(object);
        let resolved = components.iter().map(|component| {
            let Some(sources) = self.components.get(&component.name) else {
                return Ok(component.clone());
            };
            let objects = select(component, sources, recorded, &lacks_cluster)?;
            bytes += objects.iter().map(|object| object.to_string().len()).sum::<usize>();
            if bytes > MAX_RESOLVED_BYTES {
                return Err(ReferenceError::TooLarge);
            }
            Ok(Component {
                properties: Some(json!({ "objects": objects })),
                ..component.clone()
            })
        });
        resolved.collect()
    }
}

/// Objects that were found, by identity, URL and cluster.
#[derive(Default)]
struct FoundObjects {
    objects: BTreeMap<(String, String, String), Value>,
    bytes: usize,
}

impl FoundObjects {
    /// Adds objects. Of several objects with one identity, the last counts.
    fn add(&mut self, objects: Vec<Value>, url: &str) -> Result<(), ReferenceError> {
        for object in objects {
            self.bytes += object.to_string().len();
            let key = (identity(&object), url.to_owned(), cluster(&object).to_owned());
            self.objects.insert(key, object);
            if self.objects.len() > MAX_OBJECTS || self.bytes > MAX_BYTES {
                return Err(ReferenceError::TooManyObjects);
            }
        }
        Ok(())
    }
}

async fn load_one(url: &str, source: &impl FetchObjects) -> Result<Vec<Value>, ReferenceError> {
    let failed = |cause: &str| ReferenceError::Load {
        url: Url::parse(url).map_or_else(|_| "(invalid)".to_owned(), |url| text::public_url(&url)),
        cause: text::sanitize(cause),
    };
    let objects = source.load(url).await.map_err(|cause| failed(&cause))?;
    let objects = objects.into_iter().map(|object| add_source(object, url));
    let objects: Option<Vec<Value>> = objects.collect();
    objects.ok_or_else(|| failed("an object has no apiVersion, kind or name, or its annotations are no map"))
}

pub(super) async fn fetch_one(
    request: &ObjectRequest,
    source: &impl FetchObjects,
) -> Result<Vec<Value>, ReferenceError> {
    let failed = |cause: &str| ReferenceError::Fetch {
        object: request.display_name(),
        cause: text::sanitize(cause),
    };
    let objects = source.fetch(request).await.map_err(|cause| failed(&cause))?;
    // An answer for another object must not be deployed.
    let objects = objects.into_iter().filter(|object| request.is_answered_by(object));
    let objects: Vec<Value> = objects
        .filter_map(|object| match object {
            Value::Object(object) => add_cluster(Value::Object(clean(object)), &request.cluster),
            _ => None,
        })
        .collect();
    match &request.selector {
        ObjectSelector::Name(_) if objects.is_empty() => Err(failed("not found")),
        _ => Ok(objects),
    }
}

/// Returns the recorded objects of a component, in the order of its requests and URLs, each once.
fn select<'a>(
    component: &Component,
    sources: &Sources,
    recorded: &'a [Value],
    lacks_cluster: &impl Fn(&Value) -> bool,
) -> Result<Vec<Cow<'a, Value>>, ReferenceError> {
    let mut objects = Vec::new();
    let mut is_selected = vec![false; recorded.len()];
    for request in &sources.requests {
        let mut is_found = false;
        for (object, is_selected) in recorded.iter().zip(&mut is_selected) {
            let is_of_kubevela = || request.is_answered_by(object) && lacks_cluster(object);
            if request.selects(object) || (!is_local(&request.cluster) && is_of_kubevela()) {
                is_found = true;
                if !std::mem::replace(is_selected, true) {
                    objects.push(deployed(object));
                }
            }
        }
        if !is_found && matches!(request.selector, ObjectSelector::Name(_)) {
            return Err(ReferenceError::Fetch {
                object: request.display_name(),
                cause: "not found in the revision".to_owned(),
            });
        }
    }
    let urls: BTreeSet<&str> = sources.urls.iter().map(String::as_str).collect();
    let loaded = recorded
        .iter()
        .filter(|object| source(object).is_some_and(|url| urls.contains(url)));
    objects.extend(loaded.map(deployed));
    if objects.is_empty() {
        Err(ReferenceError::NoObjects(component.name.clone()))
    } else {
        Ok(objects)
    }
}

/// Returns a recorded object as it is deployed.
fn deployed(object: &Value) -> Cow<'_, Value> {
    if source(object).is_none() && is_local(cluster(object)) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    object.as_object_mut().into_iter().for_each(remove_source);
    Cow::Owned(object)
}
