//! What a sync of the standard big index costs, held against receiving and hashing it, by turns.

use std::path::PathBuf;

use super::baselines::{self, Receiver};
use super::figures::{Baselines, Kind, Series};
use super::rows;
use super::station::{Station, Sync};
use super::texts::json;
use crate::index::Index;
use crate::rig::{Database, end};
use crate::support::chart_server::Page;

/// Measurements of which a figure is the middle one.
const ROUNDS: usize = 9;
/// Syncs over which those with a 304 are averaged.
const NOT_MODIFIED: usize = 12;
/// Syncs over which those without an ETag are averaged, in each round.
const NO_ETAG: usize = 2;

/// Measures all of it.
pub async fn run(index: &Index, baselines: &mut Baselines) -> Vec<Series> {
    let mut all = Vec::new();
    let mut receiver = Receiver::start();
    for database in [Database::Sqlite, Database::Postgres] {
        let mut cases = Cases {
            index,
            baselines,
            receiver: &mut receiver,
            series: Vec::new(),
            database,
        };
        let mut station = cases.first_syncs().await;
        station.settle(NOT_MODIFIED).await;
        let not_modified = station.not_modified;
        cases.note(Kind::NotModified, not_modified, 1.0);
        cases.changes(&mut station).await;
        if database == Database::Sqlite {
            cases.json(&mut station).await;
            cases.general(&mut station).await;
        }
        cases.baselines.more_files.push(station.more_files());
        cases.baselines.upkeep.push(station.upkeep);
        end(station.portolan).await;
        all.append(&mut cases.series);
    }
    all
}

struct Cases<'a> {
    index: &'a Index,
    baselines: &'a mut Baselines,
    receiver: &'a mut Receiver,
    series: Vec<Series>,
    database: Database,
}

impl Cases<'_> {
    /// Adds a sync, and what it is held against.
    fn note(&mut self, kind: Kind, sync: Sync, against: f64) {
        let series = match self.series.iter_mut().position(|series| series.kind == kind) {
            Some(at) => &mut self.series[at],
            None => {
                self.series.push(Series::new(kind, self.database));
                self.series.last_mut().expect("it was pushed")
            }
        };
        println!(
            "{} on {}: {:.1} ms of CPU, {:.2} times, {} rows",
            kind.title(),
            self.database.title(),
            sync.cpu * 1e3,
            sync.cpu / against,
            sync.rows
        );
        series.syncs.push(sync);
        series.against.push(against);
    }

    /// Processes of their own, of which the last goes on; by turns with a parse of the same bytes.
    async fn first_syncs(&mut self) -> Station {
        let mut last = None;
        for _ in 0..ROUNDS {
            let mut station = Station::start(self.database).await;
            let (file, copy) = (self.file(&station, &self.index.text), station.rig.file("copy.db"));
            let parse = baselines::parse(&file).await;
            let sync = station.first(Page::new(self.index.text.clone())).await;
            self.baselines.parse.push(parse);
            self.note(Kind::First, sync, parse);
            if self.database == Database::Sqlite {
                rows::copy(&station.rig, &copy.display().to_string()).await;
                let rewritten = baselines::parse_and_rewrite(&file, &copy).await;
                self.baselines.rewrite.push(rewritten);
            }
            if let Some(station) = last.replace(station) {
                end(station.portolan).await;
            }
        }
        last.expect("there was one")
    }

    fn file(&self, station: &Station, text: &str) -> PathBuf {
        let file = station.rig.file("index.yaml");
        std::fs::write(&file, text).expect("a scratch folder can be written");
        file
    }

    async fn received(&mut self, station: &Station) -> f64 {
        let cpu = self.receiver.cpu(&station.url()).await;
        self.baselines.receive.push(cpu);
        cpu
    }

    /// An index that can be cut, and goes on as most do.
    async fn changes(&mut self, station: &mut Station) {
        let plain = Page::new(self.index.text.clone());
        for number in 1..=ROUNDS {
            let received = self.received(station).await;
            let sync = station.unchanged(Some(plain.clone().without_etag()), NO_ETAG).await;
            self.note(Kind::NoEtag, sync, received);
            // The same again, which has an ETag now.
            station.change(plain.clone()).await;
            let one_more = Page::new(self.index.with_one_more(number));
            let sync = station.change(one_more).await;
            self.note(Kind::NewVersion, sync, received);
            let sync = station.change(plain.clone()).await;
            self.note(Kind::VersionGone, sync, received);
            let new_times = Page::new(self.index.with_new_times(number));
            let sync = station.change(new_times).await;
            self.note(Kind::NewTimes, sync, received);
            station.change(plain.clone()).await;
        }
    }

    /// An index that can't be cut.
    async fn general(&mut self, station: &mut Station) {
        let index = self.index.uncuttable();
        let file = self.file(station, &index.text);
        station.change(Page::new(index.text.clone())).await;
        for number in 1..=ROUNDS {
            let events = baselines::events(&file).await;
            self.baselines.events.push(events);
            let sync = station.change(Page::new(index.with_one_more(number))).await;
            self.note(Kind::General, sync, events);
        }
    }

    /// The same in JSON.
    async fn json(&mut self, station: &mut Station) {
        let text = json(&self.index.text);
        self.baselines.json_bytes = text.len();
        station.change(Page::new(text)).await;
        for number in 1..=ROUNDS {
            let received = self.receiver.cpu(&station.url()).await;
            self.baselines.receive_json.push(received);
            let sync = station.change(Page::new(json(&self.index.with_one_more(number)))).await;
            self.note(Kind::Json, sync, received);
        }
    }
}
