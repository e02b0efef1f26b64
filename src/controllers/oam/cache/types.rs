use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::api::oam::{ApplicationSpec, DefinitionKind, WorkflowStep};
use crate::controllers::oam::parse::{TypeName, workflow_steps};
use crate::controllers::oam::placement::{NamedType, override_types};
use crate::controllers::oam::policies::OVERRIDE;
use crate::controllers::oam::workflow::DEPLOY;

/// Names of definitions that are kept. They count toward no share of memory.
const MAX_TYPES: usize = 64;

/// Hashes of the definitions, and of their revisions, that a spec names.
#[derive(Clone, Debug)]
pub(super) struct Types {
    hashes: Box<[u64]>,
    are_all: bool,
    /// Kinds that other objects may name: a Workflow, or Policies.
    named_elsewhere: Box<[DefinitionKind]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TypePart {
    /// First, so that these are kept if there are too many.
    Revision,
    Name,
}

impl Types {
    pub(super) fn of(spec: &ApplicationSpec) -> Self {
        let mut named = Named::default();
        named.add_spec(spec);
        let mut parts: Vec<_> = named.parts.into_iter().collect();
        let are_all = parts.len() <= MAX_TYPES;
        parts.truncate(MAX_TYPES);
        Self {
            are_all,
            hashes: parts.into_iter().map(|(_, hash)| hash).collect(),
            named_elsewhere: named.elsewhere.into(),
        }
    }

    /// Returns true if a definition may be used, in any version.
    pub(super) fn may_contain(&self, kind: DefinitionKind, name: &str) -> bool {
        !self.are_all || self.contain(kind, TypePart::Name, name)
    }

    /// Returns true if a revision of a definition may be used. If a spec names too many, some are unknown.
    pub(super) fn may_contain_revision(&self, kind: DefinitionKind, revision: &str) -> bool {
        self.contain(kind, TypePart::Revision, revision)
    }

    fn contain(&self, kind: DefinitionKind, part: TypePart, name: &str) -> bool {
        self.named_elsewhere.contains(&kind) || self.hashes.contains(&hash(kind, part, name))
    }
}

fn hash(kind: DefinitionKind, part: TypePart, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, part, name).hash(&mut hasher);
    hasher.finish()
}

#[derive(Default)]
struct Named {
    parts: BTreeSet<(TypePart, u64)>,
    elsewhere: Vec<DefinitionKind>,
}

impl Named {
    fn add_spec(&mut self, spec: &ApplicationSpec) {
        for component in &spec.components {
            self.add(DefinitionKind::Component, &component.type_);
            for trait_ in &component.traits {
                self.add(DefinitionKind::Trait, &trait_.type_);
            }
        }
        for policy in &spec.policies {
            self.add(DefinitionKind::Policy, &policy.type_);
            if let Some(properties) = policy.properties.as_ref().filter(|_| policy.type_ == OVERRIDE) {
                self.add_override(properties);
            }
        }
        let policies: BTreeSet<&str> = spec.policies.iter().map(|policy| policy.name.as_str()).collect();
        match &spec.workflow {
            Some(workflow) if !workflow.reference.is_empty() => {
                self.add_elsewhere(&[DefinitionKind::WorkflowStep]);
                // Its steps may name Policies.
                self.add_policies_elsewhere();
            }
            Some(workflow) if !workflow.steps.is_empty() => self.add_steps(&workflow.steps, &policies),
            // Generated steps name policies of the spec.
            _ => workflow_steps(spec, None)
                .iter()
                .for_each(|step| self.add(DefinitionKind::WorkflowStep, &step.type_)),
        }
    }

    fn add_steps(&mut self, steps: &[WorkflowStep], policies: &BTreeSet<&str>) {
        for step in steps
            .iter()
            .flat_map(|step| std::iter::once(step).chain(&step.sub_steps))
        {
            self.add(DefinitionKind::WorkflowStep, &step.type_);
            if let Some(properties) = step.properties.as_ref().filter(|_| step.type_ == DEPLOY) {
                self.add_deploy(properties, policies);
            }
        }
    }

    fn add_deploy(&mut self, properties: &Value, policies: &BTreeSet<&str>) {
        let mut names = items(properties, "policies").filter_map(Value::as_str);
        if names.any(|name| !policies.contains(name)) {
            self.add_policies_elsewhere();
        }
        for policy in items(properties, "inlinePolicies").filter(|policy| policy["type"] == OVERRIDE) {
            self.add_override(&policy["properties"]);
        }
    }

    fn add_override(&mut self, properties: &Value) {
        for named in override_types(properties) {
            match named {
                NamedType::Component(type_) => self.add(DefinitionKind::Component, &type_),
                NamedType::Trait(type_) => self.add(DefinitionKind::Trait, &type_),
            }
        }
    }

    fn add_policies_elsewhere(&mut self) {
        self.add_elsewhere(&[DefinitionKind::Component, DefinitionKind::Trait, DefinitionKind::Policy]);
    }

    fn add_elsewhere(&mut self, kinds: &[DefinitionKind]) {
        for kind in kinds {
            if !self.elsewhere.contains(kind) {
                self.elsewhere.push(*kind);
            }
        }
    }

    fn add(&mut self, kind: DefinitionKind, type_: &str) {
        let Ok(parsed) = TypeName::parse(type_) else { return };
        if let Some(revision) = parsed.revision_name() {
            self.parts
                .insert((TypePart::Revision, hash(kind, TypePart::Revision, &revision)));
        }
        self.parts
            .insert((TypePart::Name, hash(kind, TypePart::Name, parsed.name)));
    }
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use DefinitionKind::{Component, Policy, Trait, WorkflowStep as Step};
    use serde_json::json;

    use super::*;

    fn types(spec: Value) -> Types {
        Types::of(&serde_json::from_value(spec).unwrap())
    }

    fn web() -> Value {
        json!([{ "name": "web", "type": "webservice" }])
    }

    #[test]
    fn a_spec_with_many_types_may_use_every_definition_and_keeps_only_revisions_that_it_names() {
        let traits: Vec<_> = (0..2 * MAX_TYPES)
            .map(|index| json!({ "type": format!("t{index}") }))
            .collect();
        let types = types(json!({ "components": [{ "name": "web", "type": "webservice@v2", "traits": traits }] }));
        assert_eq!(types.hashes.len(), MAX_TYPES);
        assert!(types.may_contain(Trait, "t127") && types.may_contain(Trait, "other"));
        assert!(types.may_contain_revision(Component, "webservice-v2"));
        assert!(!types.may_contain_revision(Trait, "other-v1"));
    }

    #[test]
    fn types_of_overrides_are_used() {
        let properties = json!({ "components": [{ "type": "worker@v3", "traits": [{ "type": "scaler" }] }] });
        let policy = json!({ "name": "o", "type": "override", "properties": properties });
        let of_policy = types(json!({ "components": web(), "policies": [policy] }));
        let steps = json!([{ "name": "d", "type": "deploy", "properties": { "inlinePolicies": [policy] } }]);
        let inline = types(json!({ "components": web(), "workflow": { "steps": steps } }));
        for types in [of_policy, inline] {
            assert!(types.may_contain(Component, "worker") && types.may_contain(Trait, "scaler"));
            assert!(types.may_contain_revision(Component, "worker-v3"));
            assert!(!types.may_contain(Component, "other") && !types.may_contain(Trait, "worker"));
            assert!(types.may_contain(Step, "deploy"));
        }
    }

    #[test]
    fn types_of_written_and_generated_steps_are_used() {
        let steps = json!([{ "name": "g", "type": "step-group", "subSteps": [{ "name": "n", "type": "notify@v1" }] }]);
        let written = types(json!({ "components": web(), "workflow": { "steps": steps } }));
        assert!(written.may_contain(Step, "notify") && written.may_contain_revision(Step, "notify-v1"));
        assert!(!written.may_contain(Step, "deploy"));
        let topology = json!({ "name": "t", "type": "topology", "properties": {} });
        let generated = types(json!({ "components": web(), "policies": [topology] }));
        assert!(generated.may_contain(Step, "deploy") && !generated.may_contain(Step, "notify"));
        assert!(!types(json!({ "components": web() })).may_contain(Step, "deploy"));
    }

    #[test]
    fn a_workflow_that_is_referred_to_may_use_everything() {
        let types = types(json!({ "components": web(), "workflow": { "ref": "flow" } }));
        for kind in [Component, Trait, Policy, Step] {
            assert!(types.may_contain(kind, "other") && types.may_contain_revision(kind, "other-v1"));
        }
    }

    #[test]
    fn policies_of_other_objects_may_use_all_but_steps() {
        let deploy = |policy: &str| {
            let steps = json!([{ "name": "d", "type": "deploy", "properties": { "policies": [policy] } }]);
            let policies = json!([{ "name": "own", "type": "topology", "properties": {} }]);
            types(json!({ "components": web(), "policies": policies, "workflow": { "steps": steps } }))
        };
        let (own, other) = (deploy("own"), deploy("other"));
        for kind in [Component, Trait, Policy] {
            assert!(!own.may_contain(kind, "other") && other.may_contain(kind, "other"));
        }
        assert!(!other.may_contain(Step, "other"));
    }
}
