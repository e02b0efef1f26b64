//! Shutdown by signals: the first one requests it, the second one exits.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The first SIGTERM or SIGINT cancels the token. A second one exits with the status that a shell reports for a process
/// killed by it (143 or 130); the database rolls back open transactions.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let requested = token.clone();
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
            requested.cancel();
        }
    });
    Ok(token)
}
