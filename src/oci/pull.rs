use reqwest::header::HeaderMap;
use sha2::{Digest as _, Sha256};

use super::error::OciError;
use super::manifest::{self, ContentDescriptor, Manifest};
use super::{Registry, body, name};
use crate::http::{Body, FetchLimits, Request, Response};
use crate::text::{hex, public_url};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartManifest {
    /// Digest of the manifest, with `sha256:` prefix.
    pub digest: String,
    /// Chart.yaml as JSON.
    pub config: ContentDescriptor,
    pub layer: ContentDescriptor,
}

impl Registry {
    /// Returns the digest of a manifest by HEAD, or by GET if the registry sends no digest header.
    pub async fn digest(&self, repository: &str, reference: &str) -> Result<String, OciError> {
        let request = Request {
            head: true,
            ..self.manifest_request(repository, reference)?
        };
        let limits = self.limits.with_max_bytes(self.limits.manifest_bytes);
        let response = self.send(&Self::scope(repository)?, request, &limits).await?;
        match digest_header(&response.headers) {
            Some(digest) => Ok(digest.to_owned()),
            // The header is optional (OCI distribution specification, section "Legacy Docker support HTTP headers").
            None => Ok(self.any_manifest(repository, reference).await?.0),
        }
    }

    pub async fn manifest(&self, repository: &str, reference: &str) -> Result<ChartManifest, OciError> {
        let (digest, manifest) = self.any_manifest(repository, reference).await?;
        let what = match manifest {
            Manifest::Chart { config, layer } => return Ok(ChartManifest { digest, config, layer }),
            Manifest::ChartsIndex(_) => "a charts index".to_owned(),
            Manifest::Other(what) => what,
        };
        let url = public_url(&self.url(&format!("/v2/{repository}/manifests/{reference}")));
        Err(OciError::NotAChart { url, what, digest })
    }

    pub async fn config(&self, repository: &str, chart: &ChartManifest) -> Result<Vec<u8>, OciError> {
        let limits = self.limits.with_max_bytes(self.limits.config_bytes);
        let body = self.blob(repository, &chart.config, &limits).await?;
        Ok(body::bytes(body)?)
    }

    pub async fn layer(&self, repository: &str, chart: &ChartManifest, limits: &FetchLimits) -> Result<Body, OciError> {
        self.blob(repository, &chart.layer, limits).await
    }

    fn manifest_request(&self, repository: &str, reference: &str) -> Result<Request, OciError> {
        Self::scope(repository)?;
        if !name::is_tag(reference) && !name::is_digest(reference) {
            return Err(OciError::InvalidTag(super::sanitized(reference)));
        }
        Ok(Request {
            accept: Some(manifest::ACCEPTED.to_owned()),
            // The digest covers the bytes as stored.
            verbatim: true,
            ..Request::new(self.url(&format!("/v2/{repository}/manifests/{reference}")))
        })
    }

    /// Pulls a manifest of any kind and returns it with its digest.
    pub(super) async fn any_manifest(&self, repository: &str, reference: &str) -> Result<(String, Manifest), OciError> {
        let request = self.manifest_request(repository, reference)?;
        let limits = self.limits.with_max_bytes(self.limits.manifest_bytes);
        let Response { url, headers, body, .. } = self.send(&Self::scope(repository)?, request, &limits).await?;
        let url = public_url(&url);
        let bytes = body::bytes(body)?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
        let requested = name::is_digest(reference).then_some(reference);
        for expected in [requested, digest_header(&headers)].into_iter().flatten() {
            verify(&url, expected, &digest)?;
        }
        let manifest = manifest::manifest(&bytes).map_err(|error| OciError::Invalid { url, error })?;
        Ok((digest, manifest))
    }

    /// Pulls a blob and verifies its size and digest.
    pub(super) async fn blob(
        &self,
        repository: &str,
        descriptor: &ContentDescriptor,
        limits: &FetchLimits,
    ) -> Result<Body, OciError> {
        let scope = Self::scope(repository)?;
        let url = self.url(&format!("/v2/{repository}/blobs/{}", descriptor.digest));
        let url_text = public_url(&url);
        if !name::is_digest(&descriptor.digest) {
            return Err(OciError::InvalidTag(super::sanitized(&descriptor.digest)));
        }
        if descriptor.size > limits.max_bytes {
            return Err(OciError::TooLarge {
                url: url_text,
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
        verify(&url_text, &bytes(descriptor.size), &bytes(body.bytes))?;
        verify(&url_text, &descriptor.digest, &format!("sha256:{}", body.sha256))?;
        Ok(body)
    }
}

fn verify(url: &str, expected: &str, found: &str) -> Result<(), OciError> {
    if expected == found {
        return Ok(());
    }
    Err(OciError::Mismatch {
        url: url.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    })
}

/// Returns the digest header if it is a SHA-256 digest.
fn digest_header(headers: &HeaderMap) -> Option<&str> {
    let digest = headers.get("docker-content-digest")?.to_str().ok()?.trim();
    name::is_digest(digest).then_some(digest)
}
