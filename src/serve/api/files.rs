//! README, values and schema of a version, and why they may be missing.

use std::collections::BTreeMap;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::address::Address;
use super::chart::VersionRow;
use crate::budget::Reservation;
use crate::catalog::FilesProblem;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, send};
use crate::serve::rows::Decoded;
use crate::serve::site::Site;

/// A file as paths name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) enum FileName {
    Readme,
    Values,
    /// Such as `values-production`.
    OtherValues(String),
    Schema,
}

impl FileName {
    pub(in crate::serve) fn parse(name: &str) -> Option<Self> {
        match name {
            "readme" => Some(Self::Readme),
            "values" => Some(Self::Values),
            "schema" => Some(Self::Schema),
            other => other
                .starts_with("values-")
                .then(|| Self::OtherValues(other.to_owned())),
        }
    }

    pub(in crate::serve) fn name(&self) -> &str {
        match self {
            Self::Readme => "readme",
            Self::Values => "values",
            Self::OtherValues(name) => name,
            Self::Schema => "schema",
        }
    }

    const fn media_types(&self) -> &'static [&'static str] {
        match self {
            Self::Readme => &["text/markdown"],
            Self::Values | Self::OtherValues(_) => &["application/yaml"],
            Self::Schema => &["application/schema+json", JSON],
        }
    }
}

/// `info` of a row of `files`. Every field is optional, and only the text of a wanted file is decoded.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct FilesRow<'a> {
    #[serde(borrow)]
    readme: Option<&'a RawValue>,
    #[serde(borrow)]
    default_values: Option<&'a RawValue>,
    #[serde(borrow)]
    additional_default_values: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    digest: Option<String>,
}

impl FilesRow<'_> {
    fn file(&self, name: &FileName) -> Option<String> {
        let raw = match name {
            FileName::Readme => self.readme,
            FileName::Values => self.default_values,
            FileName::OtherValues(name) => self.additional_default_values.as_ref()?.get(name).copied(),
            FileName::Schema => self.schema,
        };
        let text: String = serde_json::from_str(raw?.get()).ok()?;
        Some(text).filter(|text| !text.is_empty())
    }

    fn names(&self) -> Vec<String> {
        let is_file = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().starts_with('"') && raw.get() != "\"\"");
        let fixed = [
            ("readme", self.readme),
            ("values", self.default_values),
            ("schema", self.schema),
        ];
        let fixed = fixed.into_iter().filter(|(_, raw)| is_file(*raw));
        let others = self.additional_default_values.iter().flatten();
        let others = others.filter(|(name, raw)| name.starts_with("values-") && is_file(Some(**raw)));
        fixed
            .map(|(name, _)| name.to_owned())
            .chain(others.map(|(name, _)| name.clone()))
            .collect()
    }
}

/// A row of files, decoded as far as a response needs it.
#[derive(Default)]
struct Stored {
    digest: String,
    names: Vec<String>,
    text: Option<String>,
}

impl Stored {
    /// A row that is not readable has no files.
    fn decode(info: &str, wanted: Option<&FileName>) -> Self {
        let row: FilesRow<'_> = serde_json::from_str(info).unwrap_or_default();
        Self {
            names: row.names(),
            text: wanted.and_then(|name| row.file(name)),
            digest: row.digest.unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::serve) enum FilesState {
    Imported,
    Pending,
    Failed,
    Skipped,
    None,
}

#[derive(Serialize)]
pub(in crate::serve) struct FilesView {
    pub(in crate::serve) state: FilesState,
    /// The reason of a failed import, or a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) message: Option<String>,
    /// The files that are stored, as paths name them; of an earlier archive while those of the current one are not imported.
    pub(in crate::serve) names: Vec<String>,
}

/// `digest` is that of the archive in the index.
fn state(digest: &str, stored: Option<&Stored>, problem: Option<&FilesProblem>) -> FilesState {
    let problem = problem.filter(|problem| problem.digest == digest);
    // Files of an earlier release may only lack Chart.yaml. Without digest, an empty row may be that of a failure.
    let has_files = !digest.is_empty() && stored.is_some_and(|stored| stored.digest == digest);
    if !has_files && problem.is_some_and(|problem| problem.tries > 0) {
        return FilesState::Failed;
    }
    let Some(stored) = stored else {
        return FilesState::Pending;
    };
    // Without digest, the mark of `--chart-files` tells an empty row from a chart without files.
    let is_marked = digest.is_empty() && problem.is_some_and(|problem| problem.message.is_empty());
    match (stored.names.is_empty(), stored.digest == digest && !is_marked) {
        (true, true) => FilesState::None,
        (true, false) if stored.digest.is_empty() => FilesState::Skipped,
        (false, true) => FilesState::Imported,
        // Older releases of Kubeapps store no digest.
        (false, false) if stored.digest.is_empty() && problem.is_none() => FilesState::Imported,
        _ => FilesState::Pending,
    }
}

async fn stored(
    site: &Site,
    address: &Address,
    row: &VersionRow,
    wanted: Option<FileName>,
) -> Result<Option<Decoded<Stored>>, Problem> {
    let decode = move |info: &str| Stored::decode(info, wanted.as_ref());
    let (repository, chart_id) = (&address.repository, address.chart_id());
    Ok(site.rows().files(repository, &chart_id, row.version(), decode).await?)
}

async fn describe(
    site: &Site,
    address: &Address,
    row: &VersionRow,
    stored: Option<Stored>,
) -> Result<FilesView, Problem> {
    let (repository, chart_id) = (&address.repository, address.chart_id());
    let problem = site.rows().files_problem(repository, &chart_id, row.version()).await?;
    let state = state(row.digest(), stored.as_ref(), problem.as_ref());
    let problem = problem.filter(|problem| problem.digest == row.digest());
    let message = problem.map(|problem| problem.message);
    Ok(FilesView {
        state,
        message: message.filter(|message| !message.is_empty()),
        names: stored.map(|stored| stored.names).unwrap_or_default(),
    })
}

/// Returns the state of the files of a version.
pub(super) async fn view(site: &Site, address: &Address, row: &VersionRow) -> Result<FilesView, Problem> {
    Ok(open(site, address, row, None).await?.view)
}

pub(in crate::serve) struct FileText {
    pub(in crate::serve) text: String,
    pub(in crate::serve) memory: Option<Reservation>,
}

pub(in crate::serve) enum Lookup {
    Found(FileText),
    Missing(FilesView),
}

/// The files of a version, and the text of one of them.
pub(in crate::serve) struct Opened {
    /// `None`: not wanted, or missing.
    pub(in crate::serve) file: Option<FileText>,
    pub(in crate::serve) view: FilesView,
}

/// Reads the state of the files of a version, and one of them.
pub(in crate::serve) async fn open(
    site: &Site,
    address: &Address,
    row: &VersionRow,
    wanted: Option<FileName>,
) -> Result<Opened, Problem> {
    let (mut stored, memory) = match stored(site, address, row, wanted).await? {
        Some(Decoded { value, memory }) => (Some(value), memory),
        None => (None, None),
    };
    let text = stored.as_mut().and_then(|stored| stored.text.take());
    Ok(Opened {
        file: text.map(|text| FileText { text, memory }),
        view: describe(site, address, row, stored).await?,
    })
}

/// Reads a file, and its state only if it is missing.
pub(in crate::serve) async fn look_up(
    site: &Site,
    address: &Address,
    row: &VersionRow,
    file: &FileName,
) -> Result<Lookup, Problem> {
    let Some(decoded) = stored(site, address, row, Some(file.clone())).await? else {
        return Ok(Lookup::Missing(describe(site, address, row, None).await?));
    };
    let Decoded { mut value, memory } = decoded;
    Ok(match value.text.take() {
        Some(text) => Lookup::Found(FileText { text, memory }),
        None => Lookup::Missing(describe(site, address, row, Some(value)).await?),
    })
}

/// Same as [`look_up`], with an error for a missing file.
pub(super) async fn read(
    site: &Site,
    address: &Address,
    row: &VersionRow,
    file: &FileName,
) -> Result<FileText, Problem> {
    match look_up(site, address, row, file).await? {
        Lookup::Found(file) => Ok(file),
        Lookup::Missing(view) => Err(view.missing(address, row, file)),
    }
}

impl FilesView {
    /// Returns true if the archive was read, so that a missing file is not in it.
    pub(in crate::serve) fn is_complete(&self) -> bool {
        matches!(self.state, FilesState::Imported | FilesState::None)
    }

    pub(super) fn missing(&self, address: &Address, row: &VersionRow, file: &FileName) -> Problem {
        let version = format!("version {:?} of the chart {:?}", row.version(), address.chart);
        let message = self.message.as_deref().unwrap_or_default();
        Problem::not_found(match self.state {
            FilesState::Pending => format!("the files of {version} are not imported yet; retry later"),
            FilesState::Failed => format!("the import of the files of {version} failed and is retried: {message}"),
            FilesState::Skipped => format!("--chart-files of portolan run excludes the files of {version}"),
            FilesState::None => format!("{version} has no README, values or schema"),
            FilesState::Imported => format!(
                "{version} has no file {:?}, only {}",
                file.name(),
                self.names.join(", ")
            ),
        })
    }
}

type NamesOfFile = Result<Path<(String, String, String, String, String)>, PathRejection>;

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: NamesOfFile,
) -> Result<Response, Problem> {
    let Path((namespace, repository, chart, version, file)) = names.map_err(|_| Problem::unknown_path())?;
    let address = Address::new(namespace, repository, &chart);
    let file = FileName::parse(&file).ok_or_else(Problem::unknown_path)?;
    let media_type = negotiate(&headers, file.media_types())?;
    let version = address.read_version(&site, &headers, &version).await?;
    let FileText { text, memory } = read(&site, &address, &version.row, &file).await?;
    let content = Content {
        media_type,
        body: text.into_bytes(),
        memory,
    };
    send(&headers, content).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = r##"{"ID": "stable/web-1.0.0", "Readme": "# web", "DefaultValues": "a: 1", "Digest": "x", "Schema": "",
        "AdditionalDefaultValues": {"values-b": "b: 1", "values-c": "", "other": "c: 1"}, "Repo": {"name": "stable"}}"##;

    #[test]
    fn rows_of_any_writer_are_read_as_far_as_they_go() {
        let file = |name: &str| Stored::decode(INFO, Some(&FileName::parse(name).unwrap())).text;
        assert_eq!(file("readme").unwrap(), "# web");
        assert_eq!(file("values-b").unwrap(), "b: 1");
        assert_eq!((file("schema"), file("values-c"), file("values-d")), (None, None, None));
        assert_eq!(FileName::parse("other"), None);
        assert_eq!(Stored::decode(INFO, None).names, ["readme", "values", "values-b"]);
        for sparse in [
            "{}",
            "[]",
            "{",
            r#"{"Readme": null, "AdditionalDefaultValues": null, "Digest": null}"#,
            r#"{"Readme": 1}"#,
        ] {
            let stored = Stored::decode(sparse, Some(&FileName::Readme));
            assert!(stored.text.is_none() && stored.names.is_empty(), "{sparse}");
        }
    }

    #[test]
    fn the_state_tells_why_files_are_missing() {
        let stored = |digest: &str, names: &[&str]| Stored {
            digest: digest.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            text: None,
        };
        let problem = |digest: &str, tries: u32, message: &str| FilesProblem {
            digest: digest.to_owned(),
            tries,
            message: message.to_owned(),
        };
        let readme = ["readme"];
        for (digest, stored, problem, expected) in [
            ("x", None, None, FilesState::Pending),
            ("x", None, Some(problem("x", 1, "gone")), FilesState::Failed),
            ("x", Some(stored("x", &readme)), None, FilesState::Imported),
            (
                "x",
                Some(stored("x", &readme)),
                Some(problem("x", 0, "long")),
                FilesState::Imported,
            ),
            (
                "x",
                Some(stored("x", &readme)),
                Some(problem("x", 1, "no Chart.yaml")),
                FilesState::Imported,
            ),
            ("x", Some(stored("x", &[])), None, FilesState::None),
            ("x", Some(stored("", &[])), None, FilesState::Skipped),
            (
                "x",
                Some(stored("", &[])),
                Some(problem("x", 3, "gone")),
                FilesState::Failed,
            ),
            ("x", Some(stored("w", &readme)), None, FilesState::Pending),
            (
                "x",
                Some(stored("w", &readme)),
                Some(problem("w", 3, "gone")),
                FilesState::Pending,
            ),
            ("x", Some(stored("", &readme)), None, FilesState::Imported),
            ("", Some(stored("", &readme)), None, FilesState::Imported),
            ("", Some(stored("", &[])), None, FilesState::None),
            ("", Some(stored("", &[])), Some(problem("", 0, "")), FilesState::Skipped),
        ] {
            let found = state(digest, stored.as_ref(), problem.as_ref());
            assert_eq!(
                found,
                expected,
                "{digest:?} {:?} {problem:?}",
                stored.map(|stored| stored.digest)
            );
        }
    }
}
