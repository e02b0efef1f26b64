//! The cuts of one body, made once for all repositories that have got it.

use std::sync::{Arc, Mutex, PoisonError};

use super::digest::Secret;
use super::splitter::{ChartSlice, SplitError};
use super::{CachedIndex, DecodeLimits};

/// The part of a body that its cuts may take, else they are made by each for himself. Those of real indexes take a fiftieth and less.
const OF_THE_BODY: u64 = 16;

/// The cuts of a body that several repositories share. A handle, cheap to clone; it goes with the body, since it holds nothing of
/// which body it is of. A repository that knows other things of the body makes its own cuts, which take the place of those before.
#[derive(Clone, Default)]
pub struct SharedSplit(Arc<Mutex<Option<Made>>>);

struct Made {
    by: By,
    /// None if the body can't be split.
    cuts: Option<Arc<[ChartSlice]>>,
}

/// All that cuts depend on beside the body.
#[derive(PartialEq, Eq)]
struct By {
    secret: Secret,
    times_count: bool,
    /// The keys of charts whose times are not left out, in order.
    unmasked: Vec<String>,
    limits: DecodeLimits,
}

impl By {
    fn of(known: &CachedIndex, limits: &DecodeLimits) -> Self {
        // Where times count they are left out of none, known or not.
        let unmasked = known
            .charts
            .iter()
            .filter(|(_, chart)| !chart.masked && !known.times_count);
        let mut unmasked: Vec<String> = unmasked.map(|(key, _)| key.clone()).collect();
        unmasked.sort_unstable();
        Self {
            secret: known.secret,
            times_count: known.times_count,
            unmasked,
            limits: *limits,
        }
    }
}

impl SharedSplit {
    /// Returns the cuts, made by `cut` if they are not there. A concurrent caller waits for them, at most as long as one split takes.
    pub(super) fn get(
        &self,
        known: &CachedIndex,
        limits: &DecodeLimits,
        cut: impl FnOnce() -> Result<Vec<ChartSlice>, SplitError>,
    ) -> Result<Arc<[ChartSlice]>, SplitError> {
        let by = By::of(known, limits);
        // A finished value is stored in one step, so a panic leaves the old one.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.as_ref().filter(|made| made.by == by) {
            return made.cuts.clone().ok_or(SplitError::Style);
        }
        let cuts: Option<Arc<[ChartSlice]>> = match cut() {
            Ok(cuts) => Some(cuts.into()),
            Err(SplitError::Style) => None,
            Err(error @ SplitError::Read(_)) => return Err(error),
        };
        if cuts.as_ref().is_none_or(|cuts| are_small(cuts)) {
            let cuts = cuts.clone();
            *made = Some(Made { by, cuts });
        }
        cuts.ok_or(SplitError::Style)
    }
}

/// Whether they take so little beside their body that they may be held with it: of a body that is nothing but keys they are larger
/// than it is.
fn are_small(cuts: &[ChartSlice]) -> bool {
    let bytes: usize = cuts.iter().map(|cut| size_of::<ChartSlice>() + cut.key.len()).sum();
    let body = cuts.last().map_or(0, |last| last.text.end);
    bytes as u64 <= body / OF_THE_BODY
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;
    use crate::helm::index::{CachedChart, ChartStats, Digest};

    fn known(secret: u8) -> CachedIndex {
        CachedIndex {
            secret: Secret::from([secret; Secret::BYTES]),
            times_count: false,
            charts: HashMap::new(),
        }
    }

    /// Charts of so many bytes each.
    fn cuts_of(bytes: &[u64]) -> Vec<ChartSlice> {
        let mut end = 0;
        let cut = |bytes: &u64| {
            let start = end;
            end += bytes;
            ChartSlice {
                key: "chart".to_owned(),
                text: start..end,
                items: None,
                digest: Digest([0; 16]),
                masked: true,
            }
        };
        bytes.iter().map(cut).collect()
    }

    fn chart(masked: bool) -> CachedChart {
        CachedChart {
            digest: Digest([0; 16]),
            masked,
            account: ChartStats::default(),
        }
    }

    #[test]
    fn cuts_are_made_once_for_all_who_know_the_same_and_anew_for_others() {
        let (shared, made) = (SharedSplit::default(), Cell::new(0));
        let ask = |known: &CachedIndex, limits: &DecodeLimits| {
            let cuts = shared.get(known, limits, || {
                made.set(made.get() + 1);
                Ok(cuts_of(&[100_000]))
            });
            assert_eq!(cuts.unwrap().len(), 1);
            made.get()
        };
        let limits = DecodeLimits::default();
        assert_eq!(ask(&known(1), &limits), 1);
        assert_eq!(ask(&known(1), &limits), 1);
        let mut one_more = known(1);
        one_more.charts.insert("a".to_owned(), chart(true));
        assert_eq!(
            ask(&one_more, &limits),
            1,
            "its times are left out as those of a new one are"
        );

        let mut with_times = known(1);
        with_times.charts.insert("a".to_owned(), chart(false));
        assert_eq!(ask(&with_times, &limits), 2);
        assert_eq!(ask(&with_times, &limits), 2);
        let mut times_count = CachedIndex {
            times_count: true,
            ..known(1)
        };
        assert_eq!(ask(&times_count, &limits), 3);
        times_count.charts.insert("a".to_owned(), chart(false));
        assert_eq!(ask(&times_count, &limits), 3, "they are left out of none in either");
        assert_eq!(ask(&known(2), &limits), 4);
        let lower = DecodeLimits { charts: 1, ..limits };
        assert_eq!(ask(&known(2), &lower), 5);
    }

    #[test]
    fn cuts_that_are_large_for_their_body_are_not_held() {
        let (shared, limits) = (SharedSplit::default(), DecodeLimits::default());
        for made in 1..3 {
            let of_keys_alone = [10; 100];
            let cuts = shared.get(&known(1), &limits, || Ok(cuts_of(&of_keys_alone)));
            assert_eq!(cuts.unwrap().len(), 100, "{made}");
            assert!(shared.0.lock().unwrap().is_none());
        }
    }

    #[test]
    fn what_could_not_be_read_is_read_again_and_what_is_in_no_style_that_is_cut_is_not() {
        let (shared, limits) = (SharedSplit::default(), DecodeLimits::default());
        let broken = || Err(SplitError::Read(std::io::Error::other("broken")));
        assert!(matches!(
            shared.get(&known(1), &limits, broken),
            Err(SplitError::Read(_))
        ));
        let in_no_style = || Err(SplitError::Style);
        assert!(matches!(
            shared.get(&known(1), &limits, in_no_style),
            Err(SplitError::Style)
        ));
        assert!(matches!(shared.get(&known(1), &limits, broken), Err(SplitError::Style)));
    }
}
