//! Rules of dependency inside a controller: a room, which is a module of the controller, imports only rooms below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

use super::files_in;
use crate::support::project;

/// The rooms of each controller from the bottom to the top. Its root holds names, and re-exports for other modules.
const ROOMS: [(&str, &[&str]); 3] = [
    (
        "application",
        &[
            "selector",
            "kinds",
            "spec",
            "readiness",
            "cached",
            "components",
            "metrics",
            "index",
            "status",
            "report",
            "owners",
            "event_handler",
            "reconciler",
            "setup",
        ],
    ),
    (
        "apprepository",
        &[
            "news",
            "spec",
            "cached",
            "decision",
            "sync_summary",
            "status",
            "running_syncs",
            "origin",
            "tombstones",
            "database_faults",
            "secrets",
            "metrics",
            "sync",
            "events",
            "state",
            "event_handler",
            "chart_files",
            "garbage",
            "kubeapps_cronjobs",
            "news_delivery",
            "jobs",
            "plan",
            "reconciler",
            "options",
            "setup",
        ],
    ),
    (
        "oam",
        &[
            "source",
            "context",
            "trackers",
            "clusters",
            "compression",
            "policies",
            "references",
            "revisions",
            "workflow",
            "placement",
            "parse",
            "dispatch",
            "render",
            "steps",
            "objects",
            "collect",
            "functions",
            "cache",
            "metrics",
            "rights",
            "options",
            "definitions",
            "reconciler",
            "webhooks",
            "start",
        ],
    ),
];

/// Returns the paths of a tree of imports: `a::{b, c::{d, e}}` has `a::b`, `a::c::d` and `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let (mut depth, mut start, mut paths) = (1, 0, Vec::new());
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            let parts = expand(rest[start..at].trim());
            paths.extend(
                parts
                    .iter()
                    .filter(|part| !part.is_empty())
                    .map(|part| format!("{}{part}", head.trim())),
            );
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    paths
}

/// Returns the paths that code imports or names, without comments and tests.
fn paths_in(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join(" ");
    let import = Regex::new(r"\buse ([^;]+);").unwrap();
    let mut paths: Vec<String> = import
        .captures_iter(&code)
        .flat_map(|found| expand(&found[1]))
        .collect();
    let named = Regex::new(r"\b(?:crate|super)(?:::\w+)+").unwrap();
    let rest = import.replace_all(&code, "");
    paths.extend(named.find_iter(&rest).map(|found| found.as_str().to_owned()));
    paths
}

/// Returns the segments of a path below the crate, as seen from a module.
fn resolve(module: &[String], path: &str) -> Option<Vec<String>> {
    let mut segments = path.split(" as ").next()?.split("::").peekable();
    let mut resolved = match *segments.peek()? {
        "crate" => {
            segments.next();
            Vec::new()
        }
        "super" => module.to_vec(),
        _ => return None,
    };
    while segments.next_if_eq(&"super").is_some() {
        resolved.pop();
    }
    resolved.extend(segments.map(str::to_owned));
    Some(resolved)
}

fn module_of(file: &Path) -> Vec<String> {
    let path = file.strip_prefix(project("src")).unwrap().with_extension("");
    let mut module: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    module.pop_if(|last| last == "mod");
    module
}

/// Returns the rooms of the items that the root of a controller re-exports.
fn reexports(controller: &str) -> BTreeMap<String, String> {
    let root = fs::read_to_string(project("src/controllers").join(controller).join("mod.rs")).unwrap();
    let public = Regex::new(r"\bpub use ([^;]+);").unwrap();
    let paths = public
        .captures_iter(&root)
        .flat_map(|found| expand(&found[1]))
        .collect::<Vec<_>>();
    let item = |path: String| {
        let (room, item) = path.split_once("::")?;
        let name = item.rsplit([' ', ':']).next()?;
        Some((name.to_owned(), room.to_owned()))
    };
    paths.into_iter().filter_map(item).collect()
}

/// Returns the imports of one room by another, by the names of both.
fn imports_between_rooms(controller: &str) -> BTreeSet<(String, String)> {
    let reexports = reexports(controller);
    let mut imports = BTreeSet::new();
    for file in files_in(&format!("src/controllers/{controller}")) {
        let module = module_of(&file);
        let is_test = module.iter().any(|part| part == "tests" || part.ends_with("_tests"));
        let Some(importer) = module.get(2).filter(|_| !is_test) else {
            continue;
        };
        for path in paths_in(&fs::read_to_string(&file).unwrap()) {
            let Some(resolved) = resolve(&module, &path) else {
                continue;
            };
            if let [first, second, item, ..] = resolved.as_slice()
                && first == "controllers"
                && second == controller
            {
                let room = reexports.get(item).unwrap_or(item);
                imports.insert((importer.clone(), room.clone()));
            }
        }
    }
    imports
}

#[test]
fn rooms_import_only_rooms_below_them() {
    let mut upward = Vec::new();
    for (controller, rooms) in ROOMS {
        let floor = |name: &str| rooms.iter().position(|room| *room == name);
        for (importer, room) in imports_between_rooms(controller) {
            let from = floor(&importer).unwrap_or_else(|| panic!("{controller}: {importer} has no place in ROOMS"));
            // Items of the root are on no floor.
            if floor(&room).is_some_and(|to| to > from) {
                upward.push(format!("{controller}: {importer} imports {room}"));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

/// The rooms of KubeVela's formats and decisions. They compute; others send requests.
const PURE: [&str; 12] = [
    "source",
    "context",
    "trackers",
    "policies",
    "references",
    "revisions",
    "workflow",
    "placement",
    "parse",
    "dispatch",
    "render",
    "steps",
];

#[test]
fn formats_and_decisions_of_kubevela_need_no_client_and_no_runtime() {
    let mut effects = Vec::new();
    for file in files_in("src/controllers/oam") {
        let module = module_of(&file);
        let is_test = module.iter().any(|part| part == "tests");
        if is_test || !module.get(2).is_some_and(|room| PURE.contains(&room.as_str())) {
            continue;
        }
        let is_effect = |path: &String| {
            ["kube::Api", "kube::Client", "kube::client", "tokio", "reqwest", "sqlx"]
                .iter()
                .any(|effect| path == effect || path.starts_with(&format!("{effect}::")))
        };
        let paths = paths_in(&fs::read_to_string(&file).unwrap());
        effects.extend(
            paths
                .into_iter()
                .filter(is_effect)
                .map(|path| format!("{}: {path}", module.join("::"))),
        );
    }
    assert_eq!(effects, Vec::<String>::new());
}

#[test]
fn paths_are_found_in_trees_of_imports_and_in_code() {
    let code =
        "use super::{a, b::{c, d as e}};\n// use crate::f;\nfn g() { crate::h::i(); }\n#[cfg(test)]\nmod tests {}";
    let paths = paths_in(code);
    assert_eq!(paths, ["super::a", "super::b::c", "super::b::d as e", "crate::h::i"]);
    let module = ["controllers", "oam", "x", "y"].map(str::to_owned);
    assert_eq!(
        resolve(&module, &paths[2]).unwrap(),
        ["controllers", "oam", "x", "b", "d"]
    );
    assert_eq!(resolve(&module, "std::fmt"), None);
}
