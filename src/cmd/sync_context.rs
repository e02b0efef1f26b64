//! The settings of syncs, from flags.

use super::{
    Failure, count,
    flags::{ContentFlags, FetchFlags},
};
use crate::controllers::apprepository::SyncOptions;
use crate::http::{Fetcher, Limits, Settings};

/// Returns the settings of syncs.
///
/// # Errors
/// The HTTP client cannot be built, or the directory for temporary files does not exist.
pub fn options(fetch: &FetchFlags, content: &ContentFlags) -> Result<SyncOptions, Failure> {
    Ok(SyncOptions {
        fetcher: fetcher(fetch)?,
        fetch_limits: limits(fetch),
        verify_delta: content.verify_delta,
        check_digests: content.oci_check_digests,
        keep_removed: content.keep_removed_versions,
        spool_dir: fetch.spool_dir.clone(),
    })
}

fn fetcher(flags: &FetchFlags) -> Result<Fetcher, Failure> {
    if let Some(folder) = &flags.spool_dir
        && !folder.is_dir()
    {
        return Err(Failure::usage(format!("--spool-dir {} is no folder", folder.display())));
    }
    let settings = Settings {
        user_agent: flags.user_agent(),
        spool_dir: flags.spool_dir.clone(),
        requests_per_second: flags.host_requests_per_second,
        burst: flags.host_burst,
        max_concurrent_requests: count(flags.host_requests_at_once),
        allow_private_networks: flags.allow_private_networks,
    };
    Fetcher::new(settings).map_err(|error| Failure::failed(format!("can't make an HTTP client: {error}")))
}

/// The bounds of one download, by the flags.
#[must_use]
pub fn limits(flags: &FetchFlags) -> Limits {
    Limits {
        max_bytes: flags.index_max_bytes,
        connect: flags.connect_timeout,
        stall: flags.stall_timeout,
        total: flags.fetch_timeout,
    }
}
