//! The end of the process: a first signal asks for it, a second one forces it.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Failure;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one ends the process at once, with the status that a shell gives
/// to a process killed by it (143 or 130); a transaction under way is then rolled back by the database.
///
/// # Errors
/// When the signals can't be listened to.
pub fn on_signal() -> Result<CancellationToken, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("signals can't be listened to: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        let mut again = false;
        loop {
            let (name, status) = tokio::select! {
                _ = terminate.recv() => ("SIGTERM", 143),
                _ = interrupt.recv() => ("SIGINT", 130),
            };
            if again {
                tracing::warn!(signal = name, "exiting immediately");
                std::process::exit(status);
            }
            again = true;
            tracing::info!(signal = name, "shutting down; a second signal exits immediately");
            asked.cancel();
        }
    });
    Ok(token)
}
