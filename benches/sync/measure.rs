//! What a process has used so far, from `/proc`.

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

/// The most memory that a process has had resident, in bytes. None if it is gone.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
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
