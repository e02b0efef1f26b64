use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt};

use super::JoinedFlags;
use crate::cmd::flags::joined::{self, Connector};
use crate::cmd::output::checks::{self, Checked, Finding, fine};
use crate::cmd::{Error, output};
use crate::runtime::kube_client::call_within;
use crate::text::truncate;

/// The time for all requests to a cluster.
const DEADLINE: Duration = Duration::from_secs(10);
/// Each may hold a response of 16 MiB.
const MAX_CONCURRENT: usize = 16;
const MAX_VERSION: usize = 64;

/// Check that joined clusters can be reached with their credentials
///
/// Asks each cluster for its version and for the rights of the credential, at most 16 at the same time and for at most 10 s
/// each. Exits with 1 if a cluster is refused or fails.
#[derive(Args, Debug)]
pub struct Check {
    /// Names of the clusters (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    joined: JoinedFlags,
}

impl Check {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let mut secrets = self.joined.secrets().await?;
        let mut missing: BTreeSet<String> = self.names.into_iter().collect();
        if missing.is_empty() && secrets.is_empty() {
            return output::print(&self.joined.none_joined());
        }
        if !missing.is_empty() {
            secrets.retain(|secret| missing.remove(&secret.name_any()));
        }
        let connector = &self.joined.connector().await?;
        let pending = stream::iter(&secrets).map(|secret| check(connector, secret));
        let mut checked = pending.buffered(MAX_CONCURRENT);
        let mut problems = 0;
        while let Some(checked) = checked.next().await {
            problems += checks::print(&[checked])?;
        }
        for name in missing {
            let problem = format!("{name}: no such cluster; `portolan cluster list` shows all");
            problems += checks::print(&[Err(problem)])?;
        }
        match problems {
            0 => Ok(()),
            1 => Err(Error::Failed("1 cluster failed".to_owned())),
            count => Err(Error::Failed(format!("{count} clusters failed"))),
        }
    }
}

async fn check(connector: &Connector, secret: &Secret) -> Checked {
    let name = secret.name_any();
    let client = connector
        .connect(secret)
        .await
        .map_err(|problem| format!("{name}: {problem}"))?;
    let answered = call_within(DEADLINE, ask(&client))
        .await
        .map_err(|error| format!("{name}: {error}"))?;
    let answer = answered.map_err(|problem| format!("{name}: {problem}"))?;
    let version = truncate(&answer.version, MAX_VERSION);
    if answer.has_all_rights {
        return fine(format!("{name}: version {version}"));
    }
    Ok(Finding::Warning(format!(
        "{name}: version {version}; the credential does not have all rights, so Applications may fail there"
    )))
}

struct Answer {
    version: String,
    has_all_rights: bool,
}

async fn ask(client: &Client) -> Result<Answer, String> {
    let version = joined::version(client).await?;
    Ok(Answer {
        version: version["gitVersion"].as_str().unwrap_or_default().to_owned(),
        has_all_rights: joined::may(client, "*", "*", "*").await?,
    })
}
