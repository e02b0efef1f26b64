use axum::http::Request;
use futures::future::join_all;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tower::ServiceExt;

use super::*;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const ATTACKER: [u8; 4] = [10, 0, 0, 2];

/// Records the namespaces of reviews. Those of `slow…` end with a permit, those of `failing` fail.
#[derive(Clone)]
struct FakeReviewer {
    begun: Arc<Mutex<Vec<String>>>,
    release: Arc<Semaphore>,
}

impl Reviewer for FakeReviewer {
    async fn review(&self, _: Webhook, request: &AdmissionRequest) -> Verdict {
        self.begun.lock().push(request.namespace.clone());
        if request.namespace.starts_with("slow") {
            self.release.acquire().await.unwrap().forget();
        }
        match request.namespace.as_str() {
            "failing" => Verdict::Failed("no evaluator".to_owned()),
            _ => Verdict::allowed(),
        }
    }
}

impl FakeReviewer {
    async fn until_begun(&self, count: usize) {
        while self.begun.lock().len() < count {
            yield_now().await;
        }
    }
}

fn served() -> (Router, FakeReviewer) {
    let reviewer = FakeReviewer {
        begun: Arc::default(),
        release: Arc::new(Semaphore::new(0)),
    };
    let routes = routes(reviewer.clone(), &Budgets::default(), WebhookMetrics::default());
    (routes, reviewer)
}

async fn post_as(client: [u8; 4], routes: Router, length: usize, body: String) -> (StatusCode, String) {
    let mut request = Request::post(Webhook::ValidateApplications.path())
        .header(header::CONTENT_LENGTH, length)
        .body(Body::from(body))
        .unwrap();
    request.extensions_mut().insert(Peer(client.into()));
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status();
    let body = body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn review_as(client: [u8; 4], routes: Router, namespace: String) -> (StatusCode, String) {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "operation": "CREATE", "namespace": namespace, "object": {},
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
        },
    });
    let review = review.to_string();
    post_as(client, routes, review.len(), review).await
}

#[tokio::test]
async fn a_review_is_answered_and_a_failed_one_is_left_to_the_failure_policy() {
    let (routes, _) = served();
    let (status, body) = review_as(CLIENT, routes.clone(), "team".to_owned()).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["response"]["uid"]), (StatusCode::OK, &json!("7")));
    let failed = review_as(CLIENT, routes, "failing".to_owned()).await;
    assert_eq!(failed, (StatusCode::INTERNAL_SERVER_ERROR, "no evaluator".to_owned()));
}

#[rstest]
#[case::no_review(1, "{", StatusCode::BAD_REQUEST)]
#[case::longer_than_it_says(1, "{}", StatusCode::PAYLOAD_TOO_LARGE)]
#[case::too_large(MAX_BODY + 1, "", StatusCode::PAYLOAD_TOO_LARGE)]
#[tokio::test]
async fn other_bodies_are_refused(#[case] length: usize, #[case] body: &str, #[case] expected: StatusCode) {
    let (routes, reviewer) = served();
    let (status, _) = post_as(CLIENT, routes, length, body.to_owned()).await;
    assert_eq!(status, expected);
    assert!(reviewer.begun.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_slow_reviews_delays_no_other() {
    let (routes, reviewer) = served();
    let slow =
        (0..=MAX_REVIEWS_OF_NAMESPACE).map(|_| tokio::spawn(review_as(CLIENT, routes.clone(), "slow".to_owned())));
    let slow: Vec<_> = slow.collect();
    reviewer.until_begun(MAX_REVIEWS_OF_NAMESPACE).await;
    let start = tokio::time::Instant::now();
    let honest = review_as(CLIENT, routes, "team".to_owned()).await;
    assert_eq!((honest.0, start.elapsed()), (StatusCode::OK, Duration::ZERO));
    let statuses = join_all(slow).await.into_iter().map(|slow| slow.unwrap().0);
    let (busy, late): (Vec<_>, Vec<_>) = statuses.partition(|status| *status == StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((busy.len(), late.len()), (1, MAX_REVIEWS_OF_NAMESPACE));
    assert!(
        late.iter().all(|status| *status == StatusCode::INTERNAL_SERVER_ERROR),
        "{late:?}"
    );
    assert_eq!(start.elapsed(), TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_forges_namespaces_gets_every_second_turn() {
    let (routes, reviewer) = served();
    let attack = |number| tokio::spawn(review_as(ATTACKER, routes.clone(), format!("slow-{number}")));
    let _attacks: Vec<_> = (0..3 * MAX_REVIEWS).map(attack).collect();
    reviewer.until_begun(MAX_REVIEWS).await;
    let honest = tokio::spawn(review_as(CLIENT, routes.clone(), "team".to_owned()));
    for _ in 0..10 {
        yield_now().await;
    }
    reviewer.release.add_permits(2);
    assert_eq!(honest.await.unwrap().0, StatusCode::OK);
    // The honest review, one before it, and one after it.
    assert!(reviewer.begun.lock().len() <= MAX_REVIEWS + 3);
}
