//! Checks of components: their names, their types, and their templates.

use std::collections::HashSet;

use kube::ResourceExt;
use tokio::time::{Instant, timeout_at};

use super::definitions::ReviewDefinitions;
use super::findings::Findings;
use super::settings::ApplicationWebhookSettings;
use super::trial::TrialRender;
use crate::api::oam::Application;
use crate::controllers::oam::parse::{Definitions, Lookup, parse, strict_violations};
use crate::controllers::oam::render::evaluate::Evaluate;

pub struct ComponentChecks<'a, D, E> {
    pub app: &'a Application,
    pub settings: &'a ApplicationWebhookSettings,
    pub definitions: &'a D,
    pub evaluator: &'a E,
    pub deadline: Instant,
}

impl<D: ReviewDefinitions, E: Evaluate> ComponentChecks<'_, D, E> {
    pub async fn run(&self) -> Findings {
        let mut findings = Findings::default();
        if let Some((index, name)) = find_duplicate(self.app) {
            // The Application can't be parsed either.
            let field = format!("components[{index}].name");
            findings.error(&field, &format!("duplicated component name {name}"));
            return findings;
        }
        let namespace = self.app.namespace().unwrap_or_default();
        let parse = |lookup: &dyn Lookup| {
            let definitions = Definitions::live_for(self.app, lookup, &namespace, &self.settings.definition_namespace);
            parse(self.app, &definitions)
        };
        let parsed = match timeout_at(self.deadline, self.definitions.resolve(parse)).await {
            Ok(Ok(Ok(parsed))) => parsed,
            Ok(Ok(Err(error))) => {
                findings.error("spec", &error.to_string());
                return findings;
            }
            Ok(Err(cause)) => {
                findings.warn(&format!("components were not checked: {cause}"));
                return findings;
            }
            Err(_) => {
                findings.warn("components were not checked: their definitions were not read in time");
                return findings;
            }
        };
        if self.settings.is_strict {
            for violation in strict_violations(&parsed) {
                findings.error("spec", &violation);
            }
        }
        let trial = TrialRender::new(
            self.evaluator,
            self.app,
            &parsed,
            self.settings.is_strict,
            self.deadline,
        );
        findings.append(trial.run().await);
        findings
    }
}

/// Returns the position and name of the first component whose name another one has.
fn find_duplicate(app: &Application) -> Option<(usize, &str)> {
    let mut names = HashSet::new();
    let components = app.spec.components.iter().enumerate();
    let mut components = components.map(|(index, component)| (index, component.name.as_str()));
    components.find(|(_, name)| !names.insert(*name))
}
