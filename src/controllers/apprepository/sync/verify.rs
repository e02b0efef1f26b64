//! `--verify-delta`: compares an incremental decode with a full decode.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::chart_rows::{BuiltRows, RowBuilder, RowError};
use super::helm_index::decode_all;
use super::request::SyncAborted;
use crate::api::NamespacedName;
use crate::catalog::{Catalog, ChartFingerprint};
use crate::helm::index::{DecodeError, DecodeLimits, Summary};

pub(super) struct FullDecode {
    pub(super) result: Result<Summary, DecodeError<RowError>>,
    pub(super) rows: BuiltRows,
}

pub(super) fn full_decode(input: impl Read + Seek, limits: &DecodeLimits, mut builder: RowBuilder) -> FullDecode {
    let result = decode_all(input, limits, &mut builder);
    FullDecode {
        result,
        rows: builder.finish(),
    }
}

/// Returns the first difference. Stored rows stand for unchanged charts.
pub(super) async fn find_difference(
    catalog: &Catalog,
    name: &NamespacedName,
    summary: &Summary,
    rows: &BuiltRows,
    full: &FullDecode,
) -> Result<Option<String>, SyncAborted> {
    let expected = match &full.result {
        Ok(expected) => expected,
        Err(error) => return Ok(Some(format!("full decode failed: {error}"))),
    };
    if summary != expected {
        return Ok(Some(format!("summary is {summary:?}, expected {expected:?}")));
    }
    if rows.filtered_out != full.rows.filtered_out {
        return Ok(Some("filter removed different charts".to_owned()));
    }
    let stored = catalog.fingerprints(name).await?;
    let unchanged = rows.unchanged.iter().filter_map(|chart| chart.chart_id.as_ref());
    let mut actual: HashMap<&String, Option<&ChartFingerprint>> =
        unchanged.map(|chart_id| (chart_id, stored.get(chart_id))).collect();
    actual.extend(
        rows.fingerprints
            .iter()
            .map(|(chart_id, fingerprint)| (chart_id, Some(fingerprint))),
    );
    let expected: HashMap<_, _> = full
        .rows
        .fingerprints
        .iter()
        .map(|(chart_id, fingerprint)| (chart_id, Some(fingerprint)))
        .collect();
    let mut charts = expected.keys().chain(actual.keys());
    let differing = charts.find(|chart_id| expected.get(*chart_id) != actual.get(*chart_id));
    Ok(differing.map(|chart_id| format!("chart {chart_id} differs")))
}
