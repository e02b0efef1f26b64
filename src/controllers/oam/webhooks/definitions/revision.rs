//! The revision that a definition names by an annotation. Its contents never change.

use kube::{Api, Client, ResourceExt};

use super::super::review::Verdict;
use super::super::serve::reserve_more;
use super::object::decode;
use super::rules::revision_annotation;
use crate::api::Raw;
use crate::api::oam::DefinitionRevision;
use crate::budget::{Budgets, leave_runtime_if_large, parsed_bytes};
use crate::controllers::oam::definitions::{Naming, RecordedKind, is_recorded_in, naming};
use crate::runtime::kube_client::call;

pub(super) async fn check_revision<D: RecordedKind>(
    definition: &D,
    namespace: &str,
    client: &Client,
    budgets: &Budgets,
) -> Result<(), Verdict> {
    let annotation = revision_annotation(definition);
    let naming = naming(&definition.name_any(), definition.version(), annotation)
        .map_err(|error| Verdict::Denied(format!("invalid definitionRevision name: {error}")))?;
    let (Naming::Named(name), Some(_)) = (naming, annotation) else {
        return Ok(());
    };
    let failed = |error: String| Verdict::Failed(format!("failed to read DefinitionRevision {name}: {error}"));
    let api: Api<Raw<DefinitionRevision>> = Api::namespaced(client.clone(), namespace);
    let raw = call(api.get_opt(&name))
        .await
        .map_err(|error| failed(error.to_string()))?;
    let Some(raw) = raw else {
        return Ok(());
    };
    let bytes = parsed_bytes(raw.text());
    let _memory = reserve_more(budgets, 0, bytes).map_err(failed)?;
    leave_runtime_if_large(raw.text().len()).await;
    let revision = decode(raw).map_err(failed)?;
    if is_recorded_in(definition, &revision) {
        Ok(())
    } else {
        Err(Verdict::Denied(
            "the definition's spec is different with existing definitionRevision's spec".to_owned(),
        ))
    }
}
