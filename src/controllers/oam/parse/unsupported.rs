//! Parts of an application that the controller does not support. It leaves such an application as it is.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use super::application::ParsedComponent;
use super::definitions::Workload;
use super::overrides::OverrideDefinitions;
use crate::api::oam::{Application, Definition, ManagedResource};
use crate::controllers::oam::policies::ENV_BINDING;
use crate::controllers::oam::source::{CueImport, function_imports};
use crate::controllers::oam::trackers::Inventory;
use crate::text::{sanitize, truncate};

const POLICIES: [&str; 1] = [ENV_BINDING];
/// Start of the name of a Secret with a revision of a release: `sh.helm.release.v1.web.v3`. KubeVela's component
/// helmchart installs releases and records these Secrets. Helm alone deletes what a release consists of.
const RELEASE_PREFIX: &str = "sh.helm.release.v1.";

/// The functions that templates of components and traits may call, by package.
pub const FUNCTIONS: [(&str, &[&str]); 4] = [
    ("vela/base64", &["#Decode", "#Encode"]),
    ("vela/cue", &["#StrategyUnify"]),
    ("vela/http", &["#Do", "#Get"]),
    ("vela/kube", &["#Get", "#List"]),
];
/// Bytes of the name of a package or function in a message.
const MAX_SHOWN: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsupported {
    Policy { name: String, type_: String },
    HelmRelease { name: String, tracker: String },
    Component { name: String, feature: String },
    OverrideType { type_: String, feature: String },
}

impl Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { name, type_ } => write!(f, "policy {name} of type {type_}"),
            Self::HelmRelease { name, tracker } => {
                let advice = "leave the Application to vela-core, which installed the release, or drop its records \
                              with `portolan vela forget-release`";
                write!(f, "Helm release {name} in resourcetracker {tracker} ({advice})")
            }
            Self::Component { name, feature } => write!(f, "component {name} with {feature}"),
            Self::OverrideType { type_, feature } => write!(f, "an override with type {type_}, {feature}"),
        }
    }
}

#[must_use]
pub fn unsupported_application(application: &Application) -> Vec<Unsupported> {
    let mut unsupported = Vec::new();
    let policies = application.spec.policies.iter().enumerate();
    for (index, policy) in policies.filter(|(_, policy)| POLICIES.contains(&policy.type_.as_str())) {
        let name = if policy.name.is_empty() {
            format!("{}-auto-gen-{index}", policy.type_)
        } else {
            policy.name.clone()
        };
        unsupported.push(Unsupported::Policy {
            name,
            type_: policy.type_.clone(),
        });
    }
    unsupported
}

#[must_use]
pub fn unsupported_definitions(components: &[ParsedComponent]) -> Vec<Unsupported> {
    let unsupported = components.iter().filter_map(|component| {
        let traits = component
            .traits
            .iter()
            .filter_map(|trait_| trait_.definition.template());
        let feature = unsupported_workload(&component.definition).or_else(|| unsupported_templates(traits))?;
        Some(Unsupported::Component {
            name: component.component.name.clone(),
            feature,
        })
    });
    unsupported.collect()
}

#[must_use]
pub fn unsupported_overrides(overrides: &OverrideDefinitions) -> Vec<Unsupported> {
    let components = overrides.components.iter();
    let components = components.map(|(type_, definition)| (type_, unsupported_workload(definition)));
    let traits = overrides.traits.iter();
    let traits = traits.map(|(type_, definition)| (type_, unsupported_templates(definition.template())));
    let unsupported = components.chain(traits).filter_map(|(type_, feature)| {
        Some(Unsupported::OverrideType {
            type_: type_.clone(),
            feature: feature?,
        })
    });
    unsupported.collect()
}

/// Returns true if the template of a component, or of one of its traits, calls functions.
#[must_use]
pub fn calls_functions(component: &ParsedComponent) -> bool {
    let traits = component.traits.iter();
    let traits = traits.filter_map(|trait_| trait_.definition.template());
    let mut templates = component.definition.template().into_iter().chain(traits);
    templates.any(|template| !function_imports(template).is_empty())
}

fn unsupported_workload(definition: &Workload) -> Option<String> {
    if definition.terraform().is_some() {
        return None;
    }
    match definition.template() {
        None => Some("a definition without a CUE template".to_owned()),
        template => unsupported_templates(template),
    }
}

fn unsupported_templates<'a>(templates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut imports = templates.into_iter().flat_map(function_imports);
    imports.find_map(|import| unsupported_import(&import))
}

/// Returns what a template of a component or trait must not have: a package, or one of its functions.
#[must_use]
pub fn unsupported_import(import: &CueImport) -> Option<String> {
    let CueImport { path, functions, .. } = import;
    let shown = |name: &str| truncate(&sanitize(name), MAX_SHOWN);
    let Some((_, supported)) = FUNCTIONS.iter().find(|(package, _)| *package == path.as_str()) else {
        return Some(format!("an import of {}", shown(path)));
    };
    let mut functions = functions.iter().flatten();
    let refused = functions.find(|function| !supported.contains(&function.as_str()))?;
    Some(format!("a call of {}", shown(&format!("{path}.{refused}"))))
}

#[must_use]
pub fn unsupported_trackers(inventory: &Inventory) -> Vec<Unsupported> {
    let mut unsupported = BTreeSet::new();
    for tracker in inventory.all() {
        let found = tracker.entries.iter();
        unsupported.extend(found.filter_map(|entry| unsupported_entry(entry, tracker.name())));
    }
    unsupported.into_iter().collect()
}

fn unsupported_entry(entry: &ManagedResource, tracker: &str) -> Option<Unsupported> {
    let release = release_of(&entry.api_version, &entry.kind, &entry.name)?;
    Some(Unsupported::HelmRelease {
        name: release.to_owned(),
        tracker: tracker.to_owned(),
    })
}

/// Returns the Helm release of an object, if that is a Secret with a revision of one.
#[must_use]
pub fn release_of<'a>(api_version: &str, kind: &str, name: &'a str) -> Option<&'a str> {
    let revision = name.strip_prefix(RELEASE_PREFIX)?;
    let release = revision.rsplit_once('.').map_or(revision, |(release, _)| release);
    (api_version == "v1" && kind == "Secret").then_some(release)
}
