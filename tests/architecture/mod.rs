//! The layers hold: a room imports only what stands below it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import of this crate. `text`, `clock` and `sync_ext` know nothing and may be used by all.
const ALLOWED: [(&str, &[&str]); 18] = [
    ("text", &[]),
    ("clock", &[]),
    ("sync_ext", &[]),
    ("api", &["text"]),
    ("runtime", &["api", "text"]),
    ("objects", &["api", "runtime", "text"]),
    ("queue", &["clock", "text"]),
    ("source", &["clock", "text"]),
    ("catalog", &["api", "text"]),
    ("filter", &["text"]),
    ("informer", &["api", "queue", "runtime", "text"]),
    ("schedule", &["api", "queue", "text"]),
    ("controller", &["api", "queue", "text"]),
    ("server", &["text"]),
    ("lease", &["runtime", "text"]),
    (
        "repository",
        &[
            "api",
            "queue",
            "source",
            "catalog",
            "filter",
            "informer",
            "schedule",
            "controller",
            "sync_ext",
            "runtime",
            "text",
        ],
    ),
    (
        "application",
        &["api", "objects", "queue", "informer", "controller", "runtime", "text"],
    ),
    (
        "cli",
        &[
            "api",
            "objects",
            "application",
            "queue",
            "source",
            "catalog",
            "filter",
            "informer",
            "schedule",
            "controller",
            "repository",
            "runtime",
            "server",
            "lease",
            "text",
        ],
    ),
];

fn source_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The rooms that `text` names after `crate::`, in code and not in comments.
fn imports(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .collect()
}

#[test]
fn every_room_imports_only_what_stands_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    let mut files = Vec::new();
    source_files(&src, &mut files);
    let mut offences = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&src).unwrap();
        let room = inside
            .iter()
            .next()
            .unwrap()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs")
            .to_owned();
        if room == "lib" || room == "main" {
            continue;
        }
        let below = allowed
            .get(room.as_str())
            .unwrap_or_else(|| panic!("the room {room} is not in the list of layers"));
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            if import != room && allowed.contains_key(import.as_str()) && !below.contains(&import.as_str()) {
                offences.push(format!("{} imports {import}", inside.display()));
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}

#[test]
fn the_index_decoder_does_not_import_the_incremental_one() {
    let index = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/source/index");
    let mut files = Vec::new();
    source_files(&index, &mut files);
    let decoder = files.into_iter().filter(|file| {
        let inside = file.strip_prefix(&index).unwrap();
        !inside.starts_with("delta") && inside != Path::new("mod.rs")
    });
    let offences: Vec<PathBuf> = decoder
        .filter(|file| fs::read_to_string(file).unwrap().contains("delta::"))
        .collect();
    assert!(offences.is_empty(), "{offences:#?}");
}

#[test]
fn the_runtime_names_none_of_our_kinds() {
    const KINDS: [&str; 2] = ["AppRepository", "Application"];
    let mut files = Vec::new();
    source_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runtime"), &mut files);
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for kind in KINDS {
            assert!(!text.contains(kind), "{} names {kind}", file.display());
        }
    }
}
