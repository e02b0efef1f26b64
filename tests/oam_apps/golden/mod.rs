//! Applications that KubeVela's own controller ran, with all that it made of them, if the records are available.

pub mod capture;
pub mod cases;
pub mod compare;
mod compare_tests;
mod exceptions;
pub mod normalize;

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
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

/// Time from the creation of all cases until a phase.
const PHASE_DEADLINE: Duration = Duration::from_secs(120);
/// Time from a phase until everything else, such as events.
const SETTLED_DEADLINE: Duration = Duration::from_secs(20);
/// Each capture is two dozen requests.
const INTERVAL: Duration = Duration::from_secs(1);
const MAX_CAPTURES: usize = 4;
/// Numbers of recorded cases whose steps are supported, and of others.
const COUNTS: (usize, usize) = (58, 10);
/// A label without a meaning.
const TOUCHED: &str = "touched";
const NOT_SUPPORTED: &str = "not supported by this controller: ";

struct Run<'a> {
    client: Client,
    captures: Semaphore,
    estate: &'a Estate,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_applications_end_as_kubevela_left_them() {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let cases = Case::load_all(goldens);
    let supported = cases.iter().filter(|case| case.is_supported()).count();
    assert!(
        (supported, cases.len() - supported) >= COUNTS,
        "{supported} of {}",
        cases.len()
    );
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
        // By now the others have settled, and the second pass is long over.
        let result = match result {
            Ok(()) if !case.is_supported() => run.check_untouched(case).await,
            result => result,
        };
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
        let refused = exceptions::REFUSED.iter().find(|(name, _)| *name == case.name);
        match refused {
            Some((_, words)) => self.until_parsed_is_false(case, words).await,
            None if case.is_supported() => self.check_record(case).await,
            None => self.touch(case).await,
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
        self.until_equal(case, &case.expected, |_| {}).await
    }

    /// Waits until a case is reported as not supported, and causes another pass.
    async fn touch(&self, case: &Case) -> Result<(), String> {
        self.until_parsed_is_false(case, NOT_SUPPORTED).await?;
        for app in case.apps() {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { TOUCHED: "once" } } }));
            let api = self.api(APPLICATION, case);
            let patched = api.patch(setup::name(app), &PatchParams::default(), &patch).await;
            patched.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Checks that nothing was done for a case but one condition and one event, in two passes.
    async fn check_untouched(&self, case: &Case) -> Result<(), String> {
        let untouched = case.untouched(&json!({ TOUCHED: "once" }));
        self.until_equal(case, &untouched, without_report).await?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &case.namespace);
        let events = events.list(&ListParams::default()).await;
        let notes = events.map_err(|error| error.to_string())?.items.into_iter();
        let is_report = |note: &String| note.contains(NOT_SUPPORTED);
        match notes.filter_map(|event| event.note).filter(is_report).count() {
            1 => Ok(()),
            count => Err(format!("{count} events in place of one")),
        }
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
    async fn until_equal(&self, case: &Case, expected: &Value, adapt: impl Fn(&mut Value)) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let found = self.capture(case, &adapt).await.map_err(|error| error.to_string())?;
            let found = differences(expected, &found);
            let left = exceptions::undocumented(exceptions::EXCEPTIONS, &case.name, found)?;
            if left.is_empty() {
                return Ok(());
            }
            if started.elapsed() > SETTLED_DEADLINE {
                return Err(shown(&left));
            }
            sleep(INTERVAL).await;
        }
    }

    async fn capture(&self, case: &Case, adapt: impl Fn(&mut Value)) -> Result<Value, kube::Error> {
        let _permit = self.captures.acquire().await;
        let capture = Capture {
            client: self.client.clone(),
            namespace: &case.namespace,
        };
        let apps: Vec<_> = case.apps().map(setup::name).collect();
        let mut record = capture.record(&apps).await?;
        adapt(&mut record);
        Ok(normalize::record(&record))
    }
}

/// Removes the report of an Application that is not supported, which was checked before.
fn without_report(record: &mut Value) {
    for (_, app) in record["application"].as_object_mut().into_iter().flatten() {
        let conditions = app["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_other = |condition: &&Value| !["Parsed", "Ready"].contains(&text(&condition["type"]));
        app["status"]["conditions"] = conditions.iter().filter(is_other).cloned().collect();
        app["status"]["observedGeneration"].take();
    }
    let events = record["events"].as_array().cloned().unwrap_or_default();
    let is_other = |event: &&Value| !text(&event[2]).starts_with(NOT_SUPPORTED);
    record["events"] = events.iter().filter(is_other).cloned().collect();
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn shown(differences: &[Difference]) -> String {
    let lines = differences.iter().map(|difference| format!("\n    {difference}"));
    format!("{} differences{}", differences.len(), lines.collect::<String>())
}
