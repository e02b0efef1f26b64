//! Builds charts from the stored metadata of an OCI registry, one repository at a time to bound memory.

use super::Repository;
use super::listing::Listing;
use crate::budget::{Reservation, WorkError};
use crate::catalog::{self, OciMetadata, OciRemovals};
use crate::controllers::apprepository::sync::chart_rows::{BuiltRows, RowBuilder, RowError};
use crate::controllers::apprepository::sync::helm_index::row_failed;
use crate::controllers::apprepository::sync::request::SyncAborted;
use crate::controllers::apprepository::sync::shrink_guard as guard;
use crate::controllers::apprepository::sync::{
    DecodedRows, Prepared, Retain, SyncerRun, WorkPermits, refuse, resource_exhausted,
};
use crate::helm::index::{self, DecodeLimits, Summary, Versions};
use crate::http::Validators;
use crate::oci;

/// Versions read at a time.
const PAGE_SIZE: u32 = 100;

const NOT_YET: &str = "not pulled yet, retrying";

const OUTDATED: &str = "retagged version not pulled yet, retrying; keeping the previous one";

enum BuildError {
    Catalog(catalog::Error),
    Work(WorkError),
    Row(RowError),
}

pub(super) async fn build_charts(
    run: &SyncerRun<'_>,
    listing: Listing,
    digest: String,
) -> Result<Prepared, SyncAborted> {
    let spec = &run.request.spec;
    let (remaining, retain) = (listing.remaining(), listing.retain(spec));
    let gone = match retain {
        Retain::All => OciRemovals::default(),
        Retain::Charts(_) => listing.gone(spec.change_key.source()),
    };
    let tags_digest = listing.tags_digest();
    let (rows, summary, mut memory) = match build(run, listing).await {
        Ok(built) => built,
        Err(BuildError::Catalog(error)) => return Err(error.into()),
        Err(BuildError::Work(WorkError::Exhausted(error))) => {
            return Ok(Prepared::Failed(resource_exhausted(&error)));
        }
        Err(BuildError::Work(WorkError::Panicked)) => {
            tracing::error!("chart builder panicked");
            let message = "chart builder panicked; please report this bug";
            let refused = refuse(spec, Validators::default(), digest, "InternalError", message);
            return Ok(Prepared::Refused(refused));
        }
        Err(BuildError::Row(error)) => return row_failed(&run.request, error, Validators::default(), digest),
    };
    memory.shrink(rows.commit_memory());
    Ok(Prepared::Index(Box::new(DecodedRows {
        memory,
        spool: rows.spool,
        filtered_out: rows.filtered_out,
        deprecated: rows.deprecated,
        baseline: guard::baseline(&summary),
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
    })))
}

/// Builds charts from the stored metadata. Holds a CPU permit only while it computes, not while it reads.
async fn build(run: &SyncerRun<'_>, listing: Listing) -> Result<(BuiltRows, Summary, Reservation), BuildError> {
    let permits = run
        .reserve(run.syncer.context.index_memory)
        .await
        .map_err(|error| BuildError::Work(error.into()))?;
    let mut building = (
        OciChartBuilder {
            builder: run.builder(),
            limits: run.syncer.context.decode_limits,
            summary: Summary::default(),
            versions: Versions::default(),
            unusable: Vec::new(),
        },
        permits,
    );
    for repository in listing.repositories {
        building = build_chart(run, building, repository).await?;
    }
    let finish = move || {
        let (mut charts, WorkPermits { memory, .. }) = building;
        charts.builder.flush()?;
        Ok((charts.builder.finish(), charts.summary, memory))
    };
    run.compute(finish)
        .await
        .map_err(BuildError::Work)?
        .map_err(BuildError::Row)
}

async fn build_chart(
    run: &SyncerRun<'_>,
    mut building: Building,
    repository: Repository,
) -> Result<Building, BuildError> {
    let (catalog, name) = (run.catalog(), &run.request.spec.name);
    let mut after = String::new();
    loop {
        let path = &repository.stored.repository;
        let mut versions = catalog
            .oci_metadata(name, path, &after, PAGE_SIZE)
            .await
            .map_err(BuildError::Catalog)?;
        let is_last = versions.len() < PAGE_SIZE as usize;
        if let Some(last) = versions.last() {
            after.clone_from(&last.tag);
        }
        // Removed tags stay stored until their charts are removed.
        versions.retain(|version| repository.stored.tags.contains_key(&version.tag));
        let url = repository.url.clone();
        if is_last {
            let end = move || {
                building.0.versions(&url, versions);
                building.0.chart(repository)?;
                Ok(building)
            };
            let built = run.compute(end).await.map_err(BuildError::Work)?;
            return built.map_err(BuildError::Row);
        }
        let more = move || {
            building.0.versions(&url, versions);
            building
        };
        building = run.compute(more).await.map_err(BuildError::Work)?;
    }
}

/// The state between two pages, owned by the thread that computes.
type Building = (OciChartBuilder, WorkPermits);

struct OciChartBuilder {
    builder: RowBuilder,
    limits: DecodeLimits,
    summary: Summary,
    versions: Versions,
    unusable: Vec<(String, String)>,
}

impl OciChartBuilder {
    fn versions(&mut self, url: &str, versions: Vec<OciMetadata>) {
        for version in versions {
            self.version(url, version);
        }
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
        let is_deprecated = versions.is_deprecated();
        self.summary.deprecated += u64::from(is_deprecated);
        match versions.chart() {
            Some(chart) => self.builder.take(chart, Some(&path), is_deprecated),
            None => Ok(()),
        }
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
        for (tag, state) in &stored.tags {
            let earlier = match state {
                state if state.is_pending() => Some(NOT_YET),
                state if state.is_outdated() => Some(OUTDATED),
                _ => None,
            };
            let problem = state.problem.as_deref().or(delayed.get(tag).map(String::as_str));
            if let Some(problem) = problem.or(earlier) {
                summary.skipped.add(path, Some(tag), problem);
            }
        }
        for (tag, problem) in self.unusable.drain(..) {
            summary.skipped.add(path, Some(&tag), &problem);
        }
    }
}
