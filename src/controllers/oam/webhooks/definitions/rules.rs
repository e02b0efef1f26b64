//! Rules for definitions that need no request.

use kube::{Resource, ResourceExt};

use crate::api::oam::labels::{ADDON_NAME, APP_NAME, DEFINITION_REVISION_NAME};
use crate::api::oam::{Definition, GROUP, TraitDefinition};
use crate::controllers::oam::definitions::RecordedKind;

/// Prefix of the Applications that install addons.
const ADDON_APPLICATION: &str = "addon-";

/// A trait has an object or a template.
pub(super) fn check_trait(definition: &TraitDefinition) -> Result<(), String> {
    let has_template = definition.template().is_some_and(|template| !template.is_empty());
    if has_template || !definition.spec.definition_ref.name.is_empty() {
        Ok(())
    } else {
        Err("if definition reference is omitted, patch or output with GVK is required".to_owned())
    }
}

/// The version has three integers.
pub(super) fn check_version(version: &str) -> Result<(), String> {
    let mut parts = version.split('.');
    let are_three_integers = parts.clone().count() == 3 && parts.all(|part| part.parse::<i64>().is_ok());
    if version.is_empty() || are_three_integers {
        Ok(())
    } else {
        Err("Not a valid version".to_owned())
    }
}

/// A revision is named by the version or by an annotation.
pub(super) fn check_naming<D: RecordedKind>(definition: &D) -> Result<(), String> {
    if definition.version().is_empty() || revision_annotation(definition).is_none() {
        return Ok(());
    }
    Err(format!(
        "{} has both spec.version and revision name annotation. Only one can be present",
        D::KIND
    ))
}

pub(super) fn revision_annotation(definition: &impl Resource) -> Option<&str> {
    let name = definition.meta().annotations.as_ref()?.get(DEFINITION_REVISION_NAME)?;
    Some(name.as_str()).filter(|name| !name.is_empty())
}

/// Returns true for a definition of an addon, which may be created before the kinds that the addon installs.
pub(super) fn is_of_addon(definition: &impl Resource) -> bool {
    let is_addon = |name: &str| name.starts_with(ADDON_APPLICATION);
    let mut owners = definition.owner_references().iter();
    owners.any(|owner| {
        owner.kind == "Application" && owner.api_version == format!("{GROUP}/v1beta1") && is_addon(&owner.name)
    }) || definition.labels().get(APP_NAME).is_some_and(|name| is_addon(name))
        || definition
            .annotations()
            .get(ADDON_NAME)
            .is_some_and(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::oam::{ComponentDefinition, WorkflowStepDefinition};

    #[rstest]
    #[case("", true)]
    #[case("1.2.3", true)]
    #[case("0.01.20", true)]
    #[case("v1.2.3", false)]
    #[case("1.2", false)]
    #[case("1.2.3.4", false)]
    #[case("1.2.x", false)]
    #[case("1.2.", false)]
    #[case("1.2.3-alpha.1", false)]
    #[case("1.2.99999999999999999999", false)]
    fn a_version_has_three_integers(#[case] version: &str, #[case] is_valid: bool) {
        assert_eq!(check_version(version).is_ok(), is_valid);
    }

    #[rstest]
    #[case::nothing(json!({}), false)]
    #[case::empty_template(json!({ "schematic": { "cue": { "template": "" } } }), false)]
    #[case::old_empty_template(json!({ "extension": { "template": "" } }), false)]
    #[case::template(json!({ "schematic": { "cue": { "template": "patch: {}" } } }), true)]
    #[case::old_template(json!({ "extension": { "template": "patch: {}" } }), true)]
    #[case::reference(json!({ "definitionRef": { "name": "ingresses.networking.k8s.io" } }), true)]
    fn a_trait_needs_a_template_or_a_reference(#[case] spec: Value, #[case] is_valid: bool) {
        let definition: TraitDefinition = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        assert_eq!(check_trait(&definition).is_ok(), is_valid);
    }

    #[rstest]
    #[case("", None, true)]
    #[case("1.2.3", None, true)]
    #[case("1.2.3", Some(""), true)]
    #[case("", Some("stable"), true)]
    #[case("1.2.3", Some("stable"), false)]
    fn a_revision_is_named_once(#[case] version: &str, #[case] annotation: Option<&str>, #[case] is_valid: bool) {
        let definition: WorkflowStepDefinition = serde_json::from_value(json!({
            "metadata": { "annotations": { DEFINITION_REVISION_NAME: annotation.unwrap_or_default() } },
            "spec": { "version": version },
        }))
        .unwrap();
        let checked = check_naming(&definition);
        assert_eq!(checked.is_ok(), is_valid);
        if let Err(text) = checked {
            let expected = "WorkflowStepDefinition has both spec.version and revision name annotation. Only one can be \
                            present";
            assert_eq!(text, expected);
        }
    }

    #[rstest]
    #[case::owner(json!({ "ownerReferences": [
        { "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "addon-x", "uid": "u" }] }), true)]
    #[case::other_owner(json!({ "ownerReferences": [
        { "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "x", "uid": "u" }] }), false)]
    #[case::label(json!({ "labels": { "app.oam.dev/name": "addon-x" } }), true)]
    #[case::annotation(json!({ "annotations": { "addons.oam.dev/name": "x" } }), true)]
    #[case::plain(json!({ "labels": { "app.oam.dev/name": "x" } }), false)]
    fn definitions_of_addons_are_marked(#[case] metadata: Value, #[case] expected: bool) {
        let definition: ComponentDefinition = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        assert_eq!(is_of_addon(&definition), expected);
    }
}
