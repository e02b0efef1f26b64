//! What a process has used so far, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

/// Ticks of the clock in which `/proc` counts, a second.
static TICKS: LazyLock<f64> = LazyLock::new(|| {
    let output = Command::new("getconf").arg("CLK_TCK").output().ok();
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(100.0)
});

/// User and system time of a process. None if it is gone.
pub fn cpu(pid: u32) -> Option<Duration> {
    // The one leaves threads out that have ended, the other tells only whole ticks: whichever tells more is nearer.
    Some(of_living_threads(pid)?.max(of_all_threads(pid)?))
}

/// In nanoseconds, by the scheduler's own book.
fn of_living_threads(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let time = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    Some(threads.filter_map(time).sum())
}

/// In ticks of the clock, usually of 10 ms.
fn of_all_threads(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything; the two times are the 12th and 13th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = times.filter_map(|field| field.parse::<f64>().ok()).sum();
    Some(Duration::from_secs_f64(ticks / *TICKS))
}

/// CPU of a process over time, finer than the ticks of the clock although threads come and go.
pub struct Meter {
    pid: u32,
    /// The last that was seen of each thread, in nanoseconds, those that have ended included.
    threads: HashMap<u32, u64>,
    /// Of threads whose number was given again.
    ended: u64,
    /// Of threads that nobody has seen: what the clock tells more.
    unseen: u64,
}

impl Meter {
    /// Nothing is read yet.
    pub fn of(pid: u32) -> Self {
        Self {
            pid,
            threads: HashMap::new(),
            ended: 0,
            unseen: 0,
        }
    }

    /// User and system time so far. What a thread does between the last reading and its end is told by ticks only.
    pub fn read(&mut self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("it runs");
        for thread in threads.flatten() {
            let number = thread.file_name().to_str().and_then(|name| name.parse().ok());
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let time = text.split_whitespace().next().and_then(|time| time.parse().ok());
            if let (Some(number), Some(time)) = (number, time) {
                let last = self.threads.insert(number, time).unwrap_or_default();
                self.ended += if last > time { last } else { 0 };
            }
        }
        let seen = self.threads.values().sum::<u64>() + self.ended;
        let told = of_all_threads(self.pid).expect("it runs").as_nanos() as u64;
        self.unseen = self.unseen.max(told.saturating_sub(seen));
        Duration::from_nanos(seen + self.unseen)
    }
}

/// The most memory that a process has had resident, in bytes. None if it is gone.
pub fn peak_memory(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// The memory that a process has resident now, in bytes. None if it is gone.
pub fn resident_memory(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

/// The part of it that is pages of files, the program's own for the most.
pub fn resident_files(pid: u32) -> Option<u64> {
    memory(pid, "RssFile:")
}

/// Has the most memory counted from now on.
pub fn reset_peak_memory(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a child's peak can be reset");
}

fn memory(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// CPU of Postgres' processes that serve a database.
pub fn cpu_of_postgres(database: &str) -> Duration {
    let served = format!(" {database} ");
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let title = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            (title.starts_with("postgres:") && title.contains(&served)).then(|| cpu(pid))?
        })
        .sum()
}

/// The one in the middle, or the mean of the two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}
