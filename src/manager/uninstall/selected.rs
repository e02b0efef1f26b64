//! The AppRepositories and Applications that a label selector matches, of releases that divide them by hand.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::UninstallOptions;
use super::pages::Pages;
use crate::api::oam::{self, labels};
use crate::api::{AppRepository, NamespacedName, Partial, jobs};

/// The names of the selected objects; `None` without a selector.
#[derive(Debug, Default)]
pub(super) struct SelectedObjects {
    repositories: Option<BTreeSet<NamespacedName>>,
    /// KubeVela's.
    applications: Option<BTreeSet<NamespacedName>>,
}

impl SelectedObjects {
    pub(super) async fn find(client: &Client, options: &UninstallOptions) -> Result<Self, String> {
        let Some(selector) = options.label_selector.as_deref() else {
            return Ok(Self::default());
        };
        let repositories = names::<AppRepository>(client, options, selector).await?;
        let applications = if options.has_kubevela {
            names::<oam::Application>(client, options, selector).await?
        } else {
            BTreeSet::new()
        };
        Ok(Self {
            repositories: Some(repositories),
            applications: Some(applications),
        })
    }

    /// Objects of an AppRepository that is gone belong to no release; `portolan gc` without a selector removes them.
    pub(super) fn has_object(&self, meta: &ObjectMeta) -> bool {
        self.repositories.as_ref().is_none_or(|selected| {
            jobs::repository_of(meta).is_some_and(|(repository, _)| selected.contains(&repository))
        })
    }

    pub(super) fn has_tracker(&self, meta: &ObjectMeta) -> bool {
        let label = |key| meta.labels.as_ref().and_then(|labels| labels.get(key));
        self.applications.as_ref().is_none_or(|selected| {
            let application = label(labels::APP_NAMESPACE).zip(label(labels::APP_NAME));
            application.is_some_and(|(namespace, name)| selected.contains(&NamespacedName::new(namespace, name)))
        })
    }
}

async fn names<K>(
    client: &Client,
    options: &UninstallOptions,
    selector: &str,
) -> Result<BTreeSet<NamespacedName>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    Partial<K>: Clone + Debug + DeserializeOwned,
{
    let api: Api<Partial<K>> = match options.namespace.as_deref() {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut pages = Pages::new(&api, Some(selector));
    let mut names = BTreeSet::new();
    let failed = |error| {
        format!(
            "failed to list the selected objects of the kind {}: {error}",
            K::kind(&())
        )
    };
    while let Some(page) = pages.next().await.map_err(failed)? {
        names.extend(page.iter().filter_map(|object| NamespacedName::of(&object.metadata)));
    }
    Ok(names)
}
