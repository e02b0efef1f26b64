//! Fetches, verifies and reads one chart archive.

use std::io::Seek;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use url::Url;

use super::budget::{Budget, Panicked, Reservation};
use super::locate::{Place, place};
use crate::catalog::{ChartFiles, FetchedFiles, WantedFiles};
use crate::controllers::apprepository::spec::{Kind, RepositorySpec};
use crate::controllers::apprepository::sync::location::locate_beside;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::controllers::apprepository::sync::{SyncContext, limits};
use crate::helm::archive::{self, ArchiveError};
use crate::http::{self as fetch, Answer, Body, FetchError, Fetcher, Request};
use crate::oci::{self, ChartReference, OciError, Registry};
use crate::text::truncate;

/// Maximum length of a stored failure message, in bytes.
const MESSAGE_BYTES: usize = 512;
/// Pause after a temporary file could not be written or read.
pub(super) const NO_ROOM: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum Miss {
    /// No request was made: the host asked for a pause, or the disk is full. The version is not at fault.
    Held(Duration),
    /// The request failed. The host may have set the time of the next one.
    Failed { message: String, again: Option<Duration> },
}

impl Miss {
    pub(super) fn failed(message: impl std::fmt::Display) -> Self {
        Self::Failed {
            message: truncate(&message.to_string(), MESSAGE_BYTES),
            again: None,
        }
    }
}

impl From<SyncError> for Miss {
    fn from(failed: SyncError) -> Self {
        Self::failed(failed.message)
    }
}

impl From<FetchError> for Miss {
    fn from(error: FetchError) -> Self {
        match &error {
            FetchError::OnHold { remaining, .. } => Self::Held(*remaining),
            FetchError::Spool(_) => Self::Held(NO_ROOM),
            _ => Self::Failed {
                message: truncate(&error.to_string(), MESSAGE_BYTES),
                again: error.retry_after(),
            },
        }
    }
}

impl From<OciError> for Miss {
    fn from(error: OciError) -> Self {
        match error {
            OciError::Fetch(error) => error.into(),
            error => Self::Failed {
                again: error.retry_after(),
                message: truncate(&error.to_string(), MESSAGE_BYTES),
            },
        }
    }
}

impl From<ArchiveError> for Miss {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Read(_) => Self::Held(NO_ROOM),
            error => Self::failed(error),
        }
    }
}

pub(super) struct Archives<'a> {
    tools: &'a SyncContext,
    budget: &'a Budget,
    limits: archive::Limits,
    declaration: &'a RepositorySpec,
    session: &'a Fetcher,
    registries: Mutex<Vec<Arc<Registry>>>,
}

impl<'a> Archives<'a> {
    pub(super) fn new(
        tools: &'a SyncContext,
        budget: &'a Budget,
        limits: archive::Limits,
        declaration: &'a RepositorySpec,
        session: &'a Fetcher,
    ) -> Self {
        // The flag's limit, lowered by the annotation.
        let packed_bytes = declaration
            .archive_max_bytes
            .map_or(limits.packed_bytes, |bytes| bytes.min(limits.packed_bytes));
        Self {
            tools,
            budget,
            limits: archive::Limits { packed_bytes, ..limits },
            declaration,
            session,
            registries: Mutex::default(),
        }
    }

    /// Returns the files of one version, and the memory reserved for storing them.
    pub(super) async fn files(&self, wanted: &WantedFiles) -> Result<(FetchedFiles, Reservation), Miss> {
        let (body, manifest) = self.fetch(wanted).await?;
        check(&wanted.digest, &body.sha256, manifest.as_deref())?;
        let (limits, wanted, mut body) = (self.limits, wanted.clone(), body.into_reader());
        let reading = self.budget.run(limits.memory(), move || {
            body.rewind().map_err(ArchiveError::Read)?;
            let files = archive::read(&mut body, &limits)?;
            let files = ChartFiles {
                readme: files.readme,
                values: files.values,
                additional_values: files.additional_values,
                schema: files.schema,
            };
            FetchedFiles::new(wanted, &files).map_err(Miss::failed)
        });
        let (files, mut reservation) = reading.await.map_err(|Panicked| {
            Miss::failed("reading the archive has failed because of a defect in Portolan; please report it")
        })?;
        let files = files?;
        reservation.shrink(files.memory());
        Ok((files, reservation))
    }

    /// Fetches the archive, with the manifest digest if it comes from an OCI registry.
    async fn fetch(&self, wanted: &WantedFiles) -> Result<(Body, Option<String>), Miss> {
        let Some(url) = wanted.urls.as_ref().and_then(|urls| urls.first()) else {
            return Err(Miss::failed("the index names no archive for this version"));
        };
        match place(url, &self.declaration.url)? {
            Place::Web(url) => Ok((self.download(url).await?, None)),
            Place::Registry(reference) => self.pull(&reference, &wanted.version).await,
            Place::Beside(path) => Ok((self.read(&path).await?, None)),
        }
    }

    async fn download(&self, url: Url) -> Result<Body, Miss> {
        let request = Request {
            // The digest covers the bytes as stored on the server.
            verbatim: true,
            ..Request::new(url)
        };
        let Answer { body, .. } = self.session.send(&request, &self.bounds()).await?;
        Ok(body)
    }

    async fn pull(&self, reference: &str, version: &str) -> Result<(Body, Option<String>), Miss> {
        let reference = ChartReference::parse(reference, Some(version))?;
        let registry = self.registry(&reference)?;
        let manifest = (registry.manifest(&reference.repository, &reference.reference).await)?;
        let body = (registry.layer(&reference.repository, &manifest, &self.bounds()).await)?;
        Ok((body, Some(manifest.digest)))
    }

    /// Returns the registry of a reference. The declared registry is preferred, since only its URL tells whether to use
    /// plain HTTP. All archives of a batch share it and its token.
    fn registry(&self, reference: &ChartReference) -> Result<Arc<Registry>, Miss> {
        let mut registries = self.registries.lock();
        if let Some(registry) = registries.iter().find(|registry| registry.holds(reference)) {
            return Ok(Arc::clone(registry));
        }
        let limits = oci::Limits {
            fetch: limits(self.declaration, &self.tools.fetch_limits),
            ..oci::Limits::default()
        };
        let at = |url: &Url| Registry::new(self.session.clone(), url, limits);
        let declared = Url::parse(&self.declaration.url).ok().and_then(|url| at(&url).ok());
        let registry = match declared.filter(|registry| self.declaration.kind == Kind::Oci && registry.holds(reference))
        {
            Some(registry) => registry,
            None => at(&reference.registry)?,
        };
        let registry = Arc::new(registry);
        registries.push(Arc::clone(&registry));
        Ok(registry)
    }

    async fn read(&self, path: &str) -> Result<Body, Miss> {
        let manifest = self.declaration.manifest.as_deref();
        let path = locate_beside(&self.declaration.url, path, manifest, &self.tools.files)?;
        let body = fetch::read_file(&path, self.tools.spool_dir.as_deref(), &self.bounds()).await;
        Ok(body?)
    }

    fn bounds(&self) -> fetch::Limits {
        fetch::Limits {
            max_bytes: self.limits.packed_bytes,
            ..limits(self.declaration, &self.tools.fetch_limits)
        }
    }
}

/// Compares the digest with the index. In an OCI registry, an index may contain the digest of the archive or of its
/// manifest. Other digests than SHA-256 are not compared.
fn check(named: &str, archive: &str, manifest: Option<&str>) -> Result<(), Miss> {
    let hex = |text: &str| text.trim().trim_start_matches("sha256:").to_ascii_lowercase();
    let wanted = hex(named);
    let is_comparable = wanted.len() == 64 && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_comparable || wanted == archive || manifest.is_some_and(|manifest| hex(manifest) == wanted) {
        return Ok(());
    }
    Err(Miss::failed(format!(
        "the archive is not the one that the index names: its SHA-256 is {archive} and not {wanted}; its publisher has to \
         put that right"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_compared_with_the_digest_of_the_index() {
        let (one, other) = ("ab".repeat(32), "cd".repeat(32));
        for same in [one.clone(), one.to_uppercase(), format!("sha256:{one}")] {
            assert!(check(&same, &one, None).is_ok());
        }
        assert!(check("", &one, None).is_ok());
        assert!(check("md5:abc", &one, None).is_ok());
        assert!(check(&format!("sha256:{other}"), &one, Some(&format!("sha256:{other}"))).is_ok());
        let Err(Miss::Failed { message, .. }) = check(&other, &one, None) else {
            panic!("it was taken")
        };
        assert!(message.contains(&one) && message.contains(&other), "{message}");
    }
}
