//! The validated form of an AppRepository, on which decisions and syncs work.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::news;
use crate::api::{self, AppRepository, AppRepositorySpec, NamespacedName, PodTemplate, SecretKeyRef};
use crate::http::Proxies;
use crate::jq::JqRule;
use crate::runtime::cron::{self, Cron, Intervals};
use crate::runtime::manifests::MANIFEST_ANNOTATION;
use crate::text::hex;

/// Raise it whenever the decoder produces different rows, so that a new release rewrites them despite 304 responses.
const DECODER_VERSION: u32 = 3;

/// Annotation that lowers the maximum size of the index, in bytes.
pub const INDEX_MAX_BYTES: &str = "portolan.dev/index-max-bytes";
/// Annotation that lowers the timeout for fetching the index, in seconds.
pub const FETCH_TIMEOUT: &str = "portolan.dev/fetch-timeout-seconds";

/// Annotation that lowers the maximum size of each chart archive, in bytes.
pub const ARCHIVE_MAX_BYTES: &str = "portolan.dev/archive-max-bytes";

#[derive(Clone, Debug)]
pub struct Defaults {
    pub crontab: Arc<Cron>,
    pub intervals: Intervals,
    pub min_interval: Duration,
    pub index_max_bytes: u64,
    pub proxy_namespaces: ProxyNamespaces,
    /// `namespace/name` of the operator's Secrets that the news of all repositories goes to; `None` if no process
    /// delivers news.
    pub news_sinks: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyNamespaces {
    All,
    Only(Vec<String>),
}

impl ProxyNamespaces {
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(namespaces) => namespaces.iter().any(|allowed| allowed == namespace),
        }
    }
}

#[cfg(test)]
impl Defaults {
    pub(super) fn usual() -> Self {
        let intervals = Intervals::default();
        Self {
            crontab: intervals.parse("*/10 * * * *").unwrap(),
            intervals,
            min_interval: Duration::from_secs(60),
            index_max_bytes: 100 << 20,
            proxy_namespaces: ProxyNamespaces::All,
            news_sinks: Some(Vec::new()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepositoryKind {
    #[default]
    Helm,
    /// Any type other than `helm`, as in Kubeapps.
    Oci,
}

impl RepositoryKind {
    /// Returns the value of `spec.type`, which is also stored in the catalog.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Oci => "oci",
        }
    }
}

/// Key of what determines the stored rows. A new *source* resets the baseline of the shrink guard, a new filter or
/// decoder only causes a complete sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeKey(String);

impl ChangeKey {
    fn new(source: &impl serde::Serialize, filter: &impl serde::Serialize) -> Self {
        let (source, filter) = (short_digest(source), short_digest(filter));
        Self(format!("{source}.{filter}.{DECODER_VERSION}"))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash of URL, type and list of OCI repositories.
    #[must_use]
    pub fn source(&self) -> &str {
        Self::source_of(&self.0)
    }

    /// Returns the source of a stored key, which equals no complete key.
    #[must_use]
    pub fn source_of(stored: &str) -> &str {
        stored.split('.').next().unwrap_or_default()
    }

    /// Returns true if `stored` has the same URL, type and list of OCI repositories.
    #[must_use]
    pub fn has_source_of(&self, stored: &str) -> bool {
        self.source() == Self::source_of(stored)
    }
}

/// Values by which users request a sync; a value that differs from the handled one is a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub resync_requests: i64,
    pub requested_at: Option<String>,
    pub flux_requested_at: Option<String>,
    /// Requests a conditional sync; the others compare everything.
    pub poll_at: Option<String>,
}

#[derive(Clone, Debug)]
pub struct RepositorySpec {
    pub name: NamespacedName,
    /// UID of the object; empty for a one-shot sync.
    pub uid: String,
    /// Generation of the object; `None` for manifests.
    pub generation: Option<i64>,
    pub url: String,
    pub kind: RepositoryKind,
    /// Hash of the whole spec; a change requests a sync.
    pub spec_hash: String,
    pub change_key: ChangeKey,
    pub requests: Requests,
    pub suspended: bool,
    /// Selects the charts to keep; `None` keeps all.
    pub filter: Option<JqRule>,
    /// Repositories of the OCI registry, below the path of the URL. If empty, the catalog of the registry is used.
    pub oci_repositories: Vec<String>,
    pub access: RepositoryAccess,
    pub allow_shrink: Option<String>,
    pub cron: Arc<Cron>,
    /// Printable schedule; `None` for a one-shot sync.
    pub schedule: Option<String>,
    pub interval_error: Option<String>,
    pub manifest: Option<PathBuf>,
    /// Maximum size of the index: the flag's limit, lowered by the annotation.
    pub index_max_bytes: u64,
    pub fetch_timeout: Option<Duration>,
    pub archive_max_bytes: Option<u64>,
    /// `namespace/name` of the Secrets that its news goes to.
    pub news_sinks: Vec<String>,
}

impl RepositorySpec {
    /// Only `directory_mode` trusts the annotation with the manifest path; in a cluster, users could set it.
    #[must_use]
    pub fn of(object: &AppRepository, defaults: &Defaults, directory_mode: bool) -> Self {
        let spec = &object.spec;
        let annotations = object.annotations();
        // The database can't store NUL, so a value with NUL would never count as handled.
        let annotation = |name: &str| annotations.get(name).map(|value| value.replace('\0', ""));
        let number = |name: &str| annotation(name).and_then(|text| text.parse::<u64>().ok());
        let max_bytes = defaults.index_max_bytes;
        let url = spec.url.trim().to_owned();
        let kind = if spec.type_ == RepositoryKind::Helm.as_str() {
            RepositoryKind::Helm
        } else {
            RepositoryKind::Oci
        };
        let (cron, interval_error) = choose_interval(&spec.interval, defaults);
        let filter = object.filter().map(rule);
        let namespace = object.namespace().unwrap_or_default();
        let mut access = RepositoryAccess::of(object);
        if !defaults.proxy_namespaces.contains(&namespace) {
            access.are_proxies_refused = access.proxies.take().is_some();
        }
        Self {
            name: NamespacedName::new(namespace, object.name_any()),
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation,
            // A changed flag changes the connection too.
            spec_hash: if access.are_proxies_refused {
                short_digest(&(with_template_digest(spec), "without proxies"))
            } else {
                short_digest(&with_template_digest(spec))
            },
            change_key: ChangeKey::new(
                &(&url, kind.as_str(), &spec.oci_repositories),
                &filter.as_ref().map(parts),
            ),
            requests: Requests {
                resync_requests: spec.resync_requests,
                requested_at: annotation(api::REQUESTED_AT),
                flux_requested_at: annotation(api::FLUX_REQUESTED_AT),
                poll_at: annotation(api::POLL_AT),
            },
            suspended: object.is_suspended(),
            filter,
            oci_repositories: spec.oci_repositories.clone(),
            access,
            allow_shrink: annotation(api::ALLOW_SHRINK),
            schedule: Some(cron.to_string()),
            cron,
            interval_error,
            manifest: annotation(MANIFEST_ANNOTATION)
                .filter(|_| directory_mode)
                .map(PathBuf::from),
            index_max_bytes: number(INDEX_MAX_BYTES).map_or(max_bytes, |bytes| bytes.min(max_bytes)),
            fetch_timeout: number(FETCH_TIMEOUT).map(Duration::from_secs),
            archive_max_bytes: number(ARCHIVE_MAX_BYTES),
            news_sinks: news::sinks(&object.metadata, defaults.news_sinks.as_deref()),
            url,
            kind,
        }
    }

    #[must_use]
    pub fn jitter(&self) -> Duration {
        cron::jitter(&self.uid, self.cron.shortest_gap())
    }

    /// Returns the key of a refusal besides the bytes of the index: another spec or limit may accept the same index.
    #[must_use]
    pub fn refusal_key(&self) -> String {
        format!("{} within {}", self.change_key.as_str(), self.index_max_bytes)
    }

    #[must_use]
    pub fn one_shot(name: NamespacedName, arguments: OneShot, defaults: &Defaults) -> Self {
        let url = arguments.url.trim().to_owned();
        let OneShot {
            kind,
            oci_repositories,
            filter,
            access,
            allow_shrink,
            ..
        } = arguments;
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
            access,
            allow_shrink,
            cron: defaults.crontab.clone(),
            schedule: None,
            interval_error: None,
            manifest: None,
            index_max_bytes: defaults.index_max_bytes,
            fetch_timeout: None,
            archive_max_bytes: None,
            news_sinks: Vec::new(),
            url,
            kind,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct OneShot {
    pub url: String,
    pub kind: RepositoryKind,
    pub oci_repositories: Vec<String>,
    pub filter: Option<JqRule>,
    pub access: RepositoryAccess,
    pub allow_shrink: Option<String>,
}

/// Connection settings of a repository. Each sync reads the referenced Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryAccess {
    pub auth_header: Option<SecretKeyRef>,
    /// Certificates of authorities to trust in addition to the system's.
    pub custom_ca: Option<SecretKeyRef>,
    pub insecure: bool,
    /// Sends the credentials to other hosts too.
    pub pass_credentials: bool,
    /// Proxies of this repository; without them, the environment of the process applies.
    pub proxies: Option<Proxies>,
    /// Proxies are declared, but this namespace may not choose them.
    pub are_proxies_refused: bool,
}

impl RepositoryAccess {
    fn of(object: &AppRepository) -> Self {
        Self {
            auth_header: object.auth_header().cloned(),
            custom_ca: object.custom_ca().cloned(),
            insecure: object.spec.tls_insecure_skip_verify,
            pass_credentials: object.spec.pass_credentials,
            proxies: object.spec.sync_job_pod_template.as_ref().and_then(proxies),
            are_proxies_refused: false,
        }
    }
}

/// The first container ran the sync in Kubeapps. Kubeapps' chart uses lower case, its dashboard upper case.
fn proxies(template: &PodTemplate) -> Option<Proxies> {
    let value = |name: &str| template.proxy(name).map(str::to_owned);
    let proxies = Proxies {
        http: value("http_proxy"),
        https: value("https_proxy"),
        no_proxy: value("no_proxy"),
    };
    (proxies.http.is_some() || proxies.https.is_some()).then_some(proxies)
}

fn rule(declared: &api::FilterRule) -> JqRule {
    JqRule {
        jq: declared.jq.clone(),
        variables: declared.variables.clone(),
    }
}

fn parts(rule: &JqRule) -> (&str, &std::collections::BTreeMap<String, String>) {
    (&rule.jq, &rule.variables)
}

fn choose_interval(text: &str, defaults: &Defaults) -> (Arc<Cron>, Option<String>) {
    let text = text.trim();
    if text.is_empty() {
        return (defaults.crontab.clone(), None);
    }
    let parsed = defaults.intervals.parse(text);
    let checked = parsed.and_then(|cron| match cron.below_minimum(defaults.min_interval) {
        None => Ok(cron),
        Some(error) => Err(error),
    });
    match checked {
        Ok(cron) => (cron, None),
        Err(error) => (
            defaults.crontab.clone(),
            Some(format!("invalid spec.interval: {error}")),
        ),
    }
}

/// Returns the spec with the digest of its template, which is all that some processes keep of it.
fn with_template_digest(spec: &AppRepositorySpec) -> Cow<'_, AppRepositorySpec> {
    let Some(template) = &spec.sync_job_pod_template else {
        return Cow::Borrowed(spec);
    };
    Cow::Owned(AppRepositorySpec {
        sync_job_pod_template: Some(template.clone().reduced()),
        ..spec.clone()
    })
}

/// Returns 64 bits of SHA-256 over the JSON of a value, in hex. It detects edits only.
fn short_digest(value: &impl serde::Serialize) -> String {
    // Specs hold string keys and finite numbers only, so that JSON can't fail; an empty text would only cause a sync.
    let json = serde_json::to_vec(value).unwrap_or_default();
    hex(&Sha256::digest(json)[..8])
}
