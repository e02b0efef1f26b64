//! A trial render of components, which writes nothing: the Application may name parameters that no template accepts.
//!
//! As in KubeVela, a value that is missing or not concrete is no error: an input, a policy or a live object may provide
//! it later. What can't be evaluated in time, or without a fault of a template, is allowed with a warning.

use std::collections::HashSet;

use kube::ResourceExt;
use tokio::time::{Instant, timeout_at};

use super::findings::Findings;
use crate::api::NamespacedName;
use crate::api::oam::{Application, LatestRevision};
use crate::controllers::oam::parse::{Parsed, ParsedComponent, unsupported_definitions};
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::policies::OVERRIDE;
use crate::controllers::oam::references::REF_OBJECTS;
use crate::controllers::oam::render::component::{Output, Rendered};
use crate::controllers::oam::render::evaluate::{Cause, ComponentError, Evaluate, TemplateSubject};
use crate::controllers::oam::render::release::{Release, ReleaseSettings, unknown_version};
use crate::controllers::oam::revisions::names::revision_name;

/// Components of one review.
const MAX_COMPONENTS: usize = 100;

pub struct TrialRender<'a, E> {
    evaluator: &'a E,
    release: Release,
    parsed: &'a Parsed,
    deadline: Instant,
}

impl<'a, E: Evaluate> TrialRender<'a, E> {
    pub fn new(evaluator: &'a E, app: &Application, parsed: &'a Parsed, is_strict: bool, deadline: Instant) -> Self {
        let settings = ReleaseSettings {
            is_strict,
            // Traits of the last stage see live objects, so they are left out.
            has_stages: true,
        };
        // The API server may make the name later.
        let name = NamespacedName::new(app.namespace().unwrap_or_default(), app.name_any());
        let latest = app.status.as_ref().and_then(|status| status.latest_revision.clone());
        let revision = latest.unwrap_or_else(|| LatestRevision {
            name: revision_name(&name.name, 1),
            revision: 1,
            revision_hash: String::new(),
        });
        // As in KubeVela, where the version is unknown to its webhook.
        let release = Release::new(name, app, revision, unknown_version(), settings);
        Self {
            evaluator,
            release,
            parsed,
            deadline,
        }
    }

    pub async fn run(&self) -> Findings {
        let mut findings = Findings::default();
        let components = &self.parsed.components;
        for (index, component) in components.iter().enumerate() {
            let left = components.len() - index;
            let cause = if index == MAX_COMPONENTS {
                format!("a review checks {MAX_COMPONENTS} components")
            } else {
                match timeout_at(self.deadline, self.check(component, &mut findings)).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(cause)) => cause,
                    Err(_) => "their templates take longer than a review may".to_owned(),
                }
            };
            let count = components.len();
            findings.warn(&format!("{left} of {count} components were not checked: {cause}"));
            break;
        }
        findings
    }

    /// Fails if the evaluator is missing or failed.
    async fn check(&self, component: &ParsedComponent, findings: &mut Findings) -> Result<(), String> {
        // A pass replaces the properties by those of the objects.
        if component.component.type_ == REF_OBJECTS {
            return Ok(());
        }
        if let Some(unsupported) = unsupported_definitions(std::slice::from_ref(component)).first() {
            findings.warn(&format!("{unsupported} is not supported"));
            return Ok(());
        }
        let error = match self.render(component).await {
            Ok(rendered) => {
                if let Some(output) = find_duplicate(&rendered) {
                    findings.error("schematic", &duplicate(output));
                }
                return Ok(());
            }
            Err(error) => error,
        };
        match &error.cause {
            Cause::Invalid(errors) if errors.is_incomplete() => {
                if !self.may_be_completed(component) {
                    findings.warn(&format!("{error}, so the component can't be rendered"));
                }
            }
            // A pass has more time, and answers calls.
            Cause::Stopped(_) | Cause::NeedsAnswers => {
                findings.warn(&format!("{error}, so the component was not checked"))
            }
            Cause::Evaluator(cause) => return Err(cause.to_string()),
            _ => findings.error("schematic", &self.detail(&error)),
        }
        Ok(())
    }

    async fn render(&self, component: &ParsedComponent) -> Result<Rendered, ComponentError<E::Error>> {
        let place = Place::default();
        let prepared = self.release.component(self.parsed, component, &place);
        prepared.render(self.evaluator).await
    }

    /// Returns true if steps, policies or live objects may provide values that are missing.
    fn may_be_completed(&self, component: &ParsedComponent) -> bool {
        let place = Place::default();
        let prepared = self.release.component(self.parsed, component, &place);
        prepared.workload_to_read().is_some()
            || !component.component.inputs.is_empty()
            || self.parsed.all_steps().any(|step| !step.inputs.is_empty())
            || self.parsed.all_policies.iter().any(|policy| policy.type_ == OVERRIDE)
    }

    /// Returns the text of KubeVela, with the name of the component.
    fn detail(&self, error: &ComponentError<E::Error>) -> String {
        let NamespacedName { namespace, name } = &self.release.name;
        match &error.subject {
            TemplateSubject::Trait(type_) => format!("cannot evaluate trait {type_:?}: {error}"),
            TemplateSubject::Component(_) if matches!(error.cause, Cause::Terraform { .. }) => error.to_string(),
            TemplateSubject::Component(_) => format!(
                "cannot create the validation process context of app={name} in namespace={namespace}: evaluate base template \
                 app={name} in namespace={namespace}: {error}"
            ),
        }
    }
}

fn duplicate(output: &Output) -> String {
    format!(
        "cannot evaluate trait {:?}: outputs item name must be unique: auxiliary {:?} already exits",
        output.trait_type, output.key
    )
}

/// Returns the first output whose key another one has.
fn find_duplicate(rendered: &Rendered) -> Option<&Output> {
    let mut keys = HashSet::new();
    rendered.outputs.iter().find(|output| !keys.insert(&output.key))
}
