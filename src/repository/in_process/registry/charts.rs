//! Making charts of what is remembered of a registry.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::{Listing, Repository};
use crate::catalog::OciTag;
use crate::filter::{self, Filter};
use crate::repository::execute::AttemptError;
use crate::repository::in_process::selection::{Selected, Selection, SelectionError};
use crate::repository::in_process::{Decoded, Found, Run};
use crate::source::fetch::Validators;
use crate::source::index::{self, DecodeLimits, Summary};
use crate::source::oci;

impl Run<'_> {
    /// Makes charts of what is remembered.
    pub(super) async fn charts(
        &self,
        listing: Listing,
        digest: String,
        filter: Option<Filter>,
    ) -> Result<Found, AttemptError> {
        let selection = self.selection(filter);
        let limits = self.tools.decode_limits;
        let is_complete = listing.is_complete;
        let task = filter::on_large_stack(move || select(selection, listing, &limits));
        let Ok(selected) = task.await else {
            tracing::error!(repository = %self.attempt.declaration.name, "making charts of a registry has panicked");
            let message = "the charts of the registry can't be read because of a defect in Portolan; please report it";
            let refused = self.refuse(Validators::default(), digest, "DecoderFailed", message.to_owned());
            return Ok(Found::Refused(refused));
        };
        match selected {
            Ok((selected, summary)) => Ok(self.judge(Decoded {
                spool: selected.spool,
                filtered_out: selected.filtered_out,
                summary: Summary {
                    digest: digest.clone(),
                    ..summary
                },
                sha256: digest,
                validators: Validators::default(),
                is_complete,
            })),
            Err(error) => self.unselected(error, Validators::default(), digest),
        }
    }
}

impl Listing {
    /// A digest of all that the charts are made of, whatever the order in which it came.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for repository in &self.repositories {
            let tags: BTreeMap<&str, &OciTag> = (repository.memory.tags.iter())
                .map(|tag| (tag.tag.as_str(), tag))
                .collect();
            for (name, tag) in tags {
                let is_chart = if tag.metadata.is_some() { "chart" } else { "none" };
                for part in [&repository.memory.repository, name, &tag.digest, is_chart] {
                    hash.update(part);
                    hash.update([0]);
                }
            }
            // That one can't be had any more is told of, although its charts are what they were.
            if let Some(error) = &repository.failed {
                hash.update(&repository.memory.repository);
                hash.update([0]);
                hash.update(error.reason());
                hash.update([0]);
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Makes one chart of each repository, from the metadata of its versions.
fn select(
    mut selection: Selection,
    listing: Listing,
    limits: &DecodeLimits,
) -> Result<(Selected, Summary), SelectionError> {
    let mut summary = Summary::default();
    for Repository {
        url,
        memory,
        versions,
        failed,
        ..
    } in listing.repositories
    {
        let path = memory.repository;
        if let Some(error) = failed {
            summary.skipped.add(&path, None, &error.to_string());
        }
        summary.names += u64::from(!versions.is_empty());
        summary.versions += versions.len() as u64;
        let mut entries = Vec::new();
        for tag in memory.tags {
            if let Some(problem) = &tag.problem {
                summary.skipped.add(&path, Some(&tag.tag), problem);
            }
            let Some(metadata) = &tag.metadata else { continue };
            let url = format!("{url}{}", tag.tag);
            let metadata = index::metadata(metadata.as_bytes(), limits)
                .and_then(|metadata| metadata.with_version(&oci::version_of(&tag.tag)))
                .map(|metadata| metadata.with_digest(tag.digest).with_urls(vec![url]));
            match metadata {
                Ok(metadata) => entries.push(metadata),
                Err(problem) => summary.skipped.add(&path, Some(&tag.tag), &problem),
            }
        }
        if entries.is_empty() {
            continue;
        }
        match index::chart(entries) {
            Ok(Some(chart)) => selection.take(chart, Some(&path))?,
            Ok(None) => summary.deprecated += 1,
            Err(problem) => summary.skipped.add(&path, None, &problem),
        }
    }
    Ok((selection.finish(), summary))
}
