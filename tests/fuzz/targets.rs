//! What is fed with anything that anybody may publish, and what holds for whatever is accepted: a body for each fuzz target.
//!
//! `make fuzz` runs them under libFuzzer (the package in `fuzz/`), and `make test` over the seeds and their mutations.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::{Cursor, Read};
use std::sync::mpsc;
use std::time::Duration;

use portolan::helm::archive;
use portolan::helm::index::{
    CacheEntry, CachedIndex, ChangeSink, Chart, ChartStats, DecodeLimits, Maintainer, Secret, SharedSplit, Sink,
    Summary, chart, decode, decode_changes, metadata, newest_first, version_by_both_ways,
};
use portolan::http::credentials;
use portolan::jq::{Filter, FilterError, Limits, Rule, on_large_stack};
use portolan::oci;
use serde_json::{Value, json};

/// A fuzz target: its name, which is that of its folder of seeds, and its body.
#[allow(dead_code, reason = "the targets under libFuzzer call their bodies by name")]
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
#[allow(dead_code, reason = "the targets under libFuzzer call their bodies by name")]
pub const TARGETS: [Target; 11] = [
    ("index_yaml", index),
    ("index_json", index_json),
    ("delta", delta),
    ("subset", subset),
    ("chart_archive", chart_archive),
    ("chart_yaml", chart_yaml),
    ("oci_manifest", oci_manifest),
    ("tag_list", tag_list),
    ("www_authenticate", www_authenticate),
    ("dockerconfigjson", dockerconfigjson),
    ("filter_rule", filter_rule),
];

/// Small, so that a bomb is refused as it would be with the defaults, but sooner.
fn decode_limits() -> DecodeLimits {
    DecodeLimits {
        nodes: 100_000,
        chart_bytes: 1024 * 1024,
        aliased_nodes: 100_000,
        aliased_bytes: 1024 * 1024,
        ..DecodeLimits::default()
    }
}

fn decoded(bytes: &[u8], limits: &DecodeLimits) -> Option<(Vec<Chart>, Summary)> {
    let mut charts = Vec::new();
    let summary = decode(Cursor::new(bytes), limits, &mut charts).ok()?;
    Some((charts, summary))
}

/// The same text to the reader of YAML, which takes JSON too, but for characters that it wants to be escaped.
fn as_yaml(json: &str) -> String {
    let mut yaml = "--- ".to_owned();
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                yaml.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => yaml.push(c),
        }
    }
    yaml
}

/// An index, in whichever notation it turns out to be.
pub fn index(bytes: &[u8]) {
    let Some((charts, summary)) = decoded(bytes, &decode_limits()) else {
        return;
    };
    assert_eq!(summary.names, charts.len() as u64 + summary.deprecated);
    for chart in &charts {
        assert!(!chart.name.is_empty() && !chart.versions.is_empty());
        assert!(chart.maintainers.iter().all(|maintainer| !maintainer.name.is_empty()));
        for version in &chart.versions {
            assert!(!version.version.is_empty());
            assert!(version.urls.as_ref().is_none_or(|urls| !urls.is_empty()));
        }
    }
    // What came of it says the same again, in both notations.
    let written = written(&charts);
    for again in [as_yaml(&written), written] {
        let (again, summary) = decoded(again.as_bytes(), &DecodeLimits::default()).expect("an index of charts");
        assert_eq!(again, charts);
        assert_eq!((summary.skipped.count, summary.deprecated), (0, 0));
    }
}

/// An index that holds these charts and nothing else, in JSON.
fn written(charts: &[Chart]) -> String {
    let entries = charts.iter().enumerate().map(|(number, chart)| {
        let mut versions: Vec<Value> = chart
            .versions
            .iter()
            .map(|version| {
                json!({
                    "version": version.version, "appVersion": version.app_version, "created": version.created,
                    "digest": version.digest, "urls": version.urls,
                })
            })
            .collect();
        let maintainer =
            |Maintainer { name, email, url }: &Maintainer| json!({ "name": name, "email": email, "url": url });
        let newest = &mut versions[0];
        newest["name"] = json!(chart.name);
        newest["description"] = json!(chart.description);
        newest["home"] = json!(chart.home);
        newest["icon"] = json!(chart.icon);
        newest["annotations"] = json!({ "category": chart.category });
        newest["keywords"] = json!(chart.keywords);
        newest["maintainers"] = chart.maintainers.iter().map(maintainer).collect();
        newest["sources"] = json!(chart.sources);
        // Their order is that of the keys.
        (format!("{number:06}"), Value::Array(versions))
    });
    let entries: serde_json::Map<String, Value> = entries.collect();
    json!({ "apiVersion": "v1", "entries": entries }).to_string()
}

/// An index, and the one that takes its place, behind a NUL; without one it stays as it is. What only the changes give is what the
/// whole gives, there and back again.
pub fn delta(bytes: &[u8]) {
    let mut indexes = bytes.splitn(2, |byte| *byte == 0);
    let first = indexes.next().unwrap_or_default();
    let second = indexes.next().unwrap_or(first);
    let mut followed = Followed::new();
    for index in [first, second, first] {
        followed.follow(index);
    }
}

/// What is known of an index, and what stands in the catalogue.
struct Followed {
    known: CachedIndex,
    charts: HashMap<String, Option<Chart>>,
}

/// What comes of the next one. Times count for charts that were read.
struct Next<'f> {
    before: &'f Followed,
    after: Followed,
    last: Option<Chart>,
    charts: Vec<(Chart, bool)>,
}

impl Followed {
    fn new() -> Self {
        Self {
            known: CachedIndex {
                secret: Secret::from(*b"known to nobody, which is a key!"),
                times_count: false,
                charts: HashMap::new(),
            },
            charts: HashMap::new(),
        }
    }

    fn follow(&mut self, index: &[u8]) {
        let limits = decode_limits();
        let mut whole = Vec::new();
        let expected = decode(Cursor::new(index), &limits, &mut whole).map_err(|error| error.to_string());
        let mut next = Next {
            before: self,
            after: Self::new(),
            last: None,
            charts: Vec::new(),
        };
        let (input, cuts) = (Cursor::new(index), SharedSplit::default());
        let given = decode_changes(input, &limits, &self.known, &cuts, &mut next).map_err(|error| error.to_string());
        assert_eq!(given, expected);
        if given.is_ok() {
            assert_eq!(next.charts.len(), whole.len());
            for ((chart, is_read), whole) in next.charts.into_iter().zip(whole) {
                let times = |chart: Chart| if is_read { chart } else { without_times(chart) };
                assert_eq!(times(chart), times(whole));
            }
            *self = next.after;
        }
    }
}

fn without_times(mut chart: Chart) -> Chart {
    chart.versions.iter_mut().for_each(|version| version.created.clear());
    chart
}

impl Sink for Next<'_> {
    type Error = Infallible;

    fn chart(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.last = Some(chart.clone());
        self.charts.push((chart, true));
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), Infallible> {
        (self.after, self.last) = (Followed::new(), None);
        self.charts.clear();
        Ok(())
    }
}

impl ChangeSink for Next<'_> {
    fn unchanged(&mut self, key: &str, account: &ChartStats) -> Result<(), Infallible> {
        let (chart, known) = (&self.before.charts[key], &self.before.known.charts[key]);
        assert_eq!(*account, known.account);
        self.charts.extend(chart.clone().map(|chart| (chart, false)));
        self.after.charts.insert(key.to_owned(), chart.clone());
        self.after.known.charts.insert(key.to_owned(), known.clone());
        Ok(())
    }

    fn remember(&mut self, CacheEntry { key, chart }: CacheEntry) -> Result<(), Infallible> {
        self.after.charts.insert(key.clone(), self.last.take());
        self.after.known.charts.insert(key, chart);
        Ok(())
    }
}

/// An index in JSON: what begins otherwise is made to begin as one.
pub fn index_json(bytes: &[u8]) {
    let made = [b"{\"entries\":{\"a\":[", bytes].concat();
    let bytes = if bytes.trim_ascii_start().starts_with(b"{") {
        bytes
    } else {
        &made
    };
    index(bytes);
    // What both readers take means the same to both. That of YAML refuses some JSON, so it may also take none.
    let is_json = serde_json::from_slice::<Value>(bytes).is_ok();
    let Some(text) = std::str::from_utf8(bytes).ok().filter(|_| is_json) else {
        return;
    };
    let both = [text, &as_yaml(text)].map(|text| decoded(text.as_bytes(), &decode_limits()));
    if let [Some((from_json, json)), Some((from_yaml, yaml))] = both {
        assert_eq!(from_json, from_yaml);
        assert_eq!((json.digest, json.skipped.count), (yaml.digest, yaml.skipped.count));
    }
}

/// One version of a chart, as it stands in an index: what is read by lines means the same to the parser. Once more behind
/// a key, which makes more of it a version.
pub fn subset(bytes: &[u8]) {
    for slice in [bytes, &[b"  - name: a\n    home: ", bytes].concat()] {
        if let Some([by_lines, by_parser]) = version_by_both_ways(slice, &decode_limits()) {
            assert_eq!(by_lines, by_parser);
        }
    }
}

/// Hands out a few bytes at a time, as a network may.
struct InPieces<'a>(&'a [u8]);

impl Read for InPieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(1 + self.0.len() % 600);
        self.0.read(&mut buffer[..count])
    }
}

/// An archive, packed or not; once more with the sums of its headers made right, which no mutation finds.
pub fn chart_archive(bytes: &[u8]) {
    archive_as_it_is(bytes);
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        archive_as_it_is(&with_right_sums(bytes.to_vec()));
    }
}

/// Every block but empty ones could be a header: where the sum stands, each gets its own.
fn with_right_sums(mut bytes: Vec<u8>) -> Vec<u8> {
    for block in bytes
        .chunks_exact_mut(512)
        .filter(|block| block.iter().any(|byte| *byte != 0))
    {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    bytes
}

fn archive_as_it_is(bytes: &[u8]) {
    let limits = archive::Limits {
        packed_bytes: 1024 * 1024,
        unpacked_bytes: 4 * 1024 * 1024,
        file_bytes: 64 * 1024,
        kept_bytes: 256 * 1024,
        entries: 1_000,
    };
    let read = archive::read(bytes, &limits);
    let in_pieces = archive::read(InPieces(bytes), &limits);
    let shown = |error: &archive::ArchiveError| error.to_string();
    assert_eq!(read.as_ref().map_err(shown), in_pieces.as_ref().map_err(shown));
    let Ok(files) = read else { return };
    let texts = [&files.readme, &files.values, &files.schema];
    let texts = texts.into_iter().chain(files.additional_values.values());
    for text in texts.clone() {
        assert!(!text.contains('\0'));
        // Three bytes stand for each that is no UTF-8.
        assert!(text.len() as u64 <= 3 * limits.file_bytes);
    }
    let keys = files.additional_values.keys();
    assert!(
        keys.clone()
            .all(|key| key.starts_with("values-") && !key.contains(['/', '.']))
    );
    assert!(texts.chain(keys).map(String::len).sum::<usize>() as u64 <= limits.kept_bytes);
}

/// A chart's own description, in YAML or JSON.
pub fn chart_yaml(bytes: &[u8]) {
    let Ok(read) = metadata(bytes, &decode_limits()) else {
        return;
    };
    let json = read.to_json();
    for again in [as_yaml(&json), json] {
        assert_eq!(metadata(again.as_bytes(), &DecodeLimits::default()).as_ref(), Ok(&read));
    }
    if let Ok(Some(chart)) = chart(vec![read]) {
        assert!(!chart.name.is_empty() && chart.versions.len() == 1);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // An order, whatever they are.
        assert_eq!(newest_first(text, "1.0.0"), newest_first("1.0.0", text).reverse());
    }
}

/// A manifest of a registry.
pub fn oci_manifest(bytes: &[u8]) {
    let parts = match oci::manifest(bytes) {
        Ok(oci::Manifest::Chart { config, layer }) => vec![config, layer],
        Ok(oci::Manifest::ChartsIndex(layer)) => vec![layer],
        Ok(oci::Manifest::Other(kind)) => return assert_is_shown(&kind),
        Err(error) => return assert_is_shown(&error.to_string()),
    };
    for part in parts {
        assert!(part.digest.starts_with("sha256:") && part.digest.len() == "sha256:".len() + 64);
    }
}

/// What people see of a document is short, and drives no terminal.
fn assert_is_shown(text: &str) {
    assert!(text.len() <= 512 && !text.contains(char::is_control), "{text:?}");
}

/// A list of tags, and the other listings of a registry.
pub fn tag_list(bytes: &[u8]) {
    let tags = oci::decode::tag_list(bytes);
    for tag in tags.iter().flatten() {
        assert!(oci::is_tag(tag));
        if oci::is_version(tag) {
            assert_eq!(oci::tag_of(&oci::version_of(tag)), *tag);
        }
    }
    let page = oci::decode::hub_page(bytes);
    let (catalog, index) = (oci::decode::catalog_page(bytes), oci::decode::charts_index(bytes));
    assert!(index.as_ref().is_ok_and(|names| names.is_sorted()) || index.is_err());
    assert!(page.as_ref().is_ok_and(|page| page.next.as_deref() != Some("")) || page.is_err());
    for listed in [catalog, index, page.map(|page| page.names)] {
        match listed {
            Ok(names) => {
                assert!(names.iter().all(|name| oci::is_repository_name(name)));
                assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
            }
            Err(error) => assert_is_shown(&error.to_string()),
        }
    }
}

/// What a registry wants to see before it answers, and where its next page stands.
pub fn www_authenticate(bytes: &[u8]) {
    let challenges = oci::challenges(bytes);
    for challenge in &challenges {
        assert!(!challenge.scheme.is_empty() && !challenge.scheme.contains(char::is_uppercase));
        assert!(
            challenge
                .parameters
                .iter()
                .all(|(name, _)| challenge.parameter(name).is_some())
        );
    }
    let written: Vec<String> = challenges.iter().map(challenge_written).collect();
    assert_eq!(oci::challenges(written.join(", ").as_bytes()), challenges);
    if let Some(target) = oci::next_link(bytes) {
        let link = format!("<{target}>; rel=\"next\"");
        assert_eq!(oci::next_link(link.as_bytes()), Some(target));
    }
}

fn challenge_written(challenge: &oci::Challenge) -> String {
    let parameters = challenge.parameters.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    });
    format!("{} {}", challenge.scheme, parameters.collect::<Vec<_>>().join(", "))
}

/// Credentials of a Secret, which no error may show.
pub fn dockerconfigjson(bytes: &[u8]) {
    if let Ok(authorization) = credentials::from_docker_config(bytes) {
        assert!(authorization.expose().starts_with("Basic "));
        assert!(credentials::from_header(authorization.expose().as_bytes()).is_ok());
        assert_eq!(format!("{authorization:?}"), "[redacted]");
        if let Some((user, password)) = credentials::basic(&authorization)
            && !(user.is_empty() && password.expose().is_empty())
        {
            let config = json!({ "auths": { "a": { "username": user, "password": password.expose() } } });
            let again = credentials::from_docker_config(config.to_string().as_bytes());
            assert_eq!(again, Ok(authorization));
        }
    }
    let _ = credentials::from_header(bytes);
}

/// A rule that decides about a chart.
pub fn filter_rule(bytes: &[u8]) {
    let Ok(jq) = std::str::from_utf8(bytes) else { return };
    let limits = Limits {
        steps: 20_000,
        time: Duration::from_secs(10),
        value_bytes: 256 * 1024,
        made_bytes: 4 * 1024 * 1024,
        ..Limits::default()
    };
    let rule = Rule {
        jq: jq.to_owned(),
        variables: [("$var0".to_owned(), "loki".to_owned())].into(),
    };
    let chart = json!({
        "name": "loki", "description": "Été\n", "keywords": ["logs", "a"], "sources": null, "icon": "",
        "maintainers": [{ "name": "a", "email": "a@b.c" }], "repo": { "name": "grafana", "namespace": "kubeapps" },
        "chartVersions": [{ "version": "6.10.0", "urls": ["u"] }, { "version": "5.2.1-rc.1", "urls": null }],
    });
    let (sender, receiver) = mpsc::channel();
    // One thread, as for all charts of a sync. It runs though nobody awaits it.
    drop(on_large_stack(move || {
        let filter = Filter::compile(&rule, limits).ok();
        let _ = sender.send(filter.map(|filter| (filter.keeps(&chart), filter.keeps(&chart))));
    }));
    let Some((first, second)) = receiver.recv().expect("the filter's thread has panicked") else {
        return;
    };
    let shown = |kept: &Result<bool, FilterError>| kept.as_ref().map_err(ToString::to_string).copied();
    match &first {
        // The second time finds its regular expressions compiled, so it may come further.
        Err(error) if error.reason() == "FilterTooCostly" => {}
        _ => assert_eq!(shown(&first), shown(&second)),
    }
    for error in [first, second].into_iter().filter_map(Result::err) {
        assert!(matches!(error.reason(), "FilterFailed" | "FilterTooCostly"), "{error}");
        assert!(!error.to_string().contains("please report it"), "{error}");
    }
}
