//! `--verify-delta`: compares an incremental decode with a full decode.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::Run;
use super::chart_rows::{Selected, Selection, SelectionError};
use super::request::SyncAborted;
use crate::catalog::Fingerprint;
use crate::helm::index::{self, DecodeError, DecodeLimits, Summary};

pub(super) struct Whole {
    pub(super) result: Result<Summary, DecodeError<SelectionError>>,
    pub(super) selected: Selected,
}

pub(super) fn whole(input: impl Read + Seek, limits: &DecodeLimits, mut selection: Selection) -> Whole {
    let result = index::decode(input, limits, &mut selection);
    Whole {
        result,
        selected: selection.finish(),
    }
}

impl Run<'_> {
    /// Returns the first difference. Stored rows stand for unchanged charts.
    pub(super) async fn difference(
        &self,
        summary: &Summary,
        selected: &Selected,
        whole: &Whole,
    ) -> Result<Option<String>, SyncAborted> {
        let expected = match &whole.result {
            Ok(expected) => expected,
            Err(error) => return Ok(Some(format!("the whole is refused: {error}"))),
        };
        if summary != expected {
            return Ok(Some(format!("{summary:?} in place of {expected:?}")));
        }
        if selected.filtered_out != whole.selected.filtered_out {
            return Ok(Some("the filter has left out other charts".to_owned()));
        }
        let stored = self.catalog().fingerprints(&self.request.declaration.name).await?;
        let unchanged = selected.unchanged.iter().filter_map(|chart| chart.chart_id.as_ref());
        let mut given: HashMap<&str, Option<&Fingerprint>> = unchanged
            .map(|chart_id| (chart_id.as_str(), stored.get(chart_id)))
            .collect();
        given.extend(
            selected
                .fingerprints
                .iter()
                .map(|(chart_id, is)| (chart_id.as_str(), Some(is))),
        );
        let expected: HashMap<&str, Option<&Fingerprint>> = (whole.selected.fingerprints.iter())
            .map(|(chart_id, is)| (chart_id.as_str(), Some(is)))
            .collect();
        if given == expected {
            return Ok(None);
        }
        let differing = expected
            .keys()
            .chain(given.keys())
            .find(|chart_id| expected.get(*chart_id) != given.get(*chart_id));
        Ok(differing.map(|chart_id| format!("{chart_id} is another chart")))
    }
}
