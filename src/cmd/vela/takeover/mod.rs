//! `portolan vela takeover`.

mod preview;

use clap::Args;
use kube::core::DeserializeGuard;
use kube::{Client, ResourceExt};

use super::change::annotate;
use super::diff::ObjectComparison;
use super::joined::Clusters;
use super::render::EvaluatorFlags;
use super::support::Support;
use super::{ApplicationFlags, DefinitionNamespace, objects};
use crate::api::oam::{Application, labels};
use crate::api::{Guarded, NamespacedName};
use crate::cmd::flags::joined::ConnectorFlags;
use crate::cmd::flags::non_empty;
use crate::cmd::{Error, output};

/// Hand Applications over from vela-core to Portolan, or give them back
///
/// Sets the annotation app.oam.dev/controller-version-require: vela-core skips the Application from then on, and a Portolan
/// with the same --compat-version and --ignore-app-without-controller-version deploys it. An Application that is not
/// supported, or that requires another version, is left as it is and named; the command then exits with 1.
#[derive(Args, Debug)]
pub struct Takeover {
    /// Name of the Application
    #[arg(required_unless_present_any = ["all", "all_namespaces"])]
    name: Option<String>,
    /// All Applications of the namespace
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// All Applications of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["name", "all", "namespace"])]
    all_namespaces: bool,
    /// Change nothing, and print what the first pass of Portolan would change
    #[arg(long)]
    dry_run: bool,
    /// Remove the annotation, so that vela-core deploys the Applications again
    #[arg(long)]
    give_back: bool,
    /// Value of this flag of the Portolan that shall deploy the Applications, which must not be the version of vela-core
    #[arg(long, value_name = "VERSION")]
    compat_version: String,
    #[command(flatten)]
    evaluator: EvaluatorFlags,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    connector: ConnectorFlags,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Takeover {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, namespace) = self.place.connect().await?;
        let applications = self.applications(&client, &namespace).await?;
        if applications.is_empty() {
            return output::print("no Applications\n");
        }
        let mut handover = Handover::new(&self, &client, &namespace).await?;
        let mut failures = 0;
        for Guarded(DeserializeGuard(object)) in applications {
            let (meta, result) = match object {
                Ok(application) => (application.metadata.clone(), handover.hand_over(&application).await),
                Err(invalid) => {
                    let error = format!("failed to decode the object: {}", invalid.error);
                    (invalid.metadata, Err(Error::Failed(error)))
                }
            };
            if let Err(error) = result {
                let name = NamespacedName::of(&meta).unwrap_or_default();
                output::print_failure(&format!("{name}: {}", error.into_message()));
                failures += 1;
            }
        }
        output::fail_if_any(failures, "these Applications are left as they are")
    }

    async fn applications(&self, client: &Client, namespace: &str) -> Result<Vec<Guarded<Application>>, Error> {
        match &self.name {
            Some(name) => {
                let application = objects::application(client, &NamespacedName::new(namespace, name)).await?;
                Ok(vec![Guarded(DeserializeGuard(Ok(application)))])
            }
            None if self.all_namespaces => objects::list_applications(client, None).await,
            None if self.all => objects::list_applications(client, Some(namespace)).await,
            None => Err(Error::Usage("name an Application, or set --all or -A".to_owned())),
        }
    }
}

struct Handover<'a> {
    flags: &'a Takeover,
    client: &'a Client,
    version: &'a str,
    definition_namespace: &'a str,
    support: Support<'a>,
    /// For a dry run that takes over.
    comparison: Option<ObjectComparison>,
}

impl<'a> Handover<'a> {
    async fn new(flags: &'a Takeover, client: &'a Client, namespace: &str) -> Result<Self, Error> {
        let definition_namespace = &flags.definitions.system_definition_namespace;
        let definition_namespace = non_empty(Some(definition_namespace)).unwrap_or_default();
        let Some(version) = non_empty(Some(&flags.compat_version)) else {
            return Err(Error::Usage(
                "--compat-version is empty; set that of the Portolan that shall deploy the Applications".to_owned(),
            ));
        };
        let mut support = Support::new(client, definition_namespace);
        if flags.name.is_none() && !flags.give_back {
            support
                .load_trackers((!flags.all_namespaces).then_some(namespace))
                .await?;
        }
        let comparison = (flags.dry_run && !flags.give_back).then(|| {
            let cluster = &flags.place.cluster;
            let clusters = Clusters::new(client.clone(), definition_namespace, &flags.connector, cluster);
            ObjectComparison::new(clusters, &flags.evaluator)
        });
        Ok(Self {
            flags,
            client,
            version,
            definition_namespace,
            support,
            comparison,
        })
    }

    /// Takes an Application over, or gives it back. An error says why it is left as it is.
    async fn hand_over(&mut self, application: &Application) -> Result<(), Error> {
        let name = objects::identity(application).name;
        let gives_back = self.flags.give_back;
        let required = application.annotations().get(labels::VERSION_REQUIRED);
        let is_due = is_due(required.map(String::as_str), self.version, gives_back).map_err(Error::Failed)?;
        if is_due && application.metadata.deletion_timestamp.is_some() {
            return Err(Error::Failed("is being deleted; wait until it is gone".to_owned()));
        }
        let state = match (is_due, gives_back) {
            (false, false) => "already taken over",
            (false, true) => "not taken over",
            (true, false) => return self.take_over(application, &name).await,
            (true, true) => {
                check_revisions(self.client, &name).await?;
                if self.flags.dry_run {
                    "would be given back"
                } else {
                    annotate(self.client, application, labels::VERSION_REQUIRED, None).await?;
                    "given back"
                }
            }
        };
        print_state(&name, state)
    }

    async fn take_over(&mut self, application: &Application, name: &NamespacedName) -> Result<(), Error> {
        if self.flags.name.is_some() {
            self.support.load_trackers_of(name).await?;
        }
        self.support.check(application).await?.into_result()?;
        if let Some(comparison) = &self.comparison {
            let mut declared = application.clone();
            let annotation = (labels::VERSION_REQUIRED.to_owned(), self.version.to_owned());
            declared.annotations_mut().extend([annotation]);
            let definitions = self.support.definitions(&name.namespace).await?;
            let definitions = (definitions, self.definition_namespace);
            return preview::print(comparison, application, declared, definitions).await;
        }
        annotate(self.client, application, labels::VERSION_REQUIRED, Some(self.version)).await?;
        print_state(name, "taken over")
    }
}

fn print_state(name: &NamespacedName, state: &str) -> Result<(), Error> {
    output::print(&format!("{name}: {state}\n"))
}

/// Returns false if nothing is left to do. An error says why an Application is left as it is.
fn is_due(required: Option<&str>, version: &str, gives_back: bool) -> Result<bool, String> {
    match required {
        None => Ok(!gives_back),
        Some(required) if required == version => Ok(gives_back),
        Some(required) => Err(format!(
            "requires version {required:?}, not {version:?}: it is another controller's, or a rollback has not ended; \
             set --compat-version, or remove the annotation {}",
            labels::VERSION_REQUIRED
        )),
    }
}

/// Refuses revisions from which vela-core would deploy empty Secrets.
async fn check_revisions(client: &Client, name: &NamespacedName) -> Result<(), Error> {
    let revisions = objects::revisions(client, name).await?;
    let redacted = revisions
        .iter()
        .filter(|revision| revision.annotations().contains_key(labels::REDACTED));
    let names: Vec<String> = redacted.map(ResourceExt::name_any).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "vela-core would deploy empty Secrets from {}, which lack their data; run Portolan without \
         --redact-secrets-in-revisions, which completes the latest revision, and delete older ones",
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_vela_core(None, Some(true), Some(false))]
    #[case::ours(Some("portolan"), Some(false), Some(true))]
    #[case::frozen(Some("Disabled"), None, None)]
    #[case::of_another_version(Some("Portolan"), None, None)]
    #[case::empty(Some(""), None, None)]
    fn only_an_application_that_requires_no_other_version_is_handed_over(
        #[case] required: Option<&str>,
        #[case] is_taken_over: Option<bool>,
        #[case] is_given_back: Option<bool>,
    ) {
        assert_eq!(is_due(required, "portolan", false).ok(), is_taken_over);
        assert_eq!(is_due(required, "portolan", true).ok(), is_given_back);
    }
}
