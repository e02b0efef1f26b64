//! Applications that KubeVela's own controller ran, with all that it made of them, if the records are available.

pub mod capture;
pub mod cases;
pub mod compare;
mod compare_tests;
mod exceptions;
pub mod normalize;

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{DynamicObject, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::estate::{Estate, estate};
use super::kubelet::Kubelet;
use super::site::condition;
use super::{APPLICATION, setup};
use crate::applications::{assert_no_panic, resource};
use crate::support::corpus;
use capture::Capture;
use cases::Case;
use compare::{Difference, differences};
use exceptions::EXCEPTIONS;

/// Time from the creation of all cases until a phase.
const PHASE_DEADLINE: Duration = Duration::from_secs(120);
/// Time from a phase until everything else, such as events.
const SETTLED_DEADLINE: Duration = Duration::from_secs(20);
/// Each capture is two dozen requests.
const INTERVAL: Duration = Duration::from_secs(1);
const MAX_CAPTURES: usize = 4;
/// Number of recorded cases.
const COUNT: usize = 68;

struct Run<'a> {
    client: Client,
    captures: Semaphore,
    estate: &'a Estate,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_applications_end_as_kubevela_left_them() {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let cases = Case::load_all(goldens);
    assert!(cases.len() >= COUNT, "{}", cases.len());
    let estate = estate().await;
    let run = Run {
        client: estate.control_plane.client().await,
        captures: Semaphore::new(MAX_CAPTURES),
        estate,
    };
    let _kubelet = Kubelet::start(run.client.clone(), None);
    stream::iter(&cases)
        .for_each_concurrent(8, |case| run.declare(case))
        .await;
    let checked = stream::iter(&cases).map(async |case| (case, run.check(case).await));
    let checked: Vec<_> = checked.buffer_unordered(cases.len()).collect().await;
    let mut failures = Vec::new();
    for (case, result) in checked {
        failures.extend(result.err().map(|error| format!("{}: {error}", case.name)));
    }
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} of {} cases differ:\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n\n")
    );
    assert_no_panic(&estate.portolan);
}

impl Run<'_> {
    async fn declare(&self, case: &Case) {
        setup::namespace(&self.estate.control_plane, &case.namespace).await;
        for document in &case.documents {
            let (api, object) = (self.api(&setup::kind(document), case), document.clone());
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
    }

    fn api(&self, kind: &str, case: &Case) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &case.namespace, &resource(kind))
    }

    async fn check(&self, case: &Case) -> Result<(), String> {
        let refused = exceptions::REFUSED.iter().find(|(name, ..)| *name == case.name);
        match refused {
            Some((_, words, _)) => self.until_parsed_is_false(case, words).await,
            None => self.check_record(case).await,
        }
    }

    /// Compares a case with its record.
    async fn check_record(&self, case: &Case) -> Result<(), String> {
        for app in case.apps() {
            let recorded = case.files["application"][setup::name(app)]["status"].clone();
            let has_phase = move |app: Option<&DynamicObject>| {
                let status = app.map_or(Value::Null, |app| app.data["status"].clone());
                status["status"] == recorded["status"] && status["observedGeneration"] == recorded["observedGeneration"]
            };
            let api = self.api(APPLICATION, case);
            let wait = await_condition(api, setup::name(app), has_phase);
            // A case that never gets there is captured as it is, so that the differences show why.
            let _ = timeout(PHASE_DEADLINE, wait).await;
        }
        self.until_equal(case, &case.expected).await
    }

    /// Waits until the condition Parsed of each Application contains `words`.
    async fn until_parsed_is_false(&self, case: &Case, words: &str) -> Result<(), String> {
        for app in case.apps() {
            let name = setup::name(app);
            let is_said = |app: Option<&DynamicObject>| {
                let app = json!(app);
                let parsed = condition(&app, "Parsed");
                parsed["status"] == "False" && text(&parsed["message"]).contains(words)
            };
            let api = self.api(APPLICATION, case);
            let waited = timeout(PHASE_DEADLINE, await_condition(api.clone(), name, is_said)).await;
            if waited.is_err() {
                let app = api.get(name).await.map_err(|error| error.to_string())?;
                let status = &app.data["status"];
                return Err(format!("Parsed is not False with {words:?}: {status}"));
            }
        }
        Ok(())
    }

    /// Captures a case until it is equal to a record.
    async fn until_equal(&self, case: &Case, expected: &Value) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let found = self.capture(case).await.map_err(|error| error.to_string())?;
            let found = differences(expected, &found);
            // An exception is not needed before its difference is there.
            let left = exceptions::undocumented(EXCEPTIONS, &case.name, found);
            let error = match left {
                Ok(left) if left.is_empty() => return Ok(()),
                Ok(left) => shown(&left),
                Err(error) => error,
            };
            if started.elapsed() > SETTLED_DEADLINE {
                return Err(error);
            }
            sleep(INTERVAL).await;
        }
    }

    async fn capture(&self, case: &Case) -> Result<Value, kube::Error> {
        let _permit = self.captures.acquire().await;
        let capture = Capture {
            client: self.client.clone(),
            namespace: &case.namespace,
        };
        let apps: Vec<_> = case.apps().map(setup::name).collect();
        Ok(normalize::record(&capture.record(&apps).await?))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn shown(differences: &[Difference]) -> String {
    let lines = differences.iter().map(|difference| format!("\n    {difference}"));
    format!("{} differences{}", differences.len(), lines.collect::<String>())
}
