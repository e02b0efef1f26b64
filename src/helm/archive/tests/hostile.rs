use std::io;

use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::build::{entry, extended, link, sized_entry};
use super::*;

fn small() -> ArchiveLimits {
    ArchiveLimits {
        packed_bytes: 100_000,
        unpacked_bytes: 1_000_000,
        file_bytes: 10_000,
        kept_bytes: 25_000,
        entries: 100,
    }
}

fn error_of(archive: &[u8], limits: &ArchiveLimits) -> (String, String) {
    let error = read_within(archive, limits).unwrap_err();
    let shown = format!("{error:?}");
    let kind = shown.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    (kind.to_owned(), error.to_string())
}

#[rstest]
#[case(b"", "the response is empty")]
#[case(b"  <!DOCTYPE html><html></html>", "the response is an HTML or XML page")]
#[case(b"{\"errors\": []}", "the response is JSON")]
#[case(b"Not found", "the response is neither gzip nor tar")]
#[case(b"PK\x03\x04", "the response is neither gzip nor tar")]
fn other_files_are_not_an_archive(#[case] answer: &[u8], #[case] what: &str) {
    let (reason, sentence) = error_of(answer, &small());
    assert_eq!(reason, "NotAnArchive");
    assert!(sentence.contains(what), "{sentence}");
    let long = [answer, &[b'x'; 600]].concat();
    assert_eq!(error_of(&long, &small()).0, "NotAnArchive");
}

#[test]
fn a_gzipped_page_is_not_an_archive() {
    let page = format!("<html>{}</html>", "x".repeat(600));
    let (reason, sentence) = error_of(&gzip(page.as_bytes()), &small());
    assert_eq!(reason, "Corrupt");
    assert!(sentence.contains("a tar header has an invalid checksum"), "{sentence}");
}

#[test]
fn every_limit_is_named() {
    let mut state = 1_u64;
    let incompressible: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(200_000)
    .collect();
    let packed = gzip(&tar(&[file("a/blob", &incompressible)]));
    assert!(packed.len() > 100_000);
    let (reason, sentence) = error_of(&packed, &small());
    assert_eq!(reason, "TooLarge");
    assert!(
        sentence.starts_with("the archive is larger than 100000 bytes"),
        "{sentence}"
    );

    let (reason, sentence) = error_of(&gzip(&tar(&[file("a/blob", vec![0; 2_000_000])])), &small());
    assert_eq!(reason, "TooLarge");
    assert!(
        sentence.contains("the content of the archive is larger than 1000000 bytes"),
        "{sentence}"
    );

    let (reason, sentence) = error_of(&gzip(&tar(&[file("a/values.yaml", vec![b'a'; 10_001])])), &small());
    assert_eq!(reason, "TooLarge");
    assert!(
        sentence.starts_with("the values.yaml is larger than 10000 bytes"),
        "{sentence}"
    );

    let kept: Vec<_> = (0..3)
        .map(|n| file(&format!("a/values-{n}.yaml"), vec![b'a'; 10_000]))
        .collect();
    let (reason, sentence) = error_of(&gzip(&tar(&kept)), &small());
    assert_eq!(reason, "TooLarge");
    assert!(sentence.contains("is larger than 25000 bytes"), "{sentence}");
    // Replaced files do not count twice.
    let replaced = vec![file("a/values.yaml", vec![b'a'; 10_000]); 5];
    assert_eq!(
        read_within(&gzip(&tar(&replaced)), &small()).unwrap().values.len(),
        10_000
    );

    let many = vec![link(b'5', "a/", ""); 101];
    assert_eq!(error_of(&gzip(&tar(&many)), &small()).0, "TooManyEntries");
    assert!(read_within(&gzip(&tar(&many[1..])), &small()).is_ok());
}

#[test]
fn a_bomb_is_aborted_at_its_limit() {
    // Compresses by a factor of hundreds, as in CVE-2025-32386 (Helm).
    let bomb = gzip(&tar(&[file("a/templates/x", vec![0; 10_000_000])]));
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let (_, sentence) = error_of(&bomb, &small());
    assert!(sentence.starts_with("the content of the archive"), "{sentence}");
    // The limit also ends an infinite input.
    let header = sized_entry(b'0', "a/x", 1 << 40, b"");
    let endless = io::Cursor::new(header).chain(io::repeat(0));
    assert!(matches!(read(endless, &small()), Err(ArchiveError::TooLarge { .. })));
}

#[rstest]
fn an_impossible_size_is_rejected(
    #[values(u64::MAX, u64::MAX - 511, i64::MAX as u64, 1 << 62)] size: u64,
    #[values(b'0', b'L', b'K', b'x', b'g', b'S', b'Z')] kind: u8,
) {
    let archive = gzip(&tar(&[sized_entry(kind, "a/templates/b", size, b"1")]));
    assert!(read_within(&archive, &small()).is_err());
    let stated = [extended(b'x', &[("size", &size.to_string())]), file("a/README.md", "r")];
    assert!(read_within(&gzip(&tar(&stated)), &small()).is_err());
}

#[test]
fn names_and_extended_headers_have_bounded_memory() {
    let limits = ArchiveLimits::default();
    for kind in [b'L', b'x'] {
        let (reason, sentence) = error_of(&gzip(&entry(kind, "x", &vec![b'a'; 1024 * 1024 + 1])), &limits);
        assert_eq!(reason, "Corrupt");
        assert!(sentence.contains("too long"), "{sentence}");
    }
    // These are skipped without buffering.
    for kind in [b'K', b'g'] {
        let archive = [entry(kind, "x", &vec![b'a'; 3 << 20]), file("a/README.md", "r")];
        assert_eq!(read_tar(&archive).unwrap(), readme("r"));
    }
    // Extension headers for an entry that never follows.
    let headers = vec![entry(b'L', "x", b"a/README.md\0"); 5000];
    assert_eq!(read_tar(&headers).unwrap(), ArchiveFiles::default());
}

#[test]
fn a_truncated_archive_is_reported_as_truncated() {
    let archive = tar(&[
        file("a/values.yaml", vec![b'v'; 2000]),
        file(
            "a/README.md",
            (0..2000_u32).map(|n| ((n * n) >> 3) as u8).collect::<Vec<_>>(),
        ),
    ]);
    let packed = gzip(&archive);
    for length in 2..packed.len() - 8 {
        match read_within(&packed[..length], &small()) {
            Err(ArchiveError::Truncated { entries }) => assert!(entries <= 2),
            // The archive is complete once the end mark starts.
            Ok(files) => assert_eq!((files.values.len(), length > packed.len() - 40), (2000, true)),
            Err(other) => panic!("{other}"),
        }
    }
    for length in [513, 600, 1024, 2000, 2560, 3000, 3072, 3500] {
        let result = read_within(&archive[..length], &small());
        // An archive may end after any entry.
        assert!(
            matches!(result, Err(ArchiveError::Truncated { .. })) || length == 2560,
            "{length}"
        );
    }
}

#[test]
fn read_errors_are_not_archive_errors() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no such disk"))
        }
    }
    let archive = gzip(&tar(&[file("a/README.md", "r")]));
    let error = read(io::Cursor::new(&archive[..60]).chain(Broken), &small()).unwrap_err();
    assert!(matches!(error, ArchiveError::Read(_)));
    assert!(error.to_string().contains("no such disk"), "{error}");
}

#[test]
fn thousands_of_empty_gzip_members_do_not_overflow() {
    let pieces = [gzip(b"").repeat(4000), gzip(&tar(&[file("a/README.md", "r")]))].concat();
    assert_eq!(read_within(&pieces, &small()).unwrap(), readme("r"));
}

/// Checks that every accepted result respects the limits.
fn check(archive: &[u8]) {
    let limits = small();
    let Ok(files) = read_within(archive, &limits) else {
        return;
    };
    let texts = [&files.readme, &files.values, &files.schema].into_iter();
    let texts = texts.chain(files.additional_values.values());
    let mut kept = 0;
    for text in texts {
        // An invalid UTF-8 byte becomes three bytes.
        assert!(text.len() as u64 <= 3 * limits.file_bytes && !text.contains('\0'));
        kept += text.len() as u64;
    }
    assert!(kept <= limits.kept_bytes);
    let metadata = files.metadata.unwrap_or_default();
    assert!(metadata.len() as u64 <= METADATA_BYTES);
    for key in files.additional_values.keys() {
        assert!(key.starts_with("values-") && key.len() > "values-".len());
    }
}

/// Returns a chart with all kinds of entries.
fn chart() -> Vec<Vec<u8>> {
    vec![
        extended(b'g', &[("comment", "0123")]),
        entry(b'5', "./chart/", b""),
        file("./chart/Chart.yaml", "name: chart\nversion: 1.0.0\n"),
        extended(
            b'x',
            &[("mtime", "1.5"), ("path", "chart/values.yaml"), ("size", "700")],
        ),
        file("chart/values.yaml", vec![b'v'; 700]),
        entry(b'L', "././@LongLink", b"chart/README.md\0"),
        file("chart/R", b"# Read me \xff\0"),
        entry(b'S', "chart/sparse", &[b's'; 512]),
        link(b'2', "chart/link", "values.yaml"),
        entry(b'K', "././@LongLink", b"chart/somewhere\0"),
        link(b'1', "chart/hard", "x"),
        file("chart/values-production.yaml", "a: 1\n"),
        file("chart/values.schema.json", "{}"),
        file("chart/templates/deployment.yaml", vec![b't'; 1500]),
    ]
}

/// Fixes the checksum of every block, so that mutations reach the code behind the check.
fn fix_checksums(archive: &mut [u8]) {
    for block in archive.as_chunks_mut::<512>().0 {
        if block[257..262] == *b"ustar" {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes().copy_from_slice(block);
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
    }
}

#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Size(Index, [u8; 12]),
    Kind(Index, u8),
    ChartSlice(Index),
    Splice(Index, Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let kind = proptest::sample::select(&b"0\x001234567LKxgSZ"[..]);
    let octal = "[0-7]{11} ".prop_map(|text| <[u8; 12]>::try_from(text.as_bytes()).unwrap());
    let size = prop_oneof![any::<[u8; 12]>(), octal];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(place, byte)| Change::Set(place, byte)),
        2 => (any::<Index>(), size).prop_map(|(block, size)| Change::Size(block, size)),
        3 => (any::<Index>(), kind).prop_map(|(block, kind)| Change::Kind(block, kind)),
        1 => any::<Index>().prop_map(Change::ChartSlice),
        1 => (any::<Index>(), any::<Index>(), 0..600_usize).prop_map(|(from, to, length)| Change::Splice(from, to, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.len() < 512 {
        return;
    }
    let block = |index: &Index, bytes: &[u8]| index.index(bytes.len() / 512) * 512;
    match change {
        Change::Set(place, byte) => {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        Change::Size(index, size) => {
            let start = block(index, bytes) + 124;
            bytes[start..start + 12].copy_from_slice(size);
        }
        Change::Kind(index, kind) => {
            let start = block(index, bytes);
            bytes[start + 156] = *kind;
        }
        Change::ChartSlice(place) => bytes.truncate(place.index(bytes.len())),
        Change::Splice(from, to, length) => {
            let from = from.index(bytes.len());
            let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
            let to = to.index(bytes.len());
            bytes.splice(to..to, piece);
        }
    }
}

/// Prefixes that make random bytes look like gzip.
const BEGINNINGS: [&[u8]; 3] = [b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mutated_archives_do_not_panic(changes in proptest::collection::vec(change(), 1..8), fix: bool) {
        let mut archive = tar(&chart());
        for change in &changes {
            apply(&mut archive, change);
        }
        if fix {
            fix_checksums(&mut archive);
        }
        check(&archive);
        check(&gzip(&archive));
    }

    #[test]
    fn corrupt_gzip_does_not_panic(changes in proptest::collection::vec(change(), 1..5)) {
        let mut archive = gzip(&tar(&chart()));
        for change in &changes {
            apply(&mut archive, change);
        }
        check(&archive);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1500), begin in proptest::sample::select(&BEGINNINGS[..])) {
        check(&[begin, &bytes].concat());
    }
}

#[test]
fn the_mutated_chart_is_valid_initially() {
    let files = read_tar(&chart()).unwrap();
    assert_eq!(files.readme, "# Read me \u{fffd}");
    assert_eq!(files.metadata.as_deref(), Some(r#"{"name":"chart","version":"1.0.0"}"#));
    assert_eq!((files.values.len(), files.schema.as_str()), (700, "{}"));
    assert_eq!(files.additional_values.len(), 1);
}
