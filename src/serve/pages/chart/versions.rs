//! The tab of the versions: a table, from which each is compared with the shown one.

use askama::Template;
use jiff::Timestamp;

use super::{Shown, VersionLine};
use crate::serve::links::segment;
use crate::serve::pages::links::with_query;
use crate::serve::pages::shown::{When, count};
use crate::serve::site::Site;
use crate::text::printable;

#[derive(Template)]
#[template(path = "chart/versions.html", config = "src/serve/pages/askama.toml")]
pub(super) struct VersionsTab {
    rows: Vec<VersionEntry>,
    /// Says how many versions are left out.
    left_out: Option<String>,
}

struct VersionEntry {
    version: String,
    app_version: String,
    created: Option<When>,
    link: String,
    /// `None` for the shown version.
    compare: Option<String>,
}

impl VersionsTab {
    pub(super) fn new(site: &Site, shown: &Shown) -> Self {
        let (chart, now) = (shown.chart_address(site.prefix()), Timestamp::now());
        let at = shown.versions.iter().position(|line| line.version == shown.version);
        let row = |(number, line): (usize, &VersionLine)| {
            // The older one comes first.
            let is_older = at.is_none_or(|at| number > at);
            let (from, to) = if is_older {
                (&line.version, &shown.version)
            } else {
                (&shown.version, &line.version)
            };
            let diff = with_query(&format!("{chart}/diff"), [("from", from.as_str()), ("to", to)]);
            VersionEntry {
                version: printable(&line.version),
                app_version: printable(&line.app_version),
                created: line.created.map(|created| When::new(created, now)),
                link: format!("{chart}/{}", segment(&line.version)),
                compare: (line.version != shown.version).then_some(diff),
            }
        };
        let left_out = shown.version_count - shown.versions.len().min(shown.version_count);
        Self {
            rows: shown.versions.iter().enumerate().map(row).collect(),
            left_out: (left_out > 0).then(|| count(left_out, "version")),
        }
    }
}
