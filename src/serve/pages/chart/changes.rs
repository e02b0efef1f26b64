//! The tab of the changes: those that the authors name, and the keys that differ from an earlier version.

use askama::Template;
use axum::http::HeaderMap;

use super::annotations::{Annotations, Listed};
use super::diff::{ChangedKeys, CompareForm, of_files};
use super::{Query, Shown, text_of};
use crate::serve::api::diff::Pair;
use crate::serve::api::files::FileName;
use crate::serve::pages::links::with_query;
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::text::printable;

#[derive(Template)]
#[template(path = "chart/changes.html", config = "src/serve/pages/askama.toml")]
pub(super) struct ChangesTab {
    version: String,
    /// The changes that the annotation `artifacthub.io/changes` lists.
    named: Option<Listed>,
    /// `None` if there is only one version.
    compared: Option<Compared>,
}

struct Compared {
    from: String,
    to: String,
    form: CompareForm,
    keys: Result<ChangedKeys, String>,
    diff_link: String,
}

impl ChangesTab {
    pub(super) async fn load(site: &Site, headers: &HeaderMap, shown: &Shown, query: &Query) -> Result<Self, Problem> {
        let annotations = Annotations::of(shown.metadata.as_ref().map(|metadata| metadata.json.as_str()));
        let to = text_of(query.to.as_deref()).unwrap_or(&shown.version);
        let compared = match text_of(query.from.as_deref()).or_else(|| before(shown, to)) {
            Some(from) => Some(Compared::load(site, headers, shown, [from, to]).await?),
            None => None,
        };
        Ok(Self {
            version: printable(&shown.version),
            named: annotations.changes(),
            compared,
        })
    }
}

impl Compared {
    async fn load(site: &Site, headers: &HeaderMap, shown: &Shown, versions: [&str; 2]) -> Result<Self, Problem> {
        let pair = Pair {
            address: &shown.names,
            file: &FileName::Values,
            versions,
        };
        let keys = match pair.read(site, headers).await {
            Ok(texts) => pair.keys(site, texts).await,
            Err(problem) => Err(problem),
        };
        let [from, to] = versions;
        let prefix = site.prefix();
        let diff = format!("{}/diff", shown.chart_address(prefix));
        Ok(Self {
            from: printable(from),
            to: printable(to),
            form: CompareForm::new(shown, shown.address(prefix), versions, Some("changes")),
            keys: of_files(keys.map(|keys| ChangedKeys::new(&keys)))?,
            diff_link: with_query(&diff, [("from", from), ("to", to)]),
        })
    }
}

/// Returns the version that the list has after this one.
fn before<'a>(shown: &'a Shown, version: &str) -> Option<&'a str> {
    let mut versions = shown.versions.iter().map(|line| line.version.as_str());
    versions.find(|listed| *listed == version)?;
    versions.next()
}
