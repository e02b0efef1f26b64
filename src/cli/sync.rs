//! `portolan sync`: one repository, once.

use clap::{ArgAction, Args};

use super::{
    Failure,
    flags::{DatabaseFlags, FetchFlags, LogFlags},
    obsolete::ObsoleteFlags,
    values::{CommaSeparated, boolean},
};

/// What the one-shot commands have in common: the persistent flags of Kubeapps' asset-syncer.
#[derive(Args, Debug)]
pub struct OneShotFlags {
    /// The namespace of the repository, under which its charts are kept
    #[arg(
        long,
        env = "PORTOLAN_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "default"
    )]
    pub namespace: String,
    /// The namespace whose charts Kubeapps shows in every other. Charts are kept under --namespace whatever it is: accepted so that
    /// the arguments of Kubeapps' syncer fit
    #[arg(
        long,
        env = "PORTOLAN_GLOBAL_REPOS_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "kubeapps"
    )]
    pub global_repos_namespace: String,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub fetch: FetchFlags,
    /// Only charts that this jq filter keeps, as JSON {"jq": "…", "variables": {…}}. Not supported yet: a filter is refused rather than ignored
    #[arg(
        long,
        env = "PORTOLAN_FILTER_RULES",
        value_name = "JSON",
        default_value = "",
        help_heading = "Repository"
    )]
    pub filter_rules: String,
    /// Send credentials to other hosts too. Credentials are not supported yet
    #[arg(long, env = "PORTOLAN_PASS_CREDENTIALS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, action = ArgAction::Set, value_parser = boolean, help_heading = "Repository")]
    pub pass_credentials: bool,
    /// Trust any certificate. Not supported yet: certificates are verified, and one that is not trusted fails the sync
    #[arg(long, env = "PORTOLAN_TLS_INSECURE_SKIP_VERIFY", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value_t = false, action = ArgAction::Set, value_parser = boolean, help_heading = "Repository")]
    pub tls_insecure_skip_verify: bool,
    #[command(flatten)]
    pub logging: LogFlags,
    #[command(flatten)]
    pub obsolete: ObsoleteFlags,
}

/// Sync one Helm repository into the catalogue, once.
///
/// Takes the arguments and the environment (DB_PASSWORD) of Kubeapps' asset-syncer. With SQLite it can't run beside `portolan run`,
/// with Postgres it can.
#[derive(Args, Debug)]
pub struct Sync {
    /// The name of the repository
    pub name: String,
    /// Where it is: http(s)://…
    pub url: String,
    /// Its type: helm
    #[arg(value_name = "TYPE")]
    pub kind: String,
    /// The OCI repositories below the URL, separated by commas. OCI is not supported yet
    #[arg(
        long,
        env = "PORTOLAN_OCI_REPOSITORIES",
        value_name = "NAMES",
        help_heading = "Repository"
    )]
    pub oci_repositories: Vec<CommaSeparated>,
    /// Accept an index that has become much smaller or empty: the digest that the refusal names
    #[arg(
        long,
        env = "PORTOLAN_ALLOW_SHRINK",
        value_name = "DIGEST",
        help_heading = "Repository"
    )]
    pub allow_shrink: Option<String>,
    #[command(flatten)]
    pub one_shot: OneShotFlags,
}

impl Sync {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.one_shot.obsolete.warn();
        Ok(())
    }
}
