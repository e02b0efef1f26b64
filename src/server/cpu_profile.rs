//! CPU profiles of this process, in the format of pprof.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::ProfilerGuardBuilder;
use pprof::protos::Message as _;
use tokio::sync::oneshot;

use crate::budget::memory_left;

/// Samples per second of CPU time. Not a divisor of 100, so that periodic work is not always hit or missed.
const FREQUENCY: i32 = 99;
/// The process is slower while it is profiled.
pub const MAX_DURATION: Duration = Duration::from_secs(60);
/// Libraries in which no sample is taken: a stack cannot be unwound safely while they hold locks.
const NOT_SAMPLED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];
/// The profiler iterates over its samples by recursion.
const STACK_SIZE: usize = 16 << 20;

/// Memory that the profiler takes for its buffers, in bytes. It keeps half of it until the process ends.
const MEMORY: u64 = 192 << 20;

/// The signal and its timer exist once per process.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("another profile is being recorded")]
    Busy,
    #[error("a profile takes {} MiB of memory, more than the container's limit leaves; raise it", MEMORY >> 20)]
    Memory,
    #[error("failed to record a profile: {0}")]
    Failed(String),
}

/// Records all threads for at most [`MAX_DURATION`]. Returns a gzipped profile. Ends early if the future is dropped.
/// Fails if another profile is being recorded, memory is short, or the temporary directory is not writable.
pub async fn record(duration: Duration) -> Result<Vec<u8>, ProfileError> {
    let running = Running::start().ok_or(ProfileError::Busy)?;
    // The kernel would kill the process.
    if memory_left().is_some_and(|left| left < MEMORY) {
        return Err(ProfileError::Memory);
    }
    tracing::info!(?duration, "recording a CPU profile");
    let (_canceled, is_canceled) = channel();
    let (sender, profile) = oneshot::channel();
    let sample = move || {
        let profile = sample(duration.min(MAX_DURATION), &is_canceled);
        drop(running);
        // The requester may be gone.
        let _ = sender.send(profile);
    };
    let thread = thread::Builder::new()
        .name("cpu-profile".to_owned())
        .stack_size(STACK_SIZE);
    thread
        .spawn(sample)
        .map_err(|error| ProfileError::Failed(error.to_string()))?;
    let profile = profile.await.map_err(|_| "the profiler has ended".to_owned());
    profile.flatten().map_err(ProfileError::Failed)
}

struct Running;

impl Running {
    fn start() -> Option<Self> {
        if IS_RUNNING.swap(true, Ordering::AcqRel) {
            // Without a value of this type, whose drop would end the other's exclusive use.
            return None;
        }
        Some(Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Ordering::Release);
    }
}

fn sample(duration: Duration, canceled: &Receiver<()>) -> Result<Vec<u8>, String> {
    let builder = ProfilerGuardBuilder::default();
    let profiler = builder
        .frequency(FREQUENCY)
        .blocklist(&NOT_SAMPLED)
        .build()
        .map_err(|error| error.to_string())?;
    if canceled.recv_timeout(duration) == Err(RecvTimeoutError::Disconnected) {
        return Err("canceled".to_owned());
    }
    let report = profiler.report().build().map_err(|error| error.to_string())?;
    drop(profiler);
    let profile = report.pprof().map_err(|error| error.to_string())?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let written = gzip.write_all(&profile.encode_to_vec());
    written.and_then(|()| gzip.finish()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Instant;

    use flate2::read::GzDecoder;
    use pprof::protos::Profile;
    use tokio::time::sleep;

    use super::*;

    #[inline(never)]
    fn burn(until: Instant) -> u64 {
        let mut number = 0_u64;
        while Instant::now() < until {
            for _ in 0..10_000 {
                number = std::hint::black_box(number.wrapping_mul(3).wrapping_add(1));
            }
        }
        number
    }

    /// One test, since there is one profiler per process.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_profile_at_a_time_names_the_functions_that_take_cpu_time() {
        let work = thread::spawn(|| burn(Instant::now() + Duration::from_secs(5)));
        let canceled = tokio::spawn(record(MAX_DURATION));
        let pause = Duration::from_millis(10);
        while !IS_RUNNING.load(Ordering::Acquire) {
            sleep(pause).await;
        }
        for _ in 0..2 {
            assert!(matches!(record(MAX_DURATION).await, Err(ProfileError::Busy)));
        }
        canceled.abort();
        let profile = loop {
            match record(Duration::from_secs(1)).await {
                Err(ProfileError::Busy) => sleep(pause).await,
                profile => break profile.unwrap(),
            }
        };
        work.join().unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(profile.as_slice()).read_to_end(&mut bytes).unwrap();
        let profile = Profile::decode(bytes.as_slice()).unwrap();
        assert!(!profile.sample.is_empty());
        let names = &profile.string_table;
        assert!(names.iter().any(|name| name.contains("burn")), "{names:?}");
    }
}
