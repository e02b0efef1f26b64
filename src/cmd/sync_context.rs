//! The way to chart repositories.

use super::{
    Failure,
    flags::{ContentFlags, FetchFlags},
};
use crate::catalog::Catalog;
use crate::controllers::apprepository::secrets::source::CredentialSource;
use crate::controllers::apprepository::sync::SyncContext;
use crate::controllers::apprepository::sync::location::FileAccess;
use crate::helm::index::DecodeLimits;
use crate::http::{Fetcher, Limits, Settings};
use crate::jq as filter;

/// What syncs work with, by the flags.
///
/// # Errors
/// As [`fetcher`].
pub fn tools(
    fetch: &FetchFlags,
    content: &ContentFlags,
    catalog: Catalog,
    credentials: CredentialSource,
    files: FileAccess,
    origin: String,
) -> Result<SyncContext, Failure> {
    Ok(SyncContext {
        catalog,
        fetcher: fetcher(fetch)?,
        credentials,
        fetch_limits: limits(fetch),
        decode_limits: DecodeLimits::default(),
        filter_limits: filter::Limits::default(),
        verify_delta: content.verify_delta,
        check_digests: content.oci_check_digests,
        keep_removed: content.keep_removed_versions,
        spool_dir: fetch.spool_dir.clone(),
        files,
        origin,
    })
}

/// The one HTTP client, by the flags.
///
/// # Errors
/// When the client can't be made, for one because the folder for temporary files is not there.
pub fn fetcher(flags: &FetchFlags) -> Result<Fetcher, Failure> {
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
        requests_at_once: usize::try_from(flags.host_requests_at_once.get()).unwrap_or(usize::MAX),
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
