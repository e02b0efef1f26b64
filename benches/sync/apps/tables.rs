//! The tables of Applications.

use std::fmt::Write as _;
use std::time::Duration;

use super::fleet::Size;
use super::process::Used;
use crate::numbers::{mebibytes, seconds, short, thousands};
use crate::report::Limits;

/// The longest that 100 Applications may take to be shown as ready, in seconds.
const ALL_READY: f64 = 3.0;
/// The longest that all but one of a hundred changes of a component may take into the status, in seconds.
const FRESH: f64 = 1.0;
/// The most memory that the process may take.
const MEMORY: u64 = 40 << 20;
/// How much longer an Application may take beside others whose kind is not there, in seconds: what a measurement can tell apart.
const DELAY: f64 = 0.1;

/// Of which the figures to compare with are.
const NEIGHBOUR: &str = "kubernetes-sigs/application v0.8.3";

/// Everything that was measured.
#[derive(Default)]
pub struct Apps {
    pub passes: Vec<Pass>,
    pub freshness: Vec<Freshness>,
    pub rests: Vec<Rest>,
    pub lost: Option<Lost>,
}

/// Applications from nothing to all ready. Times are in seconds.
pub struct Pass {
    size: Size,
    adopts: bool,
    /// From the last that the benchmark made. Nothing, where all had been made before the process was started.
    after_last: Option<f64>,
    /// From the first, or from the start of the process.
    after_first: f64,
    used: Used,
}

/// Changes of components into statuses. Times are in seconds.
pub struct Freshness {
    size: Size,
    changes: usize,
    median: f64,
    /// 99 of 100 were as fast as this.
    high: f64,
    most: f64,
    used: Used,
}

/// Nothing happens.
pub struct Rest {
    pub size: Size,
    pub seconds: u64,
    pub watches: usize,
    pub reads: usize,
    pub writes: usize,
    /// Seconds.
    pub cpu: f64,
    /// Bytes.
    pub peak: u64,
}

/// One more Application, without and with others whose kind is not there. Times are in seconds.
pub struct Lost {
    pub count: usize,
    /// Behind as many usual ones.
    pub usual: f64,
    pub beside: f64,
    /// Until the others say what is wrong.
    pub told: f64,
}

impl Size {
    fn title(self) -> String {
        format!("{} × {}", thousands(self.applications), self.components)
    }
}

impl Pass {
    /// Times as they were taken.
    pub fn new(size: Size, adopts: bool, after_last: Option<Duration>, after_first: Duration, used: Used) -> Self {
        let pass = Self {
            size,
            adopts,
            after_last: after_last.map(|time| time.as_secs_f64()),
            after_first: after_first.as_secs_f64(),
            used,
        };
        println!(
            "{}: {:.2} s, {:.2} s of CPU",
            pass.title(),
            pass.after_first,
            pass.used.cpu
        );
        pass
    }

    fn title(&self) -> String {
        let what = if self.after_last.is_some() {
            "made while Portolan runs"
        } else {
            "all there when Portolan starts"
        };
        let adopts = if self.adopts { ", addOwnerRef" } else { "" };
        format!("{}, {what}{adopts}", self.size.title())
    }

    /// What counts: the time that the benchmark did not need itself.
    fn time(&self) -> f64 {
        self.after_last.unwrap_or(self.after_first)
    }
}

impl Freshness {
    /// Of times in seconds, the shortest first.
    pub fn new(size: Size, times: &[f64], used: Used) -> Self {
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        let freshness = Self {
            size,
            changes: times.len(),
            median: at(50),
            high: at(99),
            most: at(100),
            used,
        };
        println!(
            "{}, fresh within: {:.3} s, {:.3} s",
            size.title(),
            freshness.median,
            freshness.high
        );
        freshness
    }
}

impl Apps {
    /// All tables.
    pub fn tables(&self) -> String {
        let mut text = String::from(
            "\nApplications × components of each, real API server. Until the last Application shows that all are ready:\n\n\
             | case | s from the first creation or the start | s from the last creation | CPU s | reads | writes | peak MiB |\n\
             |---|---:|---:|---:|---:|---:|---:|\n",
        );
        for pass in &self.passes {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {:.0} |",
                pass.title(),
                seconds(pass.after_first),
                pass.after_last.map_or_else(String::new, seconds),
                seconds(pass.used.cpu),
                thousands(pass.used.reads),
                thousands(pass.used.writes),
                mebibytes(pass.used.peak),
            );
        }
        let _ = write!(
            text,
            "| *{NEIGHBOUR}, 100 × 5* | *19* | | *0.76* | *950 in all* | | *29* |\n\
             | *{NEIGHBOUR}, 100 × 5, addOwnerRef* | *25* | | *1.37* | *1,564 in all* | | *29* |\n\n\
             From a component's change of readiness to the Application's status:\n\n\
             | case | changes | p50 s | p99 s | longest s | CPU s | reads | writes |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for freshness in &self.freshness {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                freshness.size.title(),
                freshness.changes,
                seconds(freshness.median),
                seconds(freshness.high),
                seconds(freshness.most),
                seconds(freshness.used.cpu),
                thousands(freshness.used.reads),
                thousands(freshness.used.writes),
            );
        }
        let _ = write!(
            text,
            "| *{NEIGHBOUR}* | | *70* | | *238* | | | |\n\n\
             At rest:\n\n\
             | case | s | watches taken up again | other reads | writes | CPU s | peak MiB |\n|---|---:|---:|---:|---:|---:|---:|\n",
        );
        for rest in &self.rests {
            let _ = writeln!(
                text,
                "| {}, addOwnerRef | {} | {} | {} | {} | {} | {:.0} |",
                rest.size.title(),
                rest.seconds,
                rest.watches,
                rest.reads,
                rest.writes,
                seconds(rest.cpu),
                mebibytes(rest.peak),
            );
        }
        let _ = write!(
            text,
            "| *{NEIGHBOUR}, 100 × 5* | *120* | | *300* | *0* | *0.37* | *29* |\n\
             | *{NEIGHBOUR}, 100 × 5, addOwnerRef* | *120* | | *300* | *500* | *0.78* | *29* |\n",
        );
        if let Some(lost) = &self.lost {
            let _ = write!(
                text,
                "\nFrom the declaration of one more Application to its status: {} right behind {} others like it, {} right behind {} Applications of a kind that is \
                 not installed, which say so themselves {} after the first of them was declared ({NEIGHBOUR}: 13 s for the ten; the \
                 middle one of several each).\n",
                short(lost.usual),
                lost.count,
                short(lost.beside),
                lost.count,
                short(lost.told),
            );
        }
        text
    }

    /// What the figures are held against.
    pub fn limits(&self) -> String {
        let mut limits = Limits::new();
        for pass in &self.passes {
            let from = if pass.after_last.is_some() {
                " after the last creation"
            } else {
                ""
            };
            // How long a thousand take from a start is the API server's affair: each is written once, whoever writes.
            if pass.after_last.is_some() || pass.size.applications == 100 {
                let (limit, time) = (format!("{}: {ALL_READY:.0} s{from}", pass.title()), pass.time());
                limits.line(&limit, &short(time), time <= ALL_READY);
            }
        }
        for freshness in &self.freshness {
            let limit = format!("{}: p99 of freshness {FRESH:.0} s", freshness.size.title());
            limits.line(&limit, &short(freshness.high), freshness.high <= FRESH);
        }
        for rest in &self.rests {
            let limit = format!("{}: at rest no request but watches", rest.size.title());
            let others = rest.reads + rest.writes;
            limits.line(&limit, &others.to_string(), others == 0);
        }
        if let Some(lost) = &self.lost {
            let delay = lost.beside - lost.usual;
            let limit = format!(
                "{} Applications of a kind that is not there delay another no more than usual ones do",
                lost.count
            );
            limits.line(&limit, &format!("{:.0} ms", delay * 1000.0), delay <= DELAY);
        }
        for size in self.sizes() {
            let peak = self.peak(size.applications);
            let limit = format!("{}: {} MiB", size.title(), MEMORY >> 20);
            limits.line(&limit, &format!("{:.1} MiB", mebibytes(peak)), peak <= MEMORY);
        }
        limits.into_text()
    }

    /// The short table of the README.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "Applications over a real API server. The figures of {NEIGHBOUR} were measured by running it on \
             Kubernetes 1.35.\n\n| | Portolan | {NEIGHBOUR} |\n|---|---:|---:|\n"
        );
        let small = |adopts: bool| {
            self.passes
                .iter()
                .find(move |pass| pass.size.applications == 100 && pass.adopts == adopts && pass.after_last.is_some())
        };
        let neighbour = [
            (false, "", "19 s, 0.76 s of CPU, 950 requests"),
            (true, ", with `addOwnerRef`", "25 s, 1.37 s of CPU, 1,564 requests"),
        ];
        for (adopts, words, neighbour) in neighbour {
            if let Some(pass) = small(adopts) {
                let _ = writeln!(
                    text,
                    "| 100 Applications of 5 components, created to all 5/5{words} | {}, {} of CPU, {} requests; {} of it after the last creation | {neighbour} |",
                    short(pass.after_first),
                    short(pass.used.cpu),
                    thousands(pass.used.reads + pass.used.writes),
                    short(pass.time()),
                );
            }
        }
        if let Some(freshness) = self.freshness.first() {
            let _ = writeln!(
                text,
                "| a component's change until the status shows it | {} (99 of 100: {}) | 70 s (up to 238 s) |",
                short(freshness.median),
                short(freshness.high),
            );
        }
        if let Some(rest) = self.rests.first() {
            let _ = writeln!(
                text,
                "| the same 100 at rest, with `addOwnerRef` | {} requests but watches, {} of CPU in {} s | 300 LIST and 500 PUT, 0.78 s of CPU in 120 s |",
                rest.reads + rest.writes,
                short(rest.cpu),
                rest.seconds,
            );
        }
        let _ = writeln!(text, "| peak memory | {:.0} MiB | 29 MiB |", mebibytes(self.peak(100)));
        let large = self
            .passes
            .iter()
            .find(|pass| pass.size.applications == 1000 && pass.after_last.is_some());
        if let Some(pass) = large {
            let _ = writeln!(
                text,
                "| 1,000 Applications of 10 components: all 10/10 after the last creation | {}, {} of CPU, {:.0} MiB | – |",
                short(pass.time()),
                short(pass.used.cpu),
                mebibytes(self.peak(1000)),
            );
        }
        if let Some(lost) = &self.lost {
            let _ = writeln!(
                text,
                "| {} Applications of a kind that is not installed: until another has its status | {} (behind ten usual ones {}) | 13 s for the ten |",
                lost.count,
                short(lost.beside),
                short(lost.usual),
            );
        }
        text
    }

    /// The sizes that were measured, each once.
    fn sizes(&self) -> Vec<Size> {
        let mut sizes: Vec<Size> = self.passes.iter().map(|pass| pass.size).collect();
        sizes.dedup_by_key(|size| size.applications);
        sizes
    }

    /// The most memory of any process with so many Applications, in bytes.
    fn peak(&self, applications: usize) -> u64 {
        let passes = self.passes.iter().map(|pass| (pass.size, pass.used.peak));
        let fresh = self
            .freshness
            .iter()
            .map(|freshness| (freshness.size, freshness.used.peak));
        let rests = self.rests.iter().map(|rest| (rest.size, rest.peak));
        let all = passes.chain(fresh).chain(rests);
        let of_size = all.filter(|(size, _)| size.applications == applications);
        of_size.map(|(_, peak)| peak).max().unwrap_or_default()
    }
}
