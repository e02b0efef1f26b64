//! Rules of dependency: a module imports only modules below it (docs/explanation/architecture.md).

mod rooms;
mod vocabulary;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{files_below, project};

/// Imports that each module is allowed, besides `text`, `clock`, `trace` and `budget`, which import nothing of ours.
const ALLOWED: [(&str, &[&str]); 21] = [
    ("budget", &[]),
    ("text", &[]),
    ("clock", &[]),
    ("trace", &[]),
    ("api", &[]),
    ("http", &[]),
    ("jq", &[]),
    ("server", &[]),
    ("runtime", &["api"]),
    ("cue", &["runtime"]),
    ("catalog", &["api"]),
    ("helm", &[]),
    ("oci", &["http", "helm"]),
    ("releases", &["runtime", "helm", "api"]),
    (
        "controllers::apprepository",
        &["controllers", "runtime", "catalog", "helm", "oci", "http", "jq", "api"],
    ),
    ("controllers::application", &["controllers", "runtime", "api"]),
    (
        "controllers::oam",
        &["controllers", "runtime", "cue", "http", "server", "api"],
    ),
    ("controllers", &["runtime"]),
    ("serve", &["runtime", "releases", "catalog", "helm", "server", "api"]),
    (
        "manager",
        &[
            "controllers",
            "controllers::apprepository",
            "controllers::application",
            "controllers::oam",
            "serve",
            "releases",
            "runtime",
            "cue",
            "http",
            "catalog",
            "server",
            "api",
        ],
    ),
    (
        "cmd",
        &[
            "manager",
            "controllers",
            "controllers::apprepository",
            "controllers::application",
            "controllers::oam",
            "serve",
            "releases",
            "runtime",
            "cue",
            "catalog",
            "helm",
            "oci",
            "http",
            "jq",
            "server",
            "api",
        ],
    ),
];

const FOR_ALL: [&str; 4] = ["text", "clock", "trace", "budget"];

fn files_in(directory: &str) -> Vec<PathBuf> {
    let files = files_below(&project(directory), "rs");
    assert!(!files.is_empty(), "no source files in {directory}");
    files
}

/// Returns the modules after `crate::` in code; comments are ignored.
fn imports(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|path| module(path.split("::").map(identifier)))
}

fn identifier(segment: &str) -> &str {
    let end = segment.find(|c: char| !c.is_alphanumeric() && c != '_');
    &segment[..end.unwrap_or(segment.len())]
}

fn is_item(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

/// Returns the first segment, or the first two below `controllers`.
fn module<'a>(mut segments: impl Iterator<Item = &'a str>) -> String {
    match (segments.next().unwrap_or_default(), segments.next()) {
        ("controllers", Some(controller)) if !matches!(controller, "" | "mod") && !is_item(controller) => {
            format!("controllers::{controller}")
        }
        (first, _) => first.to_owned(),
    }
}

#[test]
fn modules_import_only_what_lies_below_them() {
    let allowed = BTreeMap::from(ALLOWED);
    let mut violations = Vec::new();
    for file in files_in("src") {
        let path = file.strip_prefix(project("src")).unwrap().with_extension("");
        let importer = module(path.iter().map(|segment| segment.to_str().unwrap()));
        if matches!(importer.as_str(), "lib" | "main") {
            continue;
        }
        let below = allowed
            .get(importer.as_str())
            .unwrap_or_else(|| panic!("{importer} has no entry in ALLOWED"));
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            let is_allowed =
                import == importer || FOR_ALL.contains(&import.as_str()) || below.contains(&import.as_str());
            if allowed.contains_key(import.as_str()) && !is_allowed {
                violations.push(format!("{} imports {import}", path.display()));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn the_index_decoder_does_not_import_the_incremental_one() {
    let index = project("src/helm/index");
    let mut decoder = files_in("src/helm/index");
    decoder.retain(|file| {
        let path = file.strip_prefix(&index).unwrap();
        !path.starts_with("incremental") && path != Path::new("mod.rs")
    });
    decoder.retain(|file| fs::read_to_string(file).unwrap().contains("incremental::"));
    assert!(decoder.is_empty(), "{decoder:#?}");
}

#[test]
fn controllers_never_import_each_other() {
    let controllers = ["apprepository", "application", "oam"];
    let pairs = controllers
        .iter()
        .flat_map(|one| controllers.iter().map(move |other| (one, other)));
    for (controller, other) in pairs.filter(|(one, other)| one != other) {
        for file in files_in(&format!("src/controllers/{controller}")) {
            let text = fs::read_to_string(&file).unwrap();
            let import = text
                .split(';')
                .find(|item| item.contains("crate::controllers") && item.contains(&format!("{other}::")));
            let list = text
                .split("crate::controllers::{")
                .skip(1)
                .find(|list| list.split('}').next().unwrap_or_default().contains(other));
            assert!(import.is_none() && list.is_none(), "{} imports {other}", file.display());
        }
    }
}

#[test]
fn the_runtime_names_none_of_our_kinds() {
    let mut named = Vec::new();
    for file in files_in("src/runtime") {
        let path = file.strip_prefix(project("src")).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        if !is_test
            && lines.any(|line| {
                ["AppRepository", "Application", "kubeapps.com"]
                    .iter()
                    .any(|kind| line.contains(kind))
            })
        {
            named.push(path);
        }
    }
    assert!(named.is_empty(), "{named:#?}");
}
