//! Reviews by webhooks: their latency one after the other and at a thousand a second, and memory.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::{Bench, CONTROLLERS, PASSES, application, start};
use crate::report::{Row, Wall, with_median};
use crate::rig::{Running, Sample, percentile, until};
use crate::support::{ports::free_port, process::ScratchDir, tls::Authority};

/// Paths, and limits of the 99th percentile in seconds.
const MUTATION: (&str, f64) = ("/mutating-core-oam-dev-v1beta1-applications", 0.02);
const VALIDATION: (&str, f64) = ("/validating-core-oam-dev-v1beta1-applications", 0.1);
const REVIEWS: usize = 1_000;
const REVIEWS_AT_A_RATE: usize = 10_000;
/// Concurrent requests, as an API server may send.
const CONCURRENCY: usize = 64;

/// Measures reviews of a process that reconciles nothing.
pub async fn run() -> Vec<Row> {
    let bench = Bench::new(0, CONTROLLERS).await;
    let (directory, port) = (ScratchDir::new("webhooks"), free_port());
    let authority = Authority::for_names(&["localhost"]);
    directory.write("tls.crt", &authority.certificate_pem);
    directory.write("tls.key", &authority.key_pem);
    let port_flag = format!("--webhook-port={port}");
    let directory_flag = format!("--webhook-cert-dir={}", directory.path().display());
    let flags = ["--use-webhook", &port_flag, &directory_flag];
    // As an API server that does not verify; its cost is not measured.
    portolan::http::install_crypto_provider();
    let client = reqwest::Client::builder().no_proxy();
    let client = client.tls_danger_accept_invalid_certs(true).build();
    let reviewer = Reviewer {
        portolan: start(&bench.control_plane.kubeconfig(), &flags),
        client: client.expect("a client starts"),
        origin: format!("https://localhost:{port}"),
    };
    reviewer.portolan.idle(PASSES, &[], 0).await;
    // The webhooks must know the definitions.
    until(async || is_allowed(&reviewer.answer(VALIDATION.0, 0).await)).await;
    let rows = vec![
        reviewer.in_turn("mutation", MUTATION).await,
        reviewer.in_turn("validation with a trial render", VALIDATION).await,
        reviewer.at_a_rate("mutation, 1,000 a second", MUTATION).await,
    ];
    reviewer.portolan.end().await;
    rows
}

struct Reviewer {
    portolan: Running,
    client: reqwest::Client,
    origin: String,
}

impl Reviewer {
    async fn in_turn(&self, case: &str, (path, limit): (&str, f64)) -> Row {
        let (before, mut times) = (self.portolan.used().await, Vec::new());
        for number in 1..=REVIEWS {
            times.push(self.review(path, number, Instant::now()).await);
        }
        self.row(case, limit, before, &times).await
    }

    /// Sends a request each millisecond, whether or not those before are answered. A late one counts from its due time.
    async fn at_a_rate(&self, case: &str, (path, limit): (&str, f64)) -> Row {
        let (before, started) = (self.portolan.used().await, Instant::now());
        let reviews = stream::iter(1..=REVIEWS_AT_A_RATE).map(|number| async move {
            let due = started + Duration::from_millis(number as u64);
            tokio::time::sleep_until(due.into()).await;
            self.review(path, number, due).await
        });
        let times: Vec<f64> = reviews.buffer_unordered(CONCURRENCY).collect().await;
        let rate = times.len() as f64 / started.elapsed().as_secs_f64();
        let row = self.row(case, limit, before, &times).await;
        row.limit(&format!("980 a second ({rate:.0})"), rate >= 980.0)
    }

    /// Returns seconds until the answer.
    async fn review(&self, path: &str, number: usize, due: Instant) -> f64 {
        let answer = self.answer(path, number).await;
        let elapsed = due.elapsed().as_secs_f64();
        assert!(is_allowed(&answer), "{path}: {answer}");
        elapsed
    }

    /// Returns an AdmissionReview with a response, or null if no webhook answers.
    async fn answer(&self, path: &str, number: usize) -> Value {
        let request = self.client.post(format!("{}{path}", self.origin));
        let Ok(response) = request.body(review(number)).send().await else {
            return Value::Null;
        };
        serde_json::from_slice(&response.bytes().await.unwrap_or_default()).unwrap_or_default()
    }

    async fn row(&self, case: &str, limit: f64, before: Sample, times: &[f64]) -> Row {
        let sample = self.portolan.used().await.since(before);
        let case = format!("{} reviews of KubeVela Applications, {case}, p99", times.len());
        let sample = sample.wall(percentile(times, 99));
        Row::new(&with_median(&case, times), &[sample]).limits(&[Wall(limit)])
    }
}

/// Returns an AdmissionReview of an Application that no other one of a case equals, so that no render is repeated.
fn review(number: usize) -> String {
    let mut object = application(number);
    object["apiVersion"] = "core.oam.dev/v1beta1".into();
    object["kind"] = "Application".into();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": number.to_string(), "operation": "CREATE", "namespace": "default", "name": "reviewed",
            "object": object, "userInfo": { "username": "user" },
            "kind": { "group": "core.oam.dev", "version": "v1beta1", "kind": "Application" },
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
        },
    });
    review.to_string()
}

fn is_allowed(answer: &Value) -> bool {
    answer["response"]["allowed"] == true
}
