//! Resolves the types of an Application: from live definitions, or from definitions of a revision.

use kube::ResourceExt;

use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::observed::Observed;
use super::revise::{Revision, application_of};
use crate::api::oam::Component;
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::{Definitions, Parsed, parse, strict_violations};
use crate::controllers::oam::revisions::{is_record_of, is_release_of};

/// Parses the Application: from live definitions, or from the latest revision if that is the version it publishes.
pub(super) async fn declare(env: &Env<'_>, observed: &Observed, latest: Option<&Revision>) -> Result<Parsed, Stop> {
    let _timer = env.reconciler.metrics.time(PassStage::Parse);
    let app = &observed.app;
    let parsed = match latest.filter(|latest| is_release_of(&latest.object, app)) {
        Some(release) => {
            let name = release.object.name_any();
            parse(&application_of(release), &Definitions::frozen(&name, &release.contents))
        }
        None => {
            let (namespace, shared) = (&env.name.namespace, &env.options().definition_namespace);
            let parsed = env.with_definitions(|lookup| {
                let definitions = Definitions::live_for(app, lookup, namespace, shared);
                match (parse(app, &definitions), latest) {
                    // What runs is kept, although a definition was deleted since.
                    (Err(_), Some(latest)) if is_record_of(&latest.object, &latest.contents, app) => {
                        let name = latest.object.name_any();
                        parse(app, &definitions.recorded_first(&name, &latest.contents))
                    }
                    (parsed, _) => parsed,
                }
            });
            parsed.await?
        }
    };
    let parsed = parsed.map_err(|error| Failure::parse(error.to_string()))?;
    if env.options().is_strict {
        let violations = strict_violations(&parsed);
        if !violations.is_empty() {
            return Err(Failure::parse(violations.join("; ")).into());
        }
    }
    Ok(parsed)
}

pub(super) async fn declare_recorded(env: &Env<'_>, observed: &Observed, revision: &Revision) -> Result<Parsed, Stop> {
    let name = revision.object.name_any();
    let (namespace, shared) = (&env.name.namespace, &env.options().definition_namespace);
    let parsed = env.with_definitions(|lookup| {
        let definitions = Definitions::live(lookup, namespace, shared, false);
        parse(&observed.app, &definitions.recorded_first(&name, &revision.contents))
    });
    let parsed = parsed.await?;
    Ok(parsed.map_err(|error| Failure::new(FailureKind::Parse, error.to_string()))?)
}

impl Parsed {
    pub(super) fn replace_components(&mut self, components: Vec<Component>) {
        for parsed in &mut self.components {
            let name = &parsed.component.name;
            if let Some(component) = components.iter().find(|component| component.name == *name) {
                parsed.component = component.clone();
            }
        }
        self.spec.components = components;
    }
}
