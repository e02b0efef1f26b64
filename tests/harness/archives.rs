use std::io::Read;

use flate2::read::GzDecoder;
use tar::EntryType;

use crate::support::archives::{Archive, Chart, Entry, index, sha256};
use crate::support::helm;
use crate::support::process::ScratchDir;

/// Lists the entries of an archive with an independent implementation.
fn listing(archive: &Archive) -> Vec<(String, EntryType, u64)> {
    let unpacked = archive.unpacked();
    let mut archive = tar::Archive::new(unpacked.as_slice());
    let entries = archive.entries().unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            (path, entry.header().entry_type(), entry.size())
        })
        .collect()
}

#[tokio::test]
async fn helm_reads_generated_archives() {
    let chart = Chart::new("harbour", "1.2.3+build.7")
        .field("appVersion", "7.0")
        .file("README.md", "# Harbour\n")
        .file("values.yaml", "berths: 3\n");
    let directory = ScratchDir::new("archives");
    let file = directory.write("chart.tgz", chart.pack().bytes).display().to_string();
    let output = helm::output(helm::command(directory.path(), &["show", "all", &file])).await;
    for part in [
        "version: 1.2.3+build.7",
        "appVersion: \"7.0\"",
        "berths: 3",
        "# Harbour",
    ] {
        assert!(output.contains(part), "{output}");
    }
}

#[test]
fn entries_are_written_unchanged() {
    let long = format!("harbour/{}/values.yaml", "deep/".repeat(40));
    let archive = Chart::new("harbour", "1.0.0")
        .directory("./harbour/")
        .file("values.yaml", "a: b")
        .directory("")
        .file("README.md", "at the root")
        .entry(Entry::file("../../etc/passwd", "x"))
        .entry(Entry::symlink("harbour/README.md", "/etc/passwd"))
        .entry(Entry::hard_link("harbour/values.yaml", "../secret"))
        .entry(Entry::directory("harbour/templates/"))
        .entry(Entry::file("harbour/pipe", "").kind(EntryType::Fifo))
        .entry(Entry::long_path(&long))
        .entry(Entry::file("short", "found by its long name"))
        .pack();
    let expected = [
        ("Chart.yaml", EntryType::Regular, 67),
        ("./harbour/values.yaml", EntryType::Regular, 4),
        ("README.md", EntryType::Regular, 11),
        ("../../etc/passwd", EntryType::Regular, 1),
        ("harbour/README.md", EntryType::Symlink, 0),
        ("harbour/values.yaml", EntryType::Link, 0),
        ("harbour/templates/", EntryType::Directory, 0),
        ("harbour/pipe", EntryType::Fifo, 0),
        (long.as_str(), EntryType::Regular, 22),
    ];
    assert_eq!(
        listing(&archive),
        expected.map(|(path, kind, size)| (path.to_owned(), kind, size))
    );
}

#[test]
fn a_bomb_is_a_small_valid_archive() {
    let archive = Chart::new("bomb", "1.0.0")
        .entry(Entry::zeros("bomb/values.yaml", (24 << 20) + 5))
        .file("README.md", "behind it")
        .pack();
    assert!(archive.bytes.len() < 64 << 10, "{} bytes", archive.bytes.len());
    // The decoder verifies length and checksum at the end.
    assert_eq!(
        listing(&archive)[1..],
        [
            ("bomb/values.yaml".to_owned(), EntryType::Regular, (24 << 20) + 5),
            ("bomb/README.md".to_owned(), EntryType::Regular, 9),
        ]
    );
}

#[test]
fn archives_can_be_truncated_recompressed_and_invalid() {
    let archive = Chart::new("harbour", "1.0.0").file("README.md", "x").pack();
    let again = Archive::of_bytes("harbour", "1.0.0", archive.packed_again());
    assert_eq!(again.unpacked(), archive.bytes);
    let half = archive.bytes.len() / 2;
    let cut = archive.clone().truncated(half);
    assert!(
        GzDecoder::new(cut.bytes.as_slice())
            .read_to_end(&mut Vec::new())
            .is_err()
    );
    assert_ne!(cut.sha256(), archive.sha256());
    assert_eq!(
        Archive::of_bytes("harbour", "1.0.0", "<html>").sha256(),
        sha256(b"<html>")
    );
}

#[test]
fn an_index_groups_versions_by_chart() {
    let entries = [("a", "2.0.0"), ("b", "1.0.0"), ("a", "1.0.0")].map(|(name, version)| {
        let archive = Chart::new(name, version).field("icon", "a.png").pack();
        archive.index_entry(&[&archive.file_name()])
    });
    let text = index(entries.clone());
    let read: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(read["entries"]["a"], serde_json::json!([entries[0], entries[2]]));
    assert_eq!(read["entries"]["b"][0]["urls"][0], "b-1.0.0.tgz");
    assert_eq!(read["entries"]["b"][0]["digest"].as_str().map(str::len), Some(64));
}
