use std::collections::BTreeMap;

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde::Serialize;

use super::JoinedFlags;
use crate::cmd::flags::OutputFormat;
use crate::cmd::output::cell;
use crate::cmd::{Error, output};
use crate::controllers::oam::clusters::credential::{ENDPOINT, ENDPOINT_TYPE};
use crate::controllers::oam::clusters::{ALIAS, CREDENTIAL_TYPE};
use crate::text::truncate;

/// In bytes. What is longer is refused.
const MAX_ENDPOINT: usize = 2 << 10;

/// List the joined clusters, and why some are refused
///
/// Reads the Secrets, and sends nothing to the clusters.
#[derive(Args, Debug)]
pub struct List {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    joined: JoinedFlags,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    name: String,
    alias: String,
    credential_type: String,
    endpoint: String,
    /// Without the labels of the types.
    labels: BTreeMap<String, String>,
    /// The reason why the cluster is refused.
    problem: Option<String>,
}

impl List {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let secrets = self.joined.secrets().await?;
        let connector = self.joined.connector().await?;
        let mut views = Vec::new();
        for secret in &secrets {
            let problem = connector.connect(secret).await.err();
            views.push(View::new(secret, problem));
        }
        match self.output {
            OutputFormat::Json => output::print_json(&views),
            OutputFormat::Table if views.is_empty() => output::print(&self.joined.none_joined()),
            OutputFormat::Table => output::print(&text(&views)),
        }
    }
}

impl View {
    fn new(secret: &Secret, problem: Option<String>) -> Self {
        let mut labels = secret.labels().clone();
        let credential_type = labels.remove(CREDENTIAL_TYPE).unwrap_or_default();
        // cluster-gateway finds the way to clusters of other types.
        let endpoint_type = labels.remove(ENDPOINT_TYPE).filter(|type_| type_ != "Const");
        let data = secret.data.as_ref().and_then(|data| data.get(ENDPOINT));
        let endpoint = data.map(|bytes| output::redacted_url(&String::from_utf8_lossy(&bytes.0)));
        let endpoint = endpoint_type.or(endpoint).unwrap_or_default();
        Self {
            name: secret.name_any(),
            alias: secret.annotations().get(ALIAS).cloned().unwrap_or_default(),
            credential_type,
            endpoint: truncate(&endpoint, MAX_ENDPOINT),
            labels,
            problem,
        }
    }
}

fn text(views: &[View]) -> String {
    const HEADER: [&str; 6] = ["NAME", "ALIAS", "CREDENTIAL", "ENDPOINT", "ACCEPTED", "LABELS"];
    let row = |view: &View| {
        let accepted = if view.problem.is_none() { "yes" } else { "no" };
        let labels = view.labels.iter().map(|(label, value)| format!("{label}={value}"));
        vec![
            view.name.clone(),
            cell(&view.alias),
            cell(&view.credential_type),
            cell(&view.endpoint),
            accepted.to_owned(),
            cell(&labels.collect::<Vec<_>>().join(",")),
        ]
    };
    let problems = views.iter().filter_map(|view| {
        let problem = view.problem.as_ref()?;
        Some(format!("{}: {problem}", view.name))
    });
    output::table(&HEADER, views.iter().map(row)) + &output::section("\n", problems)
}
