//! The types of definitions that an Application uses, with the fields that name them.

use std::collections::HashMap;

use kube::ResourceExt;
use serde_json::Value;

use crate::api::oam::{AppPolicy, Application, DefinitionKind, WorkflowStep};
use crate::controllers::oam::parse::{Definitions, Lookup, workflow_steps};
use crate::controllers::oam::placement::{NamedType, override_types};
use crate::controllers::oam::policies::OVERRIDE;
use crate::controllers::oam::workflow::DEPLOY;

/// Fields of one type that errors name.
const MAX_FIELDS: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedType {
    pub kind: DefinitionKind,
    /// As it is written, such as `webservice@v2`.
    pub type_: String,
    pub fields: Vec<String>,
    /// Namespaces with a definition to which a right counts: that of definitions, and that of the Application if its
    /// definition is the one that is used. Authors may have rights to all names there.
    pub namespaces: Vec<String>,
}

impl UsedType {
    /// Returns the kind of the definition, for texts.
    #[must_use]
    pub fn definition_kind(&self) -> String {
        format!("{}Definition", self.kind.type_name())
    }
}

#[derive(Default)]
struct TypeUsage {
    types: Vec<UsedType>,
    positions: HashMap<(DefinitionKind, String), usize>,
}

/// Returns each type once: of components, traits, policies and steps, then those of overrides, of the referenced
/// Workflow, and of Policies that steps name.
#[must_use]
pub fn used_types(app: &Application, lookup: &dyn Lookup, definition_namespace: &str) -> Vec<UsedType> {
    let namespace = app.namespace().unwrap_or_default();
    let definitions = Definitions::live_for(app, lookup, &namespace, definition_namespace);
    let shared = Definitions::live_for(app, lookup, definition_namespace, definition_namespace);
    let mut types = named_types(app, lookup);
    for used in &mut types {
        let found = [&shared, &definitions].map(|definitions| definitions.namespace_of(used.kind, &used.type_));
        used.namespaces = found.into_iter().flatten().map(str::to_owned).collect();
        used.namespaces.dedup();
    }
    types
}

fn named_types(app: &Application, lookup: &dyn Lookup) -> Vec<UsedType> {
    let (namespace, spec) = (app.namespace().unwrap_or_default(), &app.spec);
    let mut usage = TypeUsage::default();
    for (index, component) in spec.components.iter().enumerate() {
        let field = format!("spec.components[{index}].type");
        usage.add(DefinitionKind::Component, &component.type_, field);
    }
    for (index, component) in spec.components.iter().enumerate() {
        for (at, trait_) in component.traits.iter().enumerate() {
            let field = format!("spec.components[{index}].traits[{at}].type");
            usage.add(DefinitionKind::Trait, &trait_.type_, field);
        }
    }
    for (index, policy) in spec.policies.iter().enumerate() {
        let field = format!("spec.policies[{index}].type");
        usage.add(DefinitionKind::Policy, &policy.type_, field);
    }
    let workflow = spec.workflow.as_ref();
    let steps = workflow.map_or(&[][..], |workflow| &workflow.steps);
    for (index, step) in steps.iter().enumerate() {
        usage.add_step(step, &format!("spec.workflow.steps[{index}]"));
    }
    for (index, policy) in spec.policies.iter().enumerate() {
        let field = format!("spec.policies[{index}].properties");
        usage.add_overrides(&policy.type_, policy.properties.as_ref(), &field);
    }
    let reference = workflow.map_or("", |workflow| workflow.reference.as_str());
    let external = (!reference.is_empty())
        .then(|| lookup.workflow(&namespace, reference))
        .flatten();
    for step in external.iter().flat_map(|workflow| &workflow.spec.steps) {
        for step in std::iter::once(step).chain(&step.sub_steps) {
            usage.add(
                DefinitionKind::WorkflowStep,
                &step.type_,
                "spec.workflow.ref".to_owned(),
            );
        }
    }
    for step in workflow_steps(spec, external.as_deref()) {
        for step in std::iter::once(&step).chain(&step.sub_steps) {
            usage.add_external_policies(step, &spec.policies, &namespace, lookup);
        }
    }
    usage.types
}

impl TypeUsage {
    fn add(&mut self, kind: DefinitionKind, type_: &str, field: String) {
        let key = (kind, type_.to_owned());
        let position = *self.positions.entry(key).or_insert_with(|| {
            self.types.push(UsedType {
                kind,
                type_: type_.to_owned(),
                fields: Vec::new(),
                namespaces: Vec::new(),
            });
            self.types.len() - 1
        });
        if let Some(used) = self.types.get_mut(position)
            && used.fields.len() < MAX_FIELDS
            && !used.fields.contains(&field)
        {
            used.fields.push(field);
        }
    }

    fn add_step(&mut self, step: &WorkflowStep, path: &str) {
        self.add(DefinitionKind::WorkflowStep, &step.type_, format!("{path}.type"));
        for (index, sub_step) in step.sub_steps.iter().enumerate() {
            let field = format!("{path}.subSteps[{index}].type");
            self.add(DefinitionKind::WorkflowStep, &sub_step.type_, field);
        }
    }

    fn add_overrides(&mut self, policy_type: &str, properties: Option<&Value>, field: &str) {
        let properties = properties.filter(|_| policy_type == OVERRIDE);
        for named in properties.into_iter().flat_map(override_types) {
            let (kind, type_) = match named {
                NamedType::Component(type_) => (DefinitionKind::Component, type_),
                NamedType::Trait(type_) => (DefinitionKind::Trait, type_),
            };
            self.add(kind, &type_, field.to_owned());
        }
    }

    /// Adds the types of Policies that a step names and the Application does not have itself.
    fn add_external_policies(
        &mut self,
        step: &WorkflowStep,
        policies: &[AppPolicy],
        namespace: &str,
        lookup: &dyn Lookup,
    ) {
        let properties = step.properties.as_ref().filter(|_| step.type_ == DEPLOY);
        let names = properties.and_then(|properties| properties["policies"].as_array());
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            let is_own = policies.iter().any(|policy| policy.name == name);
            if let Some(policy) = (!is_own).then(|| lookup.policy(namespace, name)).flatten() {
                let field = "spec.workflow.steps.properties.policies";
                self.add(DefinitionKind::Policy, &policy.spec.type_, field.to_owned());
                self.add_overrides(&policy.spec.type_, policy.spec.properties.as_ref(), field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::oam::labels;
    use crate::controllers::oam::parse::tests::{Cluster, template};

    fn used(spec: &Value, cluster: &Cluster) -> Vec<String> {
        let app = json!({ "metadata": { "name": "app", "namespace": "team" }, "spec": spec });
        let types = used_types(&serde_json::from_value(app).unwrap(), cluster, "vela-system");
        let shown = types.iter().map(|used| {
            let fields = used.fields.iter().map(|field| field.trim_start_matches("spec."));
            format!(
                "{} {}: {}",
                used.definition_kind(),
                used.type_,
                fields.collect::<Vec<_>>().join(" ")
            )
        });
        shown.collect()
    }

    #[test]
    fn each_type_is_listed_once_with_its_fields() {
        let spec = json!({
            "components": [
                { "name": "a", "type": "web", "traits": [{ "type": "scaler" }, { "type": "gateway@v1" }] },
                { "name": "b", "type": "web", "traits": [{ "type": "scaler" }] },
            ],
            "policies": [{ "name": "t", "type": "topology" }, { "type": "topology" }],
            "workflow": { "steps": [{ "type": "group", "subSteps": [{ "type": "suspend" }, { "type": "group" }] }] },
        });
        assert_eq!(
            used(&spec, &Cluster::default()),
            [
                "ComponentDefinition web: components[0].type components[1].type",
                "TraitDefinition scaler: components[0].traits[0].type components[1].traits[0].type",
                "TraitDefinition gateway@v1: components[0].traits[1].type",
                "PolicyDefinition topology: policies[0].type policies[1].type",
                "WorkflowStepDefinition group: workflow.steps[0].type workflow.steps[0].subSteps[1].type",
                "WorkflowStepDefinition suspend: workflow.steps[0].subSteps[0].type",
            ]
        );
    }

    #[test]
    fn types_that_overrides_workflows_and_policies_name_are_listed_too() {
        let mut cluster = Cluster::default();
        let overrides = |component: &str, trait_: &str| json!({ "components": [{ "type": component, "traits": [{ "type": trait_ }] }] });
        let steps = json!([{ "type": "deploy", "properties": { "policies": ["shared", "own"] },
            "subSteps": [{ "type": "notify" }] }]);
        cluster.add("Workflow", "team", "release", &json!({ "steps": steps }));
        let shared = json!({ "type": "override", "properties": overrides("worker", "expose") });
        cluster.add("Policy", "team", "shared", &shared);
        let spec = json!({
            "components": [],
            "policies": [{ "name": "own", "type": "override", "properties": overrides("web", "scaler") }],
            "workflow": { "ref": "release" },
        });
        assert_eq!(
            used(&spec, &cluster),
            [
                "PolicyDefinition override: policies[0].type workflow.steps.properties.policies",
                "ComponentDefinition web: policies[0].properties",
                "TraitDefinition scaler: policies[0].properties",
                "WorkflowStepDefinition deploy: workflow.ref",
                "WorkflowStepDefinition notify: workflow.ref",
                "ComponentDefinition worker: workflow.steps.properties.policies",
                "TraitDefinition expose: workflow.steps.properties.policies",
            ]
        );
    }

    /// Returns the namespaces for the component type `web`, or `web@v1` if there are revisions.
    fn namespaces(definitions: &[(&str, &str, &str)], auto_update: bool) -> Vec<String> {
        let mut cluster = Cluster::default();
        let mut type_ = "web";
        for (kind, namespace, name) in definitions {
            if *kind == "DefinitionRevision" {
                type_ = "web@v1";
                cluster.add_revision(namespace, DefinitionKind::Component, "web", name, "output: {}");
            } else {
                cluster.add(kind, namespace, name, &template("output: {}"));
            }
        }
        let app = json!({
            "metadata": { "namespace": "team", "annotations": { labels::AUTO_UPDATE: auto_update.to_string() } },
            "spec": { "components": [{ "name": "a", "type": type_ }] },
        });
        let mut types = used_types(&serde_json::from_value(app).unwrap(), &cluster, "vela-system");
        types.remove(0).namespaces
    }

    const SHARED: &str = "vela-system";
    const COMPONENT: &str = "ComponentDefinition";
    const WORKLOAD: &str = "WorkloadDefinition";
    const REVISION: &str = "DefinitionRevision";

    #[rstest]
    #[case::nowhere(&[(COMPONENT, "other", "web")], false, &[])]
    #[case::shared(&[(COMPONENT, SHARED, "web")], false, &[SHARED])]
    #[case::own(&[(COMPONENT, "team", "web")], false, &["team"])]
    #[case::both(&[(COMPONENT, SHARED, "web"), (COMPONENT, "team", "web")], false, &[SHARED, "team"])]
    #[case::a_workload_that_is_not_used(&[(COMPONENT, SHARED, "web"), (WORKLOAD, "team", "web")], false, &[SHARED])]
    #[case::a_workload(&[(WORKLOAD, "team", "web")], false, &["team"])]
    #[case::a_revision(&[(REVISION, "team", "web-v1")], false, &["team"])]
    #[case::a_revision_that_is_not_used(&[(REVISION, SHARED, "web-v1"), (REVISION, "team", "web-v1.2.0")], false, &[SHARED])]
    #[case::an_older_revision(&[(REVISION, SHARED, "web-v1.3.0"), (REVISION, "team", "web-v1.2.0")], true, &[SHARED])]
    #[case::a_newer_revision(&[(REVISION, SHARED, "web-v1.1.0"), (REVISION, "team", "web-v1.2.0")], true, &[SHARED, "team"])]
    fn rights_in_the_own_namespace_count_for_the_definition_that_is_used(
        #[case] definitions: &[(&str, &str, &str)],
        #[case] auto_update: bool,
        #[case] expected: &[&str],
    ) {
        assert_eq!(namespaces(definitions, auto_update), expected);
    }

    #[test]
    fn the_fields_of_a_type_are_bounded() {
        let components = vec![json!({ "name": "a", "type": "web" }); 1000];
        let app = json!({ "metadata": {}, "spec": { "components": components } });
        let types = used_types(
            &serde_json::from_value(app).unwrap(),
            &Cluster::default(),
            "vela-system",
        );
        assert_eq!((types.len(), types[0].fields.len()), (1, MAX_FIELDS));
    }
}
