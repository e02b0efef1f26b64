//! Blocks a sync whose index is suddenly empty or less than half of its last size.

use super::request::SyncRequest;
use super::{DecodedRows, Prepared, Retain, refuse};
use crate::api::ALLOW_SHRINK;
use crate::catalog::{self, Baseline, Catalog, OciRemovals, Refused};
use crate::controllers::apprepository::SHRINK_REFUSED;
use crate::controllers::apprepository::decision::has_lost_charts;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::Summary;

const MIN_NAMES: u64 = 10;
const MIN_VERSIONS: u64 = 50;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "index shrank from {} charts with {} versions to {} charts with {} versions; refusing to remove charts. To \
     accept, set annotation {ALLOW_SHRINK}: \"{digest}\"",
    .was.names, .was.versions, .now.names, .now.versions
)]
struct Shrunk {
    was: Baseline,
    now: Baseline,
    digest: String,
}

/// Returns the counts to compare the next index with, from before the filter.
pub(super) fn baseline(summary: &Summary) -> Baseline {
    Baseline {
        names: summary.names,
        versions: summary.versions,
    }
}

/// Compares the counts **before** the filter with the last accepted index. `allowed` is the digest that the
/// user confirmed. Fails if the index is empty, or less than half of a sufficiently large baseline.
fn check(was: Option<&Baseline>, summary: &Summary, allowed: Option<&str>) -> Result<(), Shrunk> {
    let Some(was) = was else { return Ok(()) };
    let now = baseline(summary);
    let has_shrunk = fell(was.names, now.names, MIN_NAMES) || fell(was.versions, now.versions, MIN_VERSIONS);
    if !has_shrunk || allowed == Some(summary.digest.as_str()) {
        return Ok(());
    }
    Err(Shrunk {
        was: *was,
        now,
        digest: summary.digest.clone(),
    })
}

fn fell(was: u64, now: u64, minimum: u64) -> bool {
    (was > 0 && now == 0) || (was >= minimum && now < was.div_ceil(2))
}

/// Refuses an index that shrank, unless some of its repositories could not be listed.
pub(super) fn check_shrink(spec: &RepositorySpec, was: Option<Baseline>, mut decoded: Box<DecodedRows>) -> Prepared {
    let remaining = decoded.remaining.as_ref();
    let listing_failed = remaining.is_some_and(|remaining| remaining.listing_failed);
    if let Some(was) = was.filter(|_| listing_failed) {
        // Repositories that could not be listed are not counted, but still exist.
        decoded.baseline = was;
    }
    let Err(shrunk) = check(was.as_ref(), &decoded.summary, spec.allow_shrink.as_deref()) else {
        return Prepared::Index(decoded);
    };
    if listing_failed {
        // The missing charts may only have failed to be listed: retain everything until they can.
        decoded.retain = Retain::All;
        decoded.gone = OciRemovals::default();
        return Prepared::Index(decoded);
    }
    let DecodedRows { validators, sha256, .. } = *decoded;
    let refused = refuse(spec, validators, sha256, SHRINK_REFUSED, &shrunk);
    Prepared::Refused(Refused {
        confirm: Some(shrunk.digest),
        ..refused
    })
}

/// Returns comparable counts of the last accepted index, or of stored charts, as after a takeover or a restore.
pub(super) async fn load_baseline(
    catalog: &Catalog,
    request: &SyncRequest,
) -> Result<Option<Baseline>, catalog::Error> {
    let spec = &request.spec;
    if let Some(previous) = &request.previous {
        let has_other_source = !previous.change_key.is_empty() && !spec.change_key.has_source_of(&previous.change_key);
        // Another source has another size, and lost charts are restored from any index.
        if has_other_source || has_lost_charts(previous) {
            return Ok(None);
        }
        if previous.baseline.is_some() {
            return Ok(previous.baseline);
        }
    }
    catalog.stored_counts(&spec.name, &spec.url).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(names: u64, versions: u64) -> Baseline {
        Baseline { names, versions }
    }

    fn index(names: u64, versions: u64) -> Summary {
        Summary {
            names,
            versions,
            digest: "feed".to_owned(),
            ..Summary::default()
        }
    }

    #[test]
    fn without_a_baseline_any_index_is_accepted() {
        assert!(check(None, &index(0, 0), None).is_ok());
    }

    #[test]
    fn an_empty_index_is_refused_even_after_a_small_one() {
        assert!(check(Some(&counts(1, 1)), &index(0, 0), None).is_err());
        assert!(check(Some(&counts(1, 1)), &index(1, 0), None).is_err());
    }

    #[test]
    fn an_index_that_was_empty_may_stay_empty() {
        assert!(check(Some(&counts(0, 0)), &index(0, 0), None).is_ok());
    }

    #[test]
    fn half_is_accepted_and_less_than_half_is_refused() {
        assert!(check(Some(&counts(10, 40)), &index(5, 40), None).is_ok());
        assert!(check(Some(&counts(10, 40)), &index(4, 40), None).is_err());
        assert!(check(Some(&counts(11, 40)), &index(5, 40), None).is_err());
        assert!(check(Some(&counts(2, 50)), &index(2, 25), None).is_ok());
        assert!(check(Some(&counts(2, 50)), &index(2, 24), None).is_err());
    }

    #[test]
    fn a_small_baseline_blocks_only_an_empty_index() {
        assert!(check(Some(&counts(9, 49)), &index(1, 1), None).is_ok());
    }

    #[test]
    fn only_the_digest_of_this_very_index_confirms_it() {
        let was = counts(10, 100);
        assert!(check(Some(&was), &index(0, 0), Some("feed")).is_ok());
        let refused = check(Some(&was), &index(0, 0), Some("beef")).unwrap_err();
        assert!(refused.to_string().contains("allow-shrink: \"feed\""), "{refused}");
    }
}
