//! Needs of each controller in a cluster: custom resource definitions and rights.

use kube::api::{Api, PostParams};
use kube::{Client, Resource};

use crate::api::oam::GROUP;
use crate::api::{AppRepository, Application};
use crate::cmd::output::checks::{Checked, fine};
use crate::cmd::run::ControllerName;
use crate::controllers::oam::start::prerequisites::missing_crds;
use crate::controllers::{application, apprepository, oam};
use crate::runtime::kube_client::review::self_review;
use crate::runtime::kube_client::{ApiError, call};

struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// Empty for all objects.
    name: &'static str,
}

const fn right(verb: &'static str, group: &'static str, resource: &'static str) -> Right {
    Right {
        verb,
        group,
        resource,
        name: "",
    }
}

const APPREPOSITORY: [Right; 6] = [
    right("list", "kubeapps.com", "apprepositories"),
    right("watch", "kubeapps.com", "apprepositories"),
    right("patch", "kubeapps.com", "apprepositories"),
    right("patch", "kubeapps.com", "apprepositories/status"),
    right("create", "events.k8s.io", "events"),
    // Its UID identifies the cluster in the database.
    Right {
        name: "kube-system",
        ..right("get", "", "namespaces")
    },
];

const APPLICATION: [Right; 5] = [
    right("list", "app.k8s.io", "applications"),
    right("watch", "app.k8s.io", "applications"),
    right("patch", "app.k8s.io", "applications"),
    right("patch", "app.k8s.io", "applications/status"),
    right("create", "events.k8s.io", "events"),
];

const OAM: [Right; 11] = [
    right("watch", GROUP, "applications"),
    right("patch", GROUP, "applications"),
    right("patch", GROUP, "applications/status"),
    right("create", GROUP, "applicationrevisions"),
    right("delete", GROUP, "applicationrevisions"),
    right("create", GROUP, "resourcetrackers"),
    right("delete", GROUP, "resourcetrackers"),
    right("watch", GROUP, "componentdefinitions"),
    right("create", GROUP, "definitionrevisions"),
    right("create", "apps", "deployments"),
    right("create", "events.k8s.io", "events"),
];

pub(super) struct Requirements {
    controller: ControllerName,
    name: &'static str,
    group: &'static str,
    /// The argument of `portolan crds` for its custom resource definitions.
    crds: &'static str,
    rights: &'static [Right],
    /// Without them, the controller fails. Otherwise it has nothing to do.
    are_crds_required: bool,
    /// The namespace in which rights are needed; `None` for all namespaces.
    namespace: Option<String>,
}

impl Requirements {
    pub(super) fn new(controller: ControllerName, is_enabled: bool, namespace: Option<&str>) -> Self {
        let namespace = namespace.map(str::to_owned);
        match controller {
            ControllerName::AppRepository => Self {
                controller,
                name: apprepository::NAME,
                group: "kubeapps.com",
                crds: "apprepositories",
                rights: &APPREPOSITORY,
                are_crds_required: is_enabled,
                namespace,
            },
            ControllerName::Application => Self {
                controller,
                name: application::NAME,
                group: "app.k8s.io",
                crds: "applications",
                rights: &APPLICATION,
                are_crds_required: is_enabled,
                namespace,
            },
            ControllerName::Oam => Self {
                controller,
                name: oam::NAME,
                group: GROUP,
                crds: GROUP,
                rights: &OAM,
                are_crds_required: true,
                // ResourceTrackers have no namespace.
                namespace: None,
            },
        }
    }

    /// Checks the definitions, and the rights unless the controller has nothing to do.
    pub(super) async fn check(&self, client: &Client) -> Vec<Checked> {
        let missing = self.missing_crds(client).await;
        let is_idle = !self.are_crds_required && missing.as_ref().is_ok_and(|missing| !missing.is_empty());
        let mut checks = vec![self.check_crds(missing)];
        if !is_idle {
            checks.extend(self.check_rights(client).await);
        }
        checks
    }

    async fn missing_crds(&self, client: &Client) -> Result<Vec<String>, ApiError> {
        match self.controller {
            ControllerName::AppRepository => unserved::<AppRepository>(client).await,
            ControllerName::Application => unserved::<Application>(client).await,
            ControllerName::Oam => missing_crds(client).await,
        }
    }

    fn check_crds(&self, missing: Result<Vec<String>, ApiError>) -> Checked {
        let (name, group) = (self.name, self.group);
        match missing {
            Ok(missing) if missing.is_empty() => fine(format!("custom resource definitions of {group} are installed")),
            Ok(missing) if self.are_crds_required => Err(format!(
                "custom resource definitions are missing: {}; `portolan crds {} --apply` installs them",
                missing.join(", "),
                self.crds
            )),
            Ok(missing) => fine(format!(
                "not installed: {}, so the controller {name} has nothing to do",
                missing.join(", ")
            )),
            Err(error) => Err(format!(
                "failed to look for custom resource definitions of {group}: {error}"
            )),
        }
    }

    async fn check_rights(&self, client: &Client) -> Vec<Checked> {
        let mut problems = Vec::new();
        for right in self.rights {
            // An object of a known name belongs to the cluster.
            let namespace = self.namespace.as_deref().filter(|_| right.name.is_empty());
            let (verb, object) = (right.verb, right.object());
            match may(client, right, namespace).await {
                Ok(true) => {}
                Ok(false) => problems.push(Err(format!("no right to {verb} {object}{}", place(right, namespace)))),
                Err(error) => problems.push(Err(format!("failed to check the right to {verb} {object}: {error}"))),
            }
        }
        if problems.is_empty() {
            problems.push(fine(format!("rights are sufficient for the controller {}", self.name)));
        }
        problems
    }
}

impl Right {
    fn object(&self) -> String {
        match (self.group, self.name) {
            ("", "") => self.resource.to_owned(),
            ("", name) => format!("{} {name}", self.resource),
            (group, "") => format!("{}.{group}", self.resource),
            (group, name) => format!("{}.{group} {name}", self.resource),
        }
    }
}

fn place(right: &Right, namespace: Option<&str>) -> String {
    match namespace {
        _ if !right.name.is_empty() => String::new(),
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in all namespaces".to_owned(),
    }
}

/// Returns the name of a resource with its version, unless the API server serves it. Needs no right to definitions.
async fn unserved<K: Resource<DynamicType = ()>>(client: &Client) -> Result<Vec<String>, ApiError> {
    let (resource, version) = (K::plural(&()), K::api_version(&()));
    let is_served = match call(client.list_api_group_resources(&version)).await {
        Ok(list) => list.resources.iter().any(|served| served.name == resource),
        Err(error) if error.is_not_found() => false,
        Err(error) => return Err(error),
    };
    if is_served {
        return Ok(Vec::new());
    }
    Ok(vec![format!("{resource} of {version}")])
}

async fn may(client: &Client, right: &Right, namespace: Option<&str>) -> Result<bool, ApiError> {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((right.resource, ""));
    let mut review = self_review(right.verb, right.group, resource);
    if let Some(attributes) = &mut review.spec.resource_attributes {
        attributes.subresource = Some(subresource.to_owned());
        attributes.name = Some(right.name.to_owned());
        attributes.namespace = namespace.map(str::to_owned);
    }
    let reviewed = call(Api::all(client.clone()).create(&PostParams::default(), &review)).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}
