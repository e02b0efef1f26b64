//! The tab about a version: what its Chart.yaml says.

use askama::Template;
use serde_json::{Map, Value};

use super::annotations::{Annotations, Listed, link, text};
use super::text::line;
use super::{MAX_ENTRIES, Shown};
use crate::api::NamespacedName;
use crate::serve::pages::links;
use crate::serve::pages::links::with_query;
use crate::serve::problem::Problem;
use crate::serve::site::{Site, Visit};
use crate::serve::snapshot::Repository;

const MAX_TEXT: usize = 512;

#[derive(Template)]
#[template(path = "chart/about.html", config = "src/serve/pages/askama.toml")]
pub(super) struct AboutTab {
    /// Chart.yaml is not imported, or not valid.
    is_pending: bool,
    facts: Vec<Fact>,
    dependencies: Vec<Dependency>,
    maintainers: Vec<Named>,
    sources: Vec<Named>,
    keywords: Vec<Named>,
    /// Lists of annotations, by title.
    lists: Vec<(&'static str, Listed)>,
    annotations: Vec<(String, String)>,
}

struct Fact {
    label: &'static str,
    value: String,
    link: Option<String>,
}

struct Named {
    name: String,
    link: Option<String>,
}

struct Dependency {
    name: String,
    version: String,
    repository: String,
    condition: String,
    /// The page of a chart of this catalog that the caller may see.
    link: Option<String>,
}

impl AboutTab {
    pub(super) fn new(site: &Site, visit: &Visit, shown: &Shown) -> Result<Self, Problem> {
        let repository = &shown.names.repository;
        let chart = Annotations::of(shown.metadata.as_ref().map(|metadata| metadata.json.as_str()));
        let prefix = site.prefix();
        let keyword = |keyword: &str| Named {
            name: line(keyword, MAX_TEXT),
            link: Some(with_query(&format!("{prefix}/"), [("q", keyword)])),
        };
        let lists = [
            ("Links", "links"),
            ("Images", "images"),
            ("Recommendations", "recommendations"),
        ];
        let charts = Charts::new(visit, repository)?;
        Ok(Self {
            is_pending: shown.metadata.is_none(),
            facts: facts(shown, &chart),
            dependencies: chart
                .objects("dependencies")
                .map(|dependency| Dependency::new(dependency, &charts, prefix))
                .collect(),
            maintainers: maintainers(shown),
            sources: sources(shown),
            keywords: shown.info.summary.keywords.iter().map(|word| keyword(word)).collect(),
            lists: lists
                .into_iter()
                .filter_map(|(title, name)| Some((title, chart.list(name)?)))
                .collect(),
            annotations: chart.others(),
        })
    }
}

fn facts(shown: &Shown, chart: &Annotations) -> Vec<Fact> {
    let plain = |label, value: Option<String>| {
        value.map(|value| Fact {
            label,
            value,
            link: None,
        })
    };
    let yes = |label, name| plain(label, chart.is_set(name).then(|| "Yes".to_owned()));
    let home = shown.info.row.home.as_deref().map(|home| line(home, MAX_TEXT));
    let home = home.filter(|home| !home.is_empty()).map(|home| Fact {
        label: "Home",
        link: link(&home),
        value: link(&home).unwrap_or_else(|| "Not a link that can be shown".to_owned()),
    });
    let facts = [
        plain("Kubernetes", chart.field("kubeVersion")),
        plain("Type", chart.field("type")),
        home,
        plain("License", chart.hub("license")),
        yes("Pre-release", "prerelease"),
        yes("Contains security updates", "containsSecurityUpdates"),
        plain("Signing key", chart.hub("signKey")),
        plain(
            "Digest",
            Some(line(shown.row.digest(), MAX_TEXT)).filter(|digest| !digest.is_empty()),
        ),
    ];
    facts.into_iter().flatten().collect()
}

fn maintainers(shown: &Shown) -> Vec<Named> {
    let maintainers = shown.info.row.maintainers.iter().flatten().flatten();
    let named = maintainers.map(|maintainer| {
        let email = maintainer.email.as_deref().filter(|email| email.contains('@'));
        let url = maintainer.url.as_deref().and_then(link);
        Named {
            name: line(maintainer.name.as_deref().or(email).unwrap_or_default(), MAX_TEXT),
            link: url.or_else(|| link(&format!("mailto:{}", email?))),
        }
    });
    named.filter(|named| !named.name.is_empty()).collect()
}

fn sources(shown: &Shown) -> Vec<Named> {
    let sources = shown.info.row.sources.iter().flatten().flatten();
    let links = sources.filter_map(|source| link(source)).take(MAX_ENTRIES);
    links
        .map(|link| Named {
            name: line(&link, MAX_TEXT),
            link: Some(link),
        })
        .collect()
}

/// The charts that the caller may see. The URLs are looked up once for all dependencies.
struct Charts<'a> {
    /// URL, name and charts of each repository.
    repositories: Vec<(&'a str, &'a NamespacedName, &'a Repository)>,
    own: (&'a NamespacedName, &'a Repository),
}

impl<'a> Charts<'a> {
    fn new(visit: &'a Visit, own: &'a NamespacedName) -> Result<Self, Problem> {
        let records = &visit.loaded().records;
        let repositories = visit.repositories().filter_map(|(name, repository)| {
            let url = records.get(name)?.url.trim_end_matches('/');
            Some((url, name, repository))
        });
        Ok(Self {
            repositories: repositories.collect(),
            own: (own, visit.repository(own)?),
        })
    }

    /// Returns the path of the chart in a repository with that URL, or else in the same repository.
    fn link(&self, prefix: &str, name: &str, url: &str) -> Option<String> {
        let url = url.trim_end_matches('/');
        let of_url = self
            .repositories
            .iter()
            .filter(|(of, ..)| !url.is_empty() && *of == url);
        let mut candidates = of_url
            .map(|(_, name, repository)| (*name, *repository))
            .chain([self.own]);
        candidates.find_map(|(repository, loaded)| {
            let chart = loaded.charts.iter().find(|chart| *chart.name == *name)?;
            Some(links::chart(prefix, "/charts", repository, &chart.chart_id))
        })
    }
}

impl Dependency {
    fn new(dependency: &Map<String, Value>, charts: &Charts<'_>, prefix: &str) -> Self {
        let name = text(dependency, "name");
        let repository = text(dependency, "repository");
        let link = charts.link(prefix, &name, &repository);
        Self {
            name,
            version: text(dependency, "version"),
            repository,
            condition: text(dependency, "condition"),
            link,
        }
    }
}
