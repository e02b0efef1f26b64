//! Builds charts from the stored metadata of an OCI registry, one repository at a time to bound memory.

use tokio::sync::mpsc;

use super::Repository;
use super::listing::Listing;
use crate::budget::WorkError;
use crate::catalog::{self, OciMetadata, OciRemovals};
use crate::controllers::apprepository::sync::chart_rows::{BuiltRows, RowBuilder, RowError};
use crate::controllers::apprepository::sync::helm_index::resource_exhausted;
use crate::controllers::apprepository::sync::request::SyncAborted;
use crate::controllers::apprepository::sync::{Decoded, Prepared, Retain, Run};
use crate::helm::index::{self, DecodeLimits, Summary, Versions};
use crate::http::Validators;
use crate::oci;

/// Versions read at a time.
const PAGE_SIZE: u32 = 100;

const NOT_YET: &str = "not pulled yet, retrying";

const OUTDATED: &str = "retagged version not pulled yet, retrying; keeping the previous one";

enum BuilderInput {
    /// Versions of the repository that ends next, and the URL of its charts.
    Versions(String, Vec<OciMetadata>),
    End(Box<Repository>),
}

impl Run<'_> {
    pub(super) async fn charts(&self, listing: Listing, digest: String) -> Result<Prepared, SyncAborted> {
        let (parts, received) = mpsc::channel(1);
        let chart_builder = ChartBuilder {
            builder: self.builder(),
            limits: self.syncer.context.decode_limits,
            summary: Summary::default(),
            versions: Versions::default(),
            unusable: Vec::new(),
        };
        let task = self.work(self.decode_memory(), move || chart_builder.charts(received));
        let (remaining, retain) = (listing.remaining(), listing.retain(&self.request.spec));
        let gone = match retain {
            Retain::All => OciRemovals::default(),
            Retain::Charts(_) => listing.gone(self.request.spec.change_key.source()),
        };
        let tags_digest = listing.tags_digest();
        let (read, built) = tokio::join!(self.read(listing, parts), task);
        if let Err(WorkError::Exhausted(error)) = &built {
            return Ok(Prepared::Failed(resource_exhausted(error)));
        }
        read?;
        let Ok((rows, mut memory)) = built else {
            tracing::error!("chart builder panicked");
            let message = "chart builder panicked; please report this bug";
            let refused = self.refuse(Validators::default(), digest, "InternalError", message.to_owned());
            return Ok(Prepared::Refused(refused));
        };
        match rows {
            Ok((rows, summary)) => Ok(self.check_shrink(Decoded {
                memory: {
                    memory.shrink(rows.spool.commit_memory());
                    memory
                },
                spool: rows.spool,
                filtered_out: rows.filtered_out,
                summary: Summary {
                    digest: tags_digest,
                    ..summary
                },
                sha256: digest,
                validators: Validators::default(),
                remaining,
                retain,
                gone,
                digests: None,
            })),
            Err(error) => self.row_failed(error, Validators::default(), digest),
        }
    }

    /// Sends the stored metadata to the builder thread until it stops.
    async fn read(&self, listing: Listing, parts: mpsc::Sender<BuilderInput>) -> Result<(), catalog::Error> {
        let (catalog, name) = (self.catalog(), &self.request.spec.name);
        for repository in listing.repositories {
            let mut after = String::new();
            loop {
                let path = &repository.stored.repository;
                let mut versions = catalog.oci_metadata(name, path, &after, PAGE_SIZE).await?;
                let Some(last) = versions.last() else { break };
                after.clone_from(&last.tag);
                // Removed tags stay stored until their charts are removed.
                versions.retain(|version| repository.stored.tags.contains_key(&version.tag));
                let versions = BuilderInput::Versions(repository.url.clone(), versions);
                if parts.send(versions).await.is_err() {
                    return Ok(());
                }
            }
            if parts.send(BuilderInput::End(Box::new(repository))).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Builds one chart per repository from the metadata of its versions.
struct ChartBuilder {
    builder: RowBuilder,
    limits: DecodeLimits,
    summary: Summary,
    versions: Versions,
    unusable: Vec<(String, String)>,
}

impl ChartBuilder {
    fn charts(mut self, mut parts: mpsc::Receiver<BuilderInput>) -> Result<(BuiltRows, Summary), RowError> {
        while let Some(part) = parts.blocking_recv() {
            match part {
                BuilderInput::Versions(url, versions) => {
                    for version in versions {
                        self.version(&url, version);
                    }
                }
                BuilderInput::End(repository) => self.chart(*repository)?,
            }
        }
        self.builder.flush()?;
        Ok((self.builder.finish(), self.summary))
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

    fn chart(&mut self, repository: Repository) -> Result<(), RowError> {
        let path = repository.stored.repository.clone();
        let is_too_large = self.is_too_large();
        let versions = std::mem::take(&mut self.versions);
        self.count(repository);
        if is_too_large {
            let problem = format!("versions exceed {} bytes", self.limits.chart_bytes);
            self.summary.skipped.add(&path, None, &problem);
            return Ok(());
        }
        if versions.is_empty() {
            return Ok(());
        }
        match versions.chart() {
            Some(chart) => self.builder.take(chart, Some(&path))?,
            None => self.summary.deprecated += 1,
        }
        Ok(())
    }

    fn count(&mut self, repository: Repository) {
        let Repository {
            stored,
            versions,
            failed,
            delayed,
            ..
        } = repository;
        let (summary, path) = (&mut self.summary, &stored.repository);
        if let Some(error) = failed {
            summary.skipped.add(path, None, &error.to_string());
        }
        summary.names += u64::from(!versions.is_empty());
        summary.versions += versions.len() as u64;
        for (tag, known) in &stored.tags {
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
