//! The part of a record that is stored as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Record, storable};
use crate::api::lenient::is_false;
use crate::catalog::Error;

/// Size of the last accepted index, before the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Baseline {
    pub names: u64,
    pub versions: u64,
}

/// The last refused index. It is not downloaded and parsed again while it is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Refused {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub digest: String,
    pub reason: String,
    pub message: String,
    pub confirm: Option<String>,
    /// Inputs of the decision besides the body. With other inputs the index may be accepted.
    pub inputs: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Handled {
    pub resync_requests: Option<i64>,
    pub requested_at: Option<String>,
    pub flux_requested_at: Option<String>,
    pub last: Option<String>,
}

/// The last handled request of a conditional sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Poll {
    pub at: Option<String>,
    /// A sync since the request changed charts.
    pub has_found: bool,
}

impl Poll {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RecordState {
    #[serde(skip)]
    pub ready: Option<bool>,
    pub stalled: bool,
    pub reason: String,
    pub message: String,
    pub failures: u32,
    /// The news says that the repository failed, and not yet that it recovered.
    #[serde(skip_serializing_if = "is_false")]
    pub failure_reported: bool,
    /// Failed syncs in a row that waited long for a server.
    #[serde(skip_serializing_if = "is_zero")]
    pub slow_syncs: u32,
    /// End of the server's last `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Stored as JSON, because no statement filters by them. Unknown fields are an error: a newer release wrote them, and
/// the next write would drop them.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Details {
    pub(super) baseline: Option<Baseline>,
    pub(super) refused: Option<Refused>,
    pub(super) handled: Handled,
    /// Earlier releases can read records without it.
    #[serde(skip_serializing_if = "Poll::is_default")]
    pub(super) poll: Poll,
    pub(super) schedule: Option<String>,
    pub(super) state: RecordState,
    pub(super) last_sync: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) is_first_pull: bool,
}

impl Details {
    pub(super) fn of(record: &Record) -> Self {
        let mut state = record.state.clone();
        state.message = storable(&state.message).into_owned();
        Self {
            baseline: record.baseline,
            refused: record.refused.clone(),
            handled: record.handled.clone(),
            poll: record.poll.clone(),
            schedule: record.schedule.clone(),
            state,
            last_sync: record.last_sync.clone(),
            is_first_pull: record.is_first_pull,
        }
    }

    pub(super) fn to_json(&self) -> Result<String, Error> {
        Ok(serde_json::to_string(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;

    /// Renaming a key requires a migration.
    #[test]
    fn the_keys_of_the_details_stay_the_same() {
        let mut record = Record::new(NamespacedName::new("kubeapps", "stable"), "uid");
        record.baseline = Some(Baseline { names: 1, versions: 2 });
        record.refused = Some(Refused {
            etag: Some("e".into()),
            last_modified: Some("m".into()),
            digest: "d".into(),
            reason: "r".into(),
            message: "m".into(),
            confirm: Some("c".into()),
            inputs: "g".into(),
        });
        record.handled = Handled {
            resync_requests: Some(3),
            requested_at: Some("a".into()),
            flux_requested_at: Some("f".into()),
            last: Some("l".into()),
        };
        record.poll = Poll {
            at: Some("p".into()),
            has_found: true,
        };
        record.schedule = Some("@daily".into());
        record.state = RecordState {
            ready: Some(true),
            stalled: true,
            reason: "r".into(),
            message: "m".into(),
            failures: 4,
            failure_reported: true,
            slow_syncs: 5,
            retry_at: Some(Timestamp::UNIX_EPOCH),
        };
        record.last_sync = Some(serde_json::json!({"charts": 5}));
        record.is_first_pull = true;
        assert_eq!(
            Details::of(&record).to_json().unwrap(),
            concat!(
                r#"{"baseline":{"names":1,"versions":2},"#,
                r#""refused":{"etag":"e","lastModified":"m","digest":"d","reason":"r","message":"m","confirm":"c","inputs":"g"},"#,
                r#""handled":{"resyncRequests":3,"requestedAt":"a","fluxRequestedAt":"f","last":"l"},"#,
                r#""poll":{"at":"p","hasFound":true},"schedule":"@daily","state":{"stalled":true,"reason":"r","message":"m","failures":4,"failureReported":true,"slowSyncs":5,"retryAt":"1970-01-01T00:00:00Z"},"lastSync":{"charts":5},"isFirstPull":true}"#
            )
        );
    }
}
