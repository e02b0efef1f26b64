use std::convert::Infallible;

use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;
use tower::ServiceExt;

use super::*;

const POD: &str = "/api/v1/namespaces/sea/pods/a";
const TEXT: &str = "text/plain; charset=utf-8";

/// The API server of Portolan.
struct Server {
    client: Client,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers requests to clusters, and those to the API of cluster-gateway itself.
    fn new(answer: (u16, &'static str, String), api: u16) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            record.lock().push(format!("{} {}", request.method(), request.uri()));
            let (code, type_, text) = match request.uri().path() {
                API => (api, TEXT, String::new()),
                _ => answer.clone(),
            };
            let response = Response::builder().status(code).header("content-type", type_);
            let response = response.body(Body::from(text.into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        Self {
            client: Client::new(service, "default"),
            requests,
        }
    }

    async fn send(&self, method: &str, uri: &str) -> Result<(u16, String), String> {
        let (transport, url) = transport(&self.client, "prod").unwrap();
        assert_eq!(url.host(), Some("prod"));
        let request = Request::builder().method(method).uri(uri);
        let response = transport.oneshot(request.body(Body::empty()).unwrap()).await;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        let body = to_bytes(body, MAX_STATUS).await.unwrap();
        Ok((head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap()))
    }
}

fn status(code: u16, group: &str, kind: &str) -> (u16, &'static str, String) {
    let details = json!({ "name": "a", "group": group, "kind": kind });
    let status = json!({ "kind": "Status", "code": code, "message": "not found", "details": details });
    (code, "application/json", status.to_string())
}

#[rstest]
#[case::get("GET", "/version")]
#[case::watch("GET", "/api/v1/pods?&watch=true&resourceVersion=5")]
#[case::dry_run("PATCH", "/api/v1/namespaces/sea/pods/a?&dryRun=All&fieldManager=a%20b")]
#[case::delete("DELETE", POD)]
#[tokio::test]
async fn a_request_goes_to_the_path_of_its_cluster_with_its_query(#[case] method: &str, #[case] uri: &str) {
    let server = Server::new((200, "application/json", "{}".to_owned()), 200);
    assert_eq!(server.send(method, uri).await, Ok((200, "{}".to_owned())));
    let expected = format!("{method} /apis/cluster.core.oam.dev/v1alpha1/clustergateways/prod/proxy{uri}");
    assert_eq!(*server.requests.lock(), [expected]);
}

#[tokio::test]
async fn an_object_that_is_not_found_in_the_cluster_is_not_found() {
    let server = Server::new(status(404, "", "pods"), 404);
    let (code, body) = server.send("GET", POD).await.unwrap();
    assert!(code == 404 && body.contains("not found"), "{body}");
    assert_eq!(server.requests.lock().len(), 1);
}

#[tokio::test]
async fn a_kind_that_the_cluster_does_not_serve_is_not_found_as_long_as_the_gateway_is_served() {
    let answer = (404, TEXT, "404 page not found\n".to_owned());
    let found = Server::new(answer.clone(), 200).send("GET", POD).await;
    assert_eq!(found, Ok((404, "404 page not found\n".to_owned())));
    let error = Server::new(answer.clone(), 404).send("GET", POD).await.unwrap_err();
    assert!(
        error.contains("install cluster-gateway, or join the cluster with endpoint type Const"),
        "{error}"
    );
    let error = Server::new(answer, 503).send("GET", POD).await.unwrap_err();
    assert!(error.contains("cluster-gateway does not respond"), "{error}");
}

#[tokio::test]
async fn a_cluster_that_the_gateway_does_not_know_is_no_object_that_is_not_found() {
    let server = Server::new(status(404, GROUP, RESOURCE), 200);
    let error = server.send("GET", POD).await.unwrap_err();
    assert_eq!(error, "cluster-gateway does not know the cluster: not found");
}

#[tokio::test]
async fn errors_of_the_aggregator_are_told_from_those_of_the_cluster() {
    let down = Server::new((503, TEXT, "service unavailable\n".to_owned()), 503);
    let error = down.send("GET", POD).await.unwrap_err();
    assert!(error.contains("the API server of Portolan returned 503"), "{error}");
    let busy = Server::new(status(503, "", "pods"), 200);
    assert_eq!(busy.send("GET", POD).await.unwrap().0, 503);
}

#[tokio::test]
async fn an_endless_response_that_something_is_not_found_is_refused() {
    let server = Server::new((404, TEXT, "x".repeat(MAX_STATUS + 1)), 200);
    let error = server.send("GET", POD).await.unwrap_err();
    assert!(error.contains("length limit exceeded"), "{error}");
}
