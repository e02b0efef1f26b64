//! Suspensions of steps: the times at which they end, and the number that is over.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Key of the suspensions in the ConfigMap.
const SUSPENSIONS: &str = "portolan.suspensions";
/// Key of the time at which a step is resumed, after its id. KubeVela's own: a suspension ends on time under either
/// controller.
const RESUME_TIME: &str = ".resumeTimeStamp";

/// Suspensions by id of the step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspensions {
    steps: BTreeMap<String, Suspension>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Suspension {
    is_suspended: bool,
    /// Begin of the current suspension, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// Number of suspensions that are over.
    resumptions: u32,
    /// End of the current suspension; a user may resume the step earlier.
    #[serde(skip)]
    until: Option<Timestamp>,
}

impl Suspensions {
    /// Decodes the entries of the ConfigMap. Ignores invalid entries.
    pub fn parse(data: &BTreeMap<String, String>) -> Self {
        let steps = data.get(SUSPENSIONS).and_then(|text| serde_json::from_str(text).ok());
        let mut steps: BTreeMap<String, Suspension> = steps.unwrap_or_default();
        for (key, text) in data {
            if let (Some(id), Ok(time)) = (key.strip_suffix(RESUME_TIME), text.parse()) {
                steps.entry(id.to_owned()).or_default().until = Some(time);
            }
        }
        Self { steps }
    }

    pub fn to_data(&self) -> BTreeMap<String, String> {
        let times = self.steps.iter().filter_map(|(id, step)| Some((id, step.until?)));
        let mut data: BTreeMap<String, String> = times
            .map(|(id, time)| (format!("{id}{RESUME_TIME}"), time.to_string()))
            .collect();
        if !self.steps.is_empty()
            && let Ok(text) = serde_json::to_string(&self.steps)
        {
            data.insert(SUSPENSIONS.to_owned(), text);
        }
        data
    }

    pub fn contains(&self, id: &str) -> bool {
        self.steps.contains_key(id)
    }

    pub fn suspend(&mut self, id: &str, since: Option<Timestamp>, until: Option<Timestamp>) {
        let step = self.steps.entry(id.to_owned()).or_default();
        step.is_suspended = true;
        step.since = since.map(Timestamp::as_second);
        step.until = until;
    }

    pub fn resume(&mut self, id: &str) {
        let step = self.steps.entry(id.to_owned()).or_default();
        step.is_suspended = false;
        step.since = None;
        step.until = None;
        step.resumptions = step.resumptions.saturating_add(1);
    }

    /// Counts the end of a suspension that the status shows; `since` is the begin that it shows. It was counted before
    /// if the status was not written since. A suspension that has begun later is not resumed: no user has seen it. A
    /// suspension by KubeVela is not recorded here.
    pub fn note_resumed(&mut self, id: &str, since: Option<Timestamp>) {
        let is_seen = |step: &Suspension| step.since.is_none() || step.since == since.map(Timestamp::as_second);
        let recorded = self.steps.get(id);
        if recorded
            .is_none_or(|step| (step.is_suspended && is_seen(step)) || (!step.is_suspended && step.resumptions == 0))
        {
            self.resume(id);
        }
    }

    /// Returns true if a step whose status is suspended stays so. A step without a record runs again: the record of a
    /// suspension that is over may have been removed before the status was written.
    pub fn lasts(&self, id: &str, now: Timestamp) -> bool {
        self.steps.get(id).is_some_and(|step| match step.until {
            Some(until) => until > now,
            None => step.is_suspended,
        })
    }

    /// Counts the end of a suspension whose time has come.
    pub fn note_end(&mut self, id: &str) {
        if self.steps.get(id).is_some_and(|step| step.until.is_some()) {
            self.resume(id);
        }
    }

    pub fn until(&self, id: &str) -> Option<Timestamp> {
        self.steps.get(id)?.until
    }

    pub fn resumptions(&self, id: &str) -> u32 {
        self.steps.get(id).map_or(0, |step| step.resumptions)
    }

    pub fn forget(&mut self, id: &str) {
        self.steps.remove(id);
    }

    pub fn retain(&mut self, ids: &HashSet<&str>) {
        self.steps.retain(|id, _| ids.contains(id.as_str()));
    }
}
