//! The revision that a definition names by an annotation. Its contents never change.

use kube::{Api, Client, ResourceExt};

use super::super::review::Verdict;
use super::object::decode;
use super::rules::revision_annotation;
use crate::api::Raw;
use crate::api::oam::DefinitionRevision;
use crate::budget::Budgets;
use crate::controllers::oam::definitions::{RecordedKind, is_recorded_in, is_revision_name, named_revision};
use crate::runtime::kube_client::call;

pub(super) async fn check_revision<D: RecordedKind>(
    definition: &D,
    namespace: &str,
    client: &Client,
    budgets: &Budgets,
) -> Result<(), Verdict> {
    let Some(annotation) = revision_annotation(definition) else {
        return Ok(());
    };
    let name = named_revision(&definition.name_any(), annotation);
    if !is_revision_name(&name) {
        return Err(Verdict::Denied(format!(
            "invalid definitionRevision name {name}: it must be a DNS subdomain of at most 253 characters"
        )));
    }
    let failed = |error: String| Verdict::Failed(format!("failed to read DefinitionRevision {name}: {error}"));
    let api: Api<Raw<DefinitionRevision>> = Api::namespaced(client.clone(), namespace);
    let raw = call(api.get_opt(&name))
        .await
        .map_err(|error| failed(error.to_string()))?;
    let Some(raw) = raw else {
        return Ok(());
    };
    let revision = decode(raw, budgets).await.map_err(|error| failed(error.to_string()))?;
    if is_recorded_in(definition, &revision.object) {
        Ok(())
    } else {
        Err(Verdict::Denied(
            "the definition's spec is different with existing definitionRevision's spec".to_owned(),
        ))
    }
}
