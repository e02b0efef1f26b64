//! Standard Prometheus process metrics, read from `/proc` at each scrape.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// USER_HZ, which is 100 on all current architectures of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collector of process metrics. Omits values that it cannot read.
#[derive(Debug)]
pub struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let stat = read("/proc/self/stat", Stat::parse);
        if let Some(stat) = &stat {
            let help = "Total user and system CPU time spent in seconds";
            let metric = ConstCounter::new(stat.cpu_ticks as f64 / TICKS_PER_SECOND);
            metric.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, metric.metric_type())?)?;
        }
        let boot = read("/proc/stat", |text| field(text, "btime "));
        let started = stat.zip(boot);
        let started = started.map(|(stat, boot)| boot as f64 + stat.start_ticks as f64 / TICKS_PER_SECOND);
        // Excludes the descriptor of the directory itself.
        let open = fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1));
        let started_help = "Start time of the process since unix epoch in seconds";
        for (name, help, value) in [
            ("process_start_time_seconds", started_help, started),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes",
                resident_memory().map(|bytes| bytes as f64),
            ),
            (
                "process_open_fds",
                "Number of open file descriptors",
                open.ok().map(|open| open as f64),
            ),
        ] {
            if let Some(metric) = value.map(ConstGauge::new) {
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
            }
        }
        Ok(())
    }
}

/// Returns the resident memory of this process in bytes; `None` if the system does not tell.
fn resident_memory() -> Option<u64> {
    let kibibytes = read("/proc/self/status", |text| field(text, "VmRSS:"));
    kibibytes.map(|kibibytes| kibibytes * 1024)
}

fn read<T>(path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    parse(&fs::read_to_string(path).ok()?)
}

/// Returns the number after `name` in a file of lines `name number …`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    /// Since boot.
    start_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field, the program's name in parentheses, may contain spaces and parentheses.
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let number = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(14)? + number(15)?,
            start_ticks: number(22)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text, registry::Registry};

    use super::*;

    #[test]
    fn program_names_may_contain_parentheses() {
        let text =
            "42 (a) b (c)) S 1 42 42 0 -1 4194560 9 8 7 6 150 50 3 2 20 0 4 0 12345 1000 200 18446744073709551615";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                cpu_ticks: 200,
                start_ticks: 12345
            })
        );
        assert_eq!(Stat::parse("42 (x) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn metrics_of_this_process_are_collected() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessMetrics));
        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = out
                .lines()
                .find(|line| line.starts_with(&format!("{name} ")))
                .unwrap_or_else(|| panic!("{name} in {out}"));
            line.split(' ').nth(1).unwrap().parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1_000_000.0);
        assert!(value("process_open_fds") >= 3.0);
        let age = jiff::Timestamp::now().as_second() as f64 - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
    }
}
