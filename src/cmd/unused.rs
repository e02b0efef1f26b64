//! Flags of Kubeapps' syncer that all of its commands accept, but that say something to `sync` only.

use clap::Args;

/// Accepted and not used, so that one set of arguments fits all commands. Nothing is said about them: they lose no meaning here, since
/// what fetches nothing needs none of them.
#[derive(Args, Debug)]
pub struct UnusedFlags {
    /// Used by `sync` only
    #[arg(long, hide = true, default_value = "")]
    user_agent_comment: String,
    /// Used by `sync` only
    #[arg(long, hide = true, default_value = "")]
    filter_rules: String,
    /// Used by `sync` only
    #[arg(long, hide = true)]
    pass_credentials: bool,
    /// Used by `sync` only
    #[arg(long, hide = true)]
    tls_insecure_skip_verify: bool,
}
