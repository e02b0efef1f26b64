//! The filter of the log, shown and changed while the process runs.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::get;

/// Size limit of a filter, in bytes.
const MAX_FILTER_SIZE: usize = 4096;

const NOT_LOOPBACK: &str = "the log filter can be changed only at a loopback address: set --debug-addr 127.0.0.1:6060 and use \
     kubectl port-forward\n";

pub trait LogFilter: Send + Sync {
    fn current(&self) -> String;

    /// The error says why the text is no filter.
    fn replace(&self, text: &str) -> Result<(), String>;
}

/// GET shows the filter of `/debug/log`, PUT replaces it: without authentication, so only if `is_loopback`.
pub fn log_filter_routes(filter: Arc<dyn LogFilter>, is_loopback: bool) -> Router {
    let show = get(async |State(filter): State<Arc<dyn LogFilter>>| format!("{}\n", filter.current()));
    let routes = if is_loopback {
        show.put(replace)
    } else {
        show.put((StatusCode::FORBIDDEN, NOT_LOOPBACK))
    };
    Router::new()
        .route("/debug/log", routes.layer(DefaultBodyLimit::max(MAX_FILTER_SIZE)))
        .with_state(filter)
}

async fn replace(State(filter): State<Arc<dyn LogFilter>>, body: Bytes) -> (StatusCode, String) {
    let text = String::from_utf8_lossy(&body);
    match filter.replace(text.trim()) {
        Ok(()) => (StatusCode::OK, format!("{}\n", filter.current())),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use parking_lot::Mutex;
    use tower::ServiceExt;

    use super::*;

    struct OnlyDebug(Mutex<String>);

    impl LogFilter for OnlyDebug {
        fn current(&self) -> String {
            self.0.lock().clone()
        }

        fn replace(&self, text: &str) -> Result<(), String> {
            if text != "debug" {
                return Err(format!("invalid filter {text}"));
            }
            text.clone_into(&mut self.0.lock());
            Ok(())
        }
    }

    async fn request(is_loopback: bool, method: &str, body: String) -> (u16, String) {
        let filter = Arc::new(OnlyDebug(Mutex::new("info".to_owned())));
        let request = Request::builder().method(method).uri("/debug/log");
        let request = request.body(Body::from(body)).unwrap();
        let response = log_filter_routes(filter, is_loopback).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_filter_is_shown_and_replaced() {
        assert_eq!(request(true, "GET", String::new()).await, (200, "info\n".to_owned()));
        assert_eq!(
            request(true, "PUT", "debug\n".to_owned()).await,
            (200, "debug\n".to_owned())
        );
    }

    #[tokio::test]
    async fn an_invalid_filter_is_refused_with_the_reason() {
        let (status, text) = request(true, "PUT", "loud".to_owned()).await;
        assert_eq!((status, text.as_str()), (400, "invalid filter loud\n"));
        assert_eq!(request(true, "PUT", "x".repeat(MAX_FILTER_SIZE + 1)).await.0, 413);
    }

    #[tokio::test]
    async fn other_addresses_than_loopback_show_the_filter_only() {
        assert_eq!(request(false, "GET", String::new()).await.0, 200);
        let (status, text) = request(false, "PUT", "debug".to_owned()).await;
        assert!(status == 403 && text.contains("--debug-addr"), "{status} {text}");
    }
}
