//! CPU and memory of processes, as Linux reports them.

use std::fs;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// One measurement, or the medians of several. Times are in seconds, memory is in bytes; zero means not measured.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Sample {
    /// User and system time of all threads of the process.
    pub cpu: f64,
    pub wall: f64,
    /// CPU of the database's processes.
    pub postgres_cpu: f64,
    /// Highest resident memory, and resident memory before the case.
    pub peak: u64,
    pub idle: u64,
    /// Rows of charts inserted, updated or deleted.
    pub rows: Option<usize>,
    pub requests: Option<usize>,
    /// CPU of the baseline, measured right before.
    pub baseline: f64,
}

impl Sample {
    /// Returns the same sample with the CPU of its baseline.
    pub fn against(self, baseline: f64) -> Self {
        Self { baseline, ..self }
    }

    /// Subtracts CPU and requests of an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            requests: self.requests.zip(before.requests).map(|(after, before)| after - before),
            ..self
        }
    }

    /// CPU as a multiple of the baseline's.
    pub fn ratio(&self) -> f64 {
        self.cpu / self.baseline
    }

    /// Combines samples: medians of times, the highest of everything else.
    pub fn combined(samples: &[Self]) -> Self {
        let middle = |value: fn(&Self) -> f64| median(samples.iter().map(value).collect());
        let cpu = middle(|sample| sample.cpu);
        let peak = samples
            .iter()
            .max_by_key(|sample| sample.peak.saturating_sub(sample.idle));
        Self {
            cpu,
            wall: middle(|sample| sample.wall),
            postgres_cpu: middle(|sample| sample.postgres_cpu),
            peak: peak.map_or(0, |sample| sample.peak),
            idle: peak.map_or(0, |sample| sample.idle),
            rows: samples.iter().filter_map(|sample| sample.rows).max(),
            requests: samples.iter().filter_map(|sample| sample.requests).max(),
            // Each sample was divided by its own baseline, so that changes of the machine's speed cancel out.
            baseline: if samples.iter().all(|sample| sample.baseline > 0.0) {
                cpu / middle(Self::ratio)
            } else {
                0.0
            },
        }
    }
}

/// Returns user and system time of a process, including threads that have ended. `None` if it has ended.
pub fn cpu(pid: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok()?;
    clock.now().ok().map(Duration::from)
}

/// Returns user and system time of a process and its children, including children that have ended. `None` if it has
/// ended.
pub fn cpu_with_children(pid: u32) -> Option<Duration> {
    let running: Duration = children(pid).into_iter().filter_map(cpu).sum();
    Some(cpu(pid)? + running + cpu_of_ended_children(pid)?)
}

fn cpu_of_ended_children(pid: u32) -> Option<Duration> {
    /// Linux reports hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the bracket may contain spaces; `cutime` and `cstime` are the 16th and 17th field.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<u32>);
    ticks.sum::<Result<u32, _>>().ok().map(|ticks| TICK * ticks)
}

/// Returns the children that have not ended, which each belong to one thread.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

/// Returns bytes: the sum of the peaks of a process and its children.
pub fn peak_memory_with_children(pid: u32) -> u64 {
    let of_children = children(pid)
        .into_iter()
        .filter_map(|child| find_memory(child, "VmHWM:"));
    peak_memory(pid) + of_children.sum::<u64>()
}

/// Returns bytes.
pub fn peak_memory(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// Returns bytes.
pub fn resident_memory(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

pub fn reset_peak_memory(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak of a child process can be reset");
}

fn memory(pid: u32, field: &str) -> u64 {
    find_memory(pid, field).expect("the process runs, and Linux reports its memory in KiB")
}

/// Returns `None` if the process has ended.
fn find_memory(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns CPU of the Postgres processes that serve connections to a database.
pub fn cpu_of_postgres(database: &str) -> Duration {
    let served = format!(" {database} ");
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let title = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            (title.starts_with("postgres:") && title.contains(&served)).then(|| cpu(pid))?
        })
        .sum()
}

/// Returns the value in the middle; measurements are repeated an odd number of times.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
