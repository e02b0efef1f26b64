//! Builds charts from the stored metadata of an OCI registry, one repository at a time to bound memory.

use tokio::sync::mpsc;

use super::Repository;
use super::listing::Listing;
use crate::catalog::{self, OciGone, OciMetadata};
use crate::controllers::apprepository::sync::chart_rows::{Selected, Selection, SelectionError};
use crate::controllers::apprepository::sync::helm_index::no_thread;
use crate::controllers::apprepository::sync::request::SyncAborted;
use crate::controllers::apprepository::sync::{Decoded, Found, Run, Stays};
use crate::helm::index::{self, DecodeLimits, Summary, Versions};
use crate::http::Validators;
use crate::jq::{self as filter, Filter};
use crate::oci;

const AT_ONCE: u32 = 100;

/// Problem of a tag that was never pulled and is not due yet.
const NOT_YET: &str = "it could not be pulled so far, and is tried again";

/// Problem of a retagged version that could not be pulled again.
const OUTDATED: &str = "what it stands for now could not be pulled so far, and is tried again; it stays what it was";

enum Part {
    /// Versions of the repository that ends next, and the URL of its charts.
    Versions(String, Vec<OciMetadata>),
    End(Box<Repository>),
}

impl Run<'_> {
    /// Builds the charts of the registry.
    pub(super) async fn charts(
        &self,
        listing: Listing,
        digest: String,
        filter: Option<Filter>,
    ) -> Result<Found, SyncAborted> {
        let (parts, given) = mpsc::channel(1);
        let making = Making {
            selection: self.selection(filter),
            limits: self.syncer.context.decode_limits,
            summary: Summary::default(),
            versions: Versions::default(),
            unusable: Vec::new(),
        };
        let task = filter::on_large_stack(move || making.charts(given));
        let (rest, stays) = (listing.rest(), listing.stays(&self.request.declaration));
        let gone = match stays {
            Stays::All => OciGone::default(),
            Stays::Held(_) => listing.gone(self.request.declaration.change_key.source()),
        };
        let offer = listing.offer();
        let (read, made) = tokio::join!(self.read(listing, parts), task);
        if let Err(error) = &made
            && error.is_transient()
        {
            return Ok(Found::Failed(no_thread(error)));
        }
        read?;
        let Ok(selected) = made else {
            tracing::error!(repository = %self.request.declaration.name, "making charts of a registry has panicked");
            let message = "the charts of the registry can't be read because of a defect in Portolan; please report it";
            let refused = self.refuse(Validators::default(), digest, "DecoderFailed", message.to_owned());
            return Ok(Found::Refused(refused));
        };
        match selected {
            Ok((selected, summary)) => Ok(self.judge(Decoded {
                spool: selected.spool,
                filtered_out: selected.filtered_out,
                summary: Summary {
                    digest: offer,
                    ..summary
                },
                sha256: digest,
                validators: Validators::default(),
                rest,
                stays,
                gone,
                cuts: None,
            })),
            Err(error) => self.unselected(error, Validators::default(), digest),
        }
    }

    /// Sends the stored metadata to the builder thread until it stops.
    async fn read(&self, listing: Listing, parts: mpsc::Sender<Part>) -> Result<(), catalog::Error> {
        let (catalog, name) = (self.catalog(), &self.request.declaration.name);
        for repository in listing.repositories {
            let mut after = String::new();
            loop {
                let path = &repository.memory.repository;
                let mut versions = catalog.oci_metadata(name, path, &after, AT_ONCE).await?;
                let Some(last) = versions.last() else { break };
                after.clone_from(&last.tag);
                // Removed tags stay stored until their charts are removed.
                versions.retain(|version| repository.memory.tags.contains_key(&version.tag));
                if parts
                    .send(Part::Versions(repository.url.clone(), versions))
                    .await
                    .is_err()
                {
                    return Ok(());
                }
            }
            if parts.send(Part::End(Box::new(repository))).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Builds one chart per repository from the metadata of its versions.
struct Making {
    selection: Selection,
    limits: DecodeLimits,
    summary: Summary,
    versions: Versions,
    unusable: Vec<(String, String)>,
}

impl Making {
    fn charts(mut self, mut parts: mpsc::Receiver<Part>) -> Result<(Selected, Summary), SelectionError> {
        while let Some(part) = parts.blocking_recv() {
            match part {
                Part::Versions(url, versions) => {
                    for version in versions {
                        self.version(&url, version);
                    }
                }
                Part::End(repository) => self.chart(*repository)?,
            }
        }
        Ok((self.selection.finish(), self.summary))
    }

    fn version(&mut self, url: &str, OciMetadata { tag, digest, metadata }: OciMetadata) {
        // Versions over the limit are dropped, and so is the chart.
        if self.is_too_large() {
            return;
        }
        let metadata = index::metadata(metadata.as_bytes(), &self.limits)
            .and_then(|metadata| metadata.with_version(&oci::version_of(&tag)));
        match metadata {
            Ok(metadata) => {
                let url = format!("{url}{tag}");
                self.versions.push(metadata.with_digest(digest).with_urls(vec![url]));
            }
            Err(problem) => self.unusable.push((tag, problem)),
        }
    }

    fn is_too_large(&self) -> bool {
        self.versions.bytes() > self.limits.chart_bytes
    }

    /// Builds the chart of the collected versions.
    fn chart(&mut self, repository: Repository) -> Result<(), SelectionError> {
        let path = repository.memory.repository.clone();
        let is_too_large = self.is_too_large();
        let versions = std::mem::take(&mut self.versions);
        self.account(repository);
        if is_too_large {
            let problem = format!("its versions have more than {} bytes", self.limits.chart_bytes);
            self.summary.skipped.add(&path, None, &problem);
            return Ok(());
        }
        if versions.is_empty() {
            return Ok(());
        }
        match versions.chart() {
            Ok(Some(chart)) => self.selection.take(chart, Some(&path))?,
            Ok(None) => self.summary.deprecated += 1,
            Err(problem) => self.summary.skipped.add(&path, None, &problem),
        }
        Ok(())
    }

    /// Counts the versions and problems of a repository.
    fn account(&mut self, repository: Repository) {
        let Repository {
            memory,
            versions,
            failed,
            delayed,
            ..
        } = repository;
        let (summary, path) = (&mut self.summary, &memory.repository);
        if let Some(error) = failed {
            summary.skipped.add(path, None, &error.to_string());
        }
        summary.names += u64::from(!versions.is_empty());
        summary.versions += versions.len() as u64;
        for (tag, known) in &memory.tags {
            let earlier = match known {
                known if known.is_pending() => Some(NOT_YET),
                known if known.is_outdated() => Some(OUTDATED),
                _ => None,
            };
            let problem = known.problem.as_deref().or(delayed.get(tag).map(String::as_str));
            if let Some(problem) = problem.or(earlier) {
                summary.skipped.add(path, Some(tag), problem);
            }
        }
        for (tag, problem) in self.unusable.drain(..) {
            summary.skipped.add(path, Some(&tag), &problem);
        }
    }
}
