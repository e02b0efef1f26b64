//! Which repositories a registry has below its URL.

use url::Url;

use super::error::OciError;
use super::manifest::Manifest;
use super::{Registry, body, decode};
use crate::http::FetchError;
use crate::text::public_url;

/// The artifact in which VMware's and Bitnami's registries keep the listing that Kubeapps reads.
const CHARTS_INDEX: (&str, &str) = ("charts-index", "latest");

/// The scope of a token for `_catalog`, in the words of Docker's token authentication.
const CATALOG_SCOPE: &str = "registry:catalog:*";

impl Registry {
    /// The repositories below the URL's path, as [`Registry::repository`] takes them: by the `charts-index` artifact, or
    /// else by Docker Hub's listing of the namespace where this is Docker Hub, or else by the registry's `_catalog`.
    ///
    /// # Errors
    /// [`OciError::NoListing`] when there is no way to know, [`OciError::Unauthorized`] when each way wants other
    /// credentials; others when the registry can't be asked.
    pub async fn list(&self) -> Result<Vec<String>, OciError> {
        let by_index = match self.list_by_index().await {
            Err(error) if is_no_listing(&error) => error,
            listed => return listed,
        };
        let (way, listed) = match &self.hub {
            Some(hub) => ("Docker Hub's listing", self.list_by_hub(hub).await),
            None => ("_catalog", self.list_by_catalog().await),
        };
        match listed {
            Err(OciError::Unauthorized { url, problem }) if matches!(by_index, OciError::Unauthorized { .. }) => {
                // Some registries answer so to everybody where there is nothing to be had.
                let problem =
                    format!("{problem}, or declare its charts in spec.ociRepositories if it does not list them");
                Err(OciError::Unauthorized { url, problem })
            }
            Err(error) if is_no_listing(&error) => {
                let tried = format!("charts-index: {}; {way}: {}", short(&by_index), short(&error));
                Err(self.no_listing(tried))
            }
            listed => listed,
        }
    }

    async fn list_by_index(&self) -> Result<Vec<String>, OciError> {
        let repository = self.repository(CHARTS_INDEX.0);
        let url = || public_url(&self.url(&format!("/v2/{repository}/manifests/{}", CHARTS_INDEX.1)));
        let layer = match self.any_manifest(&repository, CHARTS_INDEX.1).await?.1 {
            Manifest::ChartsIndex(layer) => layer,
            Manifest::Chart { .. } | Manifest::Other(_) => {
                let error = decode::DecodeError::Lacks("an index of charts");
                return Err(OciError::Invalid { url: url(), error });
            }
        };
        let limits = self.limits.document(self.limits.listing_bytes);
        let bytes = body::bytes(self.blob(&repository, &layer, &limits).await?)?;
        let names = decode::charts_index(&bytes).map_err(|error| OciError::Invalid { url: url(), error })?;
        self.bounded(&names)?;
        Ok(names)
    }

    async fn list_by_catalog(&self) -> Result<Vec<String>, OciError> {
        let below = self.repository("");
        let mut names = Vec::new();
        let take = |url: &Url, bytes: &[u8]| {
            let page = decode::catalog_page(bytes).map_err(|error| OciError::Invalid {
                url: public_url(url),
                error,
            })?;
            names.extend(
                page.iter()
                    .filter_map(|name| name.strip_prefix(&below))
                    .map(str::to_owned),
            );
            self.bounded(&names)
        };
        self.pages(CATALOG_SCOPE, "/v2/_catalog", None, take).await?;
        Ok(sorted(names))
    }

    /// Docker Hub has no `_catalog`; its own API lists a namespace, anonymously, and tells charts from images.
    async fn list_by_hub(&self, hub: &Url) -> Result<Vec<String>, OciError> {
        if self.prefix.is_empty() || self.prefix.contains('/') {
            let wanted =
                "Docker Hub lists one namespace, so the URL has to end with one: oci://registry-1.docker.io/NAMESPACE";
            return Err(self.no_listing(wanted.to_owned()));
        }
        let mut first = hub.clone();
        first.set_path(&format!("/v2/namespaces/{}/repositories/", self.prefix));
        first.set_query(Some("page_size=100&ordering=name&content_types=helm"));
        let mut names = Vec::new();
        let take = |url: &Url, bytes: &[u8]| {
            let page = decode::hub_page(bytes).map_err(|error| OciError::Invalid {
                url: public_url(url),
                error,
            })?;
            names.extend(page.names);
            self.bounded(&names)?;
            Ok(page.next)
        };
        self.pages_elsewhere(first, take).await?;
        Ok(sorted(names))
    }

    fn bounded(&self, names: &[String]) -> Result<(), OciError> {
        if names.len() <= self.limits.repositories {
            return Ok(());
        }
        Err(OciError::TooMany {
            url: self.shown(),
            limit: self.limits.repositories as u64,
            what: "repositories",
        })
    }

    fn no_listing(&self, tried: String) -> OciError {
        OciError::NoListing {
            url: self.shown(),
            tried,
        }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a registry says by this that it has no such listing, or none for us, so that the next way is worth trying.
/// What may go away by itself is no such answer: another way might then give other names.
fn is_no_listing(error: &OciError) -> bool {
    match error {
        OciError::Fetch(error @ FetchError::Status { status, .. }) => !error.is_transient() || status.as_u16() == 501,
        OciError::Unauthorized { .. } | OciError::Invalid { .. } => true,
        _ => false,
    }
}

fn short(error: &OciError) -> String {
    match error {
        OciError::Fetch(FetchError::Status { status, .. }) => status.to_string(),
        OciError::Unauthorized { problem, .. } => problem.clone(),
        OciError::Invalid { error, .. } => error.to_string(),
        error => error.to_string(),
    }
}
