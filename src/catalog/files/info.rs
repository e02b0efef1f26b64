//! The JSON of `files.info`, exactly as Kubeapps writes it.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::catalog::record::storable;
use crate::catalog::{ChartFiles, Error, WantedFiles};

/// The files of a version as they will be stored: some megabytes of JSON at most, made where its making keeps nobody waiting.
///
/// What Kubeapps has of the repository comes from the chart's row, which is read in the transaction that writes. It stands near
/// the end, so that the texts before it can be made ready without it.
#[derive(Clone, Debug)]
pub struct FetchedFiles {
    pub(super) wanted: WantedFiles,
    /// The object from its beginning up to its member `Schema`.
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
    /// Writes the JSON, which takes time by its length: it belongs on a thread that may block.
    ///
    /// # Errors
    /// Texts can always be written; an error is a defect.
    pub fn new(wanted: WantedFiles, files: &ChartFiles) -> Result<Self, Error> {
        let mut head = json(&Head {
            id: wanted.files_id(),
            readme: storable(&files.readme),
            default_values: storable(&files.values),
            additional_default_values: files
                .additional_values
                .iter()
                .map(|(key, value)| (storable(key), storable(value)))
                .collect(),
            schema: storable(&files.schema),
        })?;
        // The brace that ends the object comes after its last two members.
        head.pop();
        Ok(Self { wanted, head })
    }

    /// Returns the bytes of memory that storing the files takes: the JSON, a copy bound to the statement, and one that is sent.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        3 * self.head.len() as u64
    }

    /// None, of no archive: what Kubeapps' reader is given in place of files.
    pub(super) fn none(wanted: &WantedFiles) -> Result<Self, Error> {
        let wanted = WantedFiles {
            digest: String::new(),
            ..wanted.clone()
        };
        Self::new(wanted, &ChartFiles::default())
    }

    /// The whole object. Nothing but the end is added, so that this is quick for any length.
    pub(super) fn into_info(self, repo: &RawValue) -> Result<String, Error> {
        let mut info = self.head;
        info.push_str(",\"Repo\":");
        info.push_str(repo.get());
        info.push_str(",\"Digest\":");
        info.push_str(&json(&self.wanted.digest)?);
        info.push('}');
        Ok(info)
    }
}

impl WantedFiles {
    /// What the row in `files` is found by.
    pub(super) fn files_id(&self) -> String {
        format!("{}-{}", self.chart_id, self.version)
    }
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_are_those_of_kubeapps_in_its_order() {
        let wanted = WantedFiles {
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
        let info = FetchedFiles::new(wanted.clone(), &files)
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
        let none = FetchedFiles::none(&wanted).unwrap().into_info(&repo).unwrap();
        assert_eq!(
            none,
            concat!(
                r#"{"ID":"stable/a-1.0.0","Readme":"","DefaultValues":"","AdditionalDefaultValues":{},"Schema":"","#,
                r#""Repo":{"name": "stable"},"Digest":""}"#
            )
        );
    }
}
