//! From requests to recorded objects, and from these to the properties of components.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::objects::{clean, identity};
use super::request::{requests, resources};
use super::{
    FetchObjects, MAX_BYTES, MAX_OBJECTS, MAX_REFERENCES, MAX_RESOLVED_BYTES, ObjectKind, ObjectRequest,
    ObjectSelector, REF_OBJECTS, ReferenceError, Scope,
};
use crate::api::oam::Component;
use crate::text;

/// The references of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Requests by the name of their component.
    requests: BTreeMap<String, Vec<ObjectRequest>>,
}

impl References {
    /// Parses the references of all components. `kind_of` finds the kind of a group and resource; an empty group means any.
    ///
    /// # Errors
    /// If properties are invalid, or name what the scope excludes.
    pub fn parse(
        components: &[Component],
        namespace: &str,
        scope: Scope,
        kind_of: impl Fn(&str, &str) -> Option<ObjectKind>,
    ) -> Result<Self, ReferenceError> {
        let mut by_component = BTreeMap::new();
        let mut count = 0;
        for component in components.iter().filter(|component| component.type_ == REF_OBJECTS) {
            let requests = requests(component, namespace, scope, &kind_of)?;
            count += requests.len();
            if count > MAX_REFERENCES {
                return Err(ReferenceError::TooManyReferences(count));
            }
            by_component.insert(component.name.clone(), requests);
        }
        Ok(Self { requests: by_component })
    }

    /// Returns groups and names of the resources that components refer to without a kind.
    #[must_use]
    pub fn resources(components: &[Component]) -> BTreeSet<(String, String)> {
        let components = components.iter().filter(|component| component.type_ == REF_OBJECTS);
        components.flat_map(resources).take(MAX_REFERENCES).collect()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns all requests.
    pub fn requests(&self) -> impl Iterator<Item = &ObjectRequest> {
        self.requests.values().flatten()
    }

    /// Reads the objects. Returns them as the revision records them: cleaned, each once, in the order of their kinds and
    /// names.
    ///
    /// # Errors
    /// If a named object is missing, a request fails, or a limit is exceeded.
    pub async fn fetch(&self, source: &impl FetchObjects) -> Result<Vec<Value>, ReferenceError> {
        let mut found: Vec<(String, Value)> = Vec::new();
        let mut positions = HashMap::new();
        let mut bytes = 0;
        for request in self.requests() {
            for object in fetch_one(request, source).await? {
                bytes += object.to_string().len();
                let identity = identity(&object);
                let position = *positions.entry(identity.clone()).or_insert(found.len());
                match found.get_mut(position) {
                    Some(known) => known.1 = object,
                    None => found.push((identity, object)),
                }
                if found.len() > MAX_OBJECTS || bytes > MAX_BYTES {
                    return Err(ReferenceError::TooManyObjects);
                }
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found.into_iter().map(|(_, object)| object).collect())
    }

    /// Returns components with their objects as properties, as their template reads them. Components without references
    /// stay as they are.
    ///
    /// # Errors
    /// If a named object is not recorded, a component has no objects, or a limit is exceeded.
    pub fn resolve(&self, components: &[Component], recorded: &[Value]) -> Result<Vec<Component>, ReferenceError> {
        let mut bytes = 0;
        let resolved = components.iter().map(|component| {
            let Some(requests) = self.requests.get(&component.name) else {
                return Ok(component.clone());
            };
            let objects = select(component, requests, recorded)?;
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

async fn fetch_one(request: &ObjectRequest, source: &impl FetchObjects) -> Result<Vec<Value>, ReferenceError> {
    let failed = |cause: &str| ReferenceError::Fetch {
        object: request.display_name(),
        cause: text::sanitize(cause),
    };
    let objects = source.fetch(request).await.map_err(|cause| failed(&cause))?;
    // An answer for another object must not be deployed.
    let objects = objects.into_iter().filter(|object| request.selects(object));
    let objects: Vec<Value> = objects
        .filter_map(|object| match object {
            Value::Object(object) => Some(Value::Object(clean(object))),
            _ => None,
        })
        .collect();
    match &request.selector {
        ObjectSelector::Name(_) if objects.is_empty() => Err(failed("not found")),
        _ => Ok(objects),
    }
}

/// Returns the recorded objects of a component, in the order of its requests, each once.
fn select<'a>(
    component: &Component,
    requests: &[ObjectRequest],
    recorded: &'a [Value],
) -> Result<Vec<&'a Value>, ReferenceError> {
    let mut objects = Vec::new();
    let mut is_selected = vec![false; recorded.len()];
    for request in requests {
        let mut is_found = false;
        for (object, is_selected) in recorded.iter().zip(&mut is_selected) {
            if request.selects(object) {
                is_found = true;
                if !std::mem::replace(is_selected, true) {
                    objects.push(object);
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
    match objects.is_empty() {
        true => Err(ReferenceError::NoObjects(component.name.clone())),
        false => Ok(objects),
    }
}
