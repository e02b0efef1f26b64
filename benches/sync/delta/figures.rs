//! What was measured.

use super::station::Sync;
use crate::measure::median;
use crate::rig::Database;

/// What a sync found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    First,
    NotModified,
    NoEtag,
    NewVersion,
    VersionGone,
    NewTimes,
    General,
    Json,
}

impl Kind {
    /// Its name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::First => "First sync",
            Self::NotModified => "Unchanged, 304",
            Self::NoEtag => "Unchanged, no ETag",
            Self::NewVersion => "One new version of the largest chart",
            Self::VersionGone => "That version gone",
            Self::NewTimes => "`created` rewritten on all entries",
            Self::General => "The general way: one new version in an index that can't be cut",
            Self::Json => "JSON: one new version",
        }
    }
}

/// Syncs of one kind, and what each is held against.
pub struct Series {
    pub kind: Kind,
    pub database: Database,
    pub syncs: Vec<Sync>,
    /// Seconds of CPU, measured beside each.
    pub against: Vec<f64>,
}

impl Series {
    /// Without any.
    pub const fn new(kind: Kind, database: Database) -> Self {
        Self {
            kind,
            database,
            syncs: Vec::new(),
            against: Vec::new(),
        }
    }

    /// Seconds of CPU of one.
    pub fn cpu(&self) -> f64 {
        self.middle(|sync| sync.cpu)
    }

    /// Seconds that the database took for one.
    pub fn postgres_cpu(&self) -> Option<f64> {
        (self.database != Database::Sqlite).then(|| self.middle(|sync| sync.postgres_cpu))
    }

    /// How many times what stands against it.
    pub fn ratio(&self) -> f64 {
        let pairs = self.syncs.iter().zip(&self.against);
        median(pairs.map(|(sync, against)| sync.cpu / against).collect())
    }

    /// The most rows of charts that one has written.
    pub fn rows(&self) -> usize {
        self.syncs.iter().map(|sync| sync.rows).max().unwrap_or_default()
    }

    /// The most requests that one needed.
    pub fn requests(&self) -> usize {
        self.syncs.iter().map(|sync| sync.requests).max().unwrap_or_default()
    }

    /// The most memory above idle, in bytes.
    pub fn peak(&self) -> u64 {
        self.syncs.iter().map(|sync| sync.peak).max().unwrap_or_default()
    }

    fn middle(&self, value: fn(&Sync) -> f64) -> f64 {
        median(self.syncs.iter().map(value).collect())
    }
}

/// What the syncs are held against, in seconds of CPU.
#[derive(Default)]
pub struct Baselines {
    pub receive: Vec<f64>,
    pub receive_json: Vec<f64>,
    pub json_bytes: usize,
    pub parse: Vec<f64>,
    /// A parse, and all rows written to SQLite.
    pub rewrite: Vec<f64>,
    pub events: Vec<f64>,
    /// What a second takes in which nothing is to be done.
    pub upkeep: Vec<f64>,
    /// Bytes of the program's file that had not been read before the first sync.
    pub more_files: Vec<u64>,
}

/// Many repositories in a process.
pub struct Crowd {
    pub repositories: usize,
    /// Seconds of our process for a round.
    pub cpu: f64,
    /// For one repository alone, where that was measured.
    pub alone: Option<f64>,
    /// Answers with a body.
    pub bodies: usize,
    pub requests: usize,
    pub rows: usize,
    /// Bytes that the process takes at rest with all of them, above what it takes without any.
    pub at_rest: u64,
    /// Bytes above that.
    pub peak: u64,
}

/// One point of a plot.
#[derive(Clone, Copy)]
pub struct Point {
    pub x: f64,
    /// Seconds of CPU.
    pub cpu: f64,
}

/// A line of a plot.
pub struct Line {
    pub name: &'static str,
    pub points: Vec<Point>,
}

/// Everything that was measured.
#[derive(Default)]
pub struct Delta {
    pub about: String,
    pub baselines: Baselines,
    pub cases: Vec<Series>,
    /// Peaks above idle of what nobody should send, in bytes.
    pub hostile: Vec<(&'static str, u64)>,
    /// Many different ones, all unchanged; and five times as many.
    pub many: Option<Crowd>,
    pub most: Option<Crowd>,
    /// The same one in many namespaces.
    pub namespaces: Option<Crowd>,
    /// CPU by the size of the index, in MB.
    pub by_size: Vec<Line>,
    /// By the versions that are others.
    pub by_change: Vec<Line>,
}
