//! What a process has used so far, from `/proc`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
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

/// CPU of a process in nanoseconds, threads that have ended included: by its own clock, for which `/proc` is too coarse.
pub struct Meter {
    pid: u32,
    clock: Option<Clock>,
}

/// Perl, which is wherever Git is: without unsafe code Rust can't ask for the clock of another process.
struct Clock {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    // It ends with its orders.
    _child: Child,
}

/// The number of a process' clock is made of that of the process, as in Linux' `MAKE_PROCESS_CPUCLOCK`.
const CLOCK: &str = r#"$| = 1; while (<STDIN>) { printf "%.9f\n", clock_gettime((-$_ - 1) * 8 + 2) }"#;

impl Meter {
    /// Nothing is read yet.
    pub fn of(pid: u32) -> Self {
        let clock = Clock::start();
        if clock.is_none() {
            println!("there is no perl with Time::HiRes: CPU is told by the ticks of the clock, 10 ms");
        }
        Self { pid, clock }
    }

    /// User and system time so far.
    pub fn read(&mut self) -> Duration {
        let pid = self.pid;
        let read = self.clock.as_mut().and_then(|clock| clock.read(pid));
        read.unwrap_or_else(|| cpu(pid).expect("it runs"))
    }
}

impl Clock {
    fn start() -> Option<Self> {
        let mut child = Command::new("perl")
            .args(["-MTime::HiRes=clock_gettime", "-e", CLOCK])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut clock = Self {
            orders: child.stdin.take()?,
            answers: BufReader::new(child.stdout.take()?),
            _child: child,
        };
        clock.read(std::process::id()).map(|_| clock)
    }

    fn read(&mut self, pid: u32) -> Option<Duration> {
        writeln!(self.orders, "{pid}").ok()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).ok()?;
        let seconds: f64 = answer.trim().parse().ok()?;
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
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
