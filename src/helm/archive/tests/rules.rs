use rstest::rstest;

use super::build::{entry, extended, link, sized_entry};
use super::*;

#[test]
fn only_the_files_of_the_chart_are_extracted() {
    let files = read_tar(&[
        file("chart/Chart.yaml", "name: chart\nversion: 1.10\n"),
        file("chart/values.yaml", "a: 1\n"),
        file("chart/values-production.yaml", "a: 2\n"),
        file("chart/values.schema.json", "{\"$ref\": \"file:///dev/zero\"}"),
        entry(b'5', "chart/templates/", b""),
        file("chart/templates/README.md", "no"),
        file("chart/charts/sub/values.yaml", "no"),
        file("chart/charts/sub/Chart.yaml", "name: no\n"),
        file("chart/README.md", "# Chart"),
    ])
    .unwrap();
    let expected = ArchiveFiles {
        readme: "# Chart".to_owned(),
        values: "a: 1\n".to_owned(),
        schema: "{\"$ref\": \"file:///dev/zero\"}".to_owned(),
        additional_values: BTreeMap::from([("values-production".to_owned(), "a: 2\n".to_owned())]),
        metadata: Some(r#"{"name":"chart","version":"1.10"}"#.to_owned()),
        metadata_problem: None,
    };
    assert_eq!(files, expected);
}

#[test]
fn a_leading_dot_does_not_hide_a_file() {
    let files = read_tar(&[
        entry(b'5', "./", b""),
        file("./chart/README.md", "inner"),
        file("./values.yaml", "root"),
    ])
    .unwrap();
    assert_eq!((files.readme.as_str(), files.values.as_str()), ("inner", "root"));
}

#[rstest]
#[case("chart/README.md", "chart/readme.md")]
#[case("README.md", "chart/README.md")]
#[case("chart/README.md", "./README.md")]
#[case("chart/README.md", "other/README.md")]
fn the_last_of_two_matching_files_wins(#[case] first: &str, #[case] second: &str) {
    assert_eq!(
        read_tar(&[file(first, "first"), file(second, "second")]).unwrap(),
        readme("second")
    );
    assert_eq!(
        read_tar(&[file(second, "second"), file(first, "first")]).unwrap(),
        readme("first")
    );
}

#[test]
fn an_empty_archive_has_no_files() {
    assert_eq!(read_tar(&[]).unwrap(), ArchiveFiles::default());
    // As in Go's reader, the end mark may be missing.
    let archive = file("a/README.md", "a");
    assert_eq!(
        read_within(&gzip(&archive), &ArchiveLimits::default()).unwrap(),
        readme("a")
    );
    assert_eq!(
        read_within(&gzip(b""), &ArchiveLimits::default()).unwrap(),
        ArchiveFiles::default()
    );
}

#[test]
fn an_archive_may_be_uncompressed_or_have_several_gzip_members() {
    let archive = tar(&[file("a/values.yaml", "v"), file("a/README.md", "r".repeat(3000))]);
    let expected = read_within(&gzip(&archive), &ArchiveLimits::default()).unwrap();
    assert_eq!(expected.readme.len(), 3000);
    assert_eq!(read_within(&archive, &ArchiveLimits::default()).unwrap(), expected);
    let (first, second) = archive.split_at(700);
    let pieces = [gzip(first), gzip(b""), gzip(second)].concat();
    assert_eq!(read_within(&pieces, &ArchiveLimits::default()).unwrap(), expected);
    // Bytes after the end mark are ignored.
    let trailing = [gzip(&archive), b"\nsome text".to_vec()].concat();
    assert_eq!(read_within(&trailing, &ArchiveLimits::default()).unwrap(), expected);
}

#[test]
fn long_names_work_in_gnu_and_pax_format() {
    let long = format!("{}/README.md", "a".repeat(200));
    let gnu = [
        entry(b'L', "././@LongLink", format!("{long}\0").as_bytes()),
        file("aaa", "gnu"),
    ];
    assert_eq!(read_tar(&gnu).unwrap(), readme("gnu"));
    let pax = [extended(b'x', &[("mtime", "1.5"), ("path", &long)]), file("aaa", "pax")];
    assert_eq!(read_tar(&pax).unwrap(), readme("pax"));
    // An extended header applies to one entry only.
    let [header, first] = pax;
    assert_eq!(read_tar(&[header, first, file("bbb", "none")]).unwrap(), readme("pax"));
}

#[test]
fn global_headers_and_attributes_are_ignored() {
    let files = read_tar(&[
        extended(b'g', &[("comment", "0123456789"), ("path", "a/values.yaml")]),
        extended(b'x', &[("LIBARCHIVE.xattr.x", "\n20 path=evil/README\n"), ("uid", "5")]),
        file("a/README.md", "r"),
    ])
    .unwrap();
    assert_eq!(files, readme("r"));
}

#[test]
fn the_size_in_an_extended_header_has_precedence() {
    let files = read_tar(&[
        extended(b'x', &[("size", "600")]),
        sized_entry(b'0', "a/README.md", 0, &[b'r'; 600]),
        file("a/values.yaml", "v"),
    ])
    .unwrap();
    assert_eq!((files.readme.len(), files.values.as_str()), (600, "v"));
}

#[test]
fn entries_without_content_ignore_the_size_in_their_header() {
    let files = read_tar(&[
        sized_entry(b'5', "a/", 4096, b""),
        sized_entry(b'2', "a/link", 512, b""),
        file("a/README.md", "r"),
    ])
    .unwrap();
    assert_eq!(files, readme("r"));
}

#[rstest]
fn links_devices_and_fifos_are_not_files(#[values(b'1', b'2', b'3', b'4', b'6', b'7', b'S', b'Z')] kind: u8) {
    let files = read_tar(&[
        link(kind, "a/values.yaml", "/etc/passwd"),
        link(kind, "a/README.md", "../../secret"),
        link(kind, "a/Chart.yaml", "../../secret"),
        link(kind, "a/templates/b", "c"),
        file("a/templates/c", "name: a"),
    ])
    .unwrap();
    assert_eq!(files, ArchiveFiles::default());
}

#[test]
fn a_link_does_not_replace_a_file() {
    let files = read_tar(&[file("a/README.md", "r"), link(b'2', "a/README.md", "/etc/passwd")]);
    assert_eq!(files.unwrap(), readme("r"));
}

#[rstest]
fn names_that_point_outside_are_ignored(
    #[values(
        "/README.md",
        "../README.md",
        "./../README.md",
        "../../README.md",
        "a/../README.md",
        "a/../../etc/README.md"
    )]
    name: &str,
) {
    assert_eq!(
        read_tar(&[file("a/README.md", "good"), file(name, "evil")]).unwrap(),
        readme("good")
    );
    let hidden = [extended(b'x', &[("path", name)]), file("a/README.md", "evil")];
    assert_eq!(read_tar(&hidden).unwrap(), ArchiveFiles::default());
}

#[test]
fn sparse_files_are_skipped() {
    let mut sparse = sized_entry(b'S', "a/README.md", 512, b"");
    sparse[482] = 1;
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes().copy_from_slice(&sparse);
    header.set_cksum();
    let mut map = [vec![0; 512], vec![0; 512]];
    map[0][504] = 1;
    let files = read_tar(&[
        header.as_bytes().to_vec(),
        map.concat(),
        vec![b'x'; 512],
        extended(
            b'x',
            &[("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "99999999999")],
        ),
        file("a/values.yaml", "1\n0\n512\n"),
        file("a/templates/c", "c"),
    ])
    .unwrap();
    assert_eq!(files, ArchiveFiles::default());
}

#[test]
fn a_faulty_chart_yaml_costs_no_other_file() {
    let large = format!("# {}\nname: a\n", "x".repeat(70_000));
    for (yaml, expected) in [
        ("- a\n", "it is not a map"),
        (large.as_str(), "it is larger than 65536 bytes"),
    ] {
        let files = read_tar(&[file("a/Chart.yaml", yaml), file("a/README.md", "r")]).unwrap();
        assert_eq!((files.readme.as_str(), files.metadata), ("r", None));
        let problem = files.metadata_problem.unwrap();
        assert!(problem.contains(expected), "{problem}");

        // The last one counts.
        let corrected = [file("a/Chart.yaml", yaml), file("b/Chart.yaml", "name: b\n")];
        let files = read_tar(&corrected).unwrap();
        assert_eq!(files.metadata.as_deref(), Some(r#"{"name":"b"}"#));
        assert_eq!(files.metadata_problem, None);
    }
}

#[test]
fn chart_yaml_does_not_count_as_a_kept_file() {
    let limits = ArchiveLimits {
        file_bytes: 4,
        kept_bytes: 4,
        ..ArchiveLimits::default()
    };
    let archive = gzip(&tar(&[
        file("a/values.yaml", "a: 1"),
        file("a/Chart.yaml", "name: chart"),
    ]));
    let files = read_within(&archive, &limits).unwrap();
    assert!(files.metadata.is_some());
}
