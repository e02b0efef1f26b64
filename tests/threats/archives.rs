//! Expanding archives, archives with external references, and ambiguous archives. Their content is written to unnamed
//! temporary files only.

use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write;
use tar::EntryType;

use super::{SOON, World, peak_memory};
use crate::support::archives::{Archive, Chart, Entry};
use crate::support::chart_server::{Fault, Page};

const FILES: &str = "--chart-files=all";
const GIB: u64 = 1 << 30;

/// Asserts that a directory is empty.
fn assert_empty(directory: &Path) {
    let found: Vec<_> = directory
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tar_bomb_takes_little_memory_and_affects_no_other_chart() {
    let world = World::new().await;
    let bomb = |name: &str| Chart::new(name, "1.0.0");
    let crowd = (0..10_001).fold(bomb("crowd"), |chart, number| {
        chart.file(&format!("templates/{number}"), "")
    });
    let long = "# a comment\n".repeat(4 << 20 >> 4);
    let kept = (0..8).fold(bomb("kept"), |chart, number| {
        chart.file(&format!("values-{number}.yaml"), &long)
    });
    let bombs = [
        // 8 GiB of zeros in a file that is skipped, and half a GiB in one that is imported.
        (
            bomb("unpacked")
                .entry(Entry::zeros("unpacked/templates/zeros", 8 * GIB))
                .pack(),
            "209715200 bytes",
        ),
        (
            bomb("one-file")
                .entry(Entry::zeros("one-file/README.md", GIB / 2))
                .pack(),
            "5242880 bytes",
        ),
        (
            bomb("schema")
                .entry(Entry::zeros("schema/values.schema.json", 6 << 20))
                .pack(),
            "5242880 bytes",
        ),
        (kept.pack(), "8388608 bytes"),
        (crowd.pack(), "10000 files"),
        (
            Archive::of_bytes("packed", "1.0.0", incompressible(21 << 20)),
            "20971520 bytes",
        ),
        (gzip_in_gzip(), "tar header"),
    ];
    for (archive, _) in &bombs {
        world.attack_with_archive(archive.name(), archive);
    }
    // An endless response with an additional content encoding.
    let endless = bomb("endless").pack();
    world.attack_with_archive("endless", &endless);
    world.attacker.break_path("/endless/attack.tgz", Fault::EndlessGzip);

    let portolan = world.run(&[FILES]).await;
    world.until_honest_files_are_served().await;
    for (archive, limit) in &bombs {
        let name = archive.name();
        let error = world.until_files_failed(name).await;
        assert!(error.contains(limit), "{name}: {error}");
        assert!(world.files(name, name).await.is_none(), "{name}");
        world.until_ready(name).await;
    }
    let error = world.until_files_failed("endless").await;
    assert!(error.contains("encoding") || error.contains("20971520"), "{error}");
    let peak = peak_memory(&portolan);
    assert!(peak < 200, "{peak} MiB for bombs of more than 8 GiB");
    assert_empty(&world.temporary());
}

/// Returns gzip data with an incompressible body.
fn incompressible(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(bytes)
    .collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(&noise).unwrap();
    encoder.finish().unwrap()
}

/// A nested bomb, for readers that unpack recursively.
fn gzip_in_gzip() -> Archive {
    let inner = Chart::new("nested", "1.0.0")
        .entry(Entry::zeros("nested/README.md", GIB))
        .pack();
    let bytes = inner.packed_again();
    Archive { bytes, ..inner }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_and_links_out_of_an_archive_are_neither_written_nor_read() {
    let world = World::new().await;
    let secret = world.directory.write("secret", "what a link would read\n");
    let secret = secret.display().to_string();
    // Below 100 bytes, the limit of a tar header.
    let target = world.directory.join("written").display().to_string();
    let up = format!("{}{}", "../".repeat(8), target.trim_start_matches('/'));
    let chart = |name: &str| Chart::new(name, "1.0.0");
    let attacks = [
        chart("dots")
            .entry(Entry::file(&up, "written"))
            .entry(Entry::file("../README.md", "outside")),
        chart("absolute")
            .entry(Entry::file(&target, "written"))
            .entry(Entry::file("/README.md", "outside")),
        chart("inner-dots").entry(Entry::file("inner-dots/../README.md", "outside")),
        chart("symlink").entry(Entry::symlink("symlink/README.md", &secret)),
        chart("hard-link").entry(Entry::hard_link("hard-link/README.md", &secret)),
        // The directory is a link; writing the file would follow it.
        chart("through")
            .entry(Entry::symlink(
                "through/out",
                &world.directory.path().display().to_string(),
            ))
            .entry(Entry::file("through/out/written", "written")),
        chart("device").entry(Entry::file("device/README.md", "").kind(EntryType::Char)),
        chart("pipe").entry(Entry::file("pipe/README.md", "").kind(EntryType::Fifo)),
        chart("long")
            .entry(Entry::long_path(&up))
            .entry(Entry::file("long/README.md", "outside")),
        chart("backslash").entry(Entry::file("..\\README.md", "outside")),
    ];
    let names: Vec<String> = attacks
        .into_iter()
        .map(|chart| {
            let archive = chart.file("values.yaml", "of: the chart\n").pack();
            world.attack_with_archive(archive.name(), &archive);
            archive.name().to_owned()
        })
        .collect();
    let mut before = listing(world.directory.path());
    let _portolan = world.run(&[FILES]).await;
    for name in &names {
        let files = world.until_files(name, name).await;
        assert_eq!(files["Readme"], "", "{name}: its README is outside of the chart");
        assert_eq!(
            files["DefaultValues"], "of: the chart\n",
            "{name}: other files are imported"
        );
    }
    world.until_honest_files_are_served().await;
    assert_empty(&world.temporary());
    let mut after = listing(world.directory.path());
    for names in [&mut before, &mut after] {
        names.retain(|name| !name.starts_with("portolan.db"));
    }
    assert_eq!(before, after, "nothing was written");
}

/// Returns the sorted names in a directory.
fn listing(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = directory
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chart_id_contains_a_path() {
    let world = World::new().await;
    let names = ["..", ".", "../up", "a/../../b", "/etc/passwd", "a/..", "", " "];
    let mut text = "apiVersion: v1\nentries:\n  good: [{name: good, version: 1.0.0}]\n".to_owned();
    for name in names {
        let name = json!(name);
        text += &format!("  {name}: [{{name: {name}, version: 1.0.0, urls: [a.tgz]}}]\n");
    }
    world.attack("paths", text);
    let _portolan = world.run(&[]).await;
    let status = world.until_ready("paths").await;
    let ids = world
        .select("SELECT chart_id FROM charts WHERE repo_name = 'paths'")
        .await;
    for id in &ids {
        let behind = id.strip_prefix("paths/").unwrap();
        assert!(!matches!(behind, "" | "." | ".."), "{id}: {status}");
        assert!(!behind.contains('/'), "{id}: a path that leaves its directory");
    }
    assert!(status["lastSync"]["skippedCount"].as_u64().unwrap() >= 3, "{status}");
    world.until_honest_is_served().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_is_stored_as_text_and_its_references_are_not_fetched() {
    let world = World::new().await;
    let schema = format!(
        r##"{{"$ref": "file:///dev/zero", "properties": {{"a": {{"$ref": "{}"}}, "b": {{"$ref": "#/properties/b"}}}}}}"##,
        world.attacker.url("/schema.json")
    );
    world.attacker.serve("/schema.json", Page::new("{}"));
    let not_even_json = format!("{}{}", "[".repeat(100_000), schema);
    for (name, schema) in [("referring", &schema), ("deep", &not_even_json)] {
        let archive = Chart::new(name, "1.0.0").file("values.schema.json", schema).pack();
        world.attack_with_archive(name, &archive);
    }
    let portolan = world.run(&[FILES]).await;
    assert_eq!(world.until_files("referring", "referring").await["Schema"], schema);
    assert_eq!(world.until_files("deep", "deep").await["Schema"], not_even_json);
    world.until_honest_files_are_served().await;
    assert_eq!(world.attacker.count("/schema.json"), 0);
    assert!(peak_memory(&portolan) < 150);
}

/// CVE-2025-62518: a PAX header states the size of an entry, the entry's own header states 0. A reader that uses the
/// latter takes the entry's content, another archive, for entries of this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_nested_archive_are_not_imported() {
    let world = World::new().await;
    let smuggled = Chart::new("nested", "1.0.0")
        .file("README.md", "smuggled")
        .pack()
        .unpacked();
    let record = size_record(smuggled.len());
    let mut bytes = Vec::new();
    append(
        &mut bytes,
        "nested/Chart.yaml",
        EntryType::Regular,
        b"name: nested\nversion: 1.0.0\n",
        None,
    );
    append(
        &mut bytes,
        "PaxHeaders.0/inner",
        EntryType::XHeader,
        record.as_bytes(),
        None,
    );
    append(&mut bytes, "nested/inner.tar", EntryType::Regular, &smuggled, Some(0));
    append(
        &mut bytes,
        "nested/values.yaml",
        EntryType::Regular,
        b"genuine: true\n",
        None,
    );
    bytes.extend([0; 1024]);
    world.attack_with_archive("nested", &Archive::of_bytes("nested", "1.0.0", bytes.clone()));

    // An impossible size, and one that exceeds the archive.
    for (name, size) in [("huge", usize::MAX), ("beyond", 1 << 20)] {
        let mut bytes = Vec::new();
        append(
            &mut bytes,
            "PaxHeaders.0/inner",
            EntryType::XHeader,
            size_record(size).as_bytes(),
            None,
        );
        append(
            &mut bytes,
            &format!("{name}/inner.tar"),
            EntryType::Regular,
            &smuggled,
            Some(0),
        );
        bytes.extend([0; 1024]);
        world.attack_with_archive(name, &Archive::of_bytes(name, "1.0.0", bytes));
    }
    let portolan = world.run(&[FILES, "--log-level=portolan=debug"]).await;
    let files = world.until_files("nested", "nested").await;
    assert_eq!(files["Readme"], "", "{files}");
    assert_eq!(files["DefaultValues"], "genuine: true\n", "{files}");
    for (name, advice) in [("huge", "package it again"), ("beyond", "upload it again")] {
        let error = world.until_files_failed(name).await;
        assert!(error.contains(advice), "{error}");
        assert!(world.files(name, name).await.is_none());
        portolan.line_with(&format!("{name}/{name}"), SOON).await;
    }
    world.until_honest_files_are_served().await;
}

fn size_record(size: usize) -> String {
    let rest = format!(" size={size}\n");
    let length = (rest.len()..)
        .find(|length| *length == rest.len() + length.to_string().len())
        .unwrap();
    format!("{length}{rest}")
}

/// Appends an entry whose header may state a size that its content does not have.
fn append(bytes: &mut Vec<u8>, path: &str, kind: EntryType, content: &[u8], stated: Option<u64>) {
    let mut header = tar::Header::new_ustar();
    header.set_path(path).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(stated.unwrap_or(content.len() as u64));
    header.set_cksum();
    bytes.extend(header.as_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
}
