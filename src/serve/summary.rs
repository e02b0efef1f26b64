//! The summary of a chart that lists and search results show.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::text::truncate;

/// Rows with a longer chart ID, name or version are not readable: these identify a chart and can't be cut.
const MAX_KEY_BYTES: usize = 1024;
const MAX_DESCRIPTION_BYTES: usize = 512;
const MAX_KEYWORDS: usize = 16;
const MAX_KEYWORD_BYTES: usize = 64;
const MAX_TEXT_BYTES: usize = 256;
/// Between the parts of [`Folded`].
const SEPARATOR: char = '\0';
/// Memory of an allocation besides its content.
const ALLOCATION_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartSummary {
    pub chart_id: Box<str>,
    pub name: Box<str>,
    /// The newest stable version, or the newest if there is none; empty without versions.
    pub version: Box<str>,
    pub app_version: Box<str>,
    pub created: Option<Timestamp>,
    /// Number of versions.
    pub versions: usize,
    pub description: Box<str>,
    pub keywords: Box<[Box<str>]>,
    pub category: Box<str>,
    pub has_icon: bool,
    pub(super) folded: Folded,
}

/// Name, keywords and description as [`fold`] returns them, in one text: a search then needs one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folded {
    /// The parts, separated by NUL, which none of them and no word contains.
    text: Box<str>,
    keywords_start: usize,
    description_start: usize,
    name_letters: u64,
}

impl Folded {
    fn new(name: &str, keywords: &[Box<str>], description: &str) -> Self {
        let mut text = fold(name);
        let name_letters = letters(&text);
        let keywords_start = text.len();
        for keyword in keywords {
            text.push(SEPARATOR);
            text += &fold(keyword);
        }
        let description_start = text.len();
        text.push(SEPARATOR);
        text += &fold(description);
        Self {
            text: text.into(),
            keywords_start,
            description_start,
            name_letters,
        }
    }

    pub(super) const fn name_letters(&self) -> u64 {
        self.name_letters
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn name(&self) -> &str {
        self.text.get(..self.keywords_start).unwrap_or_default()
    }

    pub(super) fn has_keyword(&self, folded: &str) -> bool {
        let keywords = self.text.get(self.keywords_start..self.description_start);
        let mut keywords = keywords.unwrap_or_default().split(SEPARATOR).skip(1);
        keywords.any(|keyword| keyword == folded)
    }

    /// Returns true for a position in the name or in a keyword.
    pub(super) const fn is_before_description(&self, at: usize) -> bool {
        at < self.description_start
    }
}

/// Reads rows of any writer: every field is optional, and unknown fields are ignored.
#[derive(Deserialize)]
struct Info<'a> {
    name: Option<String>,
    description: Option<String>,
    keywords: Option<Vec<Option<String>>>,
    category: Option<String>,
    /// Not copied: it may be large.
    #[serde(borrow)]
    raw_icon: Option<&'a RawValue>,
    #[serde(rename = "chartVersions")]
    versions: Option<Vec<Version>>,
}

#[derive(Deserialize)]
struct Version {
    version: Option<String>,
    app_version: Option<String>,
    created: Option<String>,
}

impl ChartSummary {
    /// Decodes a row of Portolan, of Kubeapps or of another program. Returns `None` if it is not readable.
    #[must_use]
    pub fn decode(chart_id: &str, info: &str) -> Option<Self> {
        let info: Info<'_> = serde_json::from_str(info).ok()?;
        let versions = info.versions.unwrap_or_default();
        let name = match info.name.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None if versions.is_empty() => return None,
            None => chart_id.split_once('/').map_or(chart_id, |(_, name)| name).to_owned(),
        };
        let shown = shown_version(&versions);
        let version = text(shown.and_then(|shown| shown.version.as_deref()));
        if [chart_id, name.as_str(), version]
            .iter()
            .any(|key| key.len() > MAX_KEY_BYTES)
        {
            return None;
        }
        let keywords = info.keywords.unwrap_or_default().into_iter().flatten();
        let keywords = keywords
            .filter(|keyword| !keyword.is_empty())
            .take(MAX_KEYWORDS)
            .map(|keyword| Box::<str>::from(truncate(&keyword, MAX_KEYWORD_BYTES)))
            .collect::<Box<[_]>>();
        let description = truncate(text(info.description.as_deref()), MAX_DESCRIPTION_BYTES);
        let app_version = text(shown.and_then(|shown| shown.app_version.as_deref()));
        Some(Self {
            chart_id: chart_id.into(),
            version: version.into(),
            app_version: truncate(app_version, MAX_TEXT_BYTES).into(),
            created: shown.and_then(|shown| known_time(shown.created.as_deref()?)),
            versions: versions.len(),
            category: truncate(text(info.category.as_deref()), MAX_TEXT_BYTES).into(),
            has_icon: info.raw_icon.is_some_and(|icon| icon.get() != "\"\""),
            folded: Folded::new(&name, &keywords, &description),
            name: name.into(),
            description: description.into(),
            keywords,
        })
    }

    /// Returns the memory that the summary takes.
    #[must_use]
    pub(super) fn bytes(&self) -> u64 {
        let text = |text: &str| text.len() + ALLOCATION_BYTES;
        let list = |list: &[Box<str>]| {
            list.iter()
                .map(|word| text(word) + size_of::<Box<str>>())
                .sum::<usize>()
        };
        let texts = [
            &self.chart_id,
            &self.name,
            &self.version,
            &self.app_version,
            &self.description,
            &self.category,
            &self.folded.text,
        ];
        let texts: usize = texts.into_iter().map(|content| text(content)).sum();
        let bytes = size_of::<Self>() + texts + list(&self.keywords);
        bytes as u64
    }
}

/// Returns the text as searches compare it: in lower case, with the `/` that names in rows have as `%2F`, and without NUL.
pub(super) fn fold(text: &str) -> String {
    text.to_lowercase().replace("%2f", "/").replace(SEPARATOR, "")
}

/// Returns the set of the text's letters. Few letters share an element.
pub(super) fn letters(text: &str) -> u64 {
    text.chars().fold(0, |set, c| set | 1 << (u32::from(c) % u64::BITS))
}

fn text(text: Option<&str>) -> &str {
    text.unwrap_or_default()
}

/// Rows list the newest version first.
fn shown_version(versions: &[Version]) -> Option<&Version> {
    let stable = versions
        .iter()
        .find(|version| is_stable(text(version.version.as_deref())));
    stable.or_else(|| versions.first())
}

/// Returns true for a version without a pre-release. A hyphen in the build metadata is none.
fn is_stable(version: &str) -> bool {
    let number = version.split_once('+').map_or(version, |(number, _)| number);
    !number.is_empty() && !number.contains('-')
}

/// Go's zero time is an unknown time.
pub(super) fn known_time(created: &str) -> Option<Timestamp> {
    let time: Option<Timestamp> = created.parse().ok();
    time.filter(|_| !created.starts_with("0001-"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decode(info: &Value) -> Option<ChartSummary> {
        ChartSummary::decode("stable/web", &info.to_string())
    }

    fn versions(versions: &[&str]) -> Value {
        let version = |version: &&str| json!({"version": version, "app_version": format!("app-{version}"), "created": "2026-01-02T03:04:05Z"});
        json!({"name": "web", "chartVersions": versions.iter().map(version).collect::<Vec<_>>()})
    }

    #[test]
    fn the_newest_stable_version_is_shown() {
        let shown = |list: &[&str]| decode(&versions(list)).unwrap().version;
        assert_eq!(&*shown(&["2.0.0-rc.1", "1.1.0", "1.0.0"]), "1.1.0");
        assert_eq!(&*shown(&["2.0.0-rc.2", "2.0.0-rc.1"]), "2.0.0-rc.2");
        assert_eq!(&*shown(&["1.0.0+build-7", "0.9.0"]), "1.0.0+build-7");
        assert_eq!(&*shown(&[]), "");
        let summary = decode(&versions(&["2.0.0-rc.1", "1.1.0"])).unwrap();
        assert_eq!((summary.versions, &*summary.app_version), (2, "app-1.1.0"));
        assert_eq!(summary.created, Some("2026-01-02T03:04:05Z".parse().unwrap()));
    }

    #[test]
    fn an_unknown_creation_time_is_none() {
        for created in [json!("0001-01-01T00:00:00Z"), json!("yesterday"), Value::Null] {
            let info = json!({"name": "web", "chartVersions": [{"version": "1.0.0", "created": created}]});
            assert_eq!(decode(&info).unwrap().created, None, "{created}");
        }
    }

    #[test]
    fn rows_of_other_programs_are_read_as_far_as_they_go() {
        let sparse =
            decode(&json!({"name": "web", "keywords": [null, "sea", ""], "category": null, "extra": {}})).unwrap();
        assert_eq!((&*sparse.name, &*sparse.version, sparse.versions), ("web", "", 0));
        assert_eq!(
            sparse.keywords.iter().map(|keyword| &**keyword).collect::<Vec<_>>(),
            ["sea"]
        );
        let nameless = decode(&json!({"chartVersions": [{}]})).unwrap();
        assert_eq!(&*nameless.name, "web");
        for unreadable in [
            json!([]),
            json!({}),
            json!({"ID": 1}),
            json!({"name": 1}),
            json!(null),
            json!("web"),
        ] {
            assert_eq!(decode(&unreadable), None, "{unreadable}");
        }
        assert_eq!(ChartSummary::decode("stable/web", "{"), None);
    }

    #[test]
    fn long_texts_are_cut_and_long_keys_are_not_readable() {
        let long = "é".repeat(2000);
        let mut info = versions(&["1.0.0"]);
        info["description"] = json!(long);
        info["keywords"] = json!(vec![long.clone(); 20]);
        info["category"] = json!(long);
        let summary = decode(&info).unwrap();
        assert!(summary.description.len() <= 512 && summary.description.ends_with('…'));
        assert_eq!(summary.keywords.len(), 16);
        assert!(summary.keywords.iter().all(|keyword| keyword.len() <= 64));
        assert!(summary.category.len() <= 256);
        assert_eq!(decode(&versions(&[&long])), None);
        info["name"] = json!(long);
        assert_eq!(decode(&info), None);
        assert_eq!(ChartSummary::decode(&long, &versions(&["1.0.0"]).to_string()), None);
    }

    #[test]
    fn the_memory_of_a_summary_is_limited_and_counts_its_texts_twice_for_searches() {
        let mut info = versions(&["1.0.0"]);
        let small = decode(&info).unwrap().bytes();
        info["description"] = json!("x".repeat(100));
        assert_eq!(decode(&info).unwrap().bytes(), small + 200);
        let long = "x".repeat(64 * 1024);
        (info["description"], info["keywords"]) = (json!(long), json!(vec![long; 100]));
        assert!(decode(&info).unwrap().bytes() < 8 * 1024);
    }

    #[test]
    fn only_an_imported_icon_counts() {
        let has_icon = |icon: Value| {
            let mut info = versions(&["1.0.0"]);
            info["icon"] = json!("https://charts.example/icon.png");
            info["raw_icon"] = icon;
            decode(&info).unwrap().has_icon
        };
        assert!(has_icon(json!("iVBORw0KGgo=")));
        assert!(!has_icon(Value::Null) && !has_icon(json!("")));
    }
}
