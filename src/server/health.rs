//! Whether the process is ready: a list of named checks, each with a short deadline.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use tokio::time::timeout;

use crate::text::{printable, truncate};

/// How long one check may take. A kubelet gives a probe one second unless told otherwise; an answer that names the culprit must be there first.
const DEADLINE: Duration = Duration::from_millis(800);

/// One thing that must be so before the process counts as ready.
pub struct Check {
    name: &'static str,
    ask: Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
    /// So that the log tells of a change once, not of each probe.
    failing: AtomicBool,
}

impl Check {
    /// A check of that name. The error is a reason for the log: it is not shown to whoever asks over HTTP, who may be anybody.
    pub fn new<F>(name: &'static str, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name,
            ask: Box::new(move || Box::pin(ask())),
            failing: AtomicBool::new(false),
        }
    }

    /// Asks once, and logs when the answer is another than last time.
    async fn is_ok(&self) -> bool {
        let result = match timeout(DEADLINE, (self.ask)()).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {DEADLINE:?}")),
        };
        let was_failing = self.failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(reason) if !was_failing => {
                tracing::info!(
                    check = self.name,
                    reason = printable(&truncate(reason, 500)),
                    "readiness check failed"
                );
            }
            Ok(()) if was_failing => tracing::info!(check = self.name, "readiness check passed again"),
            _ => {}
        }
        result.is_ok()
    }
}

/// What all checks say together.
pub(super) struct Report {
    pub(super) ready: bool,
    /// One line a check, in the form of Kubernetes' own servers: `[+]name ok`, `[-]name failed`.
    pub(super) text: String,
}

/// Asks all checks side by side, so that the answer takes no longer than the slowest of them.
pub(super) async fn report(endpoint: &str, checks: &[Check]) -> Report {
    let answers = join_all(checks.iter().map(Check::is_ok)).await;
    let mut text = String::new();
    for (check, ok) in checks.iter().zip(&answers) {
        // Writing to a String can't fail.
        let _ = match ok {
            true => writeln!(text, "[+]{} ok", check.name),
            false => writeln!(text, "[-]{} failed: the reason is in the log", check.name),
        };
    }
    let ready = answers.iter().all(|ok| *ok);
    let _ = writeln!(text, "{endpoint} check {}", if ready { "passed" } else { "failed" });
    Report { ready, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_that_never_answers_fails_in_time_and_hides_none_of_the_others() {
        let checks = [
            Check::new("caches", || async { Ok(()) }),
            Check::new("database", futures::future::pending),
        ];
        let started = tokio::time::Instant::now();
        let report = report("readyz", &checks).await;
        assert!(!report.ready);
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(
            report.text,
            "[+]caches ok\n[-]database failed: the reason is in the log\nreadyz check failed\n"
        );
    }

    #[tokio::test]
    async fn a_reason_is_not_shown_to_whoever_asks() {
        let checks = [Check::new("database", || async {
            Err("no route to 10.0.0.7".to_owned())
        })];
        assert!(!report("readyz", &checks).await.text.contains("10.0.0.7"));
    }

    #[tokio::test]
    async fn without_checks_it_is_ready() {
        assert!(report("readyz", &[]).await.ready);
    }
}
