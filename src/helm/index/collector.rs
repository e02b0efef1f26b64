//! What both notations feed: charts come in version by version, and go out whole.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::chart::{self, Gathered};
use super::error::{DecodeError, Position};
use super::node::{Fields, takes_over};
use super::{ChartStats, DecodeLimits, Sink, Skipped, Summary, entry};
use crate::text::printable;

/// Enough of a SHA-256 to tell keys apart, so that a hundred thousand long ones cost little.
type KeyHash = [u8; 16];

/// Gathers charts, hands them to the sink and counts.
///
/// A chart goes out as soon as it is complete, so memory is bounded by the largest one. The price: when its key comes
/// again further down, where the last one wins, what went out was wrong. Then the rest is only read for its keys, and
/// a second pass over the index hands out just the winners.
pub(super) struct Collector<'a, S: Sink> {
    limits: &'a DecodeLimits,
    sink: &'a mut S,
    /// By key, which of the charts counted so far it stands for.
    winners: HashMap<KeyHash, u64>,
    /// Charts seen in this pass, winners or not.
    seen: u64,
    pass: Pass,
    chart: Option<Open>,
    handed_out: bool,
    summary: Summary,
    digests: Vec<[u8; 32]>,
}

/// A chart whose versions come in.
struct Open {
    key: String,
    gathered: Gathered,
    /// Versions, those that are skipped included.
    count: u64,
    skipped: Skipped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    First,
    /// The first, after a key came again: nothing goes out any more.
    OnlyKeys,
    Second,
}

impl<'a, S: Sink> Collector<'a, S> {
    pub(super) fn new(limits: &'a DecodeLimits, sink: &'a mut S) -> Self {
        Self {
            limits,
            sink,
            winners: HashMap::new(),
            seen: 0,
            pass: Pass::First,
            chart: None,
            handed_out: false,
            summary: Summary::default(),
            digests: Vec::new(),
        }
    }

    pub(super) const fn limits(&self) -> &'a DecodeLimits {
        self.limits
    }

    /// The value of `entries` begins. True if it takes the place of what an earlier key of that name held, or is the first.
    pub(super) fn begin_entries(&mut self, is_first: bool, merged: bool) -> bool {
        if is_first {
            return true;
        }
        if takes_over(merged) {
            if self.pass == Pass::First {
                self.pass = Pass::OnlyKeys;
            }
            if self.pass == Pass::OnlyKeys {
                self.winners.clear();
            }
        }
        takes_over(merged)
    }

    /// A chart begins. False: its versions are not wanted.
    pub(super) fn begin_chart(
        &mut self,
        key: &str,
        merged: bool,
        position: Position,
    ) -> Result<bool, DecodeError<S::Error>> {
        let number = self.seen;
        self.seen += 1;
        if self.seen > self.limits.charts {
            let limit = format!("it has more than {} names", self.limits.charts);
            return Err(DecodeError::TooComplex { limit, position });
        }
        let hash = hash_of(key);
        let wanted = match (self.pass, self.winners.get(&hash)) {
            (Pass::Second, winner) => winner == Some(&number),
            (_, Some(_)) => {
                if takes_over(merged) {
                    self.pass = Pass::OnlyKeys;
                    self.winners.insert(hash, number);
                }
                false
            }
            (pass, None) => {
                self.winners.insert(hash, number);
                pass == Pass::First
            }
        };
        if wanted {
            self.chart = Some(Open {
                key: key.to_owned(),
                gathered: Gathered::default(),
                count: 0,
                skipped: Skipped::default(),
            });
        }
        Ok(wanted)
    }

    /// The next version of the chart; an error says why it can't be read at all.
    pub(super) fn version(
        &mut self,
        fields: Result<Fields, &str>,
        position: Position,
    ) -> Result<(), DecodeError<S::Error>> {
        let Some(Open {
            key,
            gathered,
            count,
            skipped,
        }) = &mut self.chart
        else {
            return Ok(());
        };
        *count += 1;
        if *count > self.limits.versions_per_chart {
            let limit = format!(
                "{} has more than {} versions",
                printable(key),
                self.limits.versions_per_chart
            );
            return Err(DecodeError::TooComplex { limit, position });
        }
        let unusable = match fields.map(entry::read) {
            Ok(Ok(entry)) => {
                gathered.push(entry);
                if gathered.bytes() > self.limits.chart_bytes {
                    let limit = format!("{} takes more than {} bytes", printable(key), self.limits.chart_bytes);
                    return Err(DecodeError::TooComplex { limit, position });
                }
                return Ok(());
            }
            Ok(Err(unusable)) => unusable,
            Err(reason) => entry::Unusable {
                version: None,
                reason: reason.to_owned(),
            },
        };
        skipped.add(key, unusable.version.as_deref(), &unusable.reason);
        Ok(())
    }

    /// The chart is no list of versions.
    pub(super) fn no_list(&mut self) {
        if let Some(chart) = &mut self.chart {
            chart.gathered = Gathered::default();
            chart
                .skipped
                .add(&chart.key, None, "what stands under its name is no list of versions");
        }
    }

    /// The chart is over: it goes out, or is counted as skipped or deprecated. Gives what it adds to the summary.
    pub(super) fn end_chart(&mut self) -> Result<ChartStats, DecodeError<S::Error>> {
        let Some(Open {
            key, gathered, skipped, ..
        }) = self.chart.take()
        else {
            return Ok(ChartStats::default());
        };
        let mut account = ChartStats {
            skipped,
            ..ChartStats::default()
        };
        let complete = match gathered.complete() {
            Ok(complete) => complete,
            Err(reason) => {
                account.skipped.add(&key, None, &reason);
                None
            }
        };
        if let Some(complete) = &complete {
            account.versions = complete.chart.versions.len() as u64;
            account.duplicates = complete.duplicates;
            account.deprecated = complete.deprecated;
            let mut hash = Sha256::new();
            chart::update(&mut hash, complete.chart.name.as_bytes());
            hash.update(complete.digest);
            account.digest = Some(hash.finalize().into());
        }
        self.add(&account);
        if let Some(complete) = complete.filter(|complete| !complete.deprecated) {
            self.handed_out = true;
            self.sink.chart(complete.chart).map_err(DecodeError::Sink)?;
        }
        Ok(account)
    }

    /// Counts a chart.
    pub(super) fn add(&mut self, account: &ChartStats) {
        self.summary.add(account);
        self.digests.extend(account.digest);
    }

    /// The sink, for charts that do not come in version by version.
    pub(super) const fn sink(&mut self) -> &mut S {
        self.sink
    }

    /// Whether the index has to be read once more, to hand out what won.
    pub(super) fn needs_second_pass(&self) -> bool {
        self.pass == Pass::OnlyKeys
    }

    /// Forgets all but the winners, and tells the sink to.
    pub(super) fn begin_second_pass(&mut self) -> Result<(), DecodeError<S::Error>> {
        self.forget()?;
        self.pass = Pass::Second;
        Ok(())
    }

    /// Forgets everything, and tells the sink to: the index turned out to be in the other notation.
    pub(super) fn start_over(&mut self) -> Result<(), DecodeError<S::Error>> {
        self.forget()?;
        self.winners.clear();
        self.pass = Pass::First;
        Ok(())
    }

    fn forget(&mut self) -> Result<(), DecodeError<S::Error>> {
        self.seen = 0;
        self.chart = None;
        self.summary = Summary::default();
        self.digests.clear();
        if std::mem::take(&mut self.handed_out) {
            self.sink.start_over().map_err(DecodeError::Sink)?;
        }
        Ok(())
    }

    /// What has been counted.
    pub(super) fn finish(mut self) -> Summary {
        self.digests.sort_unstable();
        let mut hash = Sha256::new();
        for digest in &self.digests {
            hash.update(digest);
        }
        self.summary.digest = crate::text::hex(&hash.finalize());
        self.summary
    }
}

fn hash_of(key: &str) -> KeyHash {
    let mut hash = KeyHash::default();
    let digest = Sha256::digest(key.as_bytes());
    hash.copy_from_slice(&digest[..size_of::<KeyHash>()]);
    hash
}
