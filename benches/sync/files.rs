//! Chart files: the import of archives of common size.

use crate::report::Limit::Peak;
use crate::report::Row;
use crate::rig::baseline::{self, UNPACKING};
use crate::rig::{BenchProcess, Database, RUNS, Source};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::index_generator::Random;
use crate::support::process::ScratchDir;

const CHARTS: usize = 20;
const VERSIONS: usize = 25;
const ARCHIVES: usize = CHARTS * VERSIONS;
const PATH: &str = "/charts/index.yaml";
pub const MIB: f64 = 1_048_576.0;

/// Measures the import from the declaration of the repository until the last archive is stored.
pub async fn run() -> Vec<Row> {
    let archives = archives();
    let (server, directory) = (ChartServer::start().await, ScratchDir::new("baseline"));
    let entries = archives.iter().map(|archive| {
        directory.write(&archive.file_name(), &archive.bytes);
        server.serve(&format!("/charts/{}", archive.file_name()), Page::archive(archive));
        archive.index_entry(&[&archive.file_name()])
    });
    server.serve(PATH, Page::new(index(entries)));
    let source = Source {
        server: &server,
        path: PATH,
        spec: format!("  type: helm\n  url: {}\n", server.url("/charts")),
    };
    let (mut rows, mut baselines) = (Vec::new(), Vec::new());
    for database in [Database::Sqlite, Database::PostgresPlain, Database::Postgres] {
        let (mut samples, mut stored) = (Vec::new(), 0);
        for _ in 0..RUNS {
            let unpacked = baseline::unpack(directory.path()).await;
            baselines.push(unpacked);
            let mut process = BenchProcess::start(database, &source, &["--chart-files=all"]).await;
            samples.push(process.import(ARCHIVES, "imported").await.against(unpacked.cpu));
            stored = process.stored_bytes().await;
            process.end().await;
        }
        let row = Row::new("500 archives", &samples).against(UNPACKING);
        let row = row.database(database.title()).limits(&[Peak(100.0)]);
        let row = row.limit(&format!("stores {:.0} MiB", stored as f64 / MIB), true);
        rows.push(match database {
            Database::Postgres => row,
            _ => row.neighbor("Kubeapps: 500 archives per second"),
        });
    }
    let bytes: usize = archives.iter().map(|archive| archive.bytes.len()).sum();
    let name = format!("unpacking the same {:.1} MB", bytes as f64 / 1e6);
    rows.push(Row::baseline(&name, &baselines));
    rows
}

/// Archives like those of public repositories: README, values, a schema, and templates as the largest part.
fn archives() -> Vec<Archive> {
    let mut random = Random(1);
    let mut archives = Vec::with_capacity(ARCHIVES);
    for chart in 0..CHARTS {
        for version in (0..VERSIONS).rev() {
            let bytes = 85_000 + random.below(185_000);
            let schema = format!("{{\"$comment\": {:?}}}", lines(&mut random, bytes / 20));
            let mut made = Chart::new(&format!("galleon-{chart}"), &format!("1.{version}.0"))
                .file("README.md", lines(&mut random, bytes / 5))
                .file("values.yaml", lines(&mut random, bytes / 6))
                .file("values-production.yaml", lines(&mut random, bytes / 20))
                .file("values.schema.json", schema);
            for template in 0..16 {
                let path = format!("templates/part-{template}.yaml");
                made = made.file(&path, lines(&mut random, bytes * 8 / 15 / 16));
            }
            archives.push(made.pack());
        }
    }
    archives
}

/// Returns about this many bytes of text that compresses to less than a quarter.
pub fn lines(random: &mut Random, bytes: usize) -> String {
    const WORDS: [&str; 12] = [
        "anchor", "ballast", "capstan", "davit", "fender", "gunwale", "halyard", "keel", "mizzen", "rudder", "sextant",
        "tiller",
    ];
    let mut text = String::with_capacity(bytes + 80);
    while text.len() < bytes {
        let [first, second, third, fourth] = std::array::from_fn(|_| random.pick(&WORDS));
        let number = random.next() >> 32;
        text.push_str(&format!(
            "  {first}{second}: the {third} of the {fourth} is {number:08x}\n"
        ));
    }
    text
}
