//! The end of a run: objects and tables without what differs between any two runs.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::environment::Environment;
use super::jobs::{CRON_JOB, JOB, is_garbage, latest, without_attempts};

/// Fields with times, generated numbers and counts of attempts.
const INCIDENTAL: [&str; 42] = [
    // Objects.
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    // Of the hash of the namespace, which is another one in each run.
    "portolan.dev/start-delay-seconds",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastSyncTime",
    "lastAttemptTime",
    "nextSyncTime",
    "startTime",
    "latestVersionTime",
    "lastExecuteTime",
    "firstExecuteTime",
    "endTime",
    "revisionHash",
    "publishVersion",
    // Tables.
    "id",
    "repos_id",
    "repo_id",
    "row_id",
    "revision",
    "started_at",
    "duration_ms",
    "durationMs",
    "duration",
    "last_attempt",
    "last_success",
    "last_update",
    "last_update_time",
    "repos_last_update",
    "renewed",
    "next_try",
    "created",
    "transitions",
    "holder",
    "deleted_at",
    // Keyed by a random number.
    "digest_key",
    "cache_key",
    // A sync by schedule may find a push first.
    "hasFound",
    // Versions of Secrets.
    "credentials",
    "portolan.dev/source-versions",
];

/// Digests of the URL, whose port differs between runs, and the schedule, which only some runs have.
const OF_RUN: [&str; 3] = ["change_key", "spec_hash", "schedule"];

/// Counts of changes, which differ in one run.
const OF_CHANGES: [&str; 6] = [
    "generation",
    "applicationGeneration",
    "observedGeneration",
    "added",
    "changed",
    "removed",
];

/// Removes what differs between runs.
struct Normalizer {
    is_one_run: bool,
    replaced: Vec<(String, &'static str)>,
}

impl Normalizer {
    fn of(environment: &Environment, is_one_run: bool) -> Self {
        let host = |url: String| url.trim_start_matches("http://").to_owned();
        // Before the namespaces, whose names may be part of it.
        let mut replaced = vec![(database(&environment.commits.url), "DATABASE")];
        replaced.extend(environment.namespaces());
        let pages = [environment.pages.url(), environment.server.url("")];
        replaced.extend(pages.map(|url| (host(url), "PAGES")));
        Self { is_one_run, replaced }
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::Object(fields) => self.fields(fields),
            // Their order is that of their first appearance, or none.
            Value::Array(items) => {
                let mut items: Vec<Value> = items.into_iter().map(|item| self.value(item)).collect();
                items.sort_by_key(Value::to_string);
                Value::Array(items)
            }
            Value::String(text) => self.text(&text),
            other => other,
        }
    }

    fn fields(&self, fields: Map<String, Value>) -> Value {
        let is_incidental = |name: &str| {
            let is_hash = name.ends_with("-hash") || name.ends_with("Hash");
            let other: &[&str] = if self.is_one_run { &OF_CHANGES } else { &OF_RUN };
            is_hash || INCIDENTAL.contains(&name) || other.contains(&name)
        };
        let fields = fields.into_iter().filter(|(name, _)| !is_incidental(name));
        let fields = fields.map(|(name, value)| (self.plain(&name), self.value(value)));
        Value::Object(fields.collect())
    }

    fn text(&self, text: &str) -> Value {
        // Columns of JSON.
        if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
            return self.value(value);
        }
        if text.parse::<jiff::Timestamp>().is_ok() {
            return "TIME".into();
        }
        self.plain(text).into()
    }

    fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.replaced {
            text = text.replace(from, to);
        }
        without_uids(&text)
    }
}

/// Returns the part of a URL behind the password.
fn database(url: &str) -> String {
    url.rsplit('@').next().unwrap_or_default().to_owned()
}

/// Replaces each word of ten and more hex digits: names of Jobs end with one, of a text with a UID.
pub fn without_digests(text: &str) -> String {
    const SHORTEST: usize = 10;
    let is_digest = |word: &str| word.len() >= SHORTEST && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split_inclusive(|character: char| !character.is_ascii_alphanumeric());
    let plain = words.map(|word| {
        let end = word.find(|character: char| !character.is_ascii_alphanumeric());
        let (word, separator) = word.split_at(end.unwrap_or(word.len()));
        format!("{}{separator}", if is_digest(word) { "DIGEST" } else { word })
    });
    plain.collect()
}

/// Replaces each UUID.
fn without_uids(text: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    const LENGTH: usize = 36;
    let is_uuid = |candidate: &str| {
        let groups: Vec<&str> = candidate.split('-').collect();
        groups.len() == GROUPS.len()
            && groups
                .iter()
                .zip(GROUPS)
                .all(|(group, length)| group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let (mut result, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        if rest.get(..LENGTH).is_some_and(is_uuid) {
            result.push_str("UID");
            rest = &rest[LENGTH..];
        } else {
            result.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    result
}

/// Returns the objects of these kinds, and all tables.
pub async fn end_of(environment: &Environment, kinds: &[&str]) -> Value {
    let normalizer = Normalizer::of(environment, false);
    let mut end = Map::new();
    let mut objects = BTreeMap::<String, Vec<Value>>::new();
    for kind in kinds {
        for object in environment.list(kind).await {
            let name = object.metadata.name.clone().unwrap_or_default();
            // Of the control plane itself.
            if name == "kube-root-ca.crt" {
                continue;
            }
            if *kind == super::kubevela::TRACKER && !name.contains(&environment.namespace) {
                continue;
            }
            if *kind == JOB && is_garbage(&name) {
                continue;
            }
            let key = without_digests(&format!("{kind} {}", normalizer.plain(&name)));
            let mut object = normalizer.value(json!(object));
            if *kind == super::kubevela::TRACKER {
                // Counts writes of Portolan: one more after a failed request.
                object["metadata"]["generation"] = Value::Null;
            }
            // Names of Jobs and of copied Secrets are of hashes.
            object["metadata"]["name"] = without_digests(&normalizer.plain(&name)).into();
            if *kind == JOB {
                without_attempts(&mut object);
            }
            if [CRON_JOB, JOB].contains(kind) {
                object = without_digests_in(object);
            }
            objects.entry(key).or_default().push(object);
        }
    }
    for (key, mut objects) in objects {
        if key.starts_with(JOB) {
            objects = latest(objects);
        }
        let objects = if objects.len() == 1 {
            objects[0].clone()
        } else {
            normalizer.value(Value::Array(objects))
        };
        end.insert(key, objects);
    }
    for (table, rows) in tables(&environment.database.url, "").await {
        let rows = rows
            .into_iter()
            .filter(|row| table != "portolan_syncs" || is_change(row));
        let rows = rows.map(|row| normalizer.value(row)).collect();
        end.insert(format!("table {table}"), normalizer.value(Value::Array(rows)));
    }
    end.insert(
        "news".to_owned(),
        normalizer.value(super::news::delivered(environment).into()),
    );
    Value::Object(end)
}

/// Returns true if an object belongs to one of these kinds that is gone: Kubernetes' garbage collector deletes it soon.
pub fn has_orphans(end: &Value, kinds: &[&str]) -> bool {
    let objects = end.as_object().expect("an end has objects");
    let owners = |object: &Value| {
        object["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    objects.values().flat_map(owners).any(|owner| {
        let kind = format!("{} {}", text(&owner["apiVersion"]), text(&owner["kind"]));
        kinds.contains(&kind.as_str()) && !objects.contains_key(&format!("{kind} {}", text(&owner["name"])))
    })
}

/// Returns the objects and rows of one AppRepository, or of one Application.
pub async fn part_of(environment: &Environment, kind: &str, name: &str) -> Value {
    let normalizer = Normalizer::of(environment, true);
    let object = environment.api_of(kind).get_opt(name).await.unwrap();
    let object = normalizer.value(json!(object));
    let tables: Map<String, Value> = tables(&environment.database.url, name)
        .await
        .into_iter()
        .filter(|(table, _)| table != "portolan_syncs")
        .map(|(table, rows)| (table, normalizer.value(Value::Array(rows))))
        .collect();
    json!({ "object": object, "tables": tables })
}

/// Replaces the hash of the spec in arguments.
fn without_digests_in(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name, without_digests_in(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(without_digests_in).collect(),
        Value::String(text) => without_digests(&text).into(),
        other => other,
    }
}

/// Returns the objects of one run with a label.
pub async fn objects_with(environment: &Environment, kinds: &[&str], (label, value): (&str, &str)) -> Value {
    let normalizer = Normalizer::of(environment, true);
    let mut objects = Vec::new();
    for kind in kinds {
        for object in environment.list(kind).await {
            let is_here = *kind != super::kubevela::TRACKER || object.name_any().contains(&environment.namespace);
            if is_here && object.labels().get(label).is_some_and(|found| found == value) {
                objects.push(json!(object));
            }
        }
    }
    normalizer.value(Value::Array(objects))
}

/// Failed syncs are recorded, and successful ones after them. Only changes belong to the end.
fn is_change(row: &Value) -> bool {
    ["added", "changed", "removed"].iter().any(|count| row[count] != 0)
}

/// Returns all rows of a database; only those about a repository, unless its name is empty.
async fn tables(url: &str, repository: &str) -> BTreeMap<String, Vec<Value>> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let names: Vec<(String,)> = sqlx::query_as(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut tables = BTreeMap::new();
    for (name,) in names {
        // Its checksums are those of the migrations, and it has times.
        if name.contains("migrations") {
            continue;
        }
        let select = AssertSqlSafe(format!("SELECT to_jsonb(t)::text FROM {name} t"));
        let rows: Vec<(String,)> = sqlx::query_as(select).fetch_all(&mut connection).await.unwrap();
        let mut rows: Vec<Value> = rows.iter().map(|(row,)| serde_json::from_str(row).unwrap()).collect();
        if name == "portolan_chart_digests" {
            for row in &mut rows {
                // Keyed by a random number.
                row.as_object_mut().unwrap().remove("digest");
            }
        }
        let is_about = |row: &Value| {
            let columns = row.as_object().into_iter().flatten();
            let mut names = columns.filter(|(column, _)| ["name", "repo_name"].contains(&column.as_str()));
            repository.is_empty() || names.any(|(_, value)| value == repository)
        };
        rows.retain(is_about);
        tables.insert(name, rows);
    }
    connection.close().await.unwrap();
    tables
}

/// Returns the paths where two values differ, with both values.
pub fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let mut found_at = Vec::new();
    compare("", expected, found, &mut found_at);
    found_at
}

fn compare(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            for (name, value) in left {
                compare(
                    &format!("{path}/{name}"),
                    value,
                    right.get(name).unwrap_or(&Value::Null),
                    differences,
                );
            }
            for (name, value) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
                compare(&format!("{path}/{name}"), &Value::Null, value, differences);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{path}/{index}"), left, right, differences);
            }
        }
        _ if expected == found => {}
        _ => differences.push(format!("{path}: {expected} became {found}")),
    }
}

#[test]
fn uids_are_replaced_wherever_they_are() {
    let text = "tracker-6f1d9ab8-1c1f-4a6b-8a2e-5f0c7b7b4a11-v1";
    assert_eq!(without_uids(text), "tracker-UID-v1");
    assert_eq!(without_uids("grüße-1234"), "grüße-1234");
}

#[test]
fn an_object_whose_owner_is_gone_is_an_orphan() {
    let owner = json!({ "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "brief" });
    let mut end = json!({ "v1 ConfigMap c": { "metadata": { "ownerReferences": [owner] } } });
    let kinds = ["v1 ConfigMap", "core.oam.dev/v1beta1 Application"];
    assert!(has_orphans(&end, &kinds));
    assert!(!has_orphans(&end, &kinds[..1]), "owners of other kinds are not known");
    end["core.oam.dev/v1beta1 Application brief"] = json!({});
    assert!(!has_orphans(&end, &kinds));
}

#[test]
fn digests_are_replaced_as_whole_words() {
    assert_eq!(without_digests("sync-shop-0123456789"), "sync-shop-DIGEST");
    assert_eq!(without_digests("--spec-hash=0123456789abcdef"), "--spec-hash=DIGEST");
    assert_eq!(without_digests("deadbeef-0123456789x"), "deadbeef-0123456789x");
}

#[test]
fn differences_name_the_path() {
    let (left, right) = (json!({ "a": [1, { "b": 2 }] }), json!({ "a": [1, { "b": 3 }], "c": 4 }));
    assert_eq!(differences(&left, &right), ["/a/1/b: 2 became 3", "/c: null became 4"]);
    assert!(differences(&left, &left).is_empty());
}
