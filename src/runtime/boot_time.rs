//! A clock that runs while the machine is suspended.

use std::time::Duration;

/// Includes the time in suspension, which `Instant` leaves out on Linux. For deadlines that other machines rely on.
#[must_use]
pub fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    // Counts suspended time on macOS.
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    // Both are never negative.
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
