//! What an AppRepository declares, read once and judged once: the form that decisions and syncs work on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::api::NamespacedName;
use crate::api::{self, AppRepository, SecretKeyRef};
use crate::http::Proxies;
use crate::jq::Rule;
use crate::runtime::cron::{self as schedule, Cron, IntervalError, Intervals};
use crate::runtime::manifests::MANIFEST_ANNOTATION;
use crate::text::hex;

/// Counts up whenever what is made of an index changes, so that a newer Portolan rewrites the rows of an older one although
/// the servers say 304.
const DECODER_VERSION: u32 = 1;

/// The annotation that lowers, for one repository, the cap on its index, in bytes.
pub const INDEX_MAX_BYTES: &str = "portolan.dev/index-max-bytes";
/// The annotation that lowers, for one repository, the time that fetching its index may take, in seconds.
pub const FETCH_TIMEOUT: &str = "portolan.dev/fetch-timeout-seconds";

/// The annotation that lowers, for one repository, the cap on each chart archive, in bytes.
pub const ARCHIVE_MAX_BYTES: &str = "portolan.dev/archive-max-bytes";

/// What the declarations that say nothing get.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// When to sync what declares no interval, or none that can be used.
    pub crontab: Arc<Cron>,
    /// Reads those that are declared.
    pub intervals: Intervals,
    /// The shortest gap between two ticks that an interval may ask for.
    pub min_interval: Duration,
    /// The most bytes that an index may have.
    pub index_max_bytes: u64,
}

#[cfg(test)]
impl Defaults {
    /// What the command line gives.
    pub(super) fn usual() -> Self {
        let intervals = Intervals::default();
        Self {
            crontab: intervals.parse("*/10 * * * *").unwrap(),
            intervals,
            min_interval: Duration::from_secs(60),
            index_max_bytes: 100 << 20,
        }
    }
}

/// Which protocol the repository speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A Helm repository with an `index.yaml`.
    #[default]
    Helm,
    /// An OCI registry: whatever is not `helm`, as with Kubeapps.
    Oci,
}

impl Kind {
    /// As it is written in `spec.type` and kept in the catalogue.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Oci => "oci",
        }
    }
}

/// Decides whether rows written before are still what this declaration would give.
///
/// Two parts are kept apart: a changed *source* also takes away what the shrink guard compares with, while a changed filter or
/// decoder only means that everything is fetched and compared again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeKey(String);

impl ChangeKey {
    fn new(source: &impl serde::Serialize, filter: &impl serde::Serialize) -> Self {
        Self(format!(
            "{}.{}.{DECODER_VERSION}",
            short_digest(source),
            short_digest(filter)
        ))
    }

    /// As it is kept in the catalogue.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that stands for URL, type and list of OCI repositories.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// Whether `stored` was made from the same URL, type and list of OCI repositories.
    #[must_use]
    pub fn has_source_of(&self, stored: &str) -> bool {
        Some(self.source()) == stored.split('.').next()
    }
}

/// The values by which users ask for a sync by hand; any other value than the one handled last is a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `spec.resyncRequests`.
    pub resync_requests: i64,
    /// The annotation `apprepositories.kubeapps.com/requested-at`.
    pub requested_at: Option<String>,
    /// The annotation `reconcile.fluxcd.io/requestedAt`.
    pub flux_requested_at: Option<String>,
}

/// An AppRepository as declared.
#[derive(Clone, Debug)]
pub struct RepositorySpec {
    /// Its namespace and name.
    pub name: NamespacedName,
    /// The UID of the object; empty for a one-shot sync, which has none.
    pub uid: String,
    /// The generation of the object that was read; none in folder mode.
    pub generation: Option<i64>,
    /// Where the repository is, trimmed.
    pub url: String,
    /// Which protocol it speaks.
    pub kind: Kind,
    /// A digest of the whole spec: another one is a request for a sync.
    pub spec_hash: String,
    /// Decides whether the rows are still what this would give.
    pub change_key: ChangeKey,
    /// Requests by hand.
    pub requests: Requests,
    /// Whether syncs are held.
    pub suspended: bool,
    /// Which charts are taken; all, without one.
    pub filter: Option<Rule>,
    /// The repositories to take from an OCI registry, below the path of the URL; without any, those that the registry lists.
    pub oci_repositories: Vec<String>,
    /// How the server is reached.
    pub reach: RepositoryAccess,
    /// The digest of a shrunken index that the user has confirmed.
    pub allow_shrink: Option<String>,
    /// When to sync.
    pub cron: Arc<Cron>,
    /// The same to be shown; nothing for a one-shot sync, which nobody repeats.
    pub schedule: Option<String>,
    /// Why the declared interval is not used.
    pub interval_error: Option<String>,
    /// The manifest that declares it, in folder mode: `file:` URLs are relative to its folder.
    pub manifest: Option<PathBuf>,
    /// The most bytes that the index may have: the flag's bound, or what is set below it for this repository.
    pub index_max_bytes: u64,
    /// The total time for fetching, where one is set for this repository.
    pub fetch_timeout: Option<Duration>,
    /// The most bytes that an archive may have, where that is set for this repository.
    pub archive_max_bytes: Option<u64>,
}

impl RepositorySpec {
    /// Reads what `object` declares. `folder_mode` decides whether the annotation that names a manifest is believed: only the
    /// informer of folders sets it, while in a cluster anybody can.
    #[must_use]
    pub fn of(object: &AppRepository, defaults: &Defaults, folder_mode: bool) -> Self {
        let spec = &object.spec;
        let annotations = object.annotations();
        // The database can't hold NUL, so a value with one would never be found handled.
        let annotation = |name: &str| annotations.get(name).map(|value| value.replace('\0', ""));
        let url = spec.url.trim().to_owned();
        let kind = if spec.type_ == Kind::Helm.as_str() {
            Kind::Helm
        } else {
            Kind::Oci
        };
        let (cron, interval_error) = choose_interval(&spec.interval, defaults);
        let filter = object.filter().map(rule);
        Self {
            name: NamespacedName {
                namespace: object.namespace().unwrap_or_default(),
                name: object.name_any(),
            },
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation,
            spec_hash: short_digest(spec),
            change_key: ChangeKey::new(
                &(&url, kind.as_str(), &spec.oci_repositories),
                &filter.as_ref().map(parts),
            ),
            requests: Requests {
                resync_requests: spec.resync_requests,
                requested_at: annotation(api::REQUESTED_AT),
                flux_requested_at: annotation(api::FLUX_REQUESTED_AT),
            },
            suspended: object.is_suspended(),
            filter,
            oci_repositories: spec.oci_repositories.clone(),
            reach: RepositoryAccess::of(object),
            allow_shrink: annotation(api::ALLOW_SHRINK),
            schedule: Some(cron.to_string()),
            cron,
            interval_error,
            manifest: annotation(MANIFEST_ANNOTATION)
                .filter(|_| folder_mode)
                .map(PathBuf::from),
            index_max_bytes: annotation(INDEX_MAX_BYTES)
                .and_then(|text| text.parse().ok())
                .map_or(defaults.index_max_bytes, |bytes: u64| {
                    bytes.min(defaults.index_max_bytes)
                }),
            fetch_timeout: annotation(FETCH_TIMEOUT)
                .and_then(|text| text.parse().ok())
                .map(Duration::from_secs),
            archive_max_bytes: annotation(ARCHIVE_MAX_BYTES).and_then(|text| text.parse().ok()),
            url,
            kind,
        }
    }

    /// Returns the delay of scheduled syncs after each tick.
    #[must_use]
    pub fn jitter(&self) -> Duration {
        schedule::jitter(&self.uid, self.cron.shortest_gap())
    }

    /// What a refusal of an index rests on beside its bytes: with another declaration, or another limit, the same index may do.
    #[must_use]
    pub fn grounds(&self) -> String {
        format!("{} within {}", self.change_key.as_str(), self.index_max_bytes)
    }

    /// What a one-shot sync declares: no object stands behind it, nothing is scheduled, and it is always run.
    #[must_use]
    pub fn one_shot(name: NamespacedName, given: OneShot, defaults: &Defaults) -> Self {
        let url = given.url.trim().to_owned();
        let OneShot {
            kind,
            oci_repositories,
            filter,
            reach,
            allow_shrink,
            ..
        } = given;
        Self {
            name,
            uid: String::new(),
            generation: None,
            spec_hash: short_digest(&(&url, kind.as_str(), &oci_repositories, filter.as_ref().map(parts))),
            change_key: ChangeKey::new(&(&url, kind.as_str(), &oci_repositories), &filter.as_ref().map(parts)),
            requests: Requests::default(),
            suspended: false,
            filter,
            oci_repositories,
            reach,
            allow_shrink,
            cron: defaults.crontab.clone(),
            schedule: None,
            interval_error: None,
            manifest: None,
            index_max_bytes: defaults.index_max_bytes,
            fetch_timeout: None,
            archive_max_bytes: None,
            url,
            kind,
        }
    }
}

/// What the arguments of a one-shot sync say.
#[derive(Clone, Debug, Default)]
pub struct OneShot {
    /// Where the repository is.
    pub url: String,
    /// Which protocol it speaks.
    pub kind: Kind,
    /// See [`RepositorySpec::oci_repositories`].
    pub oci_repositories: Vec<String>,
    /// See [`RepositorySpec::filter`].
    pub filter: Option<Rule>,
    /// See [`RepositorySpec::reach`].
    pub reach: RepositoryAccess,
    /// See [`RepositorySpec::allow_shrink`].
    pub allow_shrink: Option<String>,
}

/// How a repository's server is reached, as far as it is declared: the Secrets that are named here are read by each sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryAccess {
    /// Where the credentials are.
    pub auth_header: Option<SecretKeyRef>,
    /// Where the certificates are of the authorities to trust beside the system's.
    pub custom_ca: Option<SecretKeyRef>,
    /// Any certificate is trusted.
    pub insecure: bool,
    /// The credentials go to other hosts too.
    pub pass_credentials: bool,
    /// The proxies of this repository; those of our own environment without them.
    pub proxies: Option<Proxies>,
}

impl RepositoryAccess {
    fn of(object: &AppRepository) -> Self {
        Self {
            auth_header: object.auth_header().cloned(),
            custom_ca: object.custom_ca().cloned(),
            insecure: object.spec.tls_insecure_skip_verify,
            pass_credentials: object.spec.pass_credentials,
            proxies: object.spec.sync_job_pod_template.as_ref().and_then(proxies),
        }
    }
}

/// The proxies that a pod template sets for the first container, in which Kubeapps ran the sync. Kubeapps' chart writes the
/// variables in lower case and its dashboard in upper case; of a variable that stands there twice the last counts, as in a pod.
fn proxies(template: &serde_json::Value) -> Option<Proxies> {
    let environment = template.pointer("/spec/containers/0/env")?.as_array()?;
    let value = |name: &str| {
        let is_named = |variable: &&serde_json::Value| {
            (variable.get("name").and_then(serde_json::Value::as_str))
                .is_some_and(|other| other.eq_ignore_ascii_case(name))
        };
        let variable = environment.iter().rfind(is_named)?;
        let value = variable.get("value")?.as_str()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let proxies = Proxies {
        http: value("http_proxy"),
        https: value("https_proxy"),
        no_proxy: value("no_proxy"),
    };
    (proxies.http.is_some() || proxies.https.is_some()).then_some(proxies)
}

fn rule(declared: &api::FilterRule) -> Rule {
    Rule {
        jq: declared.jq.clone(),
        variables: declared.variables.clone(),
    }
}

/// A rule as far as it decides what is kept.
fn parts(rule: &Rule) -> (&str, &std::collections::BTreeMap<String, String>) {
    (&rule.jq, &rule.variables)
}

/// The declared interval where it can be used, else the default and why.
fn choose_interval(text: &str, defaults: &Defaults) -> (Arc<Cron>, Option<String>) {
    let text = text.trim();
    if text.is_empty() {
        return (defaults.crontab.clone(), None);
    }
    let unusable = |error: &IntervalError| {
        (
            defaults.crontab.clone(),
            Some(format!("spec.interval can't be used: {error}")),
        )
    };
    match defaults.intervals.parse(text) {
        Ok(cron) => match cron.below_minimum(defaults.min_interval) {
            None => (cron, None),
            Some(error) => unusable(&error),
        },
        Err(error) => unusable(&error),
    }
}

/// The first 64 bits, in hex, of the SHA-256 of a value's JSON: enough to tell an edit, which is all that it is for.
fn short_digest(value: &impl serde::Serialize) -> String {
    // Specs hold string keys and finite numbers only, for which JSON can't fail; an empty text would only mean one more sync.
    let json = serde_json::to_vec(value).unwrap_or_default();
    hex(&Sha256::digest(json)[..8])
}
