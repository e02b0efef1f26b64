//! CPU and memory of processes, as Linux reports them.

use std::fs;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// One measurement, or the medians of several. Times are in seconds, memory is in bytes; zero means not measured.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    /// User and system time of all threads of the process.
    pub cpu: f64,
    pub wall: f64,
    pub postgres_cpu: f64,
    /// Highest resident memory, and resident memory before the case.
    pub peak: u64,
    pub idle: u64,
    pub rows: Option<usize>,
    pub requests: Option<usize>,
    /// CPU of the baseline, measured right before.
    pub baseline: f64,
}

impl Sample {
    /// A time without the usage of a process.
    pub fn of_wall(wall: f64) -> Self {
        Self::default().wall(wall)
    }

    pub fn wall(self, wall: f64) -> Self {
        Self { wall, ..self }
    }

    pub fn requests(self, count: usize) -> Self {
        let requests = Some(count);
        Self { requests, ..self }
    }

    pub fn against(self, baseline: f64) -> Self {
        Self { baseline, ..self }
    }

    pub fn times(self, factor: f64) -> Self {
        Self {
            cpu: self.cpu * factor,
            wall: self.wall * factor,
            postgres_cpu: self.postgres_cpu * factor,
            ..self
        }
    }

    /// Subtracts the counters of an earlier reading; memory is that of the later one.
    pub fn since(self, before: Self) -> Self {
        let difference = |(after, before): (usize, usize)| after - before;
        Self {
            cpu: self.cpu - before.cpu,
            wall: self.wall - before.wall,
            // Processes whose connection was closed are no longer counted.
            postgres_cpu: (self.postgres_cpu - before.postgres_cpu).max(0.0),
            rows: self.rows.zip(before.rows).map(difference),
            requests: self.requests.zip(before.requests).map(difference),
            ..self
        }
    }

    pub fn ratio(&self) -> f64 {
        self.cpu / self.baseline
    }

    /// Combines samples: medians of times, the highest of everything else.
    pub fn combined(samples: &[Self]) -> Self {
        let middle = |value: fn(&Self) -> f64| percentile(&samples.iter().map(value).collect::<Vec<_>>(), 50);
        let above_idle = |sample: &&Self| sample.peak.saturating_sub(sample.idle);
        let highest = samples.iter().max_by_key(above_idle).copied().unwrap_or_default();
        let cpu = middle(|sample| sample.cpu);
        let has_baseline = samples.iter().all(|sample| sample.baseline > 0.0);
        Self {
            cpu,
            wall: middle(|sample| sample.wall),
            postgres_cpu: middle(|sample| sample.postgres_cpu),
            rows: samples.iter().filter_map(|sample| sample.rows).max(),
            requests: samples.iter().filter_map(|sample| sample.requests).max(),
            // Each sample was divided by its own baseline, so that changes of the machine's speed cancel out.
            baseline: if has_baseline { cpu / middle(Self::ratio) } else { 0.0 },
            ..highest
        }
    }
}

/// Returns the value that this percentage of the values do not exceed.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let position = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(position).copied().unwrap_or(f64::NAN)
}

/// Returns user and system time of a process in seconds, including threads that have ended. `None` if it has ended.
pub fn cpu(pid: u32) -> Option<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok()?;
    clock.now().ok().map(|time| Duration::from(time).as_secs_f64())
}

/// Same with its children, including those that have ended.
pub fn cpu_with_children(pid: u32) -> Option<f64> {
    let running: f64 = children(pid).into_iter().filter_map(cpu).sum();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the bracket may contain spaces; `cutime` and `cstime` are the 16th and 17th field.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ended = fields.split(' ').skip(13).take(2).map(str::parse::<u32>);
    // Linux reports hundredths of a second.
    let ended = f64::from(ended.sum::<Result<u32, _>>().ok()?) / 100.0;
    Some(cpu(pid)? + running + ended)
}

/// Returns the children that have not ended, which each belong to one thread.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.join(" ").split_whitespace().flat_map(str::parse).collect()
}

/// Returns the CPU of the Postgres processes that serve connections to a database.
pub fn cpu_of_postgres(database: &str) -> f64 {
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

pub fn reset_peak_memory(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak of a child process can be reset");
}

/// Fields of memory: the peak, and what is resident.
pub const PEAK: &str = "VmHWM:";
pub const RESIDENT: &str = "VmRSS:";

/// Returns bytes; 0 if the process has ended.
pub fn memory(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}
