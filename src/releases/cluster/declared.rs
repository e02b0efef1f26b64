//! The releases of Flux and Argo CD for a process that watches with rights of its own, and shows them to many callers.

use kube::Client;
use tokio::time::Instant;

use super::flux::FluxObjects;
use super::reader::Reader;
use super::{Limits, Scope, argo};
use crate::releases::Release;
use crate::runtime::kube_client::ApiError;

#[derive(Default)]
pub struct Declared {
    flux: FluxObjects,
    applications: Vec<Release>,
    /// Kinds that can't be read, with the reason.
    pub unreadable: Vec<String>,
}

impl Declared {
    /// Kinds that are not installed have none. Fails if no kind can be read.
    pub async fn list(client: &Client, scope: &Scope, limits: Limits) -> Result<Self, ApiError> {
        let reader = Reader::new(client, scope, Instant::now() + limits.time);
        let (flux, applications) = tokio::join!(FluxObjects::list(&reader), argo::list(&reader));
        Ok(Self {
            flux,
            applications: argo::releases(applications).collect(),
            unreadable: reader.into_unreadable()?,
        })
    }

    /// Joins the releases of Helm in their own namespace, and adds others.
    pub fn add_to(&self, releases: &mut Vec<Release>) {
        self.flux.add_within_namespaces(releases);
        releases.extend(self.applications.iter().cloned());
    }
}
