//! Applications that KubeVela deployed, with the revisions and trackers that it made of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kube::ResourceExt;
use serde::Deserialize;

use super::*;
use crate::api::NamespacedName;
use crate::api::oam::labels;
use crate::controllers::oam::policies::{GarbageCollectStrategy, PolicyTarget};
use crate::controllers::oam::revisions::names::revision_name;
use crate::controllers::oam::revisions::{self, Candidate, Recorded};
use crate::controllers::oam::trackers::{AppIdentity, Encoded, Inventory, Tracker, TrackerType, create};
use crate::corpus;

/// Cases that KubeVela could not parse, and one with two components of one name, which it runs without its webhook.
const REFUSED: [(&str, &str); 2] = [
    (
        "u-dry-run-4",
        "u-dry-run-4: failed to parseWorkflowSteps: Workflow.core.oam.dev \"testing-wf\" not found",
    ),
    (
        "u-e2e-app8",
        "u-e2e-app8: failed to parseComponents: duplicated component name myweb",
    ),
];

struct Case {
    name: String,
    application: Application,
    /// Status of the application that KubeVela wrote.
    status: Value,
    revisions: Value,
    trackers: Value,
}

impl Case {
    fn read(directory: &Path) -> Self {
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(directory.join("input.yaml")).unwrap();
        let documents = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
        let mut object = documents
            .into_iter()
            .find(|object| object["kind"] == "Application")
            .unwrap();
        let namespace: String = format!("v-{name}").chars().take(63).collect();
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["generation"] = 1.into();
        object["metadata"]["annotations"][labels::KUBEVELA_VERSION] = "UNKNOWN".into();
        let expected = |file: &str| -> Value {
            let text = fs::read_to_string(directory.join("expected").join(file)).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let application: Application = serde_json::from_value(object).unwrap();
        let app = application.name_any();
        Self {
            name,
            status: expected("application.json")[&app]["status"].clone(),
            revisions: expected("revisions.json")[&app].clone(),
            trackers: expected("trackers.json"),
            application,
        }
    }

    /// A cluster with a definition for each type that the application uses.
    fn cluster(&self) -> Cluster {
        let spec = &self.application.spec;
        let traits = spec.components.iter().flat_map(|component| &component.traits);
        let traits: BTreeSet<_> = traits.map(|trait_| trait_.type_.as_str()).collect();
        let components: BTreeSet<_> = spec
            .components
            .iter()
            .map(|component| component.type_.as_str())
            .collect();
        let steps = spec.workflow.iter().flat_map(|workflow| &workflow.steps);
        let steps = steps.flat_map(|step| std::iter::once(step).chain(&step.sub_steps));
        let steps = steps.map(|step| step.type_.as_str()).chain(["deploy"]).collect();
        let mut cluster = Cluster::default();
        for (kind, types) in [
            ("ComponentDefinition", components),
            ("TraitDefinition", traits),
            ("WorkflowStepDefinition", steps),
        ] {
            for type_ in types {
                cluster.add(kind, "vela-system", type_, &template("output: {}"));
            }
        }
        cluster
    }

    fn parse(&self) -> Result<Parsed, String> {
        let (cluster, namespace) = (self.cluster(), self.application.namespace().unwrap());
        let definitions = Definitions::live(&cluster, &namespace, "vela-system", false);
        parse(&self.application, &definitions).map_err(|error| format!("{}: {error}", self.name))
    }

    fn identity(&self) -> AppIdentity {
        AppIdentity {
            name: NamespacedName::new(self.application.namespace().unwrap(), self.application.name_any()),
            uid: String::new(),
            generation: 1,
            publish_version: None,
        }
    }

    fn inventory(&self) -> Inventory {
        let trackers = self.trackers.as_array().unwrap().iter().map(|tracker| {
            let object = json!({
                "metadata": { "name": tracker["name"], "labels": tracker["labels"], "finalizers": tracker["finalizers"] },
                "spec": tracker,
            });
            Tracker::decode(Arc::new(serde_json::from_value(object).unwrap())).unwrap()
        });
        Inventory::of(&self.identity(), trackers.collect()).unwrap()
    }
}

/// Returns all cases, or none if they are not available.
fn cases() -> Vec<Case> {
    let Some(goldens) = corpus::oam_goldens() else {
        println!("skipped: PORTOLAN_OAM_GOLDENS is not set and ../shared/oam-goldens does not exist");
        return Vec::new();
    };
    let entries = fs::read_dir(goldens).unwrap().map(|entry| entry.unwrap().path());
    let mut directories: Vec<_> = entries.filter(|path| path.join("input.yaml").exists()).collect();
    directories.sort();
    let cases: Vec<_> = directories.iter().map(|directory| Case::read(directory)).collect();
    assert_eq!(cases.len(), 68);
    cases
}

fn parsed() -> Vec<Case> {
    let mut cases = cases();
    let is_available = !cases.is_empty();
    let is_refused = |case: &Case| REFUSED.iter().any(|(name, _)| case.name == *name);
    cases.retain(|case| !is_refused(case));
    assert_eq!(cases.len(), if is_available { 66 } else { 0 });
    cases
}

#[test]
fn applications_that_cannot_be_parsed_are_refused() {
    for case in &cases() {
        if let Some((_, expected)) = REFUSED.iter().find(|(name, _)| case.name == *name) {
            assert_eq!(case.parse().unwrap_err(), *expected);
        }
    }
}

#[test]
fn all_recorded_applications_are_supported() {
    for case in &cases() {
        let found = unsupported_application(&case.application);
        assert!(found.is_empty(), "{}: {found:?}", case.name);
    }
}

#[test]
fn generated_steps_are_those_of_kubevela() {
    for case in parsed() {
        let parsed = case.parse().unwrap();
        let workflow = &case.status["workflow"];
        if workflow["mode"] == "" {
            // KubeVela refused a step before it set the mode.
            continue;
        }
        assert_eq!(parsed.workflow.mode, workflow["mode"], "{}", case.name);
        let steps = parsed.workflow.steps.iter().map(|step| {
            component_step(step, &case.application.spec.components).unwrap();
            json!([step.name, step.type_])
        });
        let expected = workflow["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| json!([step["name"], step["type"]]));
        assert_eq!(steps.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", case.name);
    }
}

#[test]
fn revisions_are_those_of_kubevela() {
    for case in parsed() {
        let parsed = case.parse().unwrap();
        let contents = parsed.contents(&case.application);
        let hash = revisions::hash(&contents).unwrap();
        let app = case.application.name_any();
        let mut candidate = Candidate {
            spec: &contents,
            hash: &hash,
            publish_version: None,
            auto_update: false,
        };
        let name = revision_name(&app, 1);
        let first = revisions::next(&app, None, &candidate, &[]);
        assert_eq!(first, (name.clone(), 1), "{}", case.name);
        assert_eq!(case.status["latestRevision"]["name"], name, "{}", case.name);

        let metadata = revisions::metadata(&case.application, &name, &hash, false);
        let mut expected = case.revisions[0].clone();
        assert_eq!(metadata.name.as_deref(), expected["name"].as_str(), "{}", case.name);
        expected["labels"][labels::APP_REVISION_HASH] = hash.clone().into();
        assert_eq!(json!(metadata.labels), expected["labels"], "{}", case.name);
        assert_eq!(json!(metadata.annotations), expected["annotations"], "{}", case.name);

        // The revision of KubeVela, with its hash, stays current.
        let recorded = Recorded {
            name: &name,
            hash: case.status["latestRevision"]["revisionHash"].as_str().unwrap(),
            publish_version: None,
            spec: &contents,
        };
        for auto_update in [false, true] {
            candidate.auto_update = auto_update;
            assert!(revisions::is_unchanged(&recorded, &candidate), "{}", case.name);
        }
    }
}

#[test]
fn trackers_are_named_sorted_and_filled_as_at_kubevela() {
    let mut entries = 0;
    for case in parsed() {
        let inventory = case.inventory();
        let app = case.identity();
        let policies = case.parse().unwrap().rules;
        for tracker in inventory.in_order() {
            let is_root = tracker.object.spec.type_ == "root";
            let type_ = if is_root {
                TrackerType::Root
            } else {
                TrackerType::Versioned
            };
            let revision = revision_name(&app.name.name, 1);
            let mut created = create(&app, type_, Some(&revision), None, Encoded::default());
            created.metadata.labels.as_mut().unwrap().remove(labels::APP_UID);
            created.spec.managed_resources.clone_from(&tracker.entries);
            assert_eq!(created, *tracker.object, "{}", case.name);
            for entry in &tracker.entries {
                let target = PolicyTarget {
                    component: &entry.component,
                    trait_type: &entry.trait_,
                    kind: &entry.kind,
                    name: &entry.name,
                    ..PolicyTarget::default()
                };
                let strategy = policies.garbage_collect.strategy(&target);
                let is_kept = strategy == GarbageCollectStrategy::OnAppDelete;
                assert_eq!(is_root, is_kept, "{}: {} {}", case.name, entry.kind, entry.name);
                entries += 1;
            }
        }
        assert!(inventory.history.is_empty(), "{}", case.name);
        assert!(unsupported_trackers(&inventory).is_empty(), "{}", case.name);
    }
    println!("checked {entries} entries of trackers");
}
