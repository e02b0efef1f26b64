//! Checks of the templates of definitions.

use std::fmt::Debug;

use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::identity::{listed, reported};
use super::{Checked, Finding, fine};
use crate::api::Guarded;
use crate::api::oam::{ComponentDefinition, Definition, PolicyDefinition, TraitDefinition, WorkflowStepDefinition};
use crate::cmd::vela::objects::{decoded, list_all};
use crate::cue::{Error, Evaluator};
use crate::runtime::kube_client::ApiError;

#[derive(Default)]
struct Found {
    templates: usize,
    rewritten: Vec<String>,
    problems: Vec<String>,
}

/// Parses all templates.
pub(super) async fn check(client: &Client, evaluator: &Evaluator) -> Vec<Checked> {
    match find(client, evaluator).await {
        Ok(found) => found.into_checks(),
        Err(error) => vec![reported(Err(error), "list definitions")],
    }
}

async fn find(client: &Client, evaluator: &Evaluator) -> Result<Found, ApiError> {
    let mut found = Found::default();
    found.add::<ComponentDefinition>(client, evaluator).await?;
    found.add::<TraitDefinition>(client, evaluator).await?;
    found.add::<PolicyDefinition>(client, evaluator).await?;
    found.add::<WorkflowStepDefinition>(client, evaluator).await?;
    Ok(found)
}

impl Found {
    async fn add<D>(&mut self, client: &Client, evaluator: &Evaluator) -> Result<(), ApiError>
    where
        D: Definition + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Debug,
    {
        let definitions = list_all(&Api::<Guarded<D>>::all(client.clone()), &ListParams::default()).await?;
        for definition in definitions.into_iter().filter_map(decoded) {
            let namespace = definition.namespace().unwrap_or_default();
            let name = format!("{} {namespace}/{}", D::KIND, definition.name_any());
            let status = definition.status_templates();
            let status = status.into_iter().flat_map(|templates| {
                [
                    ("details of ", &templates.details),
                    ("healthPolicy of ", &templates.health_policy),
                    ("customStatus of ", &templates.custom_status),
                ]
            });
            let status = status.map(|(part, template)| (part, template.as_str()));
            let templates = definition
                .template()
                .map(|template| ("", template))
                .into_iter()
                .chain(status);
            for (part, template) in templates.filter(|(_, template)| !template.is_empty()) {
                let inspection = evaluator.inspect(&namespace, template).await;
                self.templates += 1;
                match inspection {
                    Ok(inspection) if inspection.is_rewritten => self.rewritten.push(format!("{part}{name}")),
                    Ok(_) => {}
                    Err(error @ Error::Failed { .. }) => {
                        self.problems.push(format!("{part}{name} is not valid CUE: {error}"));
                    }
                    Err(error) => self.problems.push(format!("failed to parse {part}{name}: {error}")),
                }
            }
        }
        Ok(())
    }

    fn into_checks(self) -> Vec<Checked> {
        let mut checks: Vec<Checked> = self.problems.into_iter().map(Err).collect();
        if checks.is_empty() {
            checks.push(fine(format!(
                "{} templates of definitions are valid CUE",
                self.templates
            )));
        }
        if !self.rewritten.is_empty() {
            checks.push(Ok(Finding::Warning(format!(
                "{} are for CUE before 0.11: + and * on lists are replaced when they are evaluated",
                listed(&self.rewritten, "templates")
            ))));
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Found) -> Vec<String> {
        let line = |check| match check {
            Ok(Finding::Fine(text)) => format!("ok {text}"),
            Ok(Finding::Warning(text)) => format!("warning {text}"),
            Err(text) => format!("problem {text}"),
        };
        found.into_checks().into_iter().map(line).collect()
    }

    #[test]
    fn templates_for_older_versions_of_cue_are_listed_and_invalid_ones_are_problems() {
        let found = Found {
            templates: 3,
            rewritten: vec!["TraitDefinition vela-system/env".to_owned()],
            problems: Vec::new(),
        };
        let expected = [
            "ok 3 templates of definitions are valid CUE",
            "warning 1 templates (TraitDefinition vela-system/env) are for CUE before 0.11: + and * on lists are replaced \
             when they are evaluated",
        ];
        assert_eq!(lines(found), expected);
        let broken = Found {
            templates: 1,
            problems: vec!["TraitDefinition team/x is not valid CUE: expected operand (line 2)".to_owned()],
            ..Found::default()
        };
        assert_eq!(
            lines(broken),
            ["problem TraitDefinition team/x is not valid CUE: expected operand (line 2)"]
        );
    }
}
