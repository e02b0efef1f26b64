//! Fetches archives for the catalog that is served, as a sync would: with the credentials, the address policy and the limits
//! of their repository.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Api;

use super::setup::without_api_server;
use super::{Error, SourceOptions};
use crate::api::{AppRepository, NamespacedName};
use crate::controllers::Source;
use crate::controllers::apprepository::chart_files::download::{ArchiveDownloader, Comparison, Download};
use crate::controllers::apprepository::data_url;
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets::source::CredentialSource;
use crate::controllers::apprepository::spec::{Defaults, OneShot, ProxyNamespaces, RepositoryKind, RepositorySpec};
use crate::controllers::apprepository::sync::location::FileAccess;
use crate::http::{FetchLimits, Fetcher};
use crate::runtime::cron::Intervals;
use crate::runtime::kube_client::call;
use crate::runtime::manifests;
use crate::serve::helm::{ArchiveError, ArchiveRequest, ArchiveSource, FetchedArchive};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const SHA256_CHARACTERS: usize = 64;

/// Settings of fetches, by the flags of the same names.
#[derive(Clone)]
pub struct ArchiveOptions {
    pub fetcher: Fetcher,
    pub fetch_limits: FetchLimits,
    /// Of `--archive-max-bytes`.
    pub max_bytes: u64,
    /// Kubeapps' namespace, with its copies of Secrets.
    pub kubeapps_namespace: String,
    /// The namespaces whose AppRepositories may declare proxies.
    pub proxy_namespaces: ProxyNamespaces,
    /// Directories besides the manifests' own that `file:` URLs may name.
    pub allowed_directories: Vec<PathBuf>,
}

pub struct Archives {
    source: Source,
    credentials: CredentialSource,
    fetcher: Fetcher,
    files: FileAccess,
    fetch_limits: FetchLimits,
    max_bytes: u64,
    defaults: Defaults,
}

impl Archives {
    /// Needs the verb `get` on AppRepositories, and on the Secrets that they reference.
    pub async fn new(
        options: ArchiveOptions,
        connection: &SourceOptions,
        source: Source,
        origin: Arc<Origin>,
    ) -> Result<Self, Error> {
        let intervals = Intervals::default();
        let files = match &source {
            Source::Cluster(_) => FileAccess::Never,
            Source::Directory(manifests) => {
                let roots = std::iter::once(manifests).chain(&options.allowed_directories);
                FileAccess::Below(roots.cloned().collect())
            }
        };
        Ok(Self {
            source,
            credentials: CredentialSource::Secrets {
                origin,
                kubeapps_namespace: options.kubeapps_namespace,
            },
            fetcher: without_api_server(&options.fetcher, connection).await?,
            files,
            fetch_limits: options.fetch_limits,
            max_bytes: options.max_bytes,
            // Nothing is scheduled, and no index is fetched.
            defaults: Defaults {
                crontab: intervals.parse("@yearly").map_err(Error::from_display)?,
                intervals,
                min_interval: Duration::ZERO,
                index_max_bytes: u64::MAX,
                proxy_namespaces: options.proxy_namespaces,
                news_sinks: None,
            },
        })
    }

    async fn fetch_archive(&self, request: &ArchiveRequest) -> Result<FetchedArchive, ArchiveError> {
        let spec = self.spec(request).await?;
        let access = self.credentials.access(&spec).await;
        let (access, _) = access.map_err(|error| {
            tracing::info!(repository = %spec.name, %error, "failed to read the credentials of a repository");
            failed(error.reason())
        })?;
        let session = self.fetcher.with(access).map_err(|error| failed(error.reason()))?;
        let downloader = ArchiveDownloader::new(&spec, &session, &self.files, &self.fetch_limits, self.max_bytes);
        let url = pinned_url(&spec, request);
        let download = downloader.download(Some(&url), &request.version).await;
        let download = download.map_err(|error| {
            tracing::info!(repository = %spec.name, %error, "failed to fetch an archive");
            match error.retry_after() {
                Some(pause) => ArchiveError::Busy {
                    retry_after: pause.as_secs().max(1),
                },
                None => failed(error.reason()),
            }
        })?;
        let is_verified = is_verified(&download, &request.digests)?;
        if !is_gzip(&download) {
            return Err(failed("NotAnArchive"));
        }
        Ok(FetchedArchive {
            bytes: download.body.bytes,
            content: Box::new(download.body.into_reader()),
            is_verified,
        })
    }

    /// Returns the declared repository. Rows of a one-shot sync have none.
    async fn spec(&self, request: &ArchiveRequest) -> Result<RepositorySpec, ArchiveError> {
        let name = &request.repository;
        let is_directory = matches!(self.source, Source::Directory(_));
        let spec = match self.repository(name).await? {
            Some(object) => RepositorySpec::of(&object, &self.defaults, is_directory),
            None if request.is_public => RepositorySpec::one_shot(name.clone(), one_shot(request), &self.defaults),
            None => return Err(failed("RepositoryNotFound")),
        };
        // The stored URLs are those of another server.
        if without_slash(&spec.url) != without_slash(&request.repository_url) {
            return Err(failed("RepositoryChanged"));
        }
        Ok(spec)
    }

    async fn repository(&self, name: &NamespacedName) -> Result<Option<AppRepository>, ArchiveError> {
        // The names become parts of a path.
        if !manifests::is_object_name(&name.namespace) || !manifests::is_object_name(&name.name) {
            return Ok(None);
        }
        let unreadable = |error: &dyn std::fmt::Display| {
            tracing::info!(repository = %name, %error, "failed to read an AppRepository");
            failed("RepositoryUnreadable")
        };
        match &self.source {
            Source::Cluster(client) => {
                let repositories: Api<AppRepository> = Api::namespaced(client.clone(), &name.namespace);
                let read = call(repositories.get_opt(&name.name)).await;
                read.map_err(|error| unreadable(&error))
            }
            Source::Directory(directory) => {
                let (directory, name) = (directory.clone(), name.clone());
                let read = move || manifests::object::<AppRepository>(&directory, data_url, &name);
                let read = tokio::task::spawn_blocking(read).await;
                let read = read.map_err(|error| unreadable(&error))?;
                read.map_err(|error| unreadable(&error))
            }
        }
    }
}

impl ArchiveSource for Archives {
    fn fetch(&self, request: ArchiveRequest) -> BoxFuture<'_, Result<FetchedArchive, ArchiveError>> {
        async move { self.fetch_archive(&request).await }.boxed()
    }
}

fn failed(reason: &str) -> ArchiveError {
    ArchiveError::Failed {
        reason: reason.to_owned(),
    }
}

fn one_shot(request: &ArchiveRequest) -> OneShot {
    OneShot {
        url: request.repository_url.clone(),
        kind: if request.is_registry {
            RepositoryKind::Oci
        } else {
            RepositoryKind::Helm
        },
        ..OneShot::default()
    }
}

fn without_slash(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

/// Returns the URL of an archive. In a registry, it names the manifest by the stored digest, since tags move.
fn pinned_url(spec: &RepositorySpec, request: &ArchiveRequest) -> String {
    let digest = request.digests.first().map_or("", |digest| digest.trim());
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    let is_digest = hex.len() == SHA256_CHARACTERS && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let url = request.url.trim();
    if spec.kind == RepositoryKind::Oci && is_digest && !url.contains('@') {
        format!("{url}@sha256:{}", hex.to_ascii_lowercase())
    } else {
        url.to_owned()
    }
}

/// Returns false if the index contains no digest. Fails if it contains others.
fn is_verified(download: &Download, digests: &[String]) -> Result<bool, ArchiveError> {
    let mut compared = digests.iter().map(|digest| download.compare(digest)).peekable();
    let first = compared.peek().copied().unwrap_or(Comparison::NotComparable);
    if compared.any(|comparison| comparison == Comparison::Same) {
        return Ok(true);
    }
    match first {
        Comparison::NotComparable => Ok(false),
        Comparison::Same | Comparison::Different => Err(failed("DigestMismatch")),
    }
}

/// Without a digest, the page of a login would pass as an archive.
fn is_gzip(download: &Download) -> bool {
    let mut magic = [0; GZIP_MAGIC.len()];
    let read = download.body.clone().into_reader().read_exact(&mut magic);
    read.is_ok() && magic == GZIP_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str, digests: &[&str]) -> ArchiveRequest {
        ArchiveRequest {
            repository: NamespacedName::new("team-a", "charts"),
            repository_url: "oci://registry.example/charts".to_owned(),
            is_public: true,
            is_registry: true,
            url: url.to_owned(),
            version: "1.0.0".to_owned(),
            digests: digests.iter().map(|digest| (*digest).to_owned()).collect(),
        }
    }

    fn pinned(request: &ArchiveRequest) -> String {
        let intervals = Intervals::default();
        let defaults = Defaults {
            crontab: intervals.parse("@yearly").unwrap(),
            intervals,
            min_interval: Duration::ZERO,
            index_max_bytes: 0,
            proxy_namespaces: ProxyNamespaces::All,
            news_sinks: None,
        };
        let spec = RepositorySpec::one_shot(request.repository.clone(), one_shot(request), &defaults);
        pinned_url(&spec, request)
    }

    #[test]
    fn an_archive_in_a_registry_is_named_by_the_stored_digest_of_its_manifest() {
        let (url, digest) = ("oci://registry.example/charts/web:1.0.0", "AB".repeat(32));
        let named = format!("{url}@sha256:{}", "ab".repeat(32));
        assert_eq!(pinned(&request(url, &[&format!("sha256:{digest}")])), named);
        assert_eq!(pinned(&request(url, &["md5:ab"])), url);
        assert_eq!(pinned(&request(url, &[])), url);
        // In the index of a Helm repository, it is that of the archive.
        let in_index = ArchiveRequest {
            is_registry: false,
            ..request(url, &[&digest])
        };
        assert_eq!(pinned(&in_index), url);
    }
}
