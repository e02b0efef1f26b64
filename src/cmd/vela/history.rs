use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use super::{ApplicationFlags, objects};
use crate::api::oam::{ApplicationRevision, labels};
use crate::cmd::flags::OutputFormat;
use crate::cmd::output::cell;
use crate::cmd::{Error, output};
use crate::controllers::oam::revisions::names::revision_number;

/// Show the revisions of an Application
///
/// `portolan vela up NAME --revision REVISION` deploys one of them again.
#[derive(Args, Debug)]
pub struct VelaHistory {
    /// Name of the Application
    name: String,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    place: ApplicationFlags,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    revision: String,
    number: Option<i64>,
    publish_version: String,
    /// Null before the end of the workflow.
    succeeded: Option<bool>,
    current: bool,
    created: Option<Timestamp>,
}

impl VelaHistory {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let latest = application.status.and_then(|status| status.latest_revision);
        let latest = latest.unwrap_or_default().name;
        let revisions = objects::revisions(&client, &name).await?;
        let views: Vec<View> = revisions.iter().map(|revision| View::new(revision, &latest)).collect();
        match self.output {
            OutputFormat::Json => output::print_json(&views),
            OutputFormat::Table if views.is_empty() => output::print(&format!("{name} has no revisions\n")),
            OutputFormat::Table => output::print(&text(&views, Timestamp::now())),
        }
    }
}

impl View {
    fn new(revision: &ApplicationRevision, latest: &str) -> Self {
        let version = revision.annotations().get(labels::PUBLISH_VERSION);
        let name = revision.name_any();
        Self {
            number: revision_number(&name),
            publish_version: version.cloned().unwrap_or_default(),
            succeeded: revision.status.as_ref().map(|status| status.succeeded),
            current: name == latest,
            created: revision.metadata.creation_timestamp.as_ref().map(|time| time.0),
            revision: name,
        }
    }
}

fn text(views: &[View], now: Timestamp) -> String {
    const HEADER: [&str; 6] = ["REVISION", "NUMBER", "VERSION", "SUCCEEDED", "CURRENT", "AGE"];
    let row = |view: &View| {
        vec![
            view.revision.clone(),
            view.number.map_or_else(|| "-".to_owned(), |number| number.to_string()),
            cell(&view.publish_version),
            view.succeeded
                .map_or_else(|| "-".to_owned(), |succeeded| succeeded.to_string()),
            if view.current { "yes" } else { "-" }.to_owned(),
            output::age(view.created, now),
        ]
    };
    output::table(&HEADER, views.iter().map(row))
}
