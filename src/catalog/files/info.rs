//! The JSON of `files.info`, as Kubeapps writes it.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::catalog::record::storable;
use crate::catalog::{ChartFiles, Error, MissingFiles};

/// Files of a version, encoded as JSON before the transaction begins, because they may be several MB.
///
/// The repository comes from the chart row, which only the transaction reads. Its position is near the end, so
/// everything before it can be encoded in advance.
#[derive(Clone, Debug)]
pub struct FetchedFiles {
    pub(super) missing: MissingFiles,
    /// The JSON object up to and including its member `Schema`, without the closing brace.
    head: String,
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
        let mut head = serde_json::to_string(&Head {
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
        head.pop();
        Ok(Self { missing, head })
    }

    /// Returns the bytes of memory that storing takes: the JSON, its bound copy, and the copy that is sent.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        3 * self.head.len() as u64
    }

    pub(super) fn empty(missing: &MissingFiles) -> Result<Self, Error> {
        let missing = MissingFiles {
            digest: String::new(),
            ..missing.clone()
        };
        Self::new(missing, &ChartFiles::default())
    }

    /// Completes the JSON object. Only appends, so it is fast for any size.
    pub(super) fn into_info(self, repo: &RawValue) -> Result<String, Error> {
        let mut info = self.head;
        info.push_str(",\"Repo\":");
        info.push_str(repo.get());
        info.push_str(",\"Digest\":");
        info.push_str(&serde_json::to_string(&self.missing.digest)?);
        info.push('}');
        Ok(info)
    }
}

impl MissingFiles {
    pub(in crate::catalog) fn files_id(&self) -> String {
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
            urls: None,
            tries: 0,
        };
        let files = ChartFiles {
            readme: "# a\0\n".into(),
            values: "b: \"c\"\n".into(),
            additional_values: BTreeMap::from([("values-x".into(), "d: 1".into())]),
            schema: "{}".into(),
        };
        let repo = RawValue::from_string(r#"{"name": "stable"}"#.into()).unwrap();
        let info = FetchedFiles::new(missing.clone(), &files)
            .unwrap()
            .into_info(&repo)
            .unwrap();
        assert_eq!(
            info,
            concat!(
                r##"{"ID":"stable/a-1.0.0","Readme":"# a\n","DefaultValues":"b: \"c\"\n","##,
                r#""AdditionalDefaultValues":{"values-x":"d: 1"},"Schema":"{}","#,
                r#""Repo":{"name": "stable"},"Digest":"sha256:\"ab"}"#
            )
        );
        let empty = FetchedFiles::empty(&missing).unwrap().into_info(&repo).unwrap();
        assert_eq!(
            empty,
            concat!(
                r#"{"ID":"stable/a-1.0.0","Readme":"","DefaultValues":"","AdditionalDefaultValues":{},"Schema":"","#,
                r#""Repo":{"name": "stable"},"Digest":""}"#
            )
        );
    }
}
