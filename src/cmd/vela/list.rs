use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use super::support::Support;
use super::{ApplicationFlags, DefinitionNamespace, objects};
use crate::api::Guarded;
use crate::api::oam::{Application, labels};
use crate::cmd::flags::OutputFormat;
use crate::cmd::output::cell;
use crate::cmd::{Error, output};

/// List Applications
#[derive(Args, Debug)]
pub struct VelaList {
    /// All namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only Applications that the controller leaves alone, with the reasons; also before it runs
    #[arg(long)]
    unsupported: bool,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: ApplicationFlags,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    name: String,
    phase: String,
    healthy_services: usize,
    services: usize,
    revision: String,
    publish_version: String,
    created: Option<Timestamp>,
    /// The first condition that is false.
    problem: Option<String>,
    unsupported: Vec<String>,
}

impl VelaList {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, namespace) = self.place.connect().await?;
        let scope = (!self.all_namespaces).then_some(namespace.as_str());
        let applications = objects::list_applications(&client, scope).await?;
        let mut views: Vec<View> = Vec::new();
        let mut support = Support::new(&client, &self.definitions.system_definition_namespace);
        if self.unsupported {
            support.load_trackers(scope).await?;
        }
        for Guarded(object) in applications {
            match object.0 {
                Ok(application) => {
                    let mut view = View::new(&application);
                    if self.unsupported {
                        view.unsupported = support.check(&application).await?.unsupported;
                    }
                    views.push(view);
                }
                Err(invalid) => views.push(View {
                    namespace: invalid.metadata.namespace.unwrap_or_default(),
                    name: invalid.metadata.name.unwrap_or_default(),
                    unsupported: vec!["an object that cannot be decoded".to_owned()],
                    problem: Some(format!("failed to decode the object: {}", invalid.error)),
                    ..View::default()
                }),
            }
        }
        if self.unsupported {
            views.retain(|view| !view.unsupported.is_empty());
        }
        let within = if self.all_namespaces {
            String::new()
        } else {
            format!(" in namespace {namespace}; -A lists all namespaces")
        };
        let what = if self.unsupported {
            "unsupported Applications"
        } else {
            "Applications"
        };
        match self.output {
            OutputFormat::Json => output::print_json(&views),
            OutputFormat::Table if views.is_empty() => output::print(&format!("no {what}{within}\n")),
            OutputFormat::Table if self.unsupported => output::print(&unsupported_text(&views)),
            OutputFormat::Table => output::print(&text(&views, Timestamp::now())),
        }
    }
}

impl View {
    fn new(application: &Application) -> Self {
        let status = application.status.clone().unwrap_or_default();
        let failed = status.conditions.iter().find(|condition| condition.status == "False");
        let latest = status.latest_revision.unwrap_or_default();
        let version = application.annotations().get(labels::PUBLISH_VERSION);
        Self {
            namespace: application.namespace().unwrap_or_default(),
            name: application.name_any(),
            phase: status.phase,
            healthy_services: status.services.iter().filter(|service| service.healthy).count(),
            services: status.services.len(),
            revision: latest.name,
            publish_version: version.cloned().unwrap_or_default(),
            created: application.metadata.creation_timestamp.as_ref().map(|time| time.0),
            problem: failed.map(|failed| format!("{}: {}", failed.type_, failed.message)),
            unsupported: Vec::new(),
        }
    }
}

fn text(views: &[View], now: Timestamp) -> String {
    const HEADER: [&str; 7] = ["NAMESPACE", "NAME", "PHASE", "HEALTHY", "REVISION", "VERSION", "AGE"];
    let row = |view: &View| {
        vec![
            view.namespace.clone(),
            view.name.clone(),
            cell(&view.phase),
            format!("{}/{}", view.healthy_services, view.services),
            cell(&view.revision),
            cell(&view.publish_version),
            output::age(view.created, now),
        ]
    };
    let problems = views.iter().filter_map(|view| {
        let problem = view.problem.as_ref()?;
        Some(format!("{}/{}: {problem}", view.namespace, view.name))
    });
    output::table(&HEADER, views.iter().map(row)) + &output::section("\n", problems)
}

fn unsupported_text(views: &[View]) -> String {
    const HEADER: [&str; 3] = ["NAMESPACE", "NAME", "NOT SUPPORTED"];
    let row = |view: &View| vec![view.namespace.clone(), view.name.clone(), view.unsupported.join(", ")];
    output::table(&HEADER, views.iter().map(row))
}
