use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::change::{dynamic_api, replace};
use super::manifests::{self, ManifestObject, patch_parameters};
use super::wait::{Expected, until_running};
use super::{ApplicationFlags, objects};
use crate::api::NamespacedName;
use crate::api::oam::{ApplicationRevision, ApplicationStatus, Condition, PARSED, labels};
use crate::cmd::flags::parse::positive_duration;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::oam::revisions::expand;
use crate::runtime::kube_client::call;

/// Deploy an Application: from a file, under a new version, or from a revision
#[derive(Args, Debug)]
pub struct Up {
    /// Name of an Application that exists
    #[arg(conflicts_with = "file")]
    name: Option<String>,
    /// File with Applications, Policies and Workflows; `-` for the standard input
    #[arg(long, short, value_name = "FILE", conflicts_with = "revision")]
    file: Option<PathBuf>,
    /// Version to publish; the release is then frozen (default with a name: the time)
    #[arg(long, value_name = "VERSION")]
    publish_version: Option<String>,
    /// Revision whose recorded spec is deployed, such as web-v3
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Wait until the Application runs; a failed condition ends the command with exit code 1
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "10m")]
    timeout: Duration,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Up {
    pub(super) async fn execute(self) -> Result<(), Error> {
        if let Some(version) = &self.publish_version {
            check_version(version)?;
        }
        if self.file.is_none() && self.revision.is_none() && self.name.is_none() {
            return Err(Error::Usage(
                "name an Application, a file with --file, or a revision with --revision".to_owned(),
            ));
        }
        let documents = self.file.as_deref().map(manifests::read).transpose()?;
        let (client, namespace) = self.place.connect().await?;
        let deployed = match (documents, &self.revision, &self.name) {
            (Some(documents), _, _) => self.apply(&client, &namespace, documents).await?,
            (None, Some(revision), name) => {
                let revision = NamespacedName::new(namespace, revision);
                vec![self.restore(&client, &revision, name.as_deref()).await?]
            }
            (None, None, name) => {
                let name = NamespacedName::new(namespace, name.as_deref().unwrap_or_default());
                vec![self.publish(&client, &name).await?]
            }
        };
        for expected in deployed.iter().filter(|_| self.wait) {
            until_running(&client, expected, self.timeout).await?;
        }
        Ok(())
    }

    async fn apply(&self, client: &Client, namespace: &str, documents: Vec<Value>) -> Result<Vec<Expected>, Error> {
        let file = self.file.as_deref().unwrap_or(Path::new("")).display();
        let mut manifests = Vec::new();
        for document in documents {
            manifests.push(ManifestObject::new(
                document,
                namespace,
                self.place.namespace.as_deref(),
            )?);
        }
        if manifests.is_empty() {
            return Err(Error::Failed(format!("{file} contains no objects")));
        }
        // Applications refer to the others.
        manifests.sort_by_key(|manifest| manifest.is_application);
        let mut deployed = Vec::new();
        for mut manifest in manifests {
            if let (true, Some(version)) = (manifest.is_application, &self.publish_version) {
                manifest.annotate(labels::PUBLISH_VERSION, version);
            }
            let (result, object) = manifest.apply(client).await?;
            output::print(&format!("{}: {result}\n", manifests::display(&manifest.object)))?;
            if manifest.is_application {
                deployed.push(expected(&manifest.name, &object, result != "unchanged"));
            }
        }
        Ok(deployed)
    }

    /// Publishes an Application as it is under a new version.
    async fn publish(&self, client: &Client, name: &NamespacedName) -> Result<Expected, Error> {
        let application = objects::application(client, name).await?;
        let by_time = || Timestamp::now().strftime("up-%Y%m%d%H%M%S").to_string();
        let version = self.publish_version.clone().unwrap_or_else(by_time);
        let current = application.annotations().get(labels::PUBLISH_VERSION);
        if current == Some(&version) {
            return Err(Error::Failed(format!(
                "{name} publishes version {version} already; choose another one with --publish-version"
            )));
        }
        let patch = json!({ "metadata": {
            "uid": application.uid(),
            "annotations": { labels::PUBLISH_VERSION: version },
        } });
        let applications = dynamic_api(client, &name.namespace);
        let written = call(applications.patch(&name.name, &patch_parameters(), &Patch::Merge(patch)))
            .await
            .map_err(|error| objects::application_error(name, "publish", error))?;
        output::print(&format!("{name}: published as {version}\n"))?;
        Ok(expected(name, &written, true))
    }

    /// Deploys the spec that a revision records.
    async fn restore(
        &self,
        client: &Client,
        revision_name: &NamespacedName,
        application: Option<&str>,
    ) -> Result<Expected, Error> {
        let revision = revision(client, revision_name).await?;
        let owner = revision.labels().get(labels::APP_NAME).cloned().unwrap_or_default();
        let name = NamespacedName::new(&revision_name.namespace, application.unwrap_or(&owner));
        if owner != name.name {
            return Err(Error::Failed(format!(
                "{} is a revision of Application {owner}, not of {}",
                revision_name.name, name.name
            )));
        }
        let contents = expand(&revision.spec).map_err(failed_to(format!("read revision {revision_name}")))?;
        let spec = serde_json::to_value(&contents.application.spec)?;
        let recorded = revision.annotations().get(labels::PUBLISH_VERSION);
        let version = self.publish_version.as_ref().or(recorded);
        let change = |live: &mut DynamicObject| {
            live.data["spec"] = spec.clone();
            match version {
                Some(version) => {
                    let version = version.clone();
                    live.annotations_mut()
                        .insert(labels::PUBLISH_VERSION.to_owned(), version);
                }
                // A version that stays would keep its own release.
                None => drop(live.annotations_mut().remove(labels::PUBLISH_VERSION)),
            }
        };
        let written = replace(client, &name, change).await?;
        output::print(&format!("{name}: deployed from revision {}\n", revision_name.name))?;
        Ok(expected(&name, &written, true))
    }
}

async fn revision(client: &Client, name: &NamespacedName) -> Result<ApplicationRevision, Error> {
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &name.namespace);
    call(revisions.get_opt(&name.name))
        .await
        .map_err(failed_to(format!("read revision {name}")))?
        .ok_or_else(|| {
            Error::Failed(format!(
                "revision {name} not found; `portolan vela history APPLICATION` lists those that are kept"
            ))
        })
}

/// Without a change, a failure of before counts too; that of the parser is always one of the observed generation.
fn expected(name: &NamespacedName, written: &DynamicObject, is_changed: bool) -> Expected {
    let status: ApplicationStatus = serde_json::from_value(written.data["status"].clone()).unwrap_or_default();
    let version = written.annotations().get(labels::PUBLISH_VERSION);
    let generation = written.metadata.generation.unwrap_or_default();
    let is_new_generation = status.observed_generation.is_none_or(|seen| seen < generation);
    let is_old = |condition: &Condition| !(is_new_generation && condition.type_ == PARSED);
    Expected {
        name: name.clone(),
        generation,
        publish_version: version.filter(|version| !version.is_empty()).cloned(),
        conditions_before: if is_changed {
            status.conditions.into_iter().filter(is_old).collect()
        } else {
            Vec::new()
        },
    }
}

/// Checks that names of ResourceTrackers may contain a version.
fn check_version(version: &str) -> Result<(), Error> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = [version.bytes().next(), version.bytes().last()];
    let has_ends = ends.iter().flatten().all(u8::is_ascii_alphanumeric);
    if !version.is_empty() && version.len() <= 63 && version.bytes().all(is_name) && has_ends {
        return Ok(());
    }
    Err(Error::Usage(
        "invalid value for --publish-version: use at most 63 lower case letters, digits, dots and dashes".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_can_still_not_be_parsed_has_failed() {
        let parsed = json!({ "type": "Parsed", "status": "False", "message": "no such type" });
        let workflow = json!({ "type": "Workflow", "status": "False", "message": "no rights" });
        let written = json!({
            "metadata": { "name": "web", "generation": 2 },
            "status": { "observedGeneration": 1, "conditions": [parsed, workflow] },
        });
        let written: DynamicObject = serde_json::from_value(written).unwrap();
        let expected = expected(&NamespacedName::new("shop", "web"), &written, true);
        let before = expected
            .conditions_before
            .iter()
            .map(|condition| condition.type_.as_str());
        assert_eq!(before.collect::<Vec<_>>(), ["Workflow"]);
    }

    #[test]
    fn versions_are_names() {
        for valid in ["a", "v1.2", "up-20260101000000"] {
            assert!(check_version(valid).is_ok(), "{valid}");
        }
        for invalid in ["", "A", "a b", "-a", "a.", "a/b", &"a".repeat(64)] {
            assert!(check_version(invalid).is_err(), "{invalid}");
        }
    }
}
