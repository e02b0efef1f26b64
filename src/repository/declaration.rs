//! What an AppRepository declares, read once and judged once: the form that decisions and syncs work on.

use std::path::PathBuf;
use std::time::Duration;

use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::api::{self, AppRepository};
use crate::catalog::RepositoryName;
use crate::informer::manifests::MANIFEST_ANNOTATION;
use crate::schedule::{self, Cron, IntervalError};

/// Counts up whenever what is made of an index changes, so that a newer Portolan rewrites the rows of an older one although
/// the servers say 304.
const DECODER_VERSION: u32 = 1;

/// The annotation that lowers, for one repository, the cap on its index, in bytes.
pub const INDEX_MAX_BYTES: &str = "portolan.dev/index-max-bytes";
/// The annotation that lowers, for one repository, the time that fetching its index may take, in seconds.
pub const FETCH_TIMEOUT: &str = "portolan.dev/fetch-timeout-seconds";

/// What the declarations that say nothing get.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// When to sync what declares no interval, or none that can be used.
    pub crontab: Cron,
    /// The shortest gap between two ticks that an interval may ask for.
    pub min_interval: Duration,
    /// The most bytes that an index may have.
    pub index_max_bytes: u64,
}

#[cfg(test)]
impl Defaults {
    /// What the command line gives.
    pub(super) fn usual() -> Self {
        Self {
            crontab: schedule::parse("*/10 * * * *").unwrap(),
            min_interval: Duration::from_secs(60),
            index_max_bytes: 100 << 20,
        }
    }
}

/// Which protocol the repository speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Helm repository with an `index.yaml`.
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

    /// Whether `stored` was made from the same URL, type and list of OCI repositories.
    #[must_use]
    pub fn has_source_of(&self, stored: &str) -> bool {
        self.0.split('.').next() == stored.split('.').next()
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
pub struct Declaration {
    /// Its namespace and name.
    pub name: RepositoryName,
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
    /// What is declared that can't be honoured yet: to ignore it would publish what was meant to be hidden.
    pub unsupported: Option<&'static str>,
    /// The digest of a shrunken index that the user has confirmed.
    pub allow_shrink: Option<String>,
    /// When to sync.
    pub cron: Cron,
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
}

impl Declaration {
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
        Self {
            name: RepositoryName {
                namespace: object.namespace().unwrap_or_default(),
                name: object.name_any(),
            },
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation,
            spec_hash: short_digest(spec),
            change_key: ChangeKey::new(&(&url, kind.as_str(), &spec.oci_repositories), &spec.filter_rule),
            requests: Requests {
                resync_requests: spec.resync_requests,
                requested_at: annotation(api::REQUESTED_AT),
                flux_requested_at: annotation(api::FLUX_REQUESTED_AT),
            },
            suspended: object.is_suspended(),
            unsupported: unsupported(object, kind),
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
            url,
            kind,
        }
    }

    /// What a refusal of an index rests on beside its bytes: with another declaration, or another limit, the same index may do.
    #[must_use]
    pub fn grounds(&self) -> String {
        format!("{} within {}", self.change_key.as_str(), self.index_max_bytes)
    }

    /// What a one-shot sync declares: no object stands behind it, nothing is scheduled, and it is always run.
    #[must_use]
    pub fn one_shot(
        name: RepositoryName,
        url: &str,
        kind: Kind,
        allow_shrink: Option<String>,
        defaults: &Defaults,
    ) -> Self {
        let url = url.trim().to_owned();
        Self {
            name,
            uid: String::new(),
            generation: None,
            spec_hash: short_digest(&(&url, kind.as_str())),
            change_key: ChangeKey::new(&(&url, kind.as_str(), &[""; 0]), &None::<()>),
            requests: Requests::default(),
            suspended: false,
            unsupported: (kind == Kind::Oci).then_some(OCI_UNSUPPORTED),
            allow_shrink,
            cron: defaults.crontab.clone(),
            schedule: None,
            interval_error: None,
            manifest: None,
            index_max_bytes: defaults.index_max_bytes,
            fetch_timeout: None,
            url,
            kind,
        }
    }
}

const OCI_UNSUPPORTED: &str = "repositories of type oci are not supported yet";

fn unsupported(object: &AppRepository, kind: Kind) -> Option<&'static str> {
    if kind == Kind::Oci {
        Some(OCI_UNSUPPORTED)
    } else if object.filter_is_set() {
        Some("spec.filterRule is not supported yet, and to ignore it would publish what it is meant to hide")
    } else if object.auth_is_set() {
        Some("spec.auth is not supported yet")
    } else {
        None
    }
}

/// The declared interval where it can be used, else the default and why.
fn choose_interval(text: &str, defaults: &Defaults) -> (Cron, Option<String>) {
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
    match schedule::parse(text) {
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
    Sha256::digest(json)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
