//! The JSON of `files.info`, as Kubeapps writes it.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::catalog::record::storable;
use crate::catalog::{ChartFiles, Error, MissingFiles};

/// Encoded before the transaction begins, because files may be several MB. The repository comes from the chart row,
/// which only the transaction reads. Its position is near the end, so everything before it can be encoded in advance.
#[derive(Clone, Debug)]
pub struct FetchedFiles {
    pub(super) missing: MissingFiles,
    /// Shown in the status, although the files are imported.
    pub(super) warning: Option<String>,
    /// Chart.yaml as JSON.
    pub(super) metadata: Option<String>,
    /// The JSON object, until it is completed without its last members and closing brace.
    info: String,
    /// Length up to and including the member `Schema`.
    head: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Head<'a> {
    #[serde(rename = "ID")]
    id: String,
    readme: Cow<'a, str>,
    default_values: Cow<'a, str>,
    additional_default_values: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    schema: Cow<'a, str>,
}

impl FetchedFiles {
    /// Encodes the files. Call it on a blocking thread: the time grows with the size.
    pub fn new(missing: MissingFiles, files: &ChartFiles) -> Result<Self, Error> {
        let mut info = serde_json::to_string(&Head {
            id: missing.files_id(),
            readme: storable(&files.readme),
            default_values: storable(&files.values),
            additional_default_values: files
                .additional_values
                .iter()
                .map(|(key, value)| (storable(key), storable(value)))
                .collect(),
            schema: storable(&files.schema),
        })?;
        // Two more members follow before the closing brace.
        info.pop();
        Ok(Self {
            missing,
            warning: None,
            metadata: None,
            head: info.len(),
            info,
        })
    }

    /// Adds Chart.yaml as JSON; `None` if the archive has none that is valid.
    #[must_use]
    pub fn with_metadata(self, metadata: Option<String>) -> Self {
        Self { metadata, ..self }
    }

    /// A warning replaces an earlier one.
    #[must_use]
    pub fn with_warning(self, warning: Option<String>) -> Self {
        let warning = warning.or(self.warning);
        Self { warning, ..self }
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.info.len() + self.metadata.as_ref().map_or(0, String::len)) as u64
    }

    /// Returns the bytes of memory that storing takes: the JSON, its bound copy, and the copy that is sent.
    #[must_use]
    pub fn memory(&self) -> u64 {
        3 * self.bytes()
    }

    pub(super) fn empty(missing: &MissingFiles) -> Result<Self, Error> {
        let missing = MissingFiles {
            digest: String::new(),
            ..missing.clone()
        };
        Self::new(missing, &ChartFiles::default())
    }

    /// Completes the JSON object, also repeatedly. Only appends, so it is fast for any size.
    pub(super) fn complete(&mut self, repo: &RawValue) -> Result<(), Error> {
        let Self { missing, info, .. } = self;
        info.truncate(self.head);
        info.push_str(",\"Repo\":");
        info.push_str(repo.get());
        info.push_str(",\"Digest\":");
        info.push_str(&serde_json::to_string(&missing.digest)?);
        info.push('}');
        Ok(())
    }

    pub(super) fn info(&self) -> &str {
        &self.info
    }
}

impl MissingFiles {
    #[must_use]
    pub fn files_id(&self) -> String {
        format!("{}-{}", self.chart_id, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_names_and_order_of_kubeapps() {
        let missing = MissingFiles {
            chart_id: "stable/a".into(),
            version: "1.0.0".into(),
            digest: "sha256:\"ab".into(),
            url: None,
            tries: 0,
        };
        let files = ChartFiles {
            readme: "# a\0\n".into(),
            values: "b: \"c\"\n".into(),
            additional_values: BTreeMap::from([("values-x".into(), "d: 1".into())]),
            schema: "{}".into(),
        };
        let repo = RawValue::from_string(r#"{"name": "stable"}"#.into()).unwrap();
        let mut fetched = FetchedFiles::new(missing.clone(), &files).unwrap();
        fetched
            .complete(&RawValue::from_string("null".into()).unwrap())
            .unwrap();
        fetched.complete(&repo).unwrap();
        assert_eq!(
            fetched.info(),
            concat!(
                r##"{"ID":"stable/a-1.0.0","Readme":"# a\n","DefaultValues":"b: \"c\"\n","##,
                r#""AdditionalDefaultValues":{"values-x":"d: 1"},"Schema":"{}","#,
                r#""Repo":{"name": "stable"},"Digest":"sha256:\"ab"}"#
            )
        );
        let mut empty = FetchedFiles::empty(&missing).unwrap();
        empty.complete(&repo).unwrap();
        assert_eq!(
            empty.info(),
            concat!(
                r#"{"ID":"stable/a-1.0.0","Readme":"","DefaultValues":"","AdditionalDefaultValues":{},"Schema":"","#,
                r#""Repo":{"name": "stable"},"Digest":""}"#
            )
        );
    }
}
