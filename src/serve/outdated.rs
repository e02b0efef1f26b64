//! The charts of the catalog that an installed chart may come from, and the comparison with them.
//!
//! ```text
//!  snapshot ─► IDs with the name ───┬─► rows ─► Candidate ─► judge
//!  deprecated charts ─► their IDs ──┘
//! ```

mod reader;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::task::yield_now;

use super::problem::Problem;
use super::rows::RowError;
use super::site::{Site, Visit};
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::catalog::Record;
use crate::catalog::query::CandidateInfo;
use crate::releases::{
    Candidate, InstalledChart, JudgeOptions, Judgement, ListedVersion, MAX_VERSIONS, Match, OutdatedRequest,
    RepositoryName, judge,
};

pub use reader::CandidateReader;

/// Charts of one name that a request is compared with. The preferred ones come first, then those of the namespaces in turn.
const MAX_CANDIDATES: usize = 100;
/// Rows that one request reads at once.
const READS: usize = 4;
/// Versions whose comparison takes less than a millisecond.
const FEW_VERSIONS: usize = 2000;
const MAX_SOURCES: usize = 100;

/// A chart of the catalog that is not read yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChartKey {
    repository: NamespacedName,
    chart_id: String,
}

/// The charts that are asked for by name, each with its positions in the request.
#[derive(Debug, Default)]
struct Groups<'a>(HashMap<&'a str, Group>);

#[derive(Debug, Default)]
struct Group {
    numbers: Vec<usize>,
    /// True for charts whose newest version is deprecated.
    keys: BTreeMap<ChartKey, bool>,
}

impl<'a> Groups<'a> {
    fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let mut groups = HashMap::<&str, Group>::new();
        for (number, name) in names.enumerate() {
            groups.entry(name).or_default().numbers.push(number);
        }
        Self(groups)
    }

    fn has(&self, chart_id: &str) -> bool {
        self.0.contains_key(name_of(chart_id))
    }

    fn add(&mut self, repository: &NamespacedName, chart_id: &str, is_deprecated: bool) {
        if let Some(group) = self.0.get_mut(name_of(chart_id)) {
            let key = ChartKey {
                repository: repository.clone(),
                chart_id: chart_id.to_owned(),
            };
            *group.keys.entry(key).or_default() |= is_deprecated;
        }
    }
}

/// Returns the name of a chart. In a registry it is the last part of a path, whose slashes are escaped in the ID.
fn name_of(chart_id: &str) -> &str {
    let path = chart_id.split_once('/').map_or(chart_id, |(_, path)| path);
    path.rsplit_once("%2F").map_or(path, |(_, name)| name)
}

/// Returns true if charts or versions of the repository are left out: by a filter rule, as not valid, or as not pulled yet.
fn is_filtered(record: &Record) -> bool {
    let is_some = |field: &str| {
        let count = record.last_sync.as_ref().and_then(|last_sync| last_sync.get(field));
        count.and_then(Value::as_i64).unwrap_or_default() > 0
    };
    record.is_partial() || is_some("filtered") || is_some("skippedCount")
}

/// Returns `None` for a row that is not readable.
fn decode(key: &ChartKey, deprecated: bool, filtered: bool, info: &str) -> Option<Candidate> {
    let info: CandidateInfo = serde_json::from_str(info).ok()?;
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    let versions = info.versions.unwrap_or_default().into_iter();
    let versions = versions.filter_map(|version| {
        Some(ListedVersion {
            version: text(version.version)?,
            digest: text(version.digest),
        })
    });
    let sources = info.sources.unwrap_or_default().into_iter().filter_map(text);
    Some(Candidate {
        namespace: key.repository.namespace.clone(),
        repository: key.repository.name.clone(),
        url: info.repo.unwrap_or_default().url.unwrap_or_default(),
        chart: name_of(&key.chart_id).to_owned(),
        home: text(info.home),
        icon: text(info.icon),
        sources: sources.take(MAX_SOURCES).collect(),
        versions: versions.collect(),
        deprecated,
        filtered,
    })
}

/// Compares installed charts with the charts that the caller sees. Returns the judgements in the order of the charts.
pub(super) async fn judge_charts(
    site: &Site,
    visit: &Visit,
    request: OutdatedRequest,
) -> Result<Vec<Judgement>, Problem> {
    let OutdatedRequest { charts, prefer, devel } = request;
    let options = Arc::new(JudgeOptions { prefer, devel });
    let caller = visit.caller.user.as_deref().unwrap_or_default();
    let _permit = site.rows().comparison_permit(caller).await?;
    let mut items = vec![Judgement::unknown(); charts.len()];
    for group in groups(site, visit, &charts).await?.0.into_values() {
        let candidates = Arc::new(Candidates::read(site, visit, &group.keys, &options.prefer).await?);
        for number in group.numbers {
            if let (Some(item), Some(chart)) = (items.get_mut(number), charts.get(number)) {
                *item = candidates.judge(site, caller, chart, &options).await?;
            }
        }
    }
    Ok(items)
}

async fn groups<'a>(site: &Site, visit: &Visit, charts: &'a [InstalledChart]) -> Result<Groups<'a>, RowError> {
    let mut groups = Groups::new(charts.iter().map(|chart| chart.name.as_str()));
    for (name, repository) in visit.repositories() {
        for chart in &*repository.charts {
            groups.add(name, &chart.chart_id, false);
        }
    }
    let is_wanted = |name: &NamespacedName, chart_id: &str| groups.has(chart_id) && visit.repository(name).is_ok();
    let deprecated = site.rows().deprecated_charts(is_wanted).await?;
    for (name, chart_id) in deprecated {
        groups.add(&name, &chart_id, true);
    }
    Ok(groups)
}

/// Charts of one name.
struct Candidates {
    charts: Vec<Candidate>,
    versions: usize,
    /// There are more than are compared.
    is_cut: bool,
}

impl Candidates {
    async fn read(
        site: &Site,
        visit: &Visit,
        keys: &BTreeMap<ChartKey, bool>,
        prefer: &[RepositoryName],
    ) -> Result<Self, RowError> {
        let is_preferred = |key: &ChartKey| {
            let NamespacedName { namespace, name } = &key.repository;
            prefer
                .iter()
                .any(|one| one.namespace == *namespace && one.name == *name)
        };
        let keys_of = keys
            .iter()
            .map(|(key, deprecated)| (key.repository.namespace.as_str(), (key, *deprecated)));
        let mut ordered: Vec<(&ChartKey, bool)> = interleave(keys_of);
        ordered.sort_by_cached_key(|(key, _)| !is_preferred(key));
        ordered.truncate(MAX_CANDIDATES);
        let reads = ordered.into_iter().map(|(key, is_deprecated)| {
            let record = visit.loaded().records.get(&key.repository);
            let is_filtered = record.is_some_and(|record| is_filtered(record));
            read(site, key.clone(), is_deprecated, is_filtered).boxed()
        });
        let reads: Vec<_> = reads.collect();
        let mut reads = stream::iter(reads).buffered(READS);
        let (mut charts, mut versions) = (Vec::new(), 0);
        // With more, the match is ambiguous whatever the others are.
        while versions <= MAX_VERSIONS
            && let Some(chart) = reads.try_next().await?
        {
            versions += chart.as_ref().map_or(0, |chart: &Candidate| chart.versions.len());
            charts.extend(chart);
        }
        Ok(Self {
            versions,
            charts,
            is_cut: keys.len() > MAX_CANDIDATES,
        })
    }

    /// Compares beside the runtime if there are many versions.
    async fn judge(
        self: &Arc<Self>,
        site: &Site,
        caller: &str,
        chart: &InstalledChart,
        options: &Arc<JudgeOptions>,
    ) -> Result<Judgement, RowError> {
        if self.versions <= FEW_VERSIONS {
            yield_now().await;
            return Ok(self.judge_now(chart, options));
        }
        let (candidates, chart, options) = (Arc::clone(self), chart.clone(), Arc::clone(options));
        let work = move || candidates.judge_now(&chart, &options);
        site.rows().compute(caller, work).await
    }

    fn judge_now(&self, chart: &InstalledChart, options: &JudgeOptions) -> Judgement {
        let judgement = judge(chart, &self.charts, options);
        let is_preferred = judgement.repositories.iter().any(|one| options.prefer.contains(one));
        // A chart that is not compared may be as good.
        if self.is_cut && !is_preferred && matches!(judgement.matched, Match::Likely | Match::Possible) {
            return Judgement {
                matched: Match::Ambiguous,
                verdict: None,
                ..judgement
            };
        }
        judgement
    }
}

async fn read(
    site: &Site,
    key: ChartKey,
    is_deprecated: bool,
    is_filtered: bool,
) -> Result<Option<Candidate>, RowError> {
    let ChartKey { repository, chart_id } = key.clone();
    let decode = move |info: &str| decode(&key, is_deprecated, is_filtered, info);
    let decoded = if is_deprecated {
        site.rows().deprecated_chart(&repository, &chart_id, decode).await?
    } else {
        site.rows().chart(&repository, &chart_id, decode).await?
    };
    Ok(decoded.and_then(|decoded| decoded.value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(repository: &str, chart_id: &str) -> ChartKey {
        ChartKey {
            repository: NamespacedName::new("team", repository),
            chart_id: chart_id.to_owned(),
        }
    }

    #[test]
    fn the_name_of_a_chart_in_a_registry_is_the_last_part_of_its_path() {
        for (chart_id, name) in [
            ("stable/web", "web"),
            ("stable/charts%2Ftools%2Fweb", "web"),
            ("web", "web"),
            ("stable/", ""),
        ] {
            assert_eq!(name_of(chart_id), name, "{chart_id}");
        }
    }

    #[test]
    fn a_row_of_another_program_is_a_candidate_if_it_is_readable() {
        let key = key("stable", "stable/web");
        let info = json!({
            "repo": null, "home": "", "icon": null, "sources": [null, "", "s"], "unknown": 1,
            "chartVersions": [{ "version": "1.0.0", "digest": "" }, { "version": null }, {}],
        });
        let candidate = decode(&key, true, false, &info.to_string()).unwrap();
        assert_eq!(
            (candidate.home, candidate.icon, candidate.sources),
            (None, None, vec!["s".to_owned()])
        );
        let listed = |version: &str| ListedVersion {
            version: version.to_owned(),
            digest: None,
        };
        assert_eq!(
            (candidate.versions, candidate.deprecated),
            (vec![listed("1.0.0")], true)
        );
        assert_eq!(decode(&key, false, false, "{\"home\": 1}"), None);
    }

    #[test]
    fn charts_of_a_name_are_found_once_and_a_deprecated_one_stays_deprecated() {
        let mut groups = Groups::new(["web", "db", "web"].into_iter());
        let name = NamespacedName::new("team", "stable");
        groups.add(&name, "stable/web", true);
        groups.add(&name, "stable/web", false);
        groups.add(&name, "stable/other", false);
        let web = &groups.0["web"];
        assert_eq!(web.numbers, [0, 2]);
        assert_eq!(web.keys, BTreeMap::from([(key("stable", "stable/web"), true)]));
        assert!(groups.0["db"].keys.is_empty() && groups.has("other/db") && !groups.has("stable/other"));
    }

    #[test]
    fn a_match_is_ambiguous_if_there_are_more_charts_than_are_compared() {
        let web = Candidate {
            namespace: "team".to_owned(),
            repository: "stable".to_owned(),
            chart: "web".to_owned(),
            versions: vec![ListedVersion {
                version: "1.0.0".to_owned(),
                digest: None,
            }],
            ..Candidate::default()
        };
        let chart = InstalledChart {
            name: "web".to_owned(),
            version: "1.0.0".to_owned(),
            ..InstalledChart::default()
        };
        for (is_cut, prefer, expected) in [
            (false, None, Match::Possible),
            (true, None, Match::Ambiguous),
            (true, Some("team/stable"), Match::Possible),
        ] {
            let candidates = Candidates {
                charts: vec![web.clone()],
                versions: 1,
                is_cut,
            };
            let options = JudgeOptions {
                prefer: prefer.into_iter().map(|name| name.parse().unwrap()).collect(),
                devel: false,
            };
            let judgement = candidates.judge_now(&chart, &options);
            assert_eq!(judgement.matched, expected);
            assert_eq!(judgement.verdict.is_some(), expected == Match::Possible);
        }
    }
}
