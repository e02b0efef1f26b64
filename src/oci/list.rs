use url::Url;

use super::decode::{self, OciDecodeError};
use super::error::OciError;
use super::manifest::Manifest;
use super::{Registry, body};
use crate::http::FetchError;
use crate::text::public_url;

/// Artifact with the list of charts in VMware's and Bitnami's registries.
const CHARTS_INDEX: (&str, &str) = ("charts-index", "latest");

const CATALOG_SCOPE: &str = "registry:catalog:*";

impl Registry {
    /// Lists the repositories below the path prefix: by the `charts-index` artifact, or else by Docker Hub's API or `_catalog`.
    pub async fn list(&self) -> Result<Vec<String>, OciError> {
        let by_index = match self.list_by_index().await {
            Err(error) if is_no_listing(&error) => error,
            listed => return listed,
        };
        let (source, listed) = match &self.hub {
            Some(hub) => ("Docker Hub", self.list_by_hub(hub).await),
            None => ("_catalog", self.list_by_catalog().await),
        };
        match listed {
            Err(OciError::Unauthorized { url, problem }) if matches!(by_index, OciError::Unauthorized { .. }) => {
                // Some registries return 401 to everyone instead of a listing.
                let problem = format!("{problem}; if the registry has no listing, set spec.ociRepositories");
                Err(OciError::Unauthorized { url, problem })
            }
            Err(error) if is_no_listing(&error) => {
                let tried = format!("charts-index: {}; {source}: {}", summary(&by_index), summary(&error));
                Err(self.no_listing(tried))
            }
            listed => listed,
        }
    }

    async fn list_by_index(&self) -> Result<Vec<String>, OciError> {
        let repository = self.repository(CHARTS_INDEX.0);
        let url = self.url(&format!("/v2/{repository}/manifests/{}", CHARTS_INDEX.1));
        let layer = match self.any_manifest(&repository, CHARTS_INDEX.1).await?.1 {
            Manifest::ChartsIndex(layer) => layer,
            Manifest::Chart { .. } | Manifest::Other(_) => {
                return Err(OciError::invalid(&url)(OciDecodeError::Missing("a charts index")));
            }
        };
        let limits = self.limits.with_max_bytes(self.limits.listing_bytes);
        let bytes = body::bytes(self.blob(&repository, &layer, &limits).await?)?;
        let names = decode::charts_index(&bytes).map_err(OciError::invalid(&url))?;
        self.check_count(&names)?;
        Ok(names)
    }

    async fn list_by_catalog(&self) -> Result<Vec<String>, OciError> {
        let below = self.repository("");
        let mut names = Vec::new();
        let take = |url: &Url, bytes: &[u8]| {
            let page = decode::catalog_page(bytes).map_err(OciError::invalid(url))?;
            let page = page.iter().filter_map(|name| name.strip_prefix(&below));
            names.extend(page.map(str::to_owned));
            self.check_count(&names)
        };
        self.pages(CATALOG_SCOPE, "/v2/_catalog", None, take).await?;
        Ok(sorted(names))
    }

    /// Lists a namespace by Docker Hub's API, because Docker Hub has no `_catalog`.
    async fn list_by_hub(&self, hub: &Url) -> Result<Vec<String>, OciError> {
        if self.prefix.is_empty() || self.prefix.contains('/') {
            let problem = "the path of a Docker Hub URL must be one namespace: oci://registry-1.docker.io/NAMESPACE";
            return Err(self.no_listing(problem.to_owned()));
        }
        let mut first = hub.clone();
        first.set_path(&format!("/v2/namespaces/{}/repositories/", self.prefix));
        first.set_query(Some("page_size=100&ordering=name&content_types=helm"));
        let mut names = Vec::new();
        let take = |url: &Url, bytes: &[u8]| {
            let page = decode::hub_page(bytes).map_err(OciError::invalid(url))?;
            names.extend(page.names);
            self.check_count(&names)?;
            Ok(page.next)
        };
        self.pages_of_hub(first, take).await?;
        Ok(sorted(names))
    }

    fn check_count(&self, names: &[String]) -> Result<(), OciError> {
        let limit = self.limits.repositories;
        if names.len() > limit {
            return Err(OciError::too_many(&self.declared, limit as u64, "repositories"));
        }
        Ok(())
    }

    fn no_listing(&self, tried: String) -> OciError {
        let url = public_url(&self.declared);
        OciError::NoListing { url, tried }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// A transient error must not switch to another listing, which may contain other names.
fn is_no_listing(error: &OciError) -> bool {
    match error {
        OciError::Fetch(error @ FetchError::Status { status, .. }) => !error.is_transient() || status.as_u16() == 501,
        OciError::Unauthorized { .. } | OciError::Invalid { .. } => true,
        _ => false,
    }
}

fn summary(error: &OciError) -> String {
    match error {
        OciError::Fetch(FetchError::Status { status, .. }) => status.to_string(),
        OciError::Unauthorized { problem, .. } => problem.clone(),
        OciError::Invalid { error, .. } => error.to_string(),
        error => error.to_string(),
    }
}
