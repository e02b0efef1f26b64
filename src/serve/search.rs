//! Finds charts by words and ranks them, alike for both databases.

use std::cmp::Reverse;
use std::iter::once;

use memchr::memmem::Finder;

use super::summary::{ChartSummary, fold, letters};
use crate::api::NamespacedName;

const MAX_WORDS: usize = 16;
const MAX_WORD_CHARACTERS: usize = 64;

/// Below this number of hits, charts with similar names follow.
const FEW_HITS: usize = 3;

/// The words of a search. A chart must match all of them.
#[derive(Clone, Debug)]
pub struct Words(Vec<Word>);

#[derive(Clone, Debug)]
struct Word {
    text: String,
    characters: usize,
    letters: u64,
    /// Built once: a search compares the word with all charts.
    finder: Finder<'static>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results<'a> {
    /// The best first.
    pub hits: Vec<Hit<'a>>,
    pub has_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    pub repository: &'a NamespacedName,
    pub chart: &'a ChartSummary,
    /// A word is only similar to the name.
    pub fuzzy: bool,
}

/// Edits between the words and the name, score, and length of the name.
pub type Rank = (usize, Reverse<u32>, usize);

impl Words {
    /// Uses the first 16 words, and the first 64 characters of each.
    #[must_use]
    pub fn new(words: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let words = words.into_iter().map(|word| Word::new(word.as_ref()));
        Self(words.filter(|word| word.characters > 0).take(MAX_WORDS).collect())
    }

    fn rank(&self, chart: &ChartSummary, is_fuzzy: bool) -> Option<Rank> {
        let (edits, score) = self
            .0
            .iter()
            .try_fold((0, 0), |(edits, score), word| match word.score(chart) {
                0 if is_fuzzy => Some((edits + word.edits_to(chart.folded.name())?, score)),
                0 => None,
                points => Some((edits, score + points)),
            })?;
        // Without words, charts are a list by name.
        let length = if self.0.is_empty() { 0 } else { chart.name.len() };
        Some((edits, Reverse(score), length))
    }

    fn may_resemble(&self, chart: &ChartSummary) -> bool {
        let letters = chart.folded.name_letters();
        self.0
            .iter()
            .any(|word| missing(word.letters, letters) <= word.max_edits())
    }
}

impl Word {
    fn new(word: &str) -> Self {
        let text = fold(&word.trim().chars().take(MAX_WORD_CHARACTERS).collect::<String>());
        Self {
            characters: text.chars().count(),
            letters: letters(&text),
            finder: Finder::new(&text).into_owned(),
            text,
        }
    }

    /// Returns 0 if the chart does not match.
    fn score(&self, chart: &ChartSummary) -> u32 {
        let (word, folded) = (&*self.text, &chart.folded);
        let Some(at) = self.finder.find(folded.text().as_bytes()) else {
            return 0;
        };
        let name = folded.name();
        let begins_a_part = |at: usize| {
            let before = name.get(..at).unwrap_or_default();
            !before.ends_with(char::is_alphanumeric)
        };
        if name == word {
            100
        } else if name.starts_with(word) {
            60
        } else if at < name.len() && self.finder.find_iter(name.as_bytes()).any(begins_a_part) {
            40
        } else if at < name.len() {
            20
        } else if folded.is_before_description(at) && folded.has_keyword(word) {
            15
        } else {
            5
        }
    }

    const fn max_edits(&self) -> usize {
        match self.characters {
            0..=3 => 0,
            4..=7 => 1,
            _ => 2,
        }
    }

    /// Returns the number of typing errors that turn the name, or a part of it, into the word; `None` above the limit.
    fn edits_to(&self, name: &str) -> Option<usize> {
        let max_edits = self.max_edits();
        if max_edits == 0 {
            return None;
        }
        once(name)
            .chain(name.split(|c: char| !c.is_alphanumeric()))
            .filter(|part| part.chars().count().abs_diff(self.characters) <= max_edits)
            .filter(|part| {
                let part = letters(part);
                missing(part, self.letters).max(missing(self.letters, part)) <= max_edits
            })
            .map(|part| strsim::damerau_levenshtein(&self.text, part))
            .filter(|edits| *edits <= max_edits)
            .min()
    }
}

/// Returns the number of letters in one set and not in the other, at most. Each edit adds and removes one, so this excludes most
/// names and parts at a fraction of the cost.
const fn missing(one: u64, other: u64) -> usize {
    (one & !other).count_ones() as usize
}

/// Returns the charts that match all words, and those with similar names if there are few; not sorted.
#[must_use]
pub fn matches<'a>(
    charts: impl Iterator<Item = (&'a NamespacedName, &'a ChartSummary)> + Clone,
    words: &Words,
) -> Vec<(Rank, Hit<'a>)> {
    let find = |fuzzy: bool| {
        let ranked = move |(repository, chart)| {
            let hit = Hit {
                repository,
                chart,
                fuzzy,
            };
            Some((words.rank(chart, fuzzy)?, hit))
        };
        let charts = charts
            .clone()
            .filter(move |(_, chart)| !fuzzy || words.may_resemble(chart));
        charts.filter_map(ranked)
    };
    let mut found: Vec<(Rank, Hit<'a>)> = find(false).collect();
    if found.len() < FEW_HITS {
        found.extend(find(true).filter(|((edits, ..), _)| *edits > 0));
    }
    found
}

/// Returns the best `limit` of the [`matches`].
#[must_use]
pub fn search<'a>(
    charts: impl Iterator<Item = (&'a NamespacedName, &'a ChartSummary)> + Clone,
    words: &Words,
    limit: usize,
) -> Results<'a> {
    let mut found = matches(charts, words);
    found.sort_unstable_by_key(|(rank, hit)| (*rank, &*hit.chart.name, hit.repository, &*hit.chart.chart_id));
    Results {
        has_more: found.len() > limit,
        hits: found.into_iter().take(limit).map(|(_, hit)| hit).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: usize = 100;

    struct Charts(Vec<(NamespacedName, ChartSummary)>);

    impl Charts {
        fn new(names: &[&str]) -> Self {
            Self(Vec::new()).with(names)
        }

        fn with(mut self, names: &[&str]) -> Self {
            for name in names {
                self = self.add(("kubeapps", "stable"), name, "", &[]);
            }
            self
        }

        fn add(mut self, (namespace, name): (&str, &str), chart: &str, description: &str, keywords: &[&str]) -> Self {
            let info = json!({"name": chart, "description": description, "keywords": keywords});
            let chart = ChartSummary::decode(&format!("{name}/{chart}"), &info.to_string()).unwrap();
            self.0.push((NamespacedName::new(namespace, name), chart));
            self
        }

        fn search(&self, words: &[&str], limit: usize) -> Results<'_> {
            let charts = self.0.iter().map(|(repository, chart)| (repository, chart));
            search(charts, &Words::new(words), limit)
        }

        /// The names that are found. Similar ones begin with `~`.
        fn find(&self, words: &[&str]) -> Vec<String> {
            let name = |hit: &Hit<'_>| format!("{}{}", if hit.fuzzy { "~" } else { "" }, hit.chart.name);
            self.search(words, ALL).hits.iter().map(name).collect()
        }
    }

    #[test]
    fn matches_in_the_name_come_first_then_keywords_then_descriptions() {
        let stable = ("kubeapps", "stable");
        let charts = Charts::new(&["mywebthing", "my-web", "webdav", "web"])
            .add(stable, "a", "A Web server", &[])
            .add(stable, "b", "", &["Web"])
            .add(stable, "c", "", &["webserver"])
            .add(stable, "d", "Nothing", &["sea"]);
        let found = charts.find(&["WEB"]);
        assert_eq!(found, ["web", "webdav", "my-web", "mywebthing", "b", "a", "c"]);
    }

    #[test]
    fn every_word_must_match_and_adds_its_score() {
        let stable = ("kubeapps", "stable");
        let charts = Charts::new(&["tide"])
            .add(stable, "tide-table", "", &["sea"])
            .add(stable, "sea-tide", "", &[])
            .add(stable, "sea", "of tides", &[]);
        assert_eq!(charts.find(&["sea", "tide"]), ["sea", "sea-tide", "tide-table"]);
        assert_eq!(charts.find(&["sea", "nowhere"]), [""; 0]);
    }

    #[test]
    fn equal_scores_are_ordered_by_length_name_namespace_and_repository() {
        let charts = Charts::new(&["web-bb", "web-cc", "web-aaa"])
            .add(("b", "x"), "web", "", &[])
            .add(("a", "y"), "web", "", &[])
            .add(("a", "x"), "web", "", &[]);
        let found = charts.search(&["web"], ALL);
        let found: Vec<String> = found
            .hits
            .iter()
            .map(|hit| format!("{}/{}", hit.repository, hit.chart.name))
            .collect();
        assert_eq!(
            found,
            [
                "a/x/web",
                "a/y/web",
                "b/x/web",
                "kubeapps/stable/web-bb",
                "kubeapps/stable/web-cc",
                "kubeapps/stable/web-aaa"
            ]
        );
    }

    #[test]
    fn without_words_all_charts_are_listed_by_name() {
        let charts = Charts::new(&["c", "bbb", "aa"]);
        for none in [&[][..], &["", " ", "\0"]] {
            assert_eq!(charts.find(none), ["aa", "bbb", "c"], "{none:?}");
        }
        let page = charts.search(&[], 2);
        assert_eq!((page.hits.len(), page.has_more), (2, true));
        assert!(!charts.search(&[], 3).has_more);
    }

    #[test]
    fn typing_errors_are_forgiven_by_the_length_of_the_word() {
        let charts = Charts::new(&["wordpress", "redis", "web"]);
        let cases: [(&str, &[&str]); 8] = [
            ("wordprss", &["~wordpress"]),
            ("wrodperss", &["~wordpress"]),
            ("wordprexyz", &[]),
            ("rediss", &["~redis"]),
            ("erdis", &["~redis"]),
            ("radix", &[]),
            ("wep", &[]),
            ("wordpres", &["wordpress"]),
        ];
        for (word, found) in cases {
            assert_eq!(charts.find(&[word]), found, "{word}");
        }
    }

    #[test]
    fn a_part_of_a_name_may_be_similar_and_other_words_must_match() {
        let charts = Charts::new(&["tide-table", "tide-chart", "table"]);
        assert_eq!(charts.find(&["tide", "tabel"]), ["~tide-table"]);
        assert_eq!(charts.find(&["tabel"]), ["~table", "~tide-table"]);
    }

    #[test]
    fn similar_names_follow_only_below_three_hits() {
        let charts = Charts::new(&["redis", "redis-ha", "reddis"]);
        assert_eq!(charts.find(&["redis"]), ["redis", "redis-ha", "~reddis"]);
        let charts = charts.with(&["redis-sentinel"]);
        assert_eq!(charts.find(&["redis"]), ["redis", "redis-ha", "redis-sentinel"]);
    }

    #[test]
    fn similar_names_are_ordered_by_the_number_of_typing_errors() {
        let charts = Charts::new(&["prometheus", "prometheuss"]);
        assert_eq!(charts.find(&["promethuss"]), ["~prometheuss", "~prometheus"]);
    }

    #[test]
    fn names_with_a_slash_are_found_by_it() {
        let charts = Charts::new(&["team%2Fnginx"]);
        for word in ["team/nginx", "team%2Fnginx", "Nginx", "team/nginks"] {
            assert_eq!(charts.find(&[word]).len(), 1, "{word}");
        }
    }

    #[test]
    fn long_and_many_words_are_cut() {
        let long = "x".repeat(64);
        let charts = Charts::new(&[&long]);
        let longer = "x".repeat(10_000);
        assert_eq!(charts.find(&[&longer]), std::slice::from_ref(&long));
        let mut words = vec!["x"; 16];
        words.push("nowhere");
        assert_eq!(charts.find(&words), [long]);
    }
}
