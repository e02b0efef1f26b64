//! Lists of objects, read page by page.

use kube::api::ListParams;
use serde_json::Value;

use super::requests::{ClusterRequest, Route, decode};
use super::{ClusterObjects, ObjectError, ObjectId};
use crate::runtime::kube_client::ApiError;

/// Maximum number of objects that one call returns, and their size as JSON.
const MAX_OBJECTS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;
/// Objects of one request. Its response is in memory before its size is known.
const PAGE: u32 = 50;
/// Pages may have fewer objects.
const MAX_PAGES: usize = 100;

impl ClusterObjects {
    /// Ignores the name of `id`; without a namespace, lists all. Fails beyond 1,000 objects or 4 MiB.
    pub async fn list(&self, id: &ObjectId, selector: &str) -> Result<Vec<Value>, ObjectError> {
        let resource = self.resource(id).await?;
        let route = Route::collection(id, &resource)?;
        let mut parameters = ListParams::default().labels(selector).limit(PAGE);
        let mut objects = Vec::new();
        let mut bytes = 0;
        for _ in 0..MAX_PAGES {
            let request = ClusterRequest::List(parameters.clone());
            let text = route.send_text(self.client(), request).await?;
            bytes += text.len();
            if bytes > MAX_BYTES {
                return Err(too_many(id, &format!("{} MiB of objects", MAX_BYTES >> 20)));
            }
            let mut page = decode(&text)?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                objects.extend(items.into_iter().map(|item| with_kind(item, id)));
            }
            let next = page.pointer("/metadata/continue").and_then(Value::as_str);
            let Some(next) = next.filter(|next| !next.is_empty()) else {
                return Ok(objects);
            };
            if objects.len() >= MAX_OBJECTS {
                return Err(too_many(id, &format!("{MAX_OBJECTS} objects")));
            }
            parameters = parameters.continue_token(next);
        }
        Err(too_many(id, &format!("{MAX_PAGES} pages of objects")))
    }
}

/// The items of a list have no kind.
fn with_kind(mut item: Value, id: &ObjectId) -> Value {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("apiVersion".to_owned(), id.api_version.as_str().into());
        fields.insert("kind".to_owned(), id.kind.as_str().into());
    }
    item
}

fn too_many(id: &ObjectId, limit: &str) -> ObjectError {
    let message = format!("there are more than {limit} of kind {}; select fewer", id.kind);
    ApiError::bad_request(message).into()
}
