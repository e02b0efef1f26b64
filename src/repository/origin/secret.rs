//! Reading a Secret from the API server: nothing of it is logged, and no more is decoded than is needed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;

use super::cluster::API_DEADLINE;
use crate::informer::ObjectName;
use crate::informer::manifests::SecretContent;

/// Why a Secret can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretReadError {
    /// The API server does not let Portolan read it.
    Forbidden,
    /// What is there is no proper Secret, and why.
    Invalid(String),
    /// It can't be read now, and what is in the way.
    Unavailable(String),
}

/// What is decoded of a Secret. Without Debug, as all that holds its values.
#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    data: Option<BTreeMap<String, ByteString>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

/// The Secret of this name, which must be one that objects can have; nothing if there is none.
pub(super) async fn read(client: &Client, name: &ObjectName) -> Result<Option<SecretContent>, SecretReadError> {
    let path = Secret::url_path(&(), Some(&name.namespace));
    let unavailable = |cause: String| SecretReadError::Unavailable(cause);
    let request = Request::new(path).get(&name.name, &GetParams::default());
    let request = request.map_err(|error| unavailable(error.to_string()))?;
    // As text: the client logs the whole of an answer that it is to decode and can't.
    let answer = tokio::time::timeout(API_DEADLINE, client.request_text(request)).await;
    let text = match answer {
        Ok(Ok(text)) => text,
        Ok(Err(kube::Error::Api(status))) => {
            return match status.code {
                404 => Ok(None),
                403 => Err(SecretReadError::Forbidden),
                _ => Err(unavailable(format!("the API server refused it: {}", status.message))),
            };
        }
        Ok(Err(error)) => return Err(unavailable(format!("the API server could not be asked: {error}"))),
        Err(_) => {
            let silence = API_DEADLINE.as_secs();
            return Err(unavailable(format!("the API server did not answer within {silence} s")));
        }
    };
    // What a decoder says may quote what it could not read.
    let wire: Wire = serde_json::from_str(&text)
        .map_err(|_| unavailable("the API server answered with something else than a Secret".to_owned()))?;
    let values = wire.data.unwrap_or_default().into_iter();
    Ok(Some(SecretContent {
        version: format!("{}.{}", wire.metadata.uid, wire.metadata.resource_version),
        data: values.map(|(key, ByteString(value))| (key, value)).collect(),
    }))
}
