//! The tables of a delta sync, and what its figures are held against.

use std::fmt::Write as _;

use super::figures::{Crowd, Delta, Kind, Series};
use super::plot;
use crate::measure::median;
use crate::numbers::{mebibytes, seconds, thousands};
use crate::report::Limits;
use crate::rig::Database;

/// Times the CPU of receiving and SHA-256.
const NO_ETAG: f64 = 1.9;
const NEW_VERSION: f64 = 2.6;
const NEW_TIMES: f64 = 2.1;
const JSON: f64 = 2.6;
/// How many times less CPU one new version takes than a parse of `serde_yaml` and writing all rows.
const CHEAPER: f64 = 15.0;
/// Times the CPU of a parse of `serde_yaml`.
const FIRST: f64 = 0.4;
/// Times the CPU of the events of granit-parser.
const GENERAL: f64 = 2.0;
/// Seconds of CPU of a sync that is answered 304.
const NOT_MODIFIED: f64 = 0.001;
/// Seconds of CPU of Postgres for a first sync.
const POSTGRES: f64 = 0.150;
/// Bytes above idle.
const MEMORY: u64 = 12 << 20;
/// Seconds of CPU for each further namespace with the same repository.
const FURTHER: f64 = 0.009;
/// Seconds of CPU for a round of a thousand that are unchanged.
const MANY: f64 = 0.5;

impl Delta {
    /// Everything as it stands in the document.
    pub fn text(&self) -> String {
        let mut text = format!("\nOne repository: {}.\n", self.about);
        // Into a String nothing can fail.
        let _ = self.write_cases(&mut text);
        let _ = self.write_baselines(&mut text);
        let _ = self.write_hostile(&mut text);
        let _ = self.write_crowds(&mut text);
        let _ = write!(text, "\n{}", self.limits());
        text
    }

    /// CPU by the sizes, as a picture. None if it was not measured.
    pub fn plot(&self) -> Option<String> {
        plot::draw(self)
    }

    fn write_cases(&self, text: &mut String) -> std::fmt::Result {
        if self.cases.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\n| case | database | CPU ms | of the baseline | Postgres' CPU ms | requests | chart rows written | peak above idle MiB |\n\
             |---|---|---:|---:|---:|---:|---:|---:|"
        )?;
        for series in &self.cases {
            let ratio = match series.kind {
                Kind::NotModified => String::new(),
                _ => format!("{:.2}", series.ratio()),
            };
            let rows = match series.kind {
                Kind::First => "all".to_owned(),
                _ => thousands(series.rows()),
            };
            writeln!(
                text,
                "| {} | {} | {} | {ratio} | {} | {} | {rows} | {:.1} |",
                series.kind.title(),
                series.database.title(),
                milliseconds(series.cpu()),
                series.postgres_cpu().map_or_else(String::new, milliseconds),
                series.requests(),
                mebibytes(series.peak()),
            )?;
        }
        if let Some(most) = self.baselines.more_files.iter().max() {
            let most = mebibytes(*most);
            writeln!(
                text,
                "\nOf the memory, up to {most:.1} MiB are pages of the program's own file."
            )?;
        }
        Ok(())
    }

    fn write_baselines(&self, text: &mut String) -> std::fmt::Result {
        let baselines = &self.baselines;
        let json = format!(
            "receive and SHA-256 of the JSON, {:.1} MB",
            baselines.json_bytes as f64 / 1e6
        );
        let lines = [
            ("receive and SHA-256", &baselines.receive),
            (json.as_str(), &baselines.receive_json),
            ("`serde_yaml`, a parse", &baselines.parse),
            (
                "`serde_yaml`, a parse, and all rows written to SQLite",
                &baselines.rewrite,
            ),
            ("granit-parser, all events", &baselines.events),
            ("*a second in which nothing is to be done*", &baselines.upkeep),
        ];
        let measured: Vec<_> = lines.iter().filter(|(_, values)| !values.is_empty()).collect();
        if measured.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n| baseline | CPU ms |\n|---|---:|")?;
        for (name, values) in measured {
            writeln!(text, "| {name} | {} |", milliseconds(median(values.to_vec())))?;
        }
        Ok(())
    }

    fn write_hostile(&self, text: &mut String) -> std::fmt::Result {
        if self.hostile.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n| index | peak above idle MiB |\n|---|---:|")?;
        for (name, peak) in &self.hostile {
            writeln!(text, "| {name} | {:.1} |", mebibytes(*peak))?;
        }
        Ok(())
    }

    fn write_crowds(&self, text: &mut String) -> std::fmt::Result {
        let crowds = [
            ("repositories of 100 KB each, all unchanged, 304", &self.many),
            ("repositories of 100 KB each, all unchanged, 304", &self.most),
            ("namespaces with the same repository, one new version", &self.namespaces),
        ];
        let measured: Vec<_> = crowds
            .into_iter()
            .filter_map(|(name, crowd)| crowd.as_ref().map(|crowd| (name, crowd)))
            .collect();
        if measured.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\n| a round of | CPU s | CPU s of one alone | requests | answers with a body | chart rows written | at rest MiB | peak above that MiB |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|"
        )?;
        for (name, crowd) in measured {
            writeln!(
                text,
                "| {} {name} | {} | {} | {} | {} | {} | {:.1} | {:.1} |",
                thousands(crowd.repositories),
                seconds(crowd.cpu),
                crowd.alone.map_or_else(String::new, seconds),
                thousands(crowd.requests),
                thousands(crowd.bodies),
                thousands(crowd.rows),
                mebibytes(crowd.at_rest),
                mebibytes(crowd.peak),
            )?;
        }
        Ok(())
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Series> {
        self.cases.iter().filter(move |series| series.kind == kind)
    }

    /// What the figures are held against.
    fn limits(&self) -> String {
        let mut limits = Limits::new();
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let ratio = |limits: &mut Limits, kind: Kind, bound: f64, of: &str, rows: Option<usize>| {
            let Some(ratio) = self.of(kind).map(Series::ratio).reduce(f64::max) else {
                return;
            };
            let written = self.of(kind).map(Series::rows).max().unwrap_or_default();
            let least = self.of(kind).map(Series::rows).min().unwrap_or_default();
            let (wanted, told) = match rows {
                Some(wanted) => (format!(", {}", rows_of(wanted)), format!(", {}", rows_of(written))),
                None => (String::new(), String::new()),
            };
            limits.line(
                &format!("{}: {bound} times {of}{wanted}", kind.title()),
                &format!("{ratio:.2} times{told}"),
                ratio <= bound && rows.is_none_or(|rows| rows == written && rows == least),
            );
        };
        if let Some(cpu) = self.of(Kind::NotModified).map(Series::cpu).reduce(f64::max) {
            limits.line(
                "Unchanged, 304: one request, 1 ms",
                &format!("{} ms", milliseconds(cpu)),
                cpu <= NOT_MODIFIED,
            );
        }
        let receiving = "receiving and SHA-256";
        ratio(&mut limits, Kind::NoEtag, NO_ETAG, receiving, Some(0));
        ratio(&mut limits, Kind::NewVersion, NEW_VERSION, receiving, Some(1));
        self.cheaper(&mut limits);
        ratio(&mut limits, Kind::NewTimes, NEW_TIMES, receiving, Some(0));
        ratio(&mut limits, Kind::First, FIRST, "a parse of `serde_yaml`", None);
        if let Some(cpu) = self.of(Kind::First).filter_map(Series::postgres_cpu).reduce(f64::max) {
            let measured = format!("{} ms", milliseconds(cpu));
            limits.line("First sync: 150 ms of Postgres' CPU", &measured, cpu <= POSTGRES);
        }
        ratio(
            &mut limits,
            Kind::General,
            GENERAL,
            "the events of granit-parser",
            Some(1),
        );
        ratio(&mut limits, Kind::Json, JSON, receiving, Some(1));
        let peaks = self.cases.iter().map(Series::peak);
        let peaks = peaks.chain(self.hostile.iter().map(|(_, peak)| *peak));
        let peaks = peaks.chain(
            [&self.many, &self.most, &self.namespaces]
                .into_iter()
                .flatten()
                .map(|crowd| crowd.peak),
        );
        let peak = most(&mut peaks.map(|peak| peak as f64)) as u64;
        if peak > 0 {
            limits.line(
                "peak memory above idle, any case: 12 MiB",
                &format!("{:.1} MiB", mebibytes(peak)),
                peak <= MEMORY,
            );
        }
        if let Some(many) = &self.many {
            limits.line(
                "1,000 repositories, all unchanged, 304: 0.5 s of CPU a round",
                &format!("{} s", seconds(many.cpu)),
                many.cpu <= MANY && many.bodies == 0,
            );
        }
        if let Some(namespaces) = &self.namespaces {
            self.one_for_all(&mut limits, namespaces);
        }
        limits.into_text()
    }

    /// On SQLite, where the rows of what it is held against are written too.
    fn cheaper(&self, limits: &mut Limits) {
        let sqlite = self
            .of(Kind::NewVersion)
            .find(|series| series.database == Database::Sqlite);
        if let Some(series) = sqlite
            && !self.baselines.rewrite.is_empty()
        {
            let factor = median(self.baselines.rewrite.clone()) / series.cpu();
            limits.line(
                "One new version: 15 times less CPU than a parse of `serde_yaml` and writing all rows",
                &format!("{factor:.1} times less"),
                factor >= CHEAPER,
            );
        }
    }

    /// A shared download and split show in the cost of each further namespace: less than the bytes alone would take.
    fn one_for_all(&self, limits: &mut Limits, crowd: &Crowd) {
        let name = format!("{} namespaces, one new version", crowd.repositories);
        limits.line(
            &format!("{name}: one download"),
            &crowd.bodies.to_string(),
            crowd.bodies == 1,
        );
        let further = (crowd.cpu - crowd.alone.unwrap_or_default()) / (crowd.repositories - 1) as f64;
        let receiving = median(self.baselines.receive.clone());
        if receiving > 0.0 {
            limits.line(
                &format!("{name}: each further namespace costs 9 ms, and less than receiving and SHA-256"),
                &format!("{} ms, against {}", milliseconds(further), milliseconds(receiving)),
                further <= FURTHER && further < receiving,
            );
        }
    }
}

fn rows_of(count: usize) -> String {
    match count {
        0 => "no row".to_owned(),
        1 => "one row".to_owned(),
        count => format!("{} rows", thousands(count)),
    }
}

fn milliseconds(seconds: f64) -> String {
    let value = seconds * 1e3;
    if value < 9.95 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}
