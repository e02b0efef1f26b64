use kube::api::{ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::request;
use kube::{Client, Resource as _};
use serde_json::Value;

use super::{ObjectError, ObjectId};
use crate::budget::parsed_bytes;
use crate::runtime::kube_client::{ApiError, DEADLINE, call_within};
use crate::runtime::owner_refs::path_segment;
use crate::runtime::watch::{MAX_DECODED_BYTES, Resource, too_large};

pub(super) enum ClusterRequest<'a> {
    Get,
    List(ListParams),
    Create(&'a Value, PostParams),
    Patch(Patch<&'a Value>, PatchParams),
    Replace(&'a Value, PostParams),
    Delete(DeleteParams),
}

pub(super) struct Route {
    collection: request::Request,
    name: String,
    not_installed: ObjectError,
}

impl Route {
    /// Returns the path in the version of the ID, which may not be the preferred version.
    pub(super) fn new(id: &ObjectId, resource: &Resource) -> Result<Self, ObjectError> {
        check(id, resource)?;
        Ok(Self {
            name: path_segment(&id.name),
            ..Self::of(id, resource)
        })
    }

    /// Returns the path of a kind in a namespace, or in all.
    pub(super) fn collection(id: &ObjectId, resource: &Resource) -> Result<Self, ObjectError> {
        check_version(id)?;
        if !is_word(&id.namespace) {
            return Err(invalid(format!(
                "{} have an invalid namespace: {:?}",
                id.kind, id.namespace
            )));
        }
        Ok(Self::of(id, resource))
    }

    fn of(id: &ObjectId, resource: &Resource) -> Self {
        let api = ApiResource {
            version: id.api_version.rsplit('/').next().unwrap_or_default().to_owned(),
            api_version: id.api_version.clone(),
            ..resource.api.clone()
        };
        let namespace = Some(id.namespace.as_str()).filter(|namespace| resource.is_namespaced && !namespace.is_empty());
        Self {
            collection: request::Request::new(DynamicObject::url_path(&api, namespace)),
            name: String::new(),
            not_installed: id.not_installed(),
        }
    }

    pub(super) async fn send(self, client: &Client, request: ClusterRequest<'_>) -> Result<Value, ObjectError> {
        let text = self.send_text(client, request).await?;
        // Anyone who may write the object decides how much memory it takes.
        let bytes = parsed_bytes(&text);
        if bytes > MAX_DECODED_BYTES {
            let error = too_large(bytes, MAX_DECODED_BYTES);
            return Err(invalid(format!("object {} {error}", self.name)));
        }
        decode(&text)
    }

    /// Returns the response as text.
    pub(super) async fn send_text(&self, client: &Client, request: ClusterRequest<'_>) -> Result<String, ObjectError> {
        let request = self.build(request).map_err(|error| invalid(error.to_string()))?;
        match call_within(DEADLINE, client.request_text(request)).await? {
            Ok(text) => Ok(text),
            Err(error) if is_not_served(&error) => Err(self.not_installed.clone()),
            Err(error) => Err(ApiError::from(error).into()),
        }
    }

    fn build(&self, request: ClusterRequest<'_>) -> Result<axum::http::Request<Vec<u8>>, request::Error> {
        let (path, name) = (&self.collection, &self.name);
        match request {
            ClusterRequest::List(parameters) => path.list(&parameters),
            ClusterRequest::Get => path.get(name, &GetParams::default()),
            ClusterRequest::Create(object, parameters) => path.create(&parameters, object.to_string().into_bytes()),
            ClusterRequest::Patch(patch, parameters) => path.patch(name, &parameters, &patch),
            ClusterRequest::Replace(object, parameters) => {
                path.replace(name, &parameters, object.to_string().into_bytes())
            }
            ClusterRequest::Delete(parameters) => path.delete(name, &parameters),
        }
    }
}

/// kube would log a response that cannot be decoded, and it may be a Secret.
pub(super) fn decode(text: &str) -> Result<Value, ObjectError> {
    let decoded = serde_json::from_str(text);
    decoded.map_err(|error| ApiError::unavailable(format!("invalid response: {error}")).into())
}

/// Names come from templates. A name of several segments would address another object, or all objects.
fn check(id: &ObjectId, resource: &Resource) -> Result<(), ObjectError> {
    let is_segment =
        |text: &str| !matches!(text, "" | "." | "..") && !text.contains(['/', '%']) && !text.contains(char::is_control);
    if !is_segment(&id.name) {
        return Err(invalid(format!("{} has an invalid name: {:?}", id.kind, id.name)));
    }
    if resource.is_namespaced && (id.namespace.is_empty() || !is_word(&id.namespace)) {
        return Err(invalid(format!(
            "{} {:?} has an invalid namespace: {:?}",
            id.kind, id.name, id.namespace
        )));
    }
    check_version(id)
}

fn check_version(id: &ObjectId) -> Result<(), ObjectError> {
    let version = id.api_version.split_once('/');
    let version = version.map_or(&*id.api_version, |(_, version)| version);
    if version.is_empty() || !is_word(version) {
        Err(id.not_installed())
    } else {
        Ok(())
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn invalid(message: String) -> ObjectError {
    ApiError::bad_request(message).into()
}

/// The status of a missing object, or of a missing namespace, names it. The status of an unknown path names nothing.
fn is_not_served(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// The text depends on the version of the API server. A deletion has no other precondition.
pub(super) fn is_other_uid(error: &ApiError) -> bool {
    error.is_conflict() && error.message.to_lowercase().contains("precondition")
}
