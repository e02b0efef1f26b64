//! Requests as another user, through the connections of the controller.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use kube::Client;
use kube::client::Body;

use super::identity::{Identity, IdentityError};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// The user of requests.
#[derive(Clone)]
pub struct Impersonation(Arc<HeaderMap>);

impl Impersonation {
    /// Fails for names that are no headers.
    pub fn of(identity: &Identity) -> Result<Self, IdentityError> {
        Ok(Self(Arc::new(headers(identity)?)))
    }

    /// Returns a client that has a task, and no connection of its own; create it for a pass.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        let headers = Arc::clone(&self.0);
        let (client, namespace) = (client.clone(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (client, headers) = (client.clone(), Arc::clone(&headers));
            async move {
                for name in [USER, GROUP] {
                    request.headers_mut().remove(name);
                }
                for (name, value) in headers.iter() {
                    request.headers_mut().append(name, value.clone());
                }
                client.send(request).await
            }
        });
        Client::new(service, namespace)
    }
}

fn headers(identity: &Identity) -> Result<HeaderMap, IdentityError> {
    let mut headers = HeaderMap::new();
    let user = HeaderValue::from_bytes(identity.user().as_bytes());
    headers.insert(USER, user.map_err(|_| IdentityError::User)?);
    for group in identity.groups() {
        let group = HeaderValue::from_bytes(group.as_bytes());
        headers.append(GROUP, group.map_err(|_| IdentityError::Groups)?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::Response;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn each_request_has_the_user_and_the_groups_and_the_shared_client_has_none() {
        let requests: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
        let record = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            record.lock().push(request.headers().clone());
            let object = Body::from(br#"{"metadata": {"name": "a"}}"#.to_vec());
            async move { Ok::<_, Infallible>(Response::new(object)) }
        });
        let shared = Client::new(service, "home");
        let identity = Identity::new("älice".to_owned(), vec!["a".to_owned(), "b".to_owned()]).unwrap();
        let client = Impersonation::of(&identity).unwrap().client(&shared);
        assert_eq!(client.default_namespace(), "home");
        for client in [client.clone(), client, shared] {
            Api::<ConfigMap>::default_namespaced(client).get("a").await.unwrap();
        }
        let requests = requests.lock();
        for headers in &requests[..2] {
            assert_eq!(headers.get(USER).unwrap().as_bytes(), "älice".as_bytes());
            let groups: Vec<_> = headers.get_all(GROUP).iter().collect();
            assert_eq!(groups, ["a", "b"]);
        }
        assert!(!requests[2].contains_key(USER) && !requests[2].contains_key(GROUP));
    }

    #[tokio::test]
    async fn headers_of_the_request_itself_do_not_add_rights() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let groups = request.headers().get_all(GROUP).iter().count();
            Ok::<_, Infallible>(Response::new(Body::from(groups.to_string().into_bytes())))
        });
        let identity = Identity::new("alice".to_owned(), vec!["a".to_owned()]).unwrap();
        let client = Impersonation::of(&identity)
            .unwrap()
            .client(&Client::new(service, "home"));
        let request = Request::get("/api")
            .header(GROUP, "system:masters")
            .body(Vec::new())
            .unwrap();
        assert_eq!(client.request_text(request).await.unwrap(), "1");
    }
}
