//! Portolan with the servers that it needs, and the cost of its work.

pub mod baseline;
mod cluster;
pub mod load;
pub mod measure;
mod objects;
mod process;
mod watch;

use std::time::{Duration, Instant};

pub use self::cluster::{Running, proxied};
pub use self::measure::{Sample, percentile};
pub use self::objects::{DEPLOYMENT, Namespaces, each, patch};
pub use self::process::{BenchProcess, POSTGRES, POSTGRES_PLAIN, SQLITE, at_seconds, helm};
pub use self::watch::StatusWatch;
pub use crate::support::chart_server::{ChartServer, Page};
pub use crate::support::control_plane::ControlPlane;
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchDir;

/// Number of measurements of a case, of which the table shows the median.
pub const RUNS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);

pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "the condition holds within {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
    }
}

fn sqlite(directory: &ScratchDir) -> String {
    format!("sqlite://{}", directory.join("portolan.db").display())
}

fn start<'a>(database: &str, flags: impl IntoIterator<Item = &'a str>) -> Portolan {
    let mut run = command(["run", "--database-url", database]);
    // The tests decode every index twice. The generated indexes name icons of another host.
    run.env("PORTOLAN_VERIFY_DELTA", "false").env("PORTOLAN_ICONS", "false");
    run.args(flags);
    Portolan::start(run)
}

async fn end(mut portolan: Portolan) {
    portolan.signal("TERM");
    let status = portolan.exit(PATIENCE).await;
    assert!(status.success(), "{status}: {:#?}", portolan.lines());
}
