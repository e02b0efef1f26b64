//! Checks of the templates of definitions.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::identity::{listed, reported};
use crate::api::Guarded;
use crate::api::oam::{ComponentDefinition, Definition, PolicyDefinition, TraitDefinition, WorkflowStepDefinition};
use crate::cmd::output::checks::{Checked, Finding, fine};
use crate::cmd::vela::objects::list_all;
use crate::controllers::oam::parse::unsupported_import;
use crate::controllers::oam::source::function_imports;
use crate::controllers::oam::steps::supports_import;
use crate::cue::{Error, Evaluator};
use crate::text::sanitize;

#[derive(Default)]
struct Found {
    templates: usize,
    may_be_rewritten: Vec<String>,
    /// Templates with functions that are refused.
    refused: Vec<String>,
    invalid: Vec<String>,
    /// Templates whose evaluation was stopped at a limit.
    stopped: Vec<String>,
    /// Templates that the evaluator could not read, whatever they are.
    unchecked: Vec<String>,
    /// Kinds that can't be listed.
    unlisted: Vec<Checked>,
}

/// Parses all templates.
pub(super) async fn check(client: &Client, evaluator: &Evaluator) -> Vec<Checked> {
    let mut found = Found::default();
    found.add::<ComponentDefinition>(client, evaluator).await;
    found.add::<TraitDefinition>(client, evaluator).await;
    found.add::<PolicyDefinition>(client, evaluator).await;
    found.add::<WorkflowStepDefinition>(client, evaluator).await;
    found.into_checks()
}

impl Found {
    async fn add<D>(&mut self, client: &Client, evaluator: &Evaluator)
    where
        D: Definition + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Debug,
    {
        let definitions = list_all(&Api::<Guarded<D>>::all(client.clone()), &ListParams::default()).await;
        let definitions = match definitions {
            Ok(definitions) => definitions,
            Err(error) => {
                self.unlisted.push(reported(Err(error), &format!("list {}s", D::KIND)));
                return;
            }
        };
        for Guarded(definition) in definitions {
            let name = |meta: &ObjectMeta| {
                let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
                format!(
                    "{} {}/{}",
                    D::KIND,
                    namespace.unwrap_or_default(),
                    name.unwrap_or_default()
                )
            };
            match definition.0 {
                Ok(definition) => self.inspect(&definition, &name(definition.meta()), evaluator).await,
                Err(error) => self.invalid.push(format!("{}: {}", name(&error.metadata), error.error)),
            }
        }
    }

    async fn inspect<D: Definition>(&mut self, definition: &D, name: &str, evaluator: &Evaluator) {
        let refused = definition.template().and_then(|template| refused(D::KIND, template));
        self.refused
            .extend(refused.map(|refused| format!("{name} with {refused}")));
        let status = definition.status_templates();
        let status = status.into_iter().flat_map(|templates| {
            [
                ("details of ", &templates.details),
                ("healthPolicy of ", &templates.health_policy),
                ("customStatus of ", &templates.custom_status),
            ]
        });
        let status = status.map(|(part, template)| (part, template.as_str()));
        let templates = definition.template().map(|template| ("", template));
        for (part, template) in templates.into_iter().chain(status) {
            if template.is_empty() {
                continue;
            }
            self.templates += 1;
            match evaluator.inspect("", template).await {
                Ok(inspection) if inspection.may_be_rewritten => self.may_be_rewritten.push(format!("{part}{name}")),
                Ok(_) => {}
                Err(error) => {
                    let templates = match error {
                        Error::Failed { .. } => &mut self.invalid,
                        Error::Timeout(_) | Error::Memory(_) => &mut self.stopped,
                        Error::Missing | Error::Crashed(_) | Error::Deferred => &mut self.unchecked,
                    };
                    templates.push(format!("{part}{name}: {error}"));
                }
            }
        }
    }

    fn into_checks(self) -> Vec<Checked> {
        let mut checks = self.unlisted;
        let problems = [
            (&self.invalid, "can't be parsed"),
            (
                &self.stopped,
                "were stopped at a limit when they were parsed; simplify them",
            ),
            (&self.unchecked, "were not checked"),
        ];
        let problems = problems.into_iter().filter(|(templates, _)| !templates.is_empty());
        let problems: Vec<Checked> = problems
            .map(|(templates, problem)| Err(format!("{} {problem}", listed(templates, "templates of definitions"))))
            .collect();
        if problems.is_empty() {
            checks.push(fine(format!(
                "{} templates of definitions can be parsed",
                self.templates
            )));
        }
        checks.extend(problems);
        if !self.refused.is_empty() {
            checks.push(Ok(Finding::Warning(format!(
                "{} are not supported by this controller",
                listed(&self.refused, "templates")
            ))));
        }
        if !self.may_be_rewritten.is_empty() {
            checks.push(Ok(Finding::Warning(format!(
                "{} may be for CUE before 0.11: + and * on lists are replaced when they are evaluated",
                listed(&self.may_be_rewritten, "templates")
            ))));
        }
        checks
    }
}

/// Returns what a template of this kind must not have: packages, or one function of a package.
fn refused(kind: &str, template: &str) -> Option<String> {
    let imports = function_imports(template);
    let refused = imports.iter().filter_map(|import| match kind {
        "ComponentDefinition" | "TraitDefinition" => unsupported_import(import),
        "WorkflowStepDefinition" if supports_import(import) => None,
        _ => Some(format!("an import of {}", sanitize(&import.path))),
    });
    let refused: Vec<String> = refused.collect();
    (!refused.is_empty()).then(|| refused.join(" and "))
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
    fn all_imports_that_a_template_of_a_kind_may_not_have_are_named() {
        let template = "import (\n\"strings\"\n\"vela/op\"\n\"vela/kube\"\n\"ext/bank\"\n)\noutput: {}";
        let of_components = "an import of vela/op and an import of ext/bank";
        for (kind, expected) in [
            ("ComponentDefinition", of_components),
            ("TraitDefinition", of_components),
            ("WorkflowStepDefinition", "an import of ext/bank"),
            (
                "PolicyDefinition",
                "an import of vela/op and an import of vela/kube and an import of ext/bank",
            ),
        ] {
            assert_eq!(refused(kind, template).as_deref(), Some(expected), "{kind}");
        }
        assert_eq!(refused("WorkflowStepDefinition", "import \"vela/op\""), None);
        let patch = "import \"vela/kube\"\na: kube.#Patch";
        let expected = "a call of vela/kube.#Patch";
        assert_eq!(refused("ComponentDefinition", patch).as_deref(), Some(expected));
        assert_eq!(refused("WorkflowStepDefinition", patch), None);
    }

    #[test]
    fn templates_for_older_versions_of_cue_or_with_other_packages_are_listed_and_invalid_ones_are_problems() {
        let found = Found {
            templates: 3,
            may_be_rewritten: vec!["TraitDefinition vela-system/env".to_owned()],
            ..Found::default()
        };
        let expected = [
            "ok 3 templates of definitions can be parsed",
            "warning 1 templates (TraitDefinition vela-system/env) may be for CUE before 0.11: + and * on lists are \
             replaced when they are evaluated",
        ];
        assert_eq!(lines(found), expected);
        let refused = Found {
            templates: 1,
            refused: vec!["ComponentDefinition team/x with an import of ext/bank".to_owned()],
            ..Found::default()
        };
        let expected = [
            "ok 1 templates of definitions can be parsed",
            "warning 1 templates (ComponentDefinition team/x with an import of ext/bank) are not supported by this controller",
        ];
        assert_eq!(lines(refused), expected);
        let broken = Found {
            templates: 1,
            invalid: vec!["TraitDefinition team/x: expected operand (line 2)".to_owned()],
            unlisted: vec![Err("failed to list PolicyDefinitions: forbidden".to_owned())],
            ..Found::default()
        };
        let expected = [
            "problem failed to list PolicyDefinitions: forbidden",
            "problem 1 templates of definitions (TraitDefinition team/x: expected operand (line 2)) can't be parsed",
        ];
        assert_eq!(lines(broken), expected);
    }

    #[test]
    fn templates_that_were_not_parsed_to_the_end_are_not_called_invalid() {
        let found = Found {
            templates: 2,
            stopped: vec!["TraitDefinition team/x: more than 512MiB".to_owned()],
            unchecked: vec!["TraitDefinition team/y: CUE evaluator failed: exit status: 2".to_owned()],
            ..Found::default()
        };
        let expected = [
            "problem 1 templates of definitions (TraitDefinition team/x: more than 512MiB) were stopped at a limit when \
             they were parsed; simplify them",
            "problem 1 templates of definitions (TraitDefinition team/y: CUE evaluator failed: exit status: 2) were not \
             checked",
        ];
        assert_eq!(lines(found), expected);
    }
}
