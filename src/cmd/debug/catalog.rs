//! Repositories and their last syncs, from the catalog.

use jiff::Timestamp;
use serde_json::json;

use super::Bundle;
use super::archive::BundlePart;
use crate::catalog::{Catalog, SyncView};
use crate::cmd::Error;
use crate::cmd::status;

const MAX_REPOSITORIES: usize = 500;
/// The number of syncs of each.
const SYNCS: u32 = 10;

impl Bundle {
    pub(super) async fn catalog_parts(&self, now: Timestamp) -> Result<Vec<BundlePart>, Error> {
        self.database
            .read(async |catalog| self.read_catalog(catalog, now).await)
            .await
    }

    async fn read_catalog(&self, catalog: &Catalog, now: Timestamp) -> Result<Vec<BundlePart>, Error> {
        let mut summaries = catalog.repositories().await?;
        let namespace = self.namespace();
        summaries.retain(|summary| namespace.is_none_or(|namespace| namespace == summary.name.namespace));
        let count = summaries.len();
        // Those that fail come first: the rest may be cut.
        summaries.sort_by_key(
            |summary| match summary.record.as_ref().and_then(|record| record.state.ready) {
                Some(false) => 0,
                None => 1,
                Some(true) => 2,
            },
        );
        summaries.truncate(MAX_REPOSITORIES);
        let cut = (count > MAX_REPOSITORIES)
            .then(|| format!("{MAX_REPOSITORIES} of {count} repositories, those that fail first"));
        let (mut repositories, mut syncs) = (Vec::new(), Vec::new());
        for summary in summaries {
            let entries = catalog.history(&summary.name, SYNCS).await?;
            let entries: Vec<_> = entries.iter().map(SyncView::new).collect();
            syncs.push(json!({ "namespace": summary.name.namespace, "name": summary.name.name, "syncs": entries }));
            repositories.push(status::RepositoryView::new(summary, None, now));
        }
        let repositories = json!({ "count": count, "complete": cut.is_none(), "repositories": repositories });
        Ok(vec![
            BundlePart::new("catalog/repositories.json", format!("{repositories:#}\n")).cut(cut.clone()),
            BundlePart::new("catalog/syncs.json", format!("{:#}\n", json!(syncs))).cut(cut),
        ])
    }
}
