//! Rows as Kubeapps' API server reads them, and the spool that holds them until the commit.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::Path;

use tempfile::SpooledTempFile;

use crate::budget::{Budget, Transfer};
use crate::catalog::{ChartInfo, ChartRow, ChartVersion, Maintainer, RepoRef};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::Chart;

/// Maximum size of rows in memory; larger spools use an unlinked temporary file.
const IN_MEMORY: usize = 64 * 1024;

const MIB: u64 = 1024 * 1024;

/// Returns the chart name as Kubeapps stores it, with `/` escaped as `%2F`, so that a chart ID has exactly one slash.
#[must_use]
pub fn stored_name(name: &str) -> String {
    // Like Kubeapps: a literal `%2F` can't be distinguished from an escaped slash.
    name.replace('/', "%2F")
}

#[must_use]
pub fn chart_id(spec: &RepositorySpec, name_or_path: &str) -> String {
    format!("{}/{}", spec.name.name, stored_name(name_or_path))
}

/// In an OCI registry, `path` replaces the name in the ID, as in Kubeapps: two projects may have equal chart names.
#[must_use]
pub fn row(spec: &RepositorySpec, chart: Chart, path: Option<&str>) -> ChartRow {
    let name = stored_name(&chart.name);
    let id = chart_id(spec, path.unwrap_or(&chart.name));
    let maintainers = chart.maintainers.into_iter().map(|maintainer| Maintainer {
        name: maintainer.name,
        email: maintainer.email.unwrap_or_default(),
        url: maintainer.url.unwrap_or_default(),
    });
    let versions = chart.versions.into_iter().map(|version| ChartVersion {
        version: version.version,
        app_version: version.app_version,
        created: version.created,
        digest: version.digest,
        urls: version.urls,
        ..ChartVersion::default()
    });
    ChartRow {
        chart_id: id.clone(),
        info: ChartInfo {
            id,
            name,
            repo: RepoRef {
                namespace: spec.name.namespace.clone(),
                name: spec.name.name.clone(),
                url: spec.url.clone(),
                // Kubeapps never sets it for Helm repositories.
                kind: String::new(),
            },
            description: chart.description,
            home: chart.home,
            keywords: chart.keywords,
            maintainers: maintainers.collect(),
            sources: chart.sources,
            icon: chart.icon,
            raw_icon: None,
            icon_content_type: String::new(),
            category: chart.category,
            chart_versions: versions.collect(),
        },
    }
}

/// Rows waiting for the commit, in memory or in an unlinked temporary file.
pub struct Spool {
    file: SpooledTempFile,
    transfer: Transfer,
    seen: HashMap<String, RowSource>,
    versions: u64,
    largest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowSource {
    Spooled,
    Stored,
}

impl Spool {
    /// Creates a spool that takes its bytes from `budget` for `namespace`.
    #[must_use]
    pub fn new(directory: Option<&Path>, budget: &Budget, namespace: &str) -> Self {
        let file = match directory {
            Some(directory) => tempfile::spooled_tempfile_in(IN_MEMORY, directory),
            None => tempfile::spooled_tempfile(IN_MEMORY),
        };
        Self {
            file,
            transfer: budget.transfer(namespace),
            seen: HashMap::new(),
            versions: 0,
            largest: 0,
        }
    }

    /// Adds a row as a line of JSON. The first of several rows with one ID wins.
    pub fn push(&mut self, chart_id: &str, line: &[u8], versions: u64) -> io::Result<PushResult> {
        match self.seen.get(chart_id) {
            Some(RowSource::Spooled) => return Ok(PushResult::Duplicate),
            Some(RowSource::Stored) => return Ok(PushResult::DuplicateOfUnchanged),
            None => self.seen.insert(chart_id.to_owned(), RowSource::Spooled),
        };
        self.versions += versions;
        self.largest = self.largest.max(line.len() as u64);
        self.transfer.grow(line.len() as u64).map_err(io::Error::other)?;
        self.file.write_all(line)?;
        Ok(PushResult::Added)
    }

    /// Returns an upper bound of the memory that writing the rows needs: some copies of the largest one, and the index.
    #[must_use]
    pub fn commit_memory(&self) -> u64 {
        const COPIES: u64 = 8;
        const PER_CHART: u64 = 256;
        MIB + COPIES * self.largest + PER_CHART * self.seen.len() as u64
    }

    pub fn push_unchanged(&mut self, chart_id: String, versions: u64) -> PushResult {
        match self.seen.get(&chart_id) {
            Some(RowSource::Spooled) => PushResult::Duplicate,
            Some(RowSource::Stored) => PushResult::DuplicateOfUnchanged,
            None => {
                self.seen.insert(chart_id, RowSource::Stored);
                self.versions += versions;
                PushResult::Added
            }
        }
    }

    #[must_use]
    pub fn contains(&self, chart_id: &str) -> bool {
        self.seen.contains_key(chart_id)
    }

    /// Returns the IDs of all charts, also of unchanged ones.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.seen.keys().map(String::as_str)
    }

    #[must_use]
    pub fn charts(&self) -> u64 {
        self.seen.len() as u64
    }

    #[must_use]
    pub fn versions(&self) -> u64 {
        self.versions
    }

    /// Returns the rows in insertion order, without unchanged ones.
    pub fn into_rows(mut self) -> io::Result<impl Iterator<Item = io::Result<ChartRow>> + Send> {
        let reserved = self.transfer.finish().map_err(io::Error::other)?;
        self.file.rewind()?;
        let lines = BufReader::with_capacity(64 * 1024, self.file).lines();
        Ok(lines.map(move |line| {
            // Returned with the file.
            let _ = &reserved;
            let info: ChartInfo = serde_json::from_str(&line?)?;
            Ok(ChartRow {
                chart_id: info.id.clone(),
                info,
            })
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushResult {
    Added,
    Duplicate,
    /// An unchanged row in the catalog has the same ID.
    DuplicateOfUnchanged,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;
    use crate::controllers::apprepository::spec::OneShot;

    fn spooled(id: &str) -> ChartRow {
        ChartRow {
            chart_id: id.to_owned(),
            info: ChartInfo {
                id: id.to_owned(),
                ..ChartInfo::default()
            },
        }
    }

    #[test]
    fn an_identifier_has_exactly_one_slash() {
        assert_eq!(stored_name("project/chart"), "project%2Fchart");
        assert_eq!(stored_name("a b"), "a b");
        assert_eq!(stored_name("o'neill"), "o'neill");
    }

    #[test]
    fn rows_are_returned_unchanged_and_the_first_of_two_wins() {
        let budget = Budget::new("spool", 1000);
        let mut spool = Spool::new(None, &budget, "default");
        let mut push = |id: &str| {
            let row = spooled(id);
            let line = format!("{}\n", serde_json::to_string(&row.info).unwrap());
            spool.push(&row.chart_id, line.as_bytes(), 1).unwrap()
        };
        assert_eq!(push("r/a"), PushResult::Added);
        assert_eq!(push("r/b\nwith a line"), PushResult::Added);
        assert_eq!(push("r/a"), PushResult::Duplicate);
        assert_eq!((spool.charts(), spool.versions()), (2, 2));
        assert!(budget.used() > 0);
        let rows: Vec<ChartRow> = spool.into_rows().unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, [spooled("r/a"), spooled("r/b\nwith a line")]);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_row_has_the_shape_that_kubeapps_reads() {
        let defaults = crate::controllers::apprepository::spec::Defaults::usual();
        let name = NamespacedName {
            namespace: "kubeapps".to_owned(),
            name: "bitnami".to_owned(),
        };
        let arguments = OneShot {
            url: " https://charts.bitnami.com/bitnami ".to_owned(),
            ..OneShot::default()
        };
        let spec = RepositorySpec::one_shot(name, arguments, &defaults);
        let chart = Chart {
            name: "team/wordpress".to_owned(),
            ..Chart::default()
        };
        let row = row(&spec, chart, None);
        assert_eq!(row.chart_id, "bitnami/team%2Fwordpress");
        let json = serde_json::to_value(&row.info).unwrap();
        assert_eq!(json["ID"], "bitnami/team%2Fwordpress");
        assert_eq!(json["name"], "team%2Fwordpress");
        assert_eq!(
            json["repo"],
            serde_json::json!({
                "namespace": "kubeapps", "name": "bitnami", "url": "https://charts.bitnami.com/bitnami", "type": ""
            })
        );
        // The reader groups by it and does not accept null.
        assert_eq!(json["category"], "");
        assert!(json["keywords"].is_null());
        assert_eq!(json["maintainers"], serde_json::json!([]));
    }
}
