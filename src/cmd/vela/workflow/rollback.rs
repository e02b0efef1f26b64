use std::collections::BTreeMap;

use clap::Args;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ManagedResource, ResourceTracker, labels};
use crate::cmd::vela::change::{change_status, refused, replace};
use crate::cmd::vela::manifests::patch_parameters;
use crate::cmd::vela::{ApplicationFlags, objects};
use crate::cmd::{Error, failed_to, output};
use crate::controllers::oam::revisions::expand;
use crate::controllers::oam::trackers::{TrackerType, decode};
use crate::controllers::oam::workflow::operations::{self, choose_rollback, restore_status};
use crate::runtime::kube_client::call;

/// Value of the annotation with the required version that makes every controller leave an Application alone.
const FROZEN: &str = "Disabled";
/// The required version before the rollback, as JSON. A command that was killed has not restored it, and the next one does.
const FORMER_VERSION: &str = "portolan.dev/version-before-rollback";

/// Return an Application to its last revision that has succeeded
///
/// A published version that was in place becomes current again without another run of its workflow. Otherwise the spec of the
/// revision is deployed.
#[derive(Args, Debug)]
pub struct Rollback {
    /// Name of the Application
    name: String,
    /// Roll back; without it, the revisions are only shown
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Rollback {
    pub(in crate::cmd::vela) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let revisions = objects::revisions(&client, &name).await?;
        let chosen = choose_rollback(&application, &revisions).map_err(|error| refused(&name, &error))?;
        let restore = RevisionRestore::new(&client, &name, &chosen)?;
        if restore.is_deployed(&application) {
            let text = format!(
                "{name}: revision {} is deployed already; `portolan vela restart {} -n {}` runs its workflow again",
                restore.revision_name, name.name, name.namespace
            );
            return output::print(&output::section("", [text]));
        }
        let tracker = match chosen.version {
            Some(_) => Some(restore.tracker().await?),
            None => None,
        };
        restore.show(&chosen)?;
        if !self.yes {
            return output::print("add --yes to roll back\n");
        }
        match tracker {
            Some(tracker) => restore.published(&chosen, &tracker).await?,
            None => {
                replace(&client, &name, |live| restore.set_spec(live)).await?;
            }
        }
        output::print(&format!("{name}: rolled back\n"))
    }
}

struct RevisionRestore<'a> {
    client: &'a Client,
    name: &'a NamespacedName,
    revision: &'a ApplicationRevision,
    revision_name: String,
    version: Option<&'a str>,
    spec: Value,
}

impl<'a> RevisionRestore<'a> {
    fn new(
        client: &'a Client,
        name: &'a NamespacedName,
        chosen: &operations::RollbackTarget<'a>,
    ) -> Result<Self, Error> {
        let revision_name = chosen.revision.name_any();
        let contents = expand(&chosen.revision.spec).map_err(failed_to(format!("read revision {revision_name}")))?;
        Ok(Self {
            client,
            name,
            revision: chosen.revision,
            revision_name,
            version: chosen.version,
            spec: serde_json::to_value(&contents.application.spec)?,
        })
    }

    /// Returns true if the Application has nothing to return from.
    fn is_deployed(&self, application: &Application) -> bool {
        let latest = application
            .status
            .as_ref()
            .and_then(|status| status.latest_revision.as_ref());
        let spec = serde_json::to_value(&application.spec).ok();
        let version = application.annotations().get(labels::PUBLISH_VERSION);
        let is_rolling_back = application.annotations().contains_key(FORMER_VERSION);
        latest.is_some_and(|latest| latest.name == self.revision_name)
            // Otherwise an earlier rollback did not end.
            && !is_rolling_back
            && spec.as_ref() == Some(&self.spec)
            && self
                .version
                .is_none_or(|restored| version.is_some_and(|version| version == restored))
    }

    fn show(&self, chosen: &operations::RollbackTarget<'_>) -> Result<(), Error> {
        let version = self
            .version
            .map(|version| format!(", version {version}"))
            .unwrap_or_default();
        let restored = format!(
            "{}: revision {}{version} becomes current",
            self.name, self.revision_name
        );
        let deleted = chosen
            .outdated
            .iter()
            .map(|revision| format!("{}: revision {} is deleted", self.name, revision.name_any()));
        output::print(&output::section("", std::iter::once(restored).chain(deleted)))
    }

    fn set_spec(&self, live: &mut DynamicObject) {
        live.data["spec"] = self.spec.clone();
        if let Some(version) = self.version {
            live.annotations_mut()
                .insert(labels::PUBLISH_VERSION.to_owned(), version.to_owned());
        }
    }

    /// Returns the tracker with the objects of the revision, which are still in place.
    async fn tracker(&self) -> Result<ResourceTracker, Error> {
        let trackers = objects::trackers(self.client, self.name).await?;
        let of_revision = |tracker: &&ResourceTracker| {
            let is_versioned = tracker.spec.type_ == TrackerType::Versioned.name();
            is_versioned && tracker.labels().get(labels::APP_REVISION) == Some(&self.revision_name)
        };
        let mut trackers: Vec<_> = trackers.iter().filter(of_revision).collect();
        // Those that are being deleted come first.
        trackers.sort_by_key(|tracker| tracker.metadata.deletion_timestamp.is_none());
        let revision = &self.revision_name;
        let deploy = format!(
            "`portolan vela up --revision {revision} -n {}` deploys it again",
            self.name.namespace
        );
        match trackers.pop() {
            None => Err(Error::Failed(format!(
                "revision {revision} has no ResourceTracker; {deploy}"
            ))),
            Some(tracker) if tracker.metadata.deletion_timestamp.is_some() => Err(Error::Failed(format!(
                "objects of revision {revision} are being deleted; {deploy}"
            ))),
            Some(tracker) => Ok(tracker.clone()),
        }
    }

    /// Makes a published version current again, while no controller works on the Application.
    async fn published(&self, chosen: &operations::RollbackTarget<'_>, tracker: &ResourceTracker) -> Result<(), Error> {
        let entries =
            decode(&tracker.spec).map_err(failed_to(format!("decode ResourceTracker {}", tracker.name_any())))?;
        let frozen = replace(self.client, self.name, |live| {
            freeze(live.annotations_mut());
            self.set_spec(live);
        });
        let frozen = frozen.await?;
        let restored = self.restore(tracker, &entries, frozen.metadata.generation).await;
        self.unfreeze().await?;
        restored.map_err(|error| {
            Error::Failed(format!(
                "{}; the spec is rolled back, and its workflow runs again",
                error.into_message()
            ))
        })?;
        for revision in &chosen.outdated {
            self.delete(revision).await?;
        }
        Ok(())
    }

    /// Replaces the status, and makes the tracker that of the current generation.
    async fn restore(
        &self,
        tracker: &ResourceTracker,
        entries: &[ManagedResource],
        generation: Option<i64>,
    ) -> Result<(), Error> {
        change_status(self.client, self.name, |status| {
            restore_status(status, self.revision, entries);
            Ok(())
        })
        .await?;
        let tracker_name = tracker.name_any();
        let patch = json!({
            "metadata": { "uid": tracker.uid() },
            "spec": { "applicationGeneration": generation },
        });
        let trackers: Api<ResourceTracker> = Api::all(self.client.clone());
        let written = call(trackers.patch(&tracker_name, &patch_parameters(), &Patch::Merge(patch))).await;
        written
            .map(drop)
            .map_err(failed_to(format!("change ResourceTracker {tracker_name}")))
    }

    async fn unfreeze(&self) -> Result<(), Error> {
        let unfrozen = replace(self.client, self.name, |live| unfreeze(live.annotations_mut()));
        match unfrozen.await {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Failed(format!(
                "{}; no controller works on {} until `portolan vela rollback` is run again",
                error.into_message(),
                self.name
            ))),
        }
    }

    /// Deletes a revision: the next one may have its number.
    async fn delete(&self, revision: &ApplicationRevision) -> Result<(), Error> {
        let revisions: Api<ApplicationRevision> = Api::namespaced(self.client.clone(), &self.name.namespace);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: revision.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let name = revision.name_any();
        match call(revisions.delete(&name, &parameters)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(failed_to(format!("delete revision {name}"))(error)),
        }
    }
}

/// Makes every controller leave an Application alone. The former version is kept if an earlier rollback did not end.
fn freeze(annotations: &mut BTreeMap<String, String>) {
    let former = annotations.insert(labels::VERSION_REQUIRED.to_owned(), FROZEN.to_owned());
    annotations
        .entry(FORMER_VERSION.to_owned())
        .or_insert_with(|| json!(former).to_string());
}

/// Requires the former version again. Does nothing unless a rollback has frozen the Application.
fn unfreeze(annotations: &mut BTreeMap<String, String>) {
    let Some(former) = annotations.remove(FORMER_VERSION) else {
        return;
    };
    let required = labels::VERSION_REQUIRED;
    if annotations.get(required).is_none_or(|version| version != FROZEN) {
        // Someone has changed it meanwhile.
        return;
    }
    match serde_json::from_str::<Option<String>>(&former) {
        Ok(None) => annotations.remove(required),
        Ok(Some(version)) => annotations.insert(required.to_owned(), version),
        // Not our text, so that the version is unknown.
        Err(_) => None,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(required: Option<&str>) -> BTreeMap<String, String> {
        let required = required.map(|version| (labels::VERSION_REQUIRED.to_owned(), version.to_owned()));
        required.into_iter().collect()
    }

    #[test]
    fn a_rollback_that_was_killed_keeps_the_required_version_for_the_next_one() {
        for required in [None, Some("v9"), Some(""), Some(FROZEN)] {
            let before = annotations(required);
            let mut changed = before.clone();
            freeze(&mut changed);
            assert_eq!(changed[labels::VERSION_REQUIRED], FROZEN);
            freeze(&mut changed);
            unfreeze(&mut changed);
            assert_eq!(changed, before);
            unfreeze(&mut changed);
            assert_eq!(changed, before);
        }
    }

    #[test]
    fn a_version_that_was_required_meanwhile_stays() {
        let mut changed = annotations(Some("v1"));
        freeze(&mut changed);
        changed.insert(labels::VERSION_REQUIRED.to_owned(), "v2".to_owned());
        unfreeze(&mut changed);
        assert_eq!(changed, annotations(Some("v2")));
    }
}
