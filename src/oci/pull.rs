//! Manifests and blobs, each checked against its digest.

use reqwest::header::HeaderMap;
use sha2::{Digest as _, Sha256};

use super::error::OciError;
use super::manifest::{self, Descriptor, Manifest};
use super::{Registry, body, name};
use crate::http::{Answer, Body, Limits, Request};
use crate::text::hex;
use crate::text::public_url;

/// The manifest of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartManifest {
    /// `sha256:` and 64 hexadecimal digits, over the bytes of the manifest.
    pub digest: String,
    /// Chart.yaml as JSON.
    pub config: Descriptor,
    /// The archive.
    pub layer: Descriptor,
}

impl Registry {
    /// The digest of the manifest that a tag stands for, without the manifest where the registry tells it so.
    ///
    /// # Errors
    /// [`OciError`]: there is no such tag, or it can't be had.
    pub async fn digest(&self, repository: &str, reference: &str) -> Result<String, OciError> {
        let request = Request {
            head: true,
            ..self.manifest_request(repository, reference)?
        };
        let limits = self.limits.document(self.limits.manifest_bytes);
        let answer = self.send(&Self::scope(repository)?, request, &limits).await?;
        match stated_digest(&answer.headers) {
            Some(digest) => Ok(digest.to_owned()),
            // Registries need not say it (OCI distribution specification, section "Legacy Docker support HTTP headers").
            None => Ok(self.any_manifest(repository, reference).await?.0),
        }
    }

    /// The manifest of a chart, by tag or digest.
    ///
    /// # Errors
    /// [`OciError::NotAChart`] for images, signatures, indexes and other artifacts; [`OciError::Mismatch`] when the bytes
    /// are not those of the digest; any other when it can't be had.
    pub async fn manifest(&self, repository: &str, reference: &str) -> Result<ChartManifest, OciError> {
        let (digest, found) = self.any_manifest(repository, reference).await?;
        let what = match found {
            Manifest::Chart { config, layer } => return Ok(ChartManifest { digest, config, layer }),
            Manifest::ChartsIndex(_) => "an index of charts".to_owned(),
            Manifest::Other(what) => what,
        };
        let url = public_url(&self.url(&format!("/v2/{repository}/manifests/{reference}")));
        Err(OciError::NotAChart { url, what, digest })
    }

    /// The Chart.yaml of a chart, as the JSON that Helm pushes.
    ///
    /// # Errors
    /// [`OciError::Mismatch`] when the bytes are not those of the digest; any other when they can't be had.
    pub async fn config(&self, repository: &str, chart: &ChartManifest) -> Result<Vec<u8>, OciError> {
        let limits = self.limits.document(self.limits.config_bytes);
        let body = self.blob(repository, &chart.config, &limits).await?;
        Ok(body::bytes(body)?)
    }

    /// The archive of a chart, as it was pushed.
    ///
    /// # Errors
    /// [`OciError::Mismatch`] when the bytes are not those of the digest; any other when they can't be had.
    pub async fn layer(&self, repository: &str, chart: &ChartManifest, limits: &Limits) -> Result<Body, OciError> {
        self.blob(repository, &chart.layer, limits).await
    }

    fn manifest_request(&self, repository: &str, reference: &str) -> Result<Request, OciError> {
        Self::scope(repository)?;
        if !name::is_tag(reference) && !name::is_digest(reference) {
            return Err(OciError::InvalidTag(super::shown(reference)));
        }
        Ok(Request {
            accept: Some(manifest::ACCEPTED.to_owned()),
            // A digest is over the bytes as they are served.
            verbatim: true,
            ..Request::new(self.url(&format!("/v2/{repository}/manifests/{reference}")))
        })
    }

    /// A manifest of whatever kind, with its digest.
    pub(super) async fn any_manifest(&self, repository: &str, reference: &str) -> Result<(String, Manifest), OciError> {
        let request = self.manifest_request(repository, reference)?;
        let limits = self.limits.document(self.limits.manifest_bytes);
        let Answer { url, headers, body, .. } = self.send(&Self::scope(repository)?, request, &limits).await?;
        let url = public_url(&url);
        let bytes = body::bytes(body)?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
        // The digest that was asked for counts more than what the registry says, which is looked at all the same.
        let wanted = name::is_digest(reference).then_some(reference);
        for expected in [wanted, stated_digest(&headers)].into_iter().flatten() {
            check(&url, expected, &digest)?;
        }
        match manifest::manifest(&bytes) {
            Ok(manifest) => Ok((digest, manifest)),
            Err(error) => Err(OciError::Invalid { url, error }),
        }
    }

    /// A blob, whose size and digest its descriptor tells.
    pub(super) async fn blob(
        &self,
        repository: &str,
        descriptor: &Descriptor,
        limits: &Limits,
    ) -> Result<Body, OciError> {
        let scope = Self::scope(repository)?;
        let url = self.url(&format!("/v2/{repository}/blobs/{}", descriptor.digest));
        let shown = public_url(&url);
        if !name::is_digest(&descriptor.digest) {
            return Err(OciError::InvalidTag(super::shown(&descriptor.digest)));
        }
        if descriptor.size > limits.max_bytes {
            return Err(OciError::TooLarge {
                url: shown,
                limit: limits.max_bytes,
                size: descriptor.size,
            });
        }
        let request = Request {
            verbatim: true,
            ..Request::new(url)
        };
        let body = self.send(&scope, request, limits).await?.body;
        let bytes = |count: u64| format!("{count} bytes");
        check(&shown, &bytes(descriptor.size), &bytes(body.bytes))?;
        check(&shown, &descriptor.digest, &format!("sha256:{}", body.sha256))?;
        Ok(body)
    }
}

fn check(url: &str, expected: &str, found: &str) -> Result<(), OciError> {
    if expected == found {
        return Ok(());
    }
    Err(OciError::Mismatch {
        url: url.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    })
}

/// The digest that a registry states, where it is of the kind that we check.
fn stated_digest(headers: &HeaderMap) -> Option<&str> {
    let stated = headers.get("docker-content-digest")?.to_str().ok()?.trim();
    name::is_digest(stated).then_some(stated)
}
