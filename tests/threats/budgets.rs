//! Tenants that together take all the memory they can, while an honest repository is synced.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::{World, icons, repository};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;

/// Half of a container of 512 MiB.
const BUDGET_MIB: u64 = 256;
const BUDGET: &str = "--memory-budget=256Mi";
const DEADLINE: Duration = Duration::from_secs(180);

/// Returns the resident memory in KiB of a process without the program's own pages.
fn resident(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn resident_with_children(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<String> = children
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let own = resident(&process.to_string()).unwrap_or_default();
    own + children.iter().filter_map(|child| resident(child)).sum::<u64>()
}

/// Samples the memory of a process and its children.
struct PeakSampler {
    peak: Arc<AtomicU64>,
    idle: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PeakSampler {
    fn start(portolan: &Portolan) -> Self {
        let (peak, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (process, sampled, stopped) = (portolan.id(), Arc::clone(&peak), Arc::clone(&stop));
        let idle = resident_with_children(process);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                sampled.fetch_max(resident_with_children(process), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        Self {
            peak,
            idle,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the peak above the memory at the start, in MiB.
    fn above_idle(mut self, what: &str) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let peak = self.peak.load(Ordering::Relaxed);
        let above = peak.saturating_sub(self.idle) / 1024;
        println!("{what}: peak {} MiB, {above} MiB above idle", peak / 1024);
        above
    }
}

impl World {
    /// Declares a repository in a namespace of its own.
    fn attack_in(&self, namespace: &str, path: &str, more: &str) {
        let url = self.attacker.url(path);
        self.manifest(namespace, &repository(namespace, "hostile", "helm", &url, more));
    }

    /// Returns the statuses of all hostile repositories once each has one.
    async fn until_all_decided(&self, namespaces: usize) -> Vec<Value> {
        eventually(DEADLINE, "all hostile repositories to be decided", async || {
            let all: Vec<Value> = serde_json::from_str(&self.output(&["status", "-o", "json"]).await).unwrap();
            let hostile = all.into_iter().filter(|status| status["name"] == "hostile");
            let decided: Vec<Value> = hostile.filter(|status| status["ready"].is_boolean()).collect();
            if decided.len() == namespaces {
                Ok(decided)
            } else {
                Err(decided.len())
            }
        })
        .await
    }
}

pub fn filter(rule: &str) -> String {
    format!("  filterRule:\n    jq: {}\n", serde_json::to_string(rule).unwrap())
}

/// Rules that fill memory or compute without end.
pub static RULES: LazyLock<[String; 8]> = LazyLock::new(|| {
    [
        "reduce range(2e5) as $i ({}; .[\"k\\($i)\"] = {a: {b: {c: $i}}}) | length > 0".to_owned(),
        "reduce range(60) as $i (\"x\"; . + .) | length > 0".to_owned(),
        "[range(1e6) | {a: {b: {c: .}}}] | length > 0".to_owned(),
        "[limit(1e5; repeat(\"x\" * 1000))] | length > 0".to_owned(),
        "last(limit(40; recurse({a: ., b: .}))) | tojson | length > 0".to_owned(),
        "[range(1e6) | tostring] | add | length > 0".to_owned(),
        "def f: [f]; f".to_owned(),
        "-".repeat(15_000),
    ]
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_filters_that_fill_memory_stay_within_the_budget() {
    let world = World::new().await;
    let charts = (0..50).map(|number| {
        Chart::new(&format!("boat-{number}"), "1.0.0")
            .pack()
            .index_entry(&["a.tgz"])
    });
    world.attacker.serve("/index.yaml", Page::new(index(charts)));
    let portolan = world.run(&[BUDGET, "--cpu-permits=4"]).await;
    world.until_honest_is_served().await;
    let sampler = PeakSampler::start(&portolan);
    for (number, rule) in RULES.iter().enumerate() {
        world.attack_in(&format!("tenant-{number}"), "", &filter(rule));
    }
    world.manifest(
        "later",
        &repository("other", "later", "helm", &world.honest.url("/charts"), &filter("true")),
    );
    world.manifest(
        "unfiltered",
        &repository("other", "unfiltered", "helm", &world.honest.url("/charts"), ""),
    );
    // Filters leave half of the permits to others.
    world.until_ready("unfiltered").await;
    world.until_ready("later").await;
    for status in world.until_all_decided(RULES.len()).await {
        let is_refused = matches!(status["reason"].as_str(), Some("FilterLimitExceeded" | "InvalidFilter"));
        // On an overloaded machine, a filter may reach its time before its CPU time.
        let is_late = status["message"]
            .as_str()
            .is_some_and(|message| message.contains("deadline exceeded"));
        assert!(is_refused || is_late, "{status}");
    }
    // A late one is retried.
    eventually(DEADLINE, "free permits", async || {
        let metrics = portolan.metrics().await;
        let used = metrics.sum("portolan_budget_used", &[("resource", "cpu")]);
        (used == Some(0.0)).then_some(()).ok_or(format!("{used:?} in use"))
    })
    .await;
    let above = sampler.above_idle("eight filters");
    assert!(above <= BUDGET_MIB, "{above} MiB");
}

/// An index of one chart with many versions, each with 20 URLs.
pub fn many_urls(versions: usize) -> String {
    let urls: Vec<String> = (0..20).map(|number| format!("u{number}")).collect();
    let urls = urls.join(",");
    let mut text = "apiVersion: v1\nentries:\n  wide:\n".to_owned();
    for version in 0..versions {
        let _ = writeln!(text, "  - {{name: wide, version: 1.0.{version}, urls: [{urls}]}}");
    }
    text
}

/// An index whose aliases expand to `count` texts of 90 bytes in each of some charts.
pub fn aliases(count: usize) -> String {
    let mut text = format!("apiVersion: v1\ntext: &text {}\nentries:\n", "x".repeat(90));
    for chart in 0..2 {
        let keywords = "*text,".repeat(count);
        let _ = writeln!(
            text,
            "  c{chart}:\n  - {{name: c{chart}, version: 1.0.0, urls: [a], keywords: [{keywords}]}}"
        );
    }
    text
}

async fn six_at_once(what: &str, page: String, reason: &str) {
    const TENANTS: usize = 6;
    let world = World::new().await;
    world.attacker.serve("/index.yaml", Page::new(page));
    let portolan = world
        .run(&[BUDGET, "--verify-delta=false", "--sync-workers=64", "--cpu-permits=2"])
        .await;
    world.until_honest_is_served().await;
    let sampler = PeakSampler::start(&portolan);
    for number in 0..TENANTS {
        world.attack_in(&format!("tenant-{number}"), "", "");
    }
    world.manifest(
        "later",
        &repository("other", "later", "helm", &world.honest.url("/charts"), ""),
    );
    world.until_ready("later").await;
    for status in world.until_all_decided(TENANTS).await {
        assert_eq!(status["reason"], reason, "{status}");
    }
    world.until_honest_is_served().await;
    let above = sampler.above_idle(what);
    // Two decodes of 64 MiB each.
    assert!(above <= 128 + 128 / 4, "{above} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_indexes_of_many_urls_stay_within_the_budget() {
    let index = many_urls(49_000);
    six_at_once("six indexes of 49,000 versions x 20 URLs", index, "TooComplex").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_of_the_largest_accepted_indexes_stay_within_the_budget() {
    let index = many_urls(9_500);
    six_at_once("six indexes of 9,500 versions x 20 URLs", index, "Synced").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_indexes_of_aliases_stay_within_the_budget() {
    six_at_once("six indexes of aliases", aliases(75_000), "Synced").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn icons_of_huge_dimensions_stay_within_the_budget() {
    let world = World::new().await;
    world.attacker.serve("/huge.png", Page::new(icons::claims(100_000)));
    let mut entry = Chart::new("boat", "1.0.0").pack().index_entry(&["a.tgz"]);
    entry["icon"] = world.attacker.url("/huge.png").into();
    world.attacker.serve("/index.yaml", Page::new(index([entry])));
    let portolan = world.run(&[BUDGET, "--icons"]).await;
    let sampler = PeakSampler::start(&portolan);
    for number in 0..8 {
        world.attack_in(&format!("tenant-{number}"), "", "");
    }
    world.until_honest_is_served().await;
    let error = world.until_icon_failed("hostile").await;
    assert!(error.contains("pixels"), "{error}");
    let above = sampler.above_idle("icons of 100,000 x 100,000 pixels");
    assert!(above <= 64, "{above} MiB");
}
