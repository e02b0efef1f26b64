//! Bodies of the fuzz targets: decoders of untrusted input and invariants of accepted results.
//!
//! `make fuzz` runs them under libFuzzer (package `fuzz/`), `make test` runs them over seeds and mutations.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::{Cursor, Read};

use portolan::helm::archive;
use portolan::helm::index::{
    CacheEntry, CachedIndex, ChangeSink, Chart, ChartStats, DecodeLimits, DigestKey, IndexMaintainer, SharedSplit,
    Sink, Summary, chart, decode, decode_changes, metadata, newest_first, parse_with_both_parsers,
};
use portolan::http::credentials;
use portolan::jq::{Filter, FilterLimits, JqRule};
use portolan::oci;
use serde_json::{Value, json};

/// Name, which is also the seed directory, and body.
#[allow(dead_code, reason = "the targets under libFuzzer call their bodies by name")]
pub type Target = (&'static str, fn(&[u8]));

#[allow(dead_code, reason = "the targets under libFuzzer call their bodies by name")]
pub const TARGETS: [Target; 11] = [
    ("index_yaml", index),
    ("index_json", index_json),
    ("index_changes", index_changes),
    ("fast_path", fast_path),
    ("chart_archive", chart_archive),
    ("chart_yaml", chart_yaml),
    ("oci_manifest", oci_manifest),
    ("tag_list", tag_list),
    ("www_authenticate", www_authenticate),
    ("dockerconfigjson", dockerconfigjson),
    ("filter_rule", filter_rule),
];

/// Low limits, so that bombs are rejected quickly.
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

/// Converts JSON for the YAML parser, which needs some characters escaped.
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

/// Decodes an index in any notation.
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
    // The accepted charts give the same result again, in both notations.
    let written = written(&charts);
    for again in [as_yaml(&written), written] {
        let (again, summary) = decoded(again.as_bytes(), &DecodeLimits::default()).expect("an index of charts");
        assert_eq!(again, charts);
        assert_eq!((summary.skipped.count, summary.deprecated), (0, 0));
    }
}

/// Writes an index with these charts as JSON.
fn written(charts: &[Chart]) -> String {
    let entries = charts.iter().enumerate().map(|(number, chart)| {
        let mut versions: Vec<Value> = chart
            .versions
            .iter()
            .map(|version| {
                json!({
                    "name": chart.name, "version": version.version, "appVersion": version.app_version, "created": version.created,
                    "digest": version.digest, "urls": version.urls,
                })
            })
            .collect();
        let maintainer =
            |IndexMaintainer { name, email, url }: &IndexMaintainer| json!({ "name": name, "email": email, "url": url });
        let newest = &mut versions[0];
        newest["description"] = json!(chart.description);
        newest["home"] = json!(chart.home);
        newest["icon"] = json!(chart.icon);
        newest["annotations"] = json!({ "category": chart.category });
        newest["keywords"] = json!(chart.keywords);
        newest["maintainers"] = chart.maintainers.iter().map(maintainer).collect();
        newest["sources"] = json!(chart.sources);
        // Charts are ordered by key.
        (format!("{number:06}"), Value::Array(versions))
    });
    let entries: serde_json::Map<String, Value> = entries.collect();
    json!({ "apiVersion": "v1", "entries": entries }).to_string()
}

/// Decodes two indexes, separated by NUL (a single one is decoded twice), back and forth. The incremental decode must
/// equal the full decode.
pub fn index_changes(bytes: &[u8]) {
    let mut indexes = bytes.splitn(2, |byte| *byte == 0);
    let first = indexes.next().unwrap_or_default();
    let second = indexes.next().unwrap_or(first);
    let mut state = CatalogState::new();
    for index in [first, second, first] {
        state.decode_next(index);
    }
}

/// A cache and the charts as the catalog would contain them.
struct CatalogState {
    cache: CachedIndex,
    charts: HashMap<String, Option<Chart>>,
}

/// Receives the next index. Timestamps are compared for parsed charts only.
struct NextIndex<'f> {
    before: &'f CatalogState,
    after: CatalogState,
    last: Option<Chart>,
    charts: Vec<(Chart, bool)>,
}

impl CatalogState {
    fn new() -> Self {
        Self {
            cache: CachedIndex {
                digest_key: DigestKey::from(*b"0123456789abcdef0123456789abcdef"),
                timestamps_matter: false,
                charts: HashMap::new(),
            },
            charts: HashMap::new(),
        }
    }

    fn decode_next(&mut self, index: &[u8]) {
        let limits = decode_limits();
        let mut full = Vec::new();
        let expected = decode(Cursor::new(index), &limits, &mut full).map_err(|error| error.to_string());
        let mut next = NextIndex {
            before: self,
            after: Self::new(),
            last: None,
            charts: Vec::new(),
        };
        let (input, shared) = (Cursor::new(index), SharedSplit::default());
        let result = decode_changes(input, &limits, &self.cache, &shared, &mut next).map_err(|error| error.to_string());
        assert_eq!(result, expected);
        if result.is_ok() {
            assert_eq!(next.charts.len(), full.len());
            for ((chart, is_parsed), full) in next.charts.into_iter().zip(full) {
                let times = |chart: Chart| if is_parsed { chart } else { without_times(chart) };
                assert_eq!(times(chart), times(full));
            }
            *self = next.after;
        }
    }
}

fn without_times(mut chart: Chart) -> Chart {
    chart.versions.iter_mut().for_each(|version| version.created.clear());
    chart
}

impl Sink for NextIndex<'_> {
    type Error = Infallible;

    fn chart(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.last = Some(chart.clone());
        self.charts.push((chart, true));
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), Infallible> {
        (self.after, self.last) = (CatalogState::new(), None);
        self.charts.clear();
        Ok(())
    }
}

impl ChangeSink for NextIndex<'_> {
    fn unchanged(&mut self, key: &str, stats: &ChartStats) -> Result<(), Infallible> {
        let (chart, cached) = (&self.before.charts[key], &self.before.cache.charts[key]);
        assert_eq!(*stats, cached.stats);
        self.charts.extend(chart.clone().map(|chart| (chart, false)));
        self.after.charts.insert(key.to_owned(), chart.clone());
        self.after.cache.charts.insert(key.to_owned(), cached.clone());
        Ok(())
    }

    fn cache(&mut self, CacheEntry { key, chart }: CacheEntry) -> Result<(), Infallible> {
        self.after.charts.insert(key.clone(), self.last.take());
        self.after.cache.charts.insert(key, chart);
        Ok(())
    }
}

/// Decodes an index in JSON. Other input is wrapped into one.
pub fn index_json(bytes: &[u8]) {
    let made = [b"{\"entries\":{\"a\":[", bytes].concat();
    let bytes = if bytes.trim_ascii_start().starts_with(b"{") {
        bytes
    } else {
        &made
    };
    index(bytes);
    // Input that both parsers accept has the same meaning. The YAML parser may reject valid JSON.
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

/// Compares the fast path with the parser for one chart version, as is and after a key, which makes more inputs valid.
pub fn fast_path(bytes: &[u8]) {
    for slice in [bytes, &[b"  - name: a\n    home: ", bytes].concat()] {
        if let Some([by_lines, by_parser]) = parse_with_both_parsers(slice, &decode_limits()) {
            assert_eq!(by_lines, by_parser);
        }
    }
}

/// Returns a few bytes per read, like a network connection.
struct InPieces<'a>(&'a [u8]);

impl Read for InPieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(1 + self.0.len() % 600);
        self.0.read(&mut buffer[..count])
    }
}

/// Reads an archive, and again with correct header checksums, which mutations do not produce.
pub fn chart_archive(bytes: &[u8]) {
    read_archive(bytes);
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        read_archive(&with_valid_checksums(bytes.to_vec()));
    }
}

/// Writes the checksum into every block that is not empty.
fn with_valid_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
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

fn read_archive(bytes: &[u8]) {
    let limits = archive::ArchiveLimits {
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
    if let Some(metadata) = &files.metadata {
        assert!(metadata.len() as u64 <= archive::METADATA_BYTES);
        assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(metadata).is_ok());
    }
    let texts = [&files.readme, &files.values, &files.schema];
    let texts = texts.into_iter().chain(files.additional_values.values());
    for text in texts.clone() {
        assert!(!text.contains('\0'));
        // An invalid UTF-8 byte becomes three bytes.
        assert!(text.len() as u64 <= 3 * limits.file_bytes);
    }
    let keys = files.additional_values.keys();
    assert!(
        keys.clone()
            .all(|key| key.starts_with("values-") && !key.contains(['/', '.']))
    );
    assert!(texts.chain(keys).map(String::len).sum::<usize>() as u64 <= limits.kept_bytes);
}

/// Parses a Chart.yaml in YAML or JSON.
pub fn chart_yaml(bytes: &[u8]) {
    let Ok(read) = metadata(bytes, &decode_limits()) else {
        return;
    };
    let json = read.to_json();
    for again in [as_yaml(&json), json] {
        assert_eq!(metadata(again.as_bytes(), &DecodeLimits::default()).as_ref(), Ok(&read));
    }
    if let Some(chart) = chart(vec![read]) {
        assert!(!chart.name.is_empty() && chart.versions.len() == 1);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // The order is antisymmetric for any text.
        assert_eq!(newest_first(text, "1.0.0"), newest_first("1.0.0", text).reverse());
    }
}

pub fn oci_manifest(bytes: &[u8]) {
    let parts = match oci::manifest(bytes) {
        Ok(oci::Manifest::Chart { config, layer }) => vec![config, layer],
        Ok(oci::Manifest::ChartsIndex(layer)) => vec![layer],
        Ok(oci::Manifest::Other(kind)) => return assert_is_displayable(&kind),
        Err(error) => return assert_is_displayable(&error.to_string()),
    };
    for part in parts {
        assert!(part.digest.starts_with("sha256:") && part.digest.len() == "sha256:".len() + 64);
    }
}

/// Asserts that a text for users is short and contains no control characters.
fn assert_is_displayable(text: &str) {
    assert!(text.len() <= 512 && !text.contains(char::is_control), "{text:?}");
}

/// Parses tag lists and other listings of a registry.
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
            Err(error) => assert_is_displayable(&error.to_string()),
        }
    }
}

/// Parses authentication challenges and the link to the next page.
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
    let written: Vec<String> = challenges.iter().map(to_header).collect();
    assert_eq!(oci::challenges(written.join(", ").as_bytes()), challenges);
    if let Some(target) = oci::next_link(bytes) {
        let link = format!("<{target}>; rel=\"next\"");
        assert_eq!(oci::next_link(link.as_bytes()), Some(target));
    }
}

fn to_header(challenge: &oci::Challenge) -> String {
    let parameters = challenge.parameters.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    });
    format!("{} {}", challenge.scheme, parameters.collect::<Vec<_>>().join(", "))
}

/// Parses credentials of a DigestKey, which no error may contain.
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

/// Compiles a filter rule. Only a child process bounds its evaluation (tests/filter/hostile.rs).
pub fn filter_rule(bytes: &[u8]) {
    let Ok(jq) = std::str::from_utf8(bytes) else { return };
    let rule = JqRule {
        jq: jq.to_owned(),
        variables: [("$var0".to_owned(), "loki".to_owned())].into(),
    };
    // The parser is recursive.
    let compile = std::thread::Builder::new()
        .stack_size(256 * 1024 * 1024)
        .spawn(move || {
            let error = Filter::compile(&rule, FilterLimits::default()).err();
            error.map(|error| (error.reason(), error.to_string()))
        });
    if let Some((reason, text)) = compile.expect("a thread").join().expect("no panic") {
        assert_eq!(reason, "InvalidFilter");
        assert!(!text.contains("please report") && !text.contains("panicked"), "{text}");
    }
}
