//! Reviews by webhooks: their latency, with and without a trial render, and at a rate of a thousand a second.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::fleet::{self, Fleet};
use super::start;
use crate::report::Limit::Wall;
use crate::report::Row;
use crate::rig;
use crate::rig::cluster::Running;
use crate::rig::measure::Sample;
use crate::support::control_plane::ControlPlane;
use crate::support::ports::free_port;
use crate::support::process::ScratchDir;
use crate::support::tls::Authority;

const MUTATING: &str = "/mutating-core-oam-dev-v1beta1-applications";
const VALIDATING: &str = "/validating-core-oam-dev-v1beta1-applications";
/// Reviews of a case, one after the other.
const REVIEWS: usize = 1_000;
const RATE: u64 = 1_000;
const RATE_DURATION: Duration = Duration::from_secs(10);
/// Concurrent requests at this rate, as an API server may send.
const CONCURRENCY: usize = 64;
/// Limits of the 99th percentile in seconds.
const WITHOUT_RENDER: f64 = 0.02;
const WITH_RENDER: f64 = 0.1;

/// Measures reviews of a process that reconciles nothing.
pub async fn run() -> Vec<Row> {
    let control_plane = ControlPlane::start_with(fleet::CONTROLLERS).await;
    let _definitions = Fleet::new(&control_plane, 0).await;
    let (directory, port) = (ScratchDir::new("webhooks"), free_port());
    let authority = Authority::for_names(&["localhost"]);
    directory.write("tls.crt", &authority.certificate_pem);
    directory.write("tls.key", &authority.key_pem);
    let flags = [
        "--use-webhook".to_owned(),
        format!("--webhook-port={port}"),
        format!("--webhook-cert-dir={}", directory.path().display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let portolan = start(&control_plane.kubeconfig(), &flags);
    portolan.reconciled(0).await;
    let bench = Bench::new(portolan, port);
    bench.until_reviewed().await;
    let rows = vec![
        bench.not_found().await,
        bench.one_by_one("mutation", MUTATING, WITHOUT_RENDER).await,
        bench
            .one_by_one("validation with a trial render", VALIDATING, WITH_RENDER)
            .await,
        bench.at_a_rate().await,
    ];
    bench.portolan.end().await;
    rows
}

struct Bench {
    portolan: Running,
    client: reqwest::Client,
    origin: String,
}

impl Bench {
    fn new(portolan: Running, port: u16) -> Self {
        portolan::http::install_crypto_provider();
        // As an API server that does not verify; its cost is not measured.
        let builder = reqwest::Client::builder()
            .no_proxy()
            .tls_danger_accept_invalid_certs(true);
        Self {
            portolan,
            client: builder.build().expect("a client starts"),
            origin: format!("https://localhost:{port}"),
        }
    }

    /// Waits until the webhooks know the definitions.
    async fn until_reviewed(&self) {
        rig::until(async || {
            let url = format!("{}{VALIDATING}", self.origin);
            let response = self.client.post(url).body(review(0)).send().await;
            match response {
                Ok(response) => is_allowed(&response.bytes().await.expect("a body")),
                Err(_) => false,
            }
        })
        .await;
    }

    /// Measures responses of the same server without a review.
    async fn not_found(&self) -> Row {
        let sample = self.measure("/none", false).await;
        Row::baseline("Response of the webhooks' server without a review, p99", &[sample])
    }

    async fn one_by_one(&self, case: &str, path: &str, limit: f64) -> Row {
        let sample = self.measure(path, true).await;
        Row::new(&format!("Review of an Application, {case}, p99"), &[sample]).limits(&[Wall(limit)])
    }

    async fn measure(&self, path: &str, is_review: bool) -> Sample {
        let before = self.portolan.used().await;
        let mut times = Vec::with_capacity(REVIEWS);
        for number in 1..=REVIEWS {
            times.push(self.send(path, number, is_review).await);
        }
        let sample = self.portolan.used().await.since(before);
        Sample {
            cpu: sample.cpu / REVIEWS as f64,
            requests: None,
            ..with_p99(sample, times)
        }
    }

    /// Sends requests at their times, whether or not those before are answered.
    async fn at_a_rate(&self) -> Row {
        let before = self.portolan.used().await;
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(RATE).unwrap_or(u32::MAX));
        // A late request counts from the time at which it was due.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let count = RATE * RATE_DURATION.as_secs();
        let due = stream::unfold((ticks, 0), async |(mut ticks, number)| {
            if number == count {
                return None;
            }
            let due = ticks.tick().await;
            Some(((due.into_std(), number), (ticks, number + 1)))
        });
        let started = Instant::now();
        let requests = due.map(|(due, number)| async move {
            self.send(MUTATING, number as usize, true).await;
            due.elapsed().as_secs_f64()
        });
        let times: Vec<f64> = requests.buffer_unordered(CONCURRENCY).collect().await;
        let rate = times.len() as f64 / started.elapsed().as_secs_f64();
        let sample = self.portolan.used().await.since(before);
        let sample = Sample {
            requests: None,
            ..with_p99(sample, times)
        };
        let case = format!("{count} reviews of Applications, {RATE} a second ({rate:.0}), mutation, p99");
        let row = Row::new(&case, &[sample]).limits(&[Wall(WITHOUT_RENDER)]);
        row.limit(&format!("{RATE} a second"), rate >= RATE as f64 * 0.98)
    }

    /// Returns the time of a request in seconds.
    async fn send(&self, path: &str, number: usize, is_review: bool) -> f64 {
        let (url, body) = (format!("{}{path}", self.origin), review(number));
        let sent = Instant::now();
        let response = self.client.post(url).body(body).send().await;
        let response = response.expect("the webhooks answer");
        let body = response.bytes().await.expect("a body");
        let elapsed = sent.elapsed().as_secs_f64();
        if is_review {
            assert!(is_allowed(&body), "{}", String::from_utf8_lossy(&body));
        }
        elapsed
    }
}

/// Sets the wall time to the 99th percentile.
fn with_p99(sample: Sample, mut times: Vec<f64>) -> Sample {
    times.sort_by(f64::total_cmp);
    let wall = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    Sample { wall, ..sample }
}

/// Returns an AdmissionReview of an Application that no other one equals, so that no render is repeated.
fn review(number: usize) -> String {
    let resource = json!({ "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": number.to_string(), "operation": "CREATE", "namespace": "default", "name": "reviewed",
            "object": fleet::application(number), "resource": resource,
            "kind": { "group": "core.oam.dev", "version": "v1beta1", "kind": "Application" },
            "userInfo": { "username": "user" },
        },
    });
    review.to_string()
}

fn is_allowed(body: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    answer["response"]["allowed"] == true
}
