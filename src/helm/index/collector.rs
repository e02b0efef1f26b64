//! Builds charts from versions and passes complete charts to the sink. Used by both parsers.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::chart::{self, ChartBuilder};
use super::error::{DecodeError, Position};
use super::node::{Fields, overrides_existing};
use super::{ChartStats, DecodeLimits, Sink, Skipped, Summary, entry};
use crate::text::printable;

type ChartKeyHash = [u8; 16];

/// Emits a chart as soon as it is complete, so memory is bounded by the largest chart. If its key occurs again, the
/// last occurrence wins and the emitted chart was wrong. The rest of the pass then only reads keys, and a second pass
/// emits the winners.
pub(super) struct ChartCollector<'a, S: Sink> {
    limits: &'a DecodeLimits,
    sink: &'a mut S,
    /// The position of the winning occurrence of each key.
    winners: HashMap<ChartKeyHash, u64>,
    seen: u64,
    pass: CollectorPass,
    chart: Option<OpenChart>,
    has_emitted: bool,
    summary: Summary,
    digests: Vec<[u8; 32]>,
}

struct OpenChart {
    key: String,
    builder: ChartBuilder,
    count: u64,
    skipped: Skipped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CollectorPass {
    First,
    /// The rest of the first pass after a duplicate key: emits nothing.
    OnlyKeys,
    Second,
}

impl<'a, S: Sink> ChartCollector<'a, S> {
    pub(super) fn new(limits: &'a DecodeLimits, sink: &'a mut S) -> Self {
        Self {
            limits,
            sink,
            winners: HashMap::new(),
            seen: 0,
            pass: CollectorPass::First,
            chart: None,
            has_emitted: false,
            summary: Summary::default(),
            digests: Vec::new(),
        }
    }

    pub(super) const fn limits(&self) -> &'a DecodeLimits {
        self.limits
    }

    /// Returns true if this is the first `entries` key or overrides an earlier one.
    pub(super) fn begin_entries(&mut self, is_first: bool, merged: bool) -> bool {
        if is_first {
            return true;
        }
        if overrides_existing(merged) && self.pass != CollectorPass::Second {
            self.pass = CollectorPass::OnlyKeys;
            self.winners.clear();
        }
        overrides_existing(merged)
    }

    /// Returns false if the caller should skip the versions of this chart.
    pub(super) fn begin_chart(
        &mut self,
        key: &str,
        merged: bool,
        position: Position,
    ) -> Result<bool, DecodeError<S::Error>> {
        let number = self.seen;
        self.seen += 1;
        if self.seen > self.limits.charts {
            let limit = format!("it has more than {} charts", self.limits.charts);
            return Err(DecodeError::TooComplex { limit, position });
        }
        let hash = hash_of(key);
        let is_selected = match (self.pass, self.winners.get(&hash)) {
            (CollectorPass::Second, winner) => winner == Some(&number),
            (_, Some(_)) => {
                if overrides_existing(merged) {
                    self.pass = CollectorPass::OnlyKeys;
                    self.winners.insert(hash, number);
                }
                false
            }
            (pass, None) => {
                self.winners.insert(hash, number);
                pass == CollectorPass::First
            }
        };
        if is_selected {
            self.chart = Some(OpenChart {
                key: key.to_owned(),
                builder: ChartBuilder::default(),
                count: 0,
                skipped: Skipped::default(),
            });
        }
        Ok(is_selected)
    }

    /// Adds a version, or the reason why it could not be parsed.
    pub(super) fn add_version(
        &mut self,
        fields: Result<Fields, &str>,
        position: Position,
    ) -> Result<(), DecodeError<S::Error>> {
        let Some(OpenChart {
            key,
            builder,
            count,
            skipped,
        }) = &mut self.chart
        else {
            return Ok(());
        };
        *count += 1;
        if *count > self.limits.versions_per_chart {
            let (key, limit) = (printable(key), self.limits.versions_per_chart);
            let limit = format!("{key} has more than {limit} versions");
            return Err(DecodeError::TooComplex { limit, position });
        }
        let invalid = match fields.map(entry::read) {
            Ok(Ok(entry)) => {
                builder.push(entry);
                if builder.bytes() > self.limits.chart_bytes {
                    let limit = format!("{} takes more than {} bytes", printable(key), self.limits.chart_bytes);
                    return Err(DecodeError::TooComplex { limit, position });
                }
                return Ok(());
            }
            Ok(Err(invalid)) => invalid,
            Err(reason) => entry::InvalidEntry {
                version: None,
                reason: reason.to_owned(),
            },
        };
        skipped.add(key, invalid.version.as_deref(), &invalid.reason);
        Ok(())
    }

    pub(super) fn skip_chart(&mut self) {
        if let Some(chart) = &mut self.chart {
            chart.builder = ChartBuilder::default();
            let reason = "its value is not a list of versions";
            chart.skipped.add(&chart.key, None, reason);
        }
    }

    pub(super) fn end_chart(&mut self) -> Result<ChartStats, DecodeError<S::Error>> {
        let Some(OpenChart { builder, skipped, .. }) = self.chart.take() else {
            return Ok(ChartStats::default());
        };
        let mut stats = ChartStats {
            skipped,
            ..ChartStats::default()
        };
        let complete = builder.complete();
        if let Some(complete) = &complete {
            stats.versions = complete.chart.versions.len() as u64;
            stats.duplicates = complete.duplicates;
            stats.deprecated = complete.deprecated;
            let mut hash = Sha256::new();
            chart::update(&mut hash, complete.chart.name.as_bytes());
            hash.update(complete.digest);
            stats.digest = Some(hash.finalize().into());
        }
        self.add(&stats);
        if let Some(complete) = complete {
            self.has_emitted = true;
            let received = if complete.deprecated {
                self.sink.deprecated(complete.chart)
            } else {
                self.sink.chart(complete.chart)
            };
            received.map_err(DecodeError::Sink)?;
        }
        Ok(stats)
    }

    pub(super) fn add(&mut self, stats: &ChartStats) {
        self.summary.add(stats);
        self.digests.extend(stats.digest);
    }

    pub(super) const fn sink(&mut self) -> &mut S {
        self.sink
    }

    pub(super) fn needs_second_pass(&self) -> bool {
        self.pass == CollectorPass::OnlyKeys
    }

    pub(super) fn begin_second_pass(&mut self) -> Result<(), DecodeError<S::Error>> {
        self.reset()?;
        self.pass = CollectorPass::Second;
        Ok(())
    }

    pub(super) fn start_over(&mut self) -> Result<(), DecodeError<S::Error>> {
        self.reset()?;
        self.winners.clear();
        self.pass = CollectorPass::First;
        Ok(())
    }

    fn reset(&mut self) -> Result<(), DecodeError<S::Error>> {
        self.seen = 0;
        self.chart = None;
        self.summary = Summary::default();
        self.digests.clear();
        if std::mem::take(&mut self.has_emitted) {
            self.sink.start_over().map_err(DecodeError::Sink)?;
        }
        Ok(())
    }

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

fn hash_of(key: &str) -> ChartKeyHash {
    let mut hash = ChartKeyHash::default();
    let digest = Sha256::digest(key.as_bytes());
    hash.copy_from_slice(&digest[..size_of::<ChartKeyHash>()]);
    hash
}
