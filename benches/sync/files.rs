//! The files of charts: how fast archives of common size are brought in, and what a large one, or one that nobody should send,
//! takes of memory.

use std::time::Instant;

use crate::baseline;
use crate::numbers::thousands;
use crate::report::{Case, Report, Table};
use crate::rig::{Database, RUNS, Rig, UNLIMITED, end, imported, until, written};
use crate::support::archives::{Archive, Chart, Entry, index};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::process::ScratchFolder;

const CHARTS: usize = 20;
const VERSIONS: usize = 25;
/// Archives that are brought in.
pub const ARCHIVES: usize = CHARTS * VERSIONS;
const ALL_FILES: &str = "--chart-files=all";
const NO_FILES: &str = "--chart-files=none";

/// Measures all of it.
pub async fn run(report: &mut Report) {
    report.archives = Some(many().await);
    report.memory = Some(single().await);
}

async fn many() -> Table {
    let archives = common_archives();
    let sizes = archives.iter().map(|archive| archive.bytes.len());
    let (least, most) = (
        sizes.clone().min().unwrap_or_default(),
        sizes.clone().max().unwrap_or_default(),
    );
    let mut table = Table {
        about: format!(
            "{} archives of {CHARTS} charts, {:.0} to {:.0} KB each, {:.1} MB in all",
            thousands(ARCHIVES),
            least as f64 / 1e3,
            most as f64 / 1e3,
            sizes.sum::<usize>() as f64 / 1e6
        ),
        rows: Vec::new(),
    };
    println!("{}", table.about);
    let server = ChartServer::start().await;
    serve(&server, "/charts", &archives);
    for database in [Database::Sqlite, Database::PostgresWithoutTls, Database::Postgres] {
        let mut rig = Rig::new(database).await;
        rig.declare(&format!("  type: helm\n  url: {}\n", server.url("/charts")));
        let flags = [ALL_FILES, UNLIMITED[0], UNLIMITED[1]];
        let mut requests = 0;
        for _ in 0..RUNS {
            rig.fresh_database().await;
            requests = import(&mut rig, &server, &flags).await;
        }
        let samples = rig.take();
        table.rows.push(rig.row(Case::Archives, &samples, &thousands(requests)));
    }
    let mut rig = Rig::new(Database::Sqlite).await;
    rig.declare(&format!("  type: helm\n  url: {}\n", server.url("/charts")));
    let requests = import(&mut rig, &server, &[ALL_FILES]).await;
    let samples = rig.take();
    table
        .rows
        .push(rig.row(Case::LimitedArchives, &samples, &thousands(requests)));

    let folder = ScratchFolder::new("baseline");
    for archive in &archives {
        folder.write(&archive.file_name(), &archive.bytes);
    }
    table.rows.push(baseline::of_archives(folder.path()));
    table
}

/// A process from its start until it has all files; the requests that took.
async fn import(rig: &mut Rig, server: &ChartServer, flags: &[&str]) -> usize {
    let before = server.all_seen().len();
    let started = Instant::now();
    let portolan = rig.start(flags);
    // Asking the process how far it is costs it something, so the server is asked first.
    until(async || server.all_seen().len() - before > ARCHIVES).await;
    assert_eq!(imported(&portolan, ARCHIVES).await, ARCHIVES, "all are good");
    rig.note_from_start(&portolan, started);
    end(portolan).await;
    server.all_seen().len() - before
}

/// One archive each, in processes of their own.
async fn single() -> Table {
    const MEBIBYTE: usize = 1 << 20;
    let chart = || Chart::new("galleon", "1.0.0").file("README.md", "# Galleon\n");
    let noise = |bytes: usize| Random(7).take(bytes);
    let small = chart().pack();
    let cases = [
        (Case::NoArchive, small.clone(), None),
        (
            Case::LargeArchive,
            chart()
                .file("values.yaml", Random(3).lines(300_000))
                .file("files/data.bin", noise(5 * MEBIBYTE - 100_000))
                .pack(),
            None,
        ),
        // What is over the limit is not looked into.
        (
            Case::HugeArchive,
            Archive::of_bytes("galleon", "1.0.0", noise(100 * MEBIBYTE)),
            None,
        ),
        (Case::EndlessArchive, small, Some(Fault::EndlessGzip)),
        (
            Case::Bomb,
            chart().entry(Entry::zeros("galleon/zeros", 1 << 30)).pack(),
            None,
        ),
    ];
    let mut table = Table::default();
    for (case, archive, fault) in cases {
        let server = ChartServer::start().await;
        serve(&server, "/charts", std::slice::from_ref(&archive));
        let path = format!("/charts/{}", archive.file_name());
        if let Some(fault) = fault {
            server.break_path(&path, fault);
        }
        let mut rig = Rig::new(Database::Sqlite).await;
        rig.declare(&format!("  type: helm\n  url: {}\n", server.url("/charts")));
        let started = Instant::now();
        let portolan = rig.start(&[if case == Case::NoArchive { NO_FILES } else { ALL_FILES }]);
        written(&portolan, 1).await;
        if case != Case::NoArchive {
            let taken = imported(&portolan, 1).await == 1;
            assert_eq!(taken, case == Case::LargeArchive, "{}", case.title());
        }
        rig.note_from_start(&portolan, started);
        let samples = rig.take();
        let size = format!("{:.1} MiB", archive.bytes.len() as f64 / MEBIBYTE as f64);
        let size = match case {
            Case::NoArchive => String::new(),
            Case::EndlessArchive => "no end".to_owned(),
            _ => size,
        };
        table.rows.push(rig.row(case, &samples, &size));
        end(portolan).await;
    }
    table
}

/// Serves archives and the index of them below `path`.
fn serve(server: &ChartServer, path: &str, archives: &[Archive]) {
    let entries = archives.iter().map(|archive| {
        server.serve(&format!("{path}/{}", archive.file_name()), Page::archive(archive));
        archive.index_entry(&[&archive.file_name()])
    });
    let index = index(entries);
    server.serve(&format!("{path}/index.yaml"), Page::new(index));
}

/// As public repositories have them: a README, values, a schema, and templates, which take most of it.
fn common_archives() -> Vec<Archive> {
    let mut random = Random(1);
    let mut archives = Vec::with_capacity(ARCHIVES);
    for chart in 0..CHARTS {
        for version in (0..VERSIONS).rev() {
            let bytes = 85_000 + random.below(185_000);
            let mut made = Chart::new(&format!("galleon-{chart}"), &format!("1.{version}.0"))
                .file("README.md", random.lines(bytes / 5))
                .file("values.yaml", random.lines(bytes / 6))
                .file("values-production.yaml", random.lines(bytes / 20))
                .file(
                    "values.schema.json",
                    format!("{{\"$comment\": {:?}}}", random.lines(bytes / 20)),
                );
            for template in 0..16 {
                let path = format!("templates/part-{template}.yaml");
                made = made.file(&path, random.lines(bytes * 8 / 15 / 16));
            }
            archives.push(made.pack());
        }
    }
    archives
}

/// Numbers that are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Bytes that can't be compressed.
    fn take(mut self, bytes: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(bytes + 8);
        while taken.len() < bytes {
            taken.extend(self.next().to_le_bytes());
        }
        taken.truncate(bytes);
        taken
    }

    /// About so many bytes of text, which can be packed to less than a quarter.
    fn lines(&mut self, bytes: usize) -> String {
        const WORDS: [&str; 12] = [
            "anchor", "ballast", "capstan", "davit", "fender", "gunwale", "halyard", "keel", "mizzen", "rudder",
            "sextant", "tiller",
        ];
        let mut text = String::with_capacity(bytes + 80);
        while text.len() < bytes {
            let number = self.next();
            let word = |at: u32| WORDS[(number >> at) as usize % WORDS.len()];
            text.push_str(&format!(
                "  {}{}: the {} of the {} is {:08x}\n",
                word(0),
                word(8),
                word(16),
                word(24),
                number >> 32
            ));
        }
        text
    }
}
