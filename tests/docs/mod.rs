//! The pages of docs/ and the README: links, the table of contents, and the commands of the tutorials.

mod cluster;
mod console;
mod pushing;
mod tutorials;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use crate::support::project;

/// Pages outside of docs/ whose links are checked too.
const OTHERS: [&str; 5] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "charts/portolan/README.md",
    "examples/README.md",
];
const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns the paths of all pages of docs/, from the project's directory.
fn pages() -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    let mut directories = vec![project("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path.strip_prefix(project("")).unwrap().to_owned());
            }
        }
    }
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(project("").join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Returns the lines of a page outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of links and pictures.
fn links(text: &str) -> Vec<String> {
    let code = Regex::new("`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let lines = prose(text).map(|line| code.replace_all(line, "code").into_owned());
    lines
        .flat_map(|line| {
            link.captures_iter(&line)
                .map(|found| found[1].to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the anchors of the headings, as forges and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    headings
        .map(|heading| {
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept
                .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
                .collect();
            let count = counts.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 {
                anchor
            } else {
                format!("{anchor}-{}", *count - 1)
            }
        })
        .collect()
}

/// Returns a path without `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

/// Returns what is wrong with a link of a page.
fn problem(page: &Path, link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        page.to_owned()
    } else {
        normalized(&page.parent().unwrap().join(path))
    };
    let is_of_the_book = page.starts_with("docs");
    if is_of_the_book && (!target.starts_with("docs") || target == Path::new(SUMMARY)) {
        return Some("leads out of the book".to_owned());
    }
    if !project("").join(&target).exists() {
        return Some(format!("{} does not exist", target.display()));
    }
    let is_page = target.extension().is_some_and(|extension| extension == "md");
    (is_page && !anchor.is_empty() && !anchors(&read(&target)).contains(anchor))
        .then(|| format!("{} has no heading {anchor}", target.display()))
}

#[test]
fn each_link_leads_to_a_page_and_a_heading() {
    let mut problems = Vec::new();
    let mut count = 0;
    for page in pages().into_iter().chain(OTHERS.map(PathBuf::from)) {
        for link in links(&read(&page)) {
            count += 1;
            problems.extend(problem(&page, &link).map(|problem| format!("{}: {link}: {problem}", page.display())));
        }
    }
    assert!(count > 150, "{count} links");
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn each_page_is_in_the_table_of_contents_once() {
    let listed = links(&read(Path::new(SUMMARY)));
    let mut listed: Vec<PathBuf> = listed.iter().map(|link| Path::new("docs").join(link)).collect();
    listed.sort();
    let mut pages: Vec<PathBuf> = pages().into_iter().collect();
    pages.retain(|page| page != Path::new(SUMMARY));
    assert_eq!(listed, pages);
}

#[test]
fn each_page_says_at_its_top_for_whom_it_is() {
    let mut missing = Vec::new();
    for page in pages() {
        let text = read(&page);
        let line = text.lines().nth(2).unwrap_or_default();
        let is_named = line.starts_with("*For ") || line.starts_with("For ");
        if page != Path::new(SUMMARY) && !is_named {
            missing.push(page);
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_readme_opens_with_the_page_that_the_script_takes() {
    const PICTURE: &str = "docs/catalog.png";
    let readme = read(Path::new("README.md"));
    let first = Regex::new(r"!\[([^\]]+)\]\(([^)]+)\)").unwrap();
    assert_eq!(&first.captures(&readme).unwrap()[2], PICTURE);
    let picture = fs::read(project(PICTURE)).unwrap();
    // PNG: a signature, and a chunk that begins with width and height.
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"));
    let side = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    let size = format!("--window-size={},{} ", side(16), side(20));
    assert!(read(Path::new("docs/screenshot.sh")).contains(&size), "{size}");
}

#[test]
fn links_and_anchors_are_read_as_forges_do() {
    let page = "# It's `a` b-c\n\nSee [one](a.md#x), `[no](b.md)` and ![picture](c.svg).\n```sh\n# [no](d.md)\n```\n## Two\n## Two\n";
    assert_eq!(links(page), ["a.md#x", "c.svg"]);
    let anchors: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(anchors, ["its-a-b-c", "two", "two-1"]);
    assert_eq!(normalized(Path::new("docs/how-to/../a.md")), Path::new("docs/a.md"));
}
