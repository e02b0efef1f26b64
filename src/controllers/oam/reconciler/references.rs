//! Reads objects that components refer to, for a new revision and at a restart. A published version stays as it is.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::Value;

use super::cluster::Cluster;
use super::failure::{Failure, Stop};
use super::observed::Observed;
use super::revise::Revision;
use crate::api::oam::{Component, labels};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::references::{
    FetchObjects, ObjectKind, ObjectRequest, ObjectSelector, ReferenceError, ReferenceScope, References, complete,
    has_redacted, redacted,
};
use crate::controllers::oam::revisions::{Candidate, is_release_of, is_unchanged};
use crate::runtime::manifests::document;

/// Maximum number of values of a manifest at a URL, and bytes of its text, with aliases expanded.
const MAX_VALUES: usize = 100_000;
const MAX_TEXT: usize = 2 << 20;

/// Adds the objects that components refer to, for the revision. Returns the components with these objects as their
/// properties, or `None` if no component refers to any. A run that `restarts` reads them again.
pub(super) async fn resolve_references(
    cluster: &Cluster<'_>,
    observed: &Observed,
    latest: Option<&Revision>,
    restarts: bool,
    parsed: &mut Parsed,
) -> Result<Option<Vec<Component>>, Stop> {
    let options = cluster.env.options();
    let failed = |error: ReferenceError| Failure::parse(format!("failed to parseReferredObjects: {error}"));
    let references = parse_references(cluster, &parsed.spec.components)
        .await
        .map_err(failed)?;
    if references.is_empty() {
        return Ok(None);
    }
    // What a published version has recorded needs no request.
    let is_published = latest.is_some_and(|latest| is_release_of(&latest.object, &observed.app));
    if references.has_urls() && !is_published && !options.allows_urls {
        return Err(failed(ReferenceError::UrlsDisabled).into());
    }
    let keeps = |latest: &&Revision| is_published || (!restarts && keeps_objects(observed, latest, parsed));
    let recorded = latest.filter(keeps).map(|latest| &latest.contents.referred_objects);
    if recorded.is_none_or(|objects| has_redacted(objects)) {
        let clusters = references.requests().map(|request| request.cluster.as_str());
        cluster.env.use_clusters(clusters).await?;
    }
    let objects = match recorded {
        Some(objects) => complete(objects, &ReferenceFetcher(cluster)).await,
        None => references.fetch(&ReferenceFetcher(cluster)).await,
    };
    let objects = objects.map_err(failed)?;
    let resolved = references.resolve(&parsed.spec.components, &objects);
    parsed.referred_objects = if options.redacts_secrets {
        redacted(objects)
    } else {
        objects
    };
    Ok(Some(resolved.map_err(failed)?))
}

async fn parse_references(cluster: &Cluster<'_>, components: &[Component]) -> Result<References, ReferenceError> {
    let options = cluster.env.options();
    let scope = if options.admission.allow_cross_namespace {
        options.reference_scope
    } else {
        // An Application that may not write to other namespaces must not read there either.
        ReferenceScope::Namespace
    };
    let mut kinds = BTreeMap::new();
    for (group, resource) in References::resources(components) {
        let kind = cluster
            .objects
            .kind_of(&group, &resource)
            .await
            .map_err(|error| ReferenceError::Fetch {
                object: resource.clone(),
                cause: error.to_string(),
            })?;
        if let Some((api_version, kind)) = kind {
            kinds.insert((group, resource), ObjectKind { api_version, kind });
        }
    }
    let kind_of = |group: &str, resource: &str| kinds.get(&(group.to_owned(), resource.to_owned())).cloned();
    References::parse(components, &cluster.env.name.namespace, scope, kind_of)
}

fn keeps_objects(observed: &Observed, latest: &Revision, parsed: &Parsed) -> bool {
    let annotations = observed.app.annotations();
    if annotations.contains_key(labels::AUTO_UPDATE) {
        return false;
    }
    let candidate = Candidate {
        spec: &parsed.contents(&observed.app),
        hash: "",
        publish_version: annotations.get(labels::PUBLISH_VERSION).map(String::as_str),
        auto_update: false,
    };
    is_unchanged(&latest.recorded(), &candidate)
}

struct ReferenceFetcher<'x>(&'x Cluster<'x>);

impl FetchObjects for ReferenceFetcher<'_> {
    async fn fetch(&self, request: &ObjectRequest) -> Result<Vec<Value>, String> {
        let mut id = ObjectId {
            cluster: request.cluster.clone(),
            api_version: request.kind.api_version.clone(),
            kind: request.kind.kind.clone(),
            namespace: request.namespace.clone(),
            name: String::new(),
        };
        let text = |error: ObjectError| error.to_string();
        let objects = &self.0.objects;
        if !objects.is_namespaced(&id).await.map_err(text)? {
            id.namespace.clear();
        }
        self.0.check_read(&id).await?;
        match &request.selector {
            ObjectSelector::Name(name) => {
                id.name.clone_from(name);
                let object = objects.read(&id).await.map_err(text)?;
                object
                    .iter()
                    .try_for_each(|live| self.0.check_record(&id.cluster, live))?;
                Ok(object.into_iter().collect())
            }
            ObjectSelector::Labels(labels) => {
                let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let listed = objects.list(&id, &labels.join(",")).await.map_err(text)?;
                Ok(self.0.without_records(&id.cluster, listed))
            }
        }
    }

    async fn load(&self, url: &str) -> Result<Vec<Value>, String> {
        let requests = &self.0.env.reconciler.http_requests;
        let content = requests.download(&self.0.env.name.namespace, url).await?;
        let documents = document::parse_yaml(&content, MAX_VALUES, MAX_TEXT)?;
        Ok(documents.into_iter().flat_map(document::objects).collect())
    }
}
