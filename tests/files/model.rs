//! A reference model of the rows of an index: Kubeapps' rules for entries and the documented differences, without
//! product code. Limits are tested elsewhere.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    entries: BTreeMap<String, Option<Vec<Option<Entry>>>>,
}

/// The YAML reader returns scalars as written where text is expected, including `1.10`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: Option<String>,
    version: Option<String>,
    app_version: Option<String>,
    description: Option<String>,
    home: Option<String>,
    icon: Option<String>,
    keywords: Option<Vec<String>>,
    sources: Option<Vec<String>>,
    maintainers: Option<Vec<Option<Maintainer>>>,
    annotations: Option<BTreeMap<String, Option<String>>>,
    created: Option<String>,
    digest: Option<String>,
    urls: Option<Vec<String>>,
    #[serde(default)]
    deprecated: Option<bool>,
}

#[derive(Deserialize)]
struct Maintainer {
    name: Option<String>,
    email: Option<String>,
    url: Option<String>,
}

/// Chart rows by ID, or an error if the index is not valid.
pub fn rows(index: &str, repository: &Value) -> Result<BTreeMap<String, Value>, serde_yaml::Error> {
    let index: Index = serde_yaml::from_str(index)?;
    let mut rows = BTreeMap::new();
    for entries in index.entries.into_values() {
        let entries = entries.unwrap_or_default().into_iter().flatten();
        let mut entries: Vec<Entry> = entries.filter(|entry| !text(&entry.version).is_empty()).collect();
        entries.sort_by(newest_first);
        if let Some(info) = chart(&entries, repository) {
            rows.entry(info["ID"].as_str().expect("every row has an ID").to_owned())
                .or_insert(info);
        }
    }
    Ok(rows)
}

/// Returns nothing for a chart without versions, or whose newest version is deprecated.
fn chart(entries: &[Entry], repository: &Value) -> Option<Value> {
    let newest = entries.first().filter(|newest| newest.deprecated != Some(true))?;
    let name = text(&newest.name).replace('/', "%2F");
    let maintainers = newest.maintainers.iter().flatten().flatten();
    let category = newest
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("category"));
    Some(json!({
        "ID": format!("{}/{name}", repository["name"].as_str()?),
        "name": name,
        "repo": repository,
        "description": text(&newest.description),
        "home": text(&newest.home),
        "keywords": newest.keywords,
        "maintainers": maintainers.filter_map(maintainer).collect::<Vec<_>>(),
        "sources": newest.sources,
        "icon": text(&newest.icon),
        "raw_icon": null,
        "icon_content_type": "",
        "category": category.cloned().flatten().unwrap_or_default(),
        "chartVersions": entries.iter().map(version).collect::<Vec<_>>(),
    }))
}

fn maintainer(maintainer: &Maintainer) -> Option<Value> {
    let Maintainer { name, email, url } = maintainer;
    let parts = [("name", name), ("email", email), ("url", url)];
    let parts = parts.into_iter().filter(|(_, part)| !text(part).is_empty());
    let object: serde_json::Map<String, Value> = parts.map(|(key, part)| (key.to_owned(), text(part).into())).collect();
    object.contains_key("name").then(|| object.into())
}

fn version(entry: &Entry) -> Value {
    json!({
        "version": text(&entry.version),
        "app_version": text(&entry.app_version),
        "created": created(text(&entry.created)),
        "digest": text(&entry.digest),
        "urls": entry.urls.as_ref().filter(|urls| !urls.is_empty()),
        "readme": "",
        "values": "",
        "additional_values": null,
        "schema": "",
    })
}

fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Formats a time as Go does: without trailing zeros of the fraction, `Z` for UTC.
fn created(text: &str) -> String {
    let split = text.find(['Z', '+']).or_else(|| text.rfind('-').filter(|at| *at > 18));
    let Some((time, offset)) = split.map(|at| text.split_at(at)) else {
        return "0001-01-01T00:00:00Z".to_owned();
    };
    let time = match time.split_once('.') {
        Some((whole, fraction)) => format!("{whole}.{}", fraction.trim_end_matches('0')),
        None => time.to_owned(),
    };
    let offset = if matches!(offset, "+00:00" | "-00:00") {
        "Z"
    } else {
        offset
    };
    format!("{}{offset}", time.trim_end_matches('.'))
}

/// Invalid versions follow valid ones; equal ones keep their order.
fn newest_first(a: &Entry, b: &Entry) -> Ordering {
    match (semver(text(&a.version)), semver(text(&b.version))) {
        (Some(a), Some(b)) => b.cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// Semantic versioning 2.0.0, also with a leading `v` and missing numbers. Build metadata is ignored; a release is
/// newer than its prereleases.
fn semver(text: &str) -> Option<([u64; 3], bool, Vec<Identifier>)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = text.split_once('+').map_or(text, |(version, _)| version);
    let (core, prerelease) = match text.split_once('-') {
        Some((core, prerelease)) => (core, Some(prerelease)),
        None => (text, None),
    };
    let given: Vec<u64> = core.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let mut numbers = [0; 3];
    numbers.get_mut(..given.len())?.copy_from_slice(&given);
    let identifiers = prerelease.map(|prerelease| prerelease.split('.').map(identifier).collect::<Option<Vec<_>>>());
    let is_release = identifiers.is_none();
    Some((numbers, is_release, identifiers.unwrap_or_else(|| Some(Vec::new()))?))
}

/// Numbers sort before texts; the longer of two lists with the same start sorts last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

fn identifier(text: &str) -> Option<Identifier> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (is_number, text.len() > 1 && text.starts_with('0')) {
        (true, true) => None,
        (true, false) => text.parse().ok().map(Identifier::Number),
        (false, _) => (!text.is_empty()).then(|| Identifier::Text(text.to_owned())),
    }
}

#[test]
fn the_model_orders_versions_like_kubeapps() {
    let seen = [
        "v2.0.0",
        "1.10.0",
        "1.10.0-rc1",
        "1.9",
        "1.0.0",
        "1.0.0",
        "1.0.0+b2",
        "1.0.0+b10",
        "abc",
        "latest",
    ];
    let order = |versions: &[&str]| {
        let entries: Vec<String> = versions
            .iter()
            .map(|version| format!("{{name: a, version: \"{version}\"}}"))
            .collect();
        let index = format!("entries: {{a: [{}]}}", entries.join(", "));
        let rows = rows(&index, &json!({"name": "r"})).unwrap();
        let versions = rows["r/a"]["chartVersions"].as_array().unwrap().clone();
        versions
            .iter()
            .map(|version| super::text(&version["version"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(order(&seen), seen);
    // Equal ones keep the order of the file.
    let shuffled = [
        "abc",
        "1.9",
        "1.0.0",
        "1.10.0-rc1",
        "v2.0.0",
        "1.0.0",
        "latest",
        "1.0.0+b2",
        "1.10.0",
        "1.0.0+b10",
    ];
    assert_eq!(order(&shuffled), seen);
    assert_eq!(created("2020-01-02T03:04:05.120+02:00"), "2020-01-02T03:04:05.12+02:00");
    assert_eq!(created("2020-01-02T03:04:05.000+00:00"), "2020-01-02T03:04:05Z");
    assert_eq!(created(""), "0001-01-01T00:00:00Z");
}
