//! Conditions of statuses: one of each type, whose transition time changes with its status only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::ApplicationCondition;
use super::oam;

/// A condition, as one of the APIs defines it.
pub trait StatusCondition {
    fn type_(&self) -> &str;
    fn status(&self) -> &str;
    fn transition_time(&self) -> Option<&Time>;
    fn set_transition_time(&mut self, time: Time);
}

/// Returns the condition of a type.
pub fn find<'a, C: StatusCondition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.type_() == type_)
}

/// Gives a condition the transition time of the condition before if that has the same status, else `now`.
#[must_use]
pub fn since<C: StatusCondition>(mut condition: C, before: Option<&C>, now: Time) -> C {
    let same = before.filter(|before| before.status() == condition.status());
    let time = same.and_then(StatusCondition::transition_time).cloned();
    condition.set_transition_time(time.unwrap_or(now));
    condition
}

/// Replaces the condition of the same type, or adds the condition. Returns true if its status has changed.
pub fn upsert<C: StatusCondition>(conditions: &mut Vec<C>, condition: C, now: Time) -> bool {
    match conditions.iter_mut().find(|known| known.type_() == condition.type_()) {
        Some(known) => {
            let has_changed = known.status() != condition.status();
            *known = since(condition, Some(known), now);
            has_changed
        }
        None => {
            conditions.push(since(condition, None, now));
            true
        }
    }
}

macro_rules! impl_status_condition {
    ($type:ty, $time:ident => $get:expr, $set:expr) => {
        impl StatusCondition for $type {
            fn type_(&self) -> &str {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.status
            }

            fn transition_time(&self) -> Option<&Time> {
                let $time = &self.last_transition_time;
                $get
            }

            fn set_transition_time(&mut self, $time: Time) {
                self.last_transition_time = $set;
            }
        }
    };
}

impl_status_condition!(Condition, time => Some(time), time);
impl_status_condition!(ApplicationCondition, time => time.as_ref(), Some(time));
impl_status_condition!(oam::Condition, time => time.as_ref(), Some(time));

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn condition(status: &str, reason: &str) -> oam::Condition {
        oam::Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            ..oam::Condition::default()
        }
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let mut conditions = Vec::new();
        assert!(upsert(&mut conditions, condition("True", "a"), at(1)));
        assert!(!upsert(&mut conditions, condition("True", "b"), at(2)));
        let known = find(&conditions, "Ready").unwrap();
        assert_eq!((known.reason.as_str(), known.transition_time()), ("b", Some(&at(1))));
        assert!(upsert(&mut conditions, condition("False", "b"), at(3)));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].transition_time(), Some(&at(3)));
        assert!(find(&conditions, "Stalled").is_none());
    }
}
