//! Leader election and the division of the objects among replicas.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;

use super::cluster::lease_namespace;
use super::non_empty;
use super::parse::duration;
use crate::cmd::Error;
use crate::manager::{LEASE_NAME, LeaseOptions};
use crate::runtime::leader_election::{MAX_SHARDS, Timing};

/// A label's value has at most 63 characters, and the number of the shard is added to the name.
const MAX_NAME: usize = 60;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Service")]
pub struct LeaderElectionFlags {
    /// Run the controllers only while holding the Lease portolan in the namespace of the pod, or in --namespace outside
    /// of a pod
    #[arg(long)]
    pub enable_leader_election: bool,
    /// Namespace of the Lease (default: the namespace of the pod, or --namespace outside of a pod)
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// Name of the Lease, and with --shards of the Leases without -<shard> (default: portolan)
    #[arg(long, value_name = "NAME")]
    pub leader_election_name: Option<String>,
    /// Time after the last renewal until another replica takes the Lease
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,
    /// Time after the last renewal until the leader stops its work and exits
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,
    /// Time between two renewals, or two attempts to take the Lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
    /// Divide the objects into this number of shards with a Lease each, which replicas share; requires Postgres
    #[arg(long, value_name = "N", default_value = "1")]
    pub shards: NonZeroU32,
    /// Watch only the objects that this label selector matches, such as team in (a,b)
    #[arg(long, value_name = "SELECTOR")]
    pub watch_label_selector: Option<String>,
}

impl LeaderElectionFlags {
    /// Returns the options of the Lease outside of KubeVela; `namespace` is the value of `--namespace`.
    pub fn lease(&self, namespace: Option<&str>) -> Result<LeaseOptions, Error> {
        let named = non_empty(self.leader_election_namespace.as_deref());
        Ok(LeaseOptions {
            namespace: named.map_or_else(|| lease_namespace(namespace), str::to_owned),
            name: self.lease_name()?.unwrap_or(LEASE_NAME).to_owned(),
            timing: checked(Timing {
                lease_duration: self.leader_election_lease_duration,
                renew_deadline: self.leader_election_renew_deadline,
                retry_period: self.leader_election_retry_period,
            })?,
            shards: self.shards()?,
        })
    }

    pub fn lease_name(&self) -> Result<Option<&str>, Error> {
        let is_valid = |name: &str| {
            let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            name.len() <= MAX_NAME && name.chars().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
        };
        match non_empty(self.leader_election_name.as_deref()) {
            Some(name) if !is_valid(name) => Err(Error::Usage(format!(
                "invalid value {name:?} for --leader-election-name: expected at most {MAX_NAME} lower-case letters, digits and hyphens"
            ))),
            name => Ok(name),
        }
    }

    pub fn shards(&self) -> Result<NonZeroU32, Error> {
        if self.shards.get() > MAX_SHARDS {
            return Err(Error::Usage(format!(
                "--shards must not be greater than {MAX_SHARDS}: each replica asks for each Lease"
            )));
        }
        Ok(self.shards)
    }

    /// Returns the selector in a form that is equal for selectors of the same requirements.
    pub fn label_selector(&self, has_manifests: bool) -> Result<Option<String>, Error> {
        let Some(selector) = non_empty(self.watch_label_selector.as_deref()) else {
            return Ok(None);
        };
        if has_manifests {
            return Err(Error::Usage(
                "--watch-label-selector requires a cluster and cannot be used with --manifests".to_owned(),
            ));
        }
        match normalized(selector) {
            Some(selector) => Ok(Some(selector)),
            None => Err(Error::Usage(format!(
                "invalid value {selector:?} for --watch-label-selector: expected requirements such as team=a,stage in (test,prod)"
            ))),
        }
    }
}

/// Checks the order of the times.
pub fn checked(timing: Timing) -> Result<Timing, Error> {
    let is_valid = timing.lease_duration > timing.renew_deadline
        && timing.renew_deadline > timing.retry_period
        && !timing.retry_period.is_zero();
    if is_valid {
        return Ok(timing);
    }
    Err(Error::Usage(
        "--leader-election-lease-duration must be greater than --leader-election-renew-deadline, and that greater than \
         --leader-election-retry-period"
            .to_owned(),
    ))
}

/// Sorts the requirements and their values. Returns none for a selector without the form of one; the API server checks
/// the rest.
fn normalized(selector: &str) -> Option<String> {
    let mut requirements = vec![String::new()];
    let mut is_list = false;
    for c in selector.chars() {
        match (c, is_list) {
            ('(', false) => is_list = true,
            (')', true) => is_list = false,
            ('(' | ')', _) => return None,
            (',', false) => {
                requirements.push(String::new());
                continue;
            }
            _ => {}
        }
        requirements.last_mut()?.push(c);
    }
    if is_list {
        return None;
    }
    let mut requirements: Vec<String> = requirements
        .iter()
        .map(|text| requirement(text))
        .collect::<Option<_>>()?;
    requirements.sort_unstable();
    requirements.dedup();
    Some(requirements.join(","))
}

/// Returns a requirement with single spaces around `in` and none elsewhere, and with sorted values.
fn requirement(text: &str) -> Option<String> {
    let text = text.trim();
    let Some((before, values)) = text.split_once('(') else {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        return (!text.is_empty()).then(|| text.replace("==", "="));
    };
    let words: Vec<&str> = before.split_whitespace().collect();
    let [key, operator @ ("in" | "notin")] = words[..] else {
        return None;
    };
    let mut values: Vec<&str> = values.strip_suffix(')')?.split(',').map(str::trim).collect();
    values.sort_unstable();
    values.dedup();
    Some(format!("{key} {operator} ({})", values.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_selectors_have_one_form() {
        let expected = Some("!legacy,stage in (prod,test),team=a".to_owned());
        assert_eq!(normalized("team=a,stage in (test,prod),!legacy"), expected);
        assert_eq!(
            normalized(" stage  in ( prod , test,test ), ! legacy,team == a,team=a"),
            expected
        );
    }

    #[test]
    fn text_without_the_form_of_a_selector_is_refused() {
        for text in ["a,,b", "a in (b", "a in b)", "a in ((b))", "in (a)", "a of (b)", ","] {
            assert_eq!(normalized(text), None, "{text}");
        }
    }
}
