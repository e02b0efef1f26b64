//! `portolan serve` with 100,000 versions, 256 callers and raised limits, beside static bytes from the same listener.
//! The column of requests shows requests per second in this part.

mod pages;
mod site;

use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::report::{AboveIdle, Cpu, Limit, Peak, Requests as Count, Row, Wall};
use crate::rig::load::{Client, Requests, load};
use crate::rig::measure::reset_peak_memory;
use crate::rig::{POSTGRES, RUNS, SQLITE, Sample, percentile, until};
use site::{Callers, Serve, Site};

const RAISED: [&str; 2] = ["--serve-rate=1000000", "--serve-burst=1000000"];
const STATIC: &str = "static bytes";
const WORDS: &str = "metrics agent gatewey log+query cluster operator nowhere db";
const READ_SECONDS: &str = "portolan_snapshot_reload_seconds_sum";
const SECONDS: u64 = 5;
/// Bytes per second. Below 1 KiB/s, a client is cut off.
const SLOW: usize = 2048;

pub async fn run() -> Vec<Row> {
    let callers = Callers::new().await;
    let mut rows = Vec::new();
    for database in [SQLITE, POSTGRES] {
        let site = Site::new(database).await;
        let serve = site.serve(&callers, &RAISED).await;
        let paths: Vec<String> = WORDS
            .split(' ')
            .map(|word| format!("/api/v1/charts?q={word}"))
            .collect();
        let bench = Bench {
            callers: &callers,
            site: &site,
            searches: callers.requests(0..256, &paths, ""),
            indexes: callers.requests(0..256, &[Site::index()], ""),
            serve,
        };
        rows.extend(bench.measure(database).await.into_iter().map(|row| row.on(database)));
    }
    rows
}

struct Bench<'a> {
    callers: &'a Callers,
    site: &'a Site,
    searches: Requests,
    indexes: Requests,
    serve: Serve,
}

impl Bench<'_> {
    async fn measure(&self, database: &str) -> Vec<Row> {
        let read = Sample::of_wall(self.serve.sum(READ_SECONDS).await);
        let most = if database == SQLITE { 0.5 } else { 1.0 };
        let start = Row::new("Snapshot of 51 repositories at the start", &[read]).limits(&[Wall(most)]);
        self.serve.introduce(&self.searches).await;
        let mut rows = vec![start, self.at_rest().await];
        rows.extend(self.search().await);
        rows.extend(self.index().await);
        rows.extend([self.change().await, self.slow_readers().await]);
        rows.extend([self.sync().await, self.defaults().await]);
        rows.extend(self.pages().await);
        rows
    }

    async fn at_rest(&self) -> Row {
        // Checks and reviews that have begun end.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let count = async || {
            let checks = self.serve.sum("portolan_catalog_checks_total").await as usize;
            checks + self.callers.proxy.requests().len()
        };
        let (counted, used) = (count().await, self.serve.used());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut sample = self.serve.used().since(used);
        (sample.peak, sample.idle) = (sample.idle, 0);
        let sample = sample.requests(count().await - counted);
        Row::new("A minute at rest, requests and checks of the database", &[sample]).limits(&[Count(0), Peak(40.0)])
    }

    async fn search(&self) -> Vec<Row> {
        let bytes = self.client().await.get(&self.searches[0]).await.length;
        let baseline = Serve::of_static_bytes(bytes).await;
        let bytes_only = measured(&baseline, 32, &self.searches, 0.0).await;
        let one = measured(&self.serve, 1, &self.searches, bytes_only.cpu).await;
        let many = measured(&self.serve, 32, &self.searches, bytes_only.cpu).await;
        vec![
            Row::baseline(&format!("{STATIC}, {} KB, 32 clients", bytes / 1000), &[bytes_only]),
            row("Search, one client, p99", one, &[Wall(0.005)]),
            at_least(1000, many, row("Search, 32 clients, p99", many, &[Wall(0.04)])),
        ]
    }

    async fn index(&self) -> Vec<Row> {
        let (mut client, before) = (self.client().await, self.serve.used());
        reset_peak_memory(self.serve.process);
        let started = Instant::now();
        let head = client.get(&self.indexes[0]).await;
        let mut first = self.serve.used().since(before).wall(started.elapsed().as_secs_f64());
        first.idle = before.idle;
        let baseline = Serve::of_static_bytes(head.length).await;
        let bytes_only = measured(&baseline, 8, &self.indexes, 0.0).await;
        let warm = measured(&self.serve, 8, &self.indexes, bytes_only.cpu).await;
        let header = format!("if-none-match: {}\r\n", head.etag);
        let known = self.callers.requests(0..256, &[Site::index()], &header);
        assert_eq!(client.get(&known[0]).await.status, 304, "the client has the index");
        let unmodified = measured(&self.serve, 32, &known, 0.0).await;
        let megabytes = head.length as f64 / 1e6;
        vec![
            Row::baseline(&format!("{STATIC}, {megabytes:.1} MB, 8 clients"), &[bytes_only]),
            row("Index of 14,000 versions, first", first, &[Cpu(0.3), AboveIdle(8.0)]),
            at_least(100, warm, row("Index, warm, 8 clients, p99", warm, &[])),
            at_least(30_000, unmodified, row("Index, 304, 32 clients, p99", unmodified, &[])),
        ]
    }

    /// Measures the time in which a changed repository of 2,000 versions is read.
    async fn change(&self) -> Row {
        let (mut samples, mut client) = (Vec::new(), self.client().await);
        for number in 0..RUNS as u64 {
            let before = self.serve.sum(READ_SECONDS).await;
            self.site.sync_small(number, 1000 + number).await;
            until(async || {
                client.get(&self.searches[0]).await;
                self.serve.sum(READ_SECONDS).await > before
            })
            .await;
            samples.push(Sample::of_wall(self.serve.sum(READ_SECONDS).await - before));
        }
        Row::new("Snapshot after a change of 2,000 versions", &samples).limits(&[Wall(0.02)])
    }

    async fn slow_readers(&self) -> Row {
        let readers = self.indexes.iter().take(64).map(async |request| {
            let mut client = self.client().await;
            assert_eq!(client.send(request).await.status, 200, "a slow reader is served");
            for _ in 0..2 * SECONDS {
                client.read(SLOW).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let load = measured(&self.serve, 32, &self.searches, 0.0);
        let (_, sample) = tokio::join!(join_all(readers), load);
        row("Search, 32 clients, beside 64 slow readers, p99", sample, &[Peak(80.0)])
    }

    async fn sync(&self) -> Row {
        let syncs = async |seed: u64| {
            let mut seconds = Vec::new();
            for number in 0..RUNS as u64 {
                seconds.push(self.site.sync_large(seed + number).await);
            }
            percentile(&seconds, 50)
        };
        let alone = syncs(100).await;
        let load = load(&self.serve.address, 8, Some(200.0), 6 * SECONDS, &self.searches);
        let (beside, _) = tokio::join!(syncs(200), load);
        let case = "Sync of 14,000 versions beside 200 searches a second";
        Row::new(case, &[Sample::of_wall(beside)]).limit("1.1× alone", beside <= 1.1 * alone)
    }

    /// Measures callers beside one who never pauses, with the default limits.
    async fn defaults(&self) -> Row {
        let serve = self.site.serve(self.callers, &[]).await;
        let path = ["/api/v1/charts?q=metrics".to_owned()];
        let [greedy, others] = [0..1, 1..17].map(|callers| self.callers.requests(callers, &path, ""));
        serve.introduce(&greedy).await;
        serve.introduce(&others).await;
        let flood = load(&serve.address, 8, None, SECONDS, &greedy);
        let beside = load(&serve.address, 16, Some(100.0), SECONDS, &others);
        let ((_, of_flood), (sample, statuses)) = tokio::join!(flood, beside);
        let case = "Default limits, 100 searches a second beside a flood of one caller, p99";
        let holds = of_flood.contains_key(&429) && statuses.keys().eq([&200]);
        Row::new(case, &[sample]).limit("429 for that caller only", holds)
    }

    async fn client(&self) -> Client {
        Client::connect(&self.serve.address).await
    }
}

/// Returns the CPU of a request, the 99th percentile of the times, and the requests per second.
async fn measured(serve: &Serve, clients: usize, requests: &Requests, baseline: f64) -> Sample {
    used_by_load(serve, clients, None, requests, baseline).await
}

/// Same for 200 requests a second.
async fn at_rate(serve: &Serve, requests: &Requests, baseline: f64) -> Sample {
    used_by_load(serve, 16, Some(200.0), requests, baseline).await
}

async fn used_by_load(serve: &Serve, clients: usize, rate: Option<f64>, requests: &Requests, baseline: f64) -> Sample {
    let before = serve.used();
    reset_peak_memory(serve.process);
    let (sample, statuses) = load(&serve.address, clients, rate, SECONDS, requests).await;
    let is_answered = statuses.keys().all(|status| [200, 304].contains(status));
    assert!(is_answered, "no request is refused: {statuses:?}");
    let used = serve
        .used()
        .since(before)
        .times(1.0 / statuses.values().sum::<usize>() as f64);
    Sample {
        wall: sample.wall,
        requests: sample.requests,
        baseline,
        ..used
    }
}

fn row(case: &str, sample: Sample, limits: &[Limit]) -> Row {
    Row::new(case, &[sample]).against(STATIC).limits(limits)
}

fn at_least(per_second: usize, sample: Sample, row: Row) -> Row {
    row.limit(&format!("at least {per_second}/s"), sample.requests >= Some(per_second))
}
