//! The cuts of one body, made once for all repositories that have got it, and parsed once where they have changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::changes::{NotParsed, Parsed};
use super::cut::{Cut, NotCut};
use super::digest::Secret;
use super::{DecodeLimits, Known};

/// The part of a body that its cuts may take, else they are made by each for himself. Those of real indexes take a fiftieth and less.
const OF_THE_BODY: u64 = 16;

/// Room for charts that are held as they were parsed, of all bodies together. A handle, cheap to clone.
#[derive(Clone)]
pub struct Room(Arc<Semaphore>);

impl Room {
    /// So many bytes.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// Some of it, as long as it is held.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(bytes).ok()
    }
}

/// The cuts of a body that several repositories share. A handle, cheap to clone; it goes with the body, since it holds nothing of
/// which body it is of. A repository that knows other things of the body makes its own cuts, which take the place of those before.
#[derive(Clone, Default)]
pub struct SharedCuts {
    made: Arc<Mutex<Option<Made>>>,
    /// For charts that are parsed, where several are going to ask for them.
    room: Option<Room>,
}

struct Made {
    by: By,
    /// Nothing, where the body is in no style that is cut.
    cuts: Option<Arc<[Cut]>>,
    /// Nothing, where nobody else is going to ask for them.
    parsed: Option<Arc<ParsedCharts>>,
}

/// What is shared of a body.
pub(super) struct OfBody {
    pub(super) cuts: Arc<[Cut]>,
    /// What was parsed of them, where that is shared too.
    pub(super) parsed: Option<Arc<ParsedCharts>>,
}

/// The charts of a body that were parsed by themselves.
pub(super) struct ParsedCharts {
    /// By where they begin. Nothing, where there was no room for one.
    held: Mutex<HashMap<u64, Option<Held>>>,
    room: Room,
}

/// A chart, and the room that it takes.
struct Held {
    parsed: Arc<Parsed>,
    _room: OwnedSemaphorePermit,
}

impl ParsedCharts {
    fn new(room: Room) -> Self {
        let held = Mutex::new(HashMap::new());
        Self { held, room }
    }

    /// The chart, by `parse` where it is not held; and then it is, if there is room. Who asks for one meanwhile waits: mostly all ask for
    /// the same charts, in one order.
    pub(super) fn get(
        &self,
        cut: &Cut,
        parse: impl FnOnce() -> Result<Parsed, NotParsed>,
    ) -> Result<Arc<Parsed>, NotParsed> {
        // What is parsed is put in at once, so a panic leaves it as it was.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get(&cut.text.start) {
            Some(Some(held)) => return Ok(Arc::clone(&held.parsed)),
            Some(None) => {
                drop(held);
                return parse().map(Arc::new);
            }
            None => {}
        }
        let parsed = Arc::new(parse()?);
        let room = self.room.take(parsed.bytes());
        let parsed_and_held = room.map(|room| Held {
            parsed: Arc::clone(&parsed),
            _room: room,
        });
        held.insert(cut.text.start, parsed_and_held);
        Ok(parsed)
    }
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
    fn of(known: &Known, limits: &DecodeLimits) -> Self {
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

impl SharedCuts {
    /// Of a body that several are going to ask for: then charts that have changed are held as they were parsed, if there is room.
    #[must_use]
    pub fn for_many(room: &Room) -> Self {
        Self {
            room: Some(room.clone()),
            ..Self::default()
        }
    }

    /// Whether they are of a body that several are going to ask for.
    #[cfg(test)]
    pub(crate) const fn is_for_many(&self) -> bool {
        self.room.is_some()
    }

    /// The cuts, by `cut` where they have not been made. Who asks while they are being made waits for them, on a thread that may, and
    /// for no longer than one cutting takes. With them what was parsed of them, where that is shared.
    pub(super) fn get(
        &self,
        known: &Known,
        limits: &DecodeLimits,
        cut: impl FnOnce() -> Result<Vec<Cut>, NotCut>,
    ) -> Result<OfBody, NotCut> {
        let by = By::of(known, limits);
        // What is made is put in at once, so a panic leaves it as it was.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // Who knows nothing needs all charts, of which others need but few.
        let is_follower = !known.charts.is_empty();
        let of_body = |made: &Made| {
            let cuts = made.cuts.clone().ok_or(NotCut::Style)?;
            let parsed = made.parsed.clone().filter(|_| is_follower);
            Ok(OfBody { cuts, parsed })
        };
        if let Some(made) = made.as_ref().filter(|made| made.by == by) {
            return of_body(made);
        }
        let cuts = match cut() {
            Ok(cuts) => Some(Arc::from(cuts)),
            Err(NotCut::Style) => None,
            Err(error @ NotCut::Read(_)) => return Err(error),
        };
        if let Some(cuts) = cuts.as_ref().filter(|cuts| !are_small(cuts)) {
            let cuts = Arc::clone(cuts);
            return Ok(OfBody { cuts, parsed: None });
        }
        let room = self.room.clone();
        let parsed = room.map(|room| Arc::new(ParsedCharts::new(room)));
        of_body(made.insert(Made { by, cuts, parsed }))
    }
}

/// Whether they take so little beside their body that they may be held with it: of a body that is nothing but keys they are larger
/// than it is.
fn are_small(cuts: &[Cut]) -> bool {
    let bytes: usize = cuts.iter().map(|cut| size_of::<Cut>() + cut.key.len()).sum();
    let body = cuts.last().map_or(0, |last| last.text.end);
    bytes as u64 <= body / OF_THE_BODY
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;
    use crate::source::index::{Account, Digest, KnownChart};

    fn known(secret: u8) -> Known {
        Known {
            secret: Secret::from([secret; Secret::BYTES]),
            times_count: false,
            charts: HashMap::new(),
        }
    }

    /// Charts of so many bytes each.
    fn cuts_of(bytes: &[u64]) -> Vec<Cut> {
        let mut end = 0;
        let cut = |bytes: &u64| {
            let start = end;
            end += bytes;
            Cut {
                key: "chart".to_owned(),
                text: start..end,
                items: None,
                digest: Digest([0; 16]),
                masked: true,
            }
        };
        bytes.iter().map(cut).collect()
    }

    fn chart(masked: bool) -> KnownChart {
        KnownChart {
            digest: Digest([0; 16]),
            masked,
            account: Account::default(),
        }
    }

    #[test]
    fn cuts_are_made_once_for_all_who_know_the_same_and_anew_for_others() {
        let (shared, made) = (SharedCuts::default(), Cell::new(0));
        let ask = |known: &Known, limits: &DecodeLimits| {
            let cuts = shared.get(known, limits, || {
                made.set(made.get() + 1);
                Ok(cuts_of(&[100_000]))
            });
            assert_eq!(cuts.unwrap().cuts.len(), 1);
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
        let mut times_count = Known {
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
        let (shared, limits) = (SharedCuts::default(), DecodeLimits::default());
        for made in 1..3 {
            let of_keys_alone = [10; 100];
            let cuts = shared.get(&known(1), &limits, || Ok(cuts_of(&of_keys_alone)));
            assert_eq!(cuts.unwrap().cuts.len(), 100, "{made}");
            assert!(shared.made.lock().unwrap().is_none());
        }
    }

    #[test]
    fn what_could_not_be_read_is_read_again_and_what_is_in_no_style_that_is_cut_is_not() {
        let (shared, limits) = (SharedCuts::default(), DecodeLimits::default());
        let broken = || Err(NotCut::Read(std::io::Error::other("broken")));
        assert!(matches!(shared.get(&known(1), &limits, broken), Err(NotCut::Read(_))));
        let in_no_style = || Err(NotCut::Style);
        assert!(matches!(
            shared.get(&known(1), &limits, in_no_style),
            Err(NotCut::Style)
        ));
        assert!(matches!(shared.get(&known(1), &limits, broken), Err(NotCut::Style)));
    }
}
