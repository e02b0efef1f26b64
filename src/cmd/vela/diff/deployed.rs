//! The Application that a pass deploys, and with which definitions.

use kube::{Api, Client, ResourceExt};

use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, LatestRevision, labels};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::parse::{Definitions, Parsed};
use crate::controllers::oam::revisions::names::is_revision_of;
use crate::controllers::oam::revisions::{
    Candidate, Recorded, expand, hash, is_record_of, is_release_of, is_unchanged, recorded_application,
};
use crate::runtime::kube_client::call;

pub struct DeployedRevision {
    name: String,
    object: ApplicationRevision,
    contents: ApplicationRevisionSpec,
}

impl DeployedRevision {
    pub fn new(object: ApplicationRevision) -> Result<Self, Error> {
        let name = object.name_any();
        let contents = expand(&object.spec).map_err(failed_to(format!("read revision {name}")))?;
        let contents = contents.into_owned();
        Ok(Self { name, object, contents })
    }

    /// Returns true if the Application needs another revision.
    fn is_outdated(&self, application: &Application, parsed: &Parsed) -> Result<bool, Error> {
        let contents = parsed.contents(application);
        let candidate = Candidate {
            hash: &hash(&contents)?,
            spec: &contents,
            publish_version: application
                .annotations()
                .get(labels::PUBLISH_VERSION)
                .map(String::as_str),
            auto_update: application.annotations().contains_key(labels::AUTO_UPDATE),
        };
        Ok(!is_unchanged(&Recorded::of(&self.object, &self.contents), &candidate))
    }
}

pub fn latest_revision(live: &Application) -> Option<LatestRevision> {
    let latest = live.status.as_ref()?.latest_revision.clone();
    latest.filter(|latest| is_revision_of(&live.name_any(), &latest.name))
}

pub async fn read_latest(client: &Client, live: &Application) -> Result<Option<ApplicationRevision>, Error> {
    let Some(LatestRevision { name, .. }) = latest_revision(live) else {
        return Ok(None);
    };
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &live.namespace().unwrap_or_default());
    let revision = call(revisions.get_opt(&name)).await;
    revision.map_err(failed_to(format!("read revision {name}")))
}

pub struct Deployed<'a> {
    pub application: Application,
    pub parsed: Parsed,
    pub definitions: Definitions<'a>,
    pub is_new_revision: bool,
}

impl<'a> Deployed<'a> {
    /// Decides by the latest revision.
    pub fn new(
        application: Application,
        definitions: Definitions<'a>,
        recorded: Option<&'a DeployedRevision>,
        parse: impl Fn(&Application, &Definitions<'_>) -> Result<Parsed, Error>,
    ) -> Result<Self, Error> {
        let Some(recorded) = recorded else {
            return Ok(Self {
                parsed: parse(&application, &definitions)?,
                application,
                definitions,
                is_new_revision: true,
            });
        };
        let recorded_first = definitions.recorded_first(&recorded.name, &recorded.contents);
        if is_release_of(&recorded.object, &application) {
            let application = recorded_application(&recorded.object, &recorded.contents);
            let frozen = Definitions::frozen(&recorded.name, &recorded.contents);
            return Ok(Self {
                parsed: parse(&application, &frozen)?,
                application,
                definitions: recorded_first,
                is_new_revision: false,
            });
        }
        let parsed = match parse(&application, &definitions) {
            // What runs is kept, although a definition was deleted since.
            Err(_) if is_record_of(&recorded.object, &recorded.contents, &application) => None,
            parsed => Some(parsed?),
        };
        if let Some(parsed) = parsed
            && recorded.is_outdated(&application, &parsed)?
        {
            return Ok(Self {
                application,
                parsed,
                definitions,
                is_new_revision: true,
            });
        }
        Ok(Self {
            parsed: parse(&application, &recorded_first)?,
            application,
            definitions: recorded_first,
            is_new_revision: false,
        })
    }
}
