//! Compares real indexes with the results of Kubeapps, or checks generated ones.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

/// Converts the JSON of a Kubeapps row.
fn from_row(info: &Value) -> Chart {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().map(|items| items.iter().map(text).collect::<Vec<_>>());
    let optional = |value: &Value| value.as_str().map(str::to_owned);
    let maintainer = |value: &Value| IndexMaintainer {
        name: text(&value["name"]),
        email: optional(&value["email"]),
        url: optional(&value["url"]),
    };
    let version = |value: &Value| Version {
        version: text(&value["version"]),
        app_version: text(&value["app_version"]),
        created: text(&value["created"]),
        digest: text(&value["digest"]),
        urls: list(&value["urls"]),
    };
    Chart {
        name: text(&info["name"]),
        description: text(&info["description"]),
        home: text(&info["home"]),
        icon: text(&info["icon"]),
        category: text(&info["category"]),
        keywords: list(&info["keywords"]),
        maintainers: info["maintainers"].as_array().unwrap().iter().map(maintainer).collect(),
        sources: list(&info["sources"]),
        versions: info["chartVersions"].as_array().unwrap().iter().map(version).collect(),
    }
}

#[test]
fn grafana_decodes_as_in_kubeapps() {
    let (Some(corpus), Some(goldens)) = (corpus::corpus(), corpus::goldens()) else {
        return;
    };
    let (mut charts, summary) = decode_text(fs::read(corpus.join("grafana__helm-charts/index.yaml")).unwrap()).unwrap();
    charts.sort_by(|a, b| a.name.cmp(&b.name));
    let rows = fs::read_to_string(goldens.join("grafana.charts.jsonl")).unwrap();
    let rows: Vec<Chart> = rows
        .lines()
        .map(|row| from_row(&serde_json::from_str::<Value>(row).unwrap()["info"]))
        .collect();
    assert_eq!(charts.len(), rows.len());
    for (chart, row) in charts.iter().zip(&rows) {
        assert_eq!(chart, row);
    }
    assert_eq!((summary.names, summary.deprecated, charts.len()), (41, 16, 25));
    assert_eq!(summary.skipped.count, 0);
}

/// Returns all files below the directory with this extension, sorted.
pub(super) fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Parses the whole document at once: names and versions with digests, in file order.
fn found_by_a_document_parser(index: &str) -> Option<Vec<(String, String)>> {
    let index: Value = serde_yaml::from_str(index).ok()?;
    let mut found = Vec::new();
    for (_, versions) in index.get("entries")?.as_object()? {
        for version in versions.as_array()? {
            found.push((
                version["name"].as_str()?.to_owned(),
                version["digest"].as_str().unwrap_or_default().to_owned(),
            ));
        }
    }
    found.sort();
    Some(found)
}

#[test]
fn every_real_index_is_accepted_or_rejected_as_expected() {
    let Some(corpus) = corpus::corpus() else {
        for seed in 0..4 {
            let (charts, summary) = decode_text(generator::generate(seed, 20, 20)).unwrap();
            assert_eq!((summary.names, summary.versions, summary.skipped.count), (20, 400, 0));
            assert_eq!(charts.len() as u64 + summary.deprecated, 20);
        }
        return;
    };
    let paths = sample(files_below(corpus, "yaml"));
    std::thread::scope(|scope| {
        for half in paths.chunks(paths.len().div_ceil(2)) {
            scope.spawn(move || half.iter().for_each(|path| check(corpus, path)));
        }
    });
}

/// Samples consecutive versions of an index, which are similar: keeps every fifth file of such a directory.
fn sample(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen: HashMap<PathBuf, usize> = HashMap::new();
    let mut is_kept = |path: &PathBuf| {
        let directory = path.parent().unwrap().to_owned();
        let is_consecutive = directory.ends_with("history");
        let number = seen.entry(directory).or_default();
        *number += 1;
        !is_consecutive || *number % 5 == 1
    };
    paths.into_iter().filter(|path| is_kept(path)).collect()
}

fn check(corpus: &Path, path: &Path) {
    let bytes = fs::read(path).unwrap();
    let name = path.strip_prefix(corpus).unwrap().display().to_string();
    let result = decode_text(&bytes);
    match name.as_str() {
        "edge-cases/keda-2022-08-12-broken-yaml.yaml" => assert_eq!(result.unwrap_err().reason(), "InvalidYAML"),
        "edge-cases/codecentric-2019-04-15-only-newline.yaml" => assert_eq!(result.unwrap_err().reason(), "NotAnIndex"),
        "edge-cases/eks-2019-10-03-entries-empty-map.yaml" => assert_eq!(result.unwrap().1.names, 0),
        _ if bytes.windows(8).any(|line| line == b"\n<<<<<<<") => {
            assert_eq!(result.unwrap_err().reason(), "InvalidYAML", "{name}");
        }
        _ => {
            let (charts, summary) = result.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(summary.skipped.count, 0, "{name}: {:?}", summary.skipped);
            assert_eq!(charts.len() as u64 + summary.deprecated, summary.names, "{name}");
            let mut versions = charts.iter().flat_map(|chart| &chart.versions);
            assert!(versions.all(|version| version.urls.is_some()), "{name}");
        }
    }
}

#[test]
fn the_decoder_finds_the_same_versions_as_a_document_parser() {
    let indexes: Vec<String> = match corpus::corpus() {
        None => (0..3).map(|seed| generator::generate(seed, 10, 20)).collect(),
        Some(corpus) => [
            "aws__eks-charts",
            "cilium__charts",
            "deliveryhero__helm-charts",
            "kubernetes-sigs__metrics-server",
        ]
        .map(|repository| fs::read_to_string(corpus.join(repository).join("index.yaml")).unwrap())
        .to_vec(),
    };
    for index in indexes {
        let expected = found_by_a_document_parser(&index).unwrap();
        // Deprecated charts are not emitted, so the flag is removed.
        let (charts, summary) = decode_text(index.replace("deprecated: true", "deprecated: false")).unwrap();
        let mut found: Vec<(String, String)> = charts
            .into_iter()
            .flat_map(|chart| {
                chart
                    .versions
                    .into_iter()
                    .map(move |version| (chart.name.clone(), version.digest))
            })
            .collect();
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(summary.versions, expected.len() as u64);
    }
}

#[test]
fn the_standard_large_index_has_the_documented_size() {
    let index = generator::big_index(1);
    assert_eq!(index, generator::big_index(1));
    assert_eq!(index.matches("\n    version: ").count(), generator::BIG_VERSIONS);
    assert!((15_000_000..17_500_000).contains(&index.len()), "{}", index.len());
}
