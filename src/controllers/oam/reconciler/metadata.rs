//! Writes to the Application itself: finalizer, annotations and status.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};

use super::conditions::{self, Failure};
use super::pass::{Pass, Stop};
use crate::api::Partial;
use crate::api::oam::{Application, ApplicationStatus, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::cache::Decoded;
use crate::runtime::cron;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::three_way;
use crate::text::{MAX_TEXT, truncate};

pub const TRACKER_FINALIZER: &str = "app.oam.dev/resource-tracker-finalizer";
/// Annotation: `true`, a time, or a duration after the end of each run.
const RESTART: &str = "app.oam.dev/restart-workflow";

/// Shortest time between the end of a run and the next one.
const MIN_RESTART: Duration = Duration::from_secs(10);

/// Annotation: the longest time between two passes over an Application.
const RECONCILE_INTERVAL: &str = "app.oam.dev/reconcile-interval";
const MIN_INTERVAL: Duration = Duration::from_secs(10);

impl Pass<'_> {
    /// Adds the finalizer, and takes a requested restart into the status.
    pub(super) async fn write_metadata(&mut self) -> Result<(), Stop> {
        let mut metadata = json!({});
        let has_finalizer = self.app.finalizers().iter().any(|one| one == TRACKER_FINALIZER);
        if !has_finalizer {
            let mut finalizers = self.app.finalizers().to_vec();
            finalizers.push(TRACKER_FINALIZER.to_owned());
            metadata["finalizers"] = json!(finalizers);
            if !self.app.annotations().contains_key(labels::KUBEVELA_VERSION) {
                let version = self.reconciler.options.compat_version.as_str();
                metadata["annotations"] = json!({ labels::KUBEVELA_VERSION: version });
            }
        }
        if self.take_restart() {
            metadata["annotations"][RESTART] = Value::Null;
        }
        if metadata.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        if metadata["annotations"][RESTART].is_null() && metadata["annotations"].get(RESTART).is_some() {
            // Recorded before the request is removed.
            self.write_status().await.map_err(|error| self.stop(&error))?;
        }
        self.patch_metadata(metadata).await.map_err(|error| self.stop(&error))
    }

    pub(super) fn stop(&self, error: &ApiError) -> Stop {
        if error.is_conflict() {
            return Stop::Stale;
        }
        Failure::new(conditions::SYNCED, "FailedApply", error.to_string()).into()
    }

    /// Reads the annotation for a restart. Returns true if it must be removed.
    fn take_restart(&mut self) -> bool {
        let Some(text) = self.app.annotations().get(RESTART).cloned() else {
            return false;
        };
        let workflow = self.status.workflow.as_ref();
        let end = workflow.and_then(|workflow| workflow.end_time.as_ref());
        let Some(restart) = Restart::parse(&text, self.now, end.map(|Time(end)| *end)) else {
            return false;
        };
        let (Restart::Once(time) | Restart::AfterEachRun(time)) = restart;
        self.status.workflow_restart_scheduled_at = Some(Time(time));
        matches!(restart, Restart::Once(_))
    }

    /// Returns the longest time between two passes: that of the Application, or of the process.
    pub(super) fn resync_period(&mut self) -> Duration {
        let default = self.reconciler.options.resync_period;
        let (interval, notice) = match requested_interval(self.app.annotations()) {
            None => (default, String::new()),
            Some(Ok(interval)) => (interval, String::new()),
            Some(Err(text)) => {
                let text = truncate(text, MAX_TEXT);
                let notice = format!("annotation {RECONCILE_INTERVAL} is not a duration such as 30s: {text:?}");
                (default, notice)
            }
        };
        self.notices.insert("InvalidInterval", notice);
        interval
    }

    /// Merges a change into the metadata, if the Application still has its version.
    pub(super) async fn patch_metadata(&mut self, mut change: Value) -> Result<(), ApiError> {
        change["uid"] = json!(self.app.uid());
        change["resourceVersion"] = json!(self.app.resource_version());
        let patch = Patch::Merge(json!({ "metadata": change }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let written = call(self.api().patch(&self.name.name, &parameters, &patch)).await?;
        self.reconciler.metrics.count_write("patch", "Application");
        self.app.metadata = written.metadata;
        self.assume();
        Ok(())
    }

    /// Writes the status if it has changed.
    pub(super) async fn write_status(&mut self) -> Result<(), ApiError> {
        let before = self.app.status.as_ref().map(fields).unwrap_or_default();
        let Some(change) = three_way::difference(&before, &fields(&self.status)) else {
            return Ok(());
        };
        let written = match self.patch_status(&change).await {
            Err(error) if error.is_conflict() && self.has_only_status_of(&before).await? => {
                self.patch_status(&change).await?
            }
            written => written?,
        };
        self.reconciler.metrics.count_write("patch", "Application/status");
        if let Some(workflow) = &self.status.workflow {
            let known = self.app.status.as_ref().and_then(|status| status.workflow.as_ref());
            let before = known.cloned().unwrap_or_default();
            self.reconciler.metrics.count_steps(&before, workflow);
        }
        self.app.metadata = written.metadata;
        self.app.status = Some(self.status.clone());
        self.assume();
        Ok(())
    }

    async fn patch_status(&self, change: &Value) -> Result<Partial<Application>, ApiError> {
        let patch = Patch::Merge(json!({
            "metadata": { "uid": self.app.uid(), "resourceVersion": self.app.resource_version() },
            "status": change,
        }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        // Until the response is here: the pass may be stopped before.
        self.memory.lock().is_status_unknown = true;
        let written = call(self.api().patch_status(&self.name.name, &parameters, &patch)).await?;
        self.memory.lock().is_status_unknown = false;
        Ok(written)
    }

    /// Reads the Application again. Returns true if its status is still the one before: another client has changed other
    /// fields, and the results of steps must not get lost.
    async fn has_only_status_of(&mut self, before: &Map<String, Value>) -> Result<bool, ApiError> {
        let Ok(Some(live)) = self.reconciler.read_application(self.name).await else {
            return Ok(false);
        };
        let Decoded { app, too_large } = live;
        let is_same =
            app.metadata.uid == self.app.metadata.uid && app.status.as_ref().map(fields).unwrap_or_default() == *before;
        if is_same {
            (self.app, self.too_large) = (app, too_large);
        }
        Ok(is_same)
    }

    fn assume(&self) {
        let decoded = Decoded {
            app: self.app.clone(),
            too_large: self.too_large,
        };
        self.reconciler.caches.assume_application(&decoded);
    }

    fn api(&self) -> Api<Partial<Application>> {
        Api::namespaced(self.reconciler.client.clone(), &self.name.namespace)
    }
}

/// Returns the fields of a status.
fn fields(status: &ApplicationStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// A requested restart of the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restart {
    Once(Timestamp),
    /// The request stays for the runs that follow.
    AfterEachRun(Timestamp),
}

impl Restart {
    /// Parses a request. `end` is the end of the last run, if it has ended. Returns `None` if there is nothing to schedule.
    fn parse(text: &str, now: Timestamp, end: Option<Timestamp>) -> Option<Self> {
        let text = text.trim();
        if text == "true" {
            // Times are in whole seconds, and one that is not after the end was of an earlier run.
            let earliest = end.and_then(|end| end.checked_add(Duration::from_secs(1)).ok());
            return Some(Self::Once(earliest.map_or(now, |earliest| now.max(earliest))));
        }
        if let Ok(time) = text.parse() {
            return Some(Self::Once(time));
        }
        let interval = cron::parse_duration(text)?.max(MIN_RESTART);
        end?.checked_add(interval).ok().map(Self::AfterEachRun)
    }
}

/// Returns the interval that an Application asks for, or the text that is none.
fn requested_interval(annotations: &BTreeMap<String, String>) -> Option<Result<Duration, &str>> {
    let text = annotations.get(RECONCILE_INTERVAL)?.trim();
    let interval = cron::parse_duration(text).map(|interval| interval.max(MIN_INTERVAL));
    Some(interval.ok_or(text))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::shorter("30s", Ok(Duration::from_secs(30)))]
    #[case::longer(" 2h ", Ok(Duration::from_hours(2)))]
    #[case::shortest("10s", Ok(MIN_INTERVAL))]
    #[case::too_short("1s", Ok(MIN_INTERVAL))]
    #[case::zero("0s", Ok(MIN_INTERVAL))]
    #[case::negative("-1h", Err("-1h"))]
    #[case::no_duration("soon", Err("soon"))]
    #[case::empty("", Err(""))]
    fn an_application_sets_its_interval_down_to_ten_seconds(
        #[case] text: &str,
        #[case] expected: Result<Duration, &str>,
    ) {
        let annotations = BTreeMap::from([(RECONCILE_INTERVAL.to_owned(), text.to_owned())]);
        assert_eq!(requested_interval(&annotations), Some(expected));
        assert_eq!(requested_interval(&BTreeMap::new()), None);
    }

    #[rstest]
    #[case::now("true", Some(Restart::Once(at("2026-01-02T03:00:00Z"))))]
    #[case::at_a_time("2026-01-03T00:00:00Z", Some(Restart::Once(at("2026-01-03T00:00:00Z"))))]
    #[case::each_hour("1h", Some(Restart::AfterEachRun(at("2026-01-02T02:30:00Z"))))]
    #[case::at_most_each_ten_seconds("1ms", Some(Restart::AfterEachRun(at("2026-01-02T01:30:10Z"))))]
    #[case::negative("-1h", None)]
    #[case::unknown("false", None)]
    fn a_restart_is_requested_once_or_after_each_run(#[case] text: &str, #[case] expected: Option<Restart>) {
        let (now, end) = (at("2026-01-02T03:00:00Z"), at("2026-01-02T01:30:00Z"));
        assert_eq!(Restart::parse(text, now, Some(end)), expected);
    }

    #[test]
    fn a_restart_that_is_requested_in_the_second_in_which_a_run_ended_comes_after_it() {
        let end = at("2026-01-02T03:00:00Z");
        let expected = Restart::Once(at("2026-01-02T03:00:01Z"));
        assert_eq!(Restart::parse("true", end, Some(end)), Some(expected));
    }

    #[test]
    fn a_run_that_has_not_ended_is_not_repeated() {
        let now = at("2026-01-02T03:00:00Z");
        assert_eq!(Restart::parse("1h", now, None), None);
        assert_eq!(Restart::parse("true", now, None), Some(Restart::Once(now)));
    }
}
