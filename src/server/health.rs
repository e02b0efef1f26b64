use std::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use crate::text::{printable, truncate};

/// Below the kubelet's default probe timeout of one second, so that the response can name the failed check.
const TIMEOUT: Duration = Duration::from_millis(800);

pub struct HealthCheck {
    name: &'static str,
    run: Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
    failing: AtomicBool,
    has_passed: AtomicBool,
    warns: bool,
    is_required: bool,
    metrics: Option<HealthMetrics>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CheckLabel {
    check: &'static str,
}

/// The results of health checks, as of the last probe.
#[derive(Clone, Debug, Default)]
pub struct HealthMetrics(Family<CheckLabel, Gauge>);

impl HealthMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Result of a health check at the last probe: 1 if it passed";
        registry.register("portolan_health_check", help, metrics.0.clone());
        metrics
    }
}

impl HealthCheck {
    /// Creates a check. Its error is logged but never sent to clients, which are not authenticated.
    pub fn new<F>(name: &'static str, run: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name,
            run: Box::new(move || Box::pin(run())),
            failing: AtomicBool::new(false),
            has_passed: AtomicBool::new(false),
            warns: false,
            is_required: true,
            metrics: None,
        }
    }

    /// Logs a failure as a warning, unless the check has never passed: at the start it fails in order.
    #[must_use]
    pub fn with_warning(mut self) -> Self {
        self.warns = true;
        self
    }

    /// Reports a failure without failing the probe.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    /// Exports the result as a metric from the first probe on.
    #[must_use]
    pub fn with_metric(mut self, metrics: &HealthMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    pub async fn is_ok(&self) -> bool {
        let result = timeout(TIMEOUT, (self.run)()).await;
        let result = result.unwrap_or_else(|_| Err(format!("no result within {TIMEOUT:?}")));
        let was_failing = self.failing.swap(result.is_err(), Ordering::Relaxed);
        let had_passed = self.has_passed.fetch_or(result.is_ok(), Ordering::Relaxed);
        match &result {
            Err(reason) if !was_failing => {
                let (check, reason) = (self.name, printable(&truncate(reason, 500)));
                if self.warns && had_passed {
                    tracing::warn!(check, reason, "health check failed")
                } else {
                    tracing::info!(check, reason, "health check failed")
                }
            }
            Ok(()) if was_failing => tracing::info!(check = self.name, "health check passed again"),
            _ => {}
        }
        if let Some(HealthMetrics(checks)) = &self.metrics {
            let label = CheckLabel { check: self.name };
            checks.get_or_create(&label).set(i64::from(result.is_ok()));
        }
        result.is_ok()
    }
}

pub(super) struct HealthReport {
    pub(super) is_ok: bool,
    /// One line per check, in the format of kube-apiserver.
    pub(super) text: String,
}

pub(super) async fn report(endpoint: &str, checks: &[HealthCheck]) -> HealthReport {
    let results = join_all(checks.iter().map(HealthCheck::is_ok)).await;
    let mut text = String::new();
    for (check, ok) in checks.iter().zip(&results) {
        // Writing to a String never fails.
        let _ = if *ok {
            writeln!(text, "[+]{} ok", check.name)
        } else {
            writeln!(text, "[-]{} failed: see log for reason", check.name)
        };
    }
    let is_ok = checks.iter().zip(&results).all(|(check, ok)| *ok || !check.is_required);
    let _ = writeln!(text, "{endpoint} check {}", if is_ok { "passed" } else { "failed" });
    HealthReport { is_ok, text }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_times_out_without_blocking_others() {
        let checks = [
            HealthCheck::new("caches", || async { Ok(()) }),
            HealthCheck::new("database", futures::future::pending),
        ];
        let started = tokio::time::Instant::now();
        let report = report("readyz", &checks).await;
        assert!(!report.is_ok);
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(
            report.text,
            "[+]caches ok\n[-]database failed: see log for reason\nreadyz check failed\n"
        );
    }

    #[tokio::test]
    async fn an_optional_check_is_reported_and_does_not_fail_the_probe() {
        let checks = [HealthCheck::new("database", || async { Err("away".to_owned()) }).optional()];
        let report = report("readyz", &checks).await;
        assert!(report.is_ok);
        assert_eq!(
            report.text,
            "[-]database failed: see log for reason\nreadyz check passed\n"
        );
    }

    #[tokio::test]
    async fn reasons_are_not_sent_to_clients() {
        let checks = [HealthCheck::new("database", || async {
            Err("no route to 10.0.0.7".to_owned())
        })];
        assert!(!report("readyz", &checks).await.text.contains("10.0.0.7"));
    }

    #[tokio::test]
    async fn a_process_without_checks_is_ready() {
        assert!(report("readyz", &[]).await.is_ok);
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_check_with_a_warning_warns_once_of_each_failure_after_it_has_passed() {
        let (log, is_up) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (writer, checked) = (log.clone(), Arc::clone(&is_up));
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let check = HealthCheck::new("database", move || {
            let result = if checked.load(Ordering::Relaxed) {
                Ok(())
            } else {
                Err("down".to_owned())
            };
            async { result }
        });
        let check = check.with_warning();
        for up in [false, false, true, false, false, true] {
            is_up.store(up, Ordering::Relaxed);
            assert_eq!(check.is_ok().await, up);
        }
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        let levels = text.lines().filter(|line| line.contains("health check failed"));
        let levels: Vec<bool> = levels.map(|line| line.contains("WARN")).collect();
        assert_eq!(levels, [false, true], "{text}");
    }
}
