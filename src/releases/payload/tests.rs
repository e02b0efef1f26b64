use std::cell::Cell;
use std::io::{self, Cursor, Write};

use base64::Engine as _;
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;

const METADATA: &str = r#"{"name":"web","home":"https://home.example","sources":["https://git.example"],"version":"1.2.3","description":"d","icon":"https://icon.example/a.svg","annotations":{"a":"b"},"dependencies":[{"name":"x"}]}"#;

fn object() -> NamespacedName {
    NamespacedName::new("team", "sh.helm.release.v1.site.v7")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns a release as Helm writes it.
fn release(notes: &str, metadata: &str, rest: &str) -> String {
    let notes = json!(notes);
    format!(
        r#"{{"name":"site","info":{{"first_deployed":"2024-01-01T00:00:00Z","status":"deployed","notes":{notes}}},"chart":{{"metadata":{metadata},"lock":null,"templates":[{rest}]}},"manifest":"m","version":7,"namespace":"team"}}"#
    )
}

fn decode_json(json: &str) -> Result<Release, PayloadError> {
    decode(base64(&gzip(json.as_bytes())).as_bytes(), &object())
}

#[test]
fn a_release_is_decoded_with_the_metadata_of_its_chart() {
    let decoded = decode_json(&release("", METADATA, "")).unwrap();
    let expected = Release {
        kind: ReleaseKind::Helm,
        namespace: "team".to_owned(),
        name: "site".to_owned(),
        state: ReleaseState::Deployed,
        revision: Some(7),
        chart: InstalledChart {
            name: "web".to_owned(),
            version: "1.2.3".to_owned(),
            home: Some("https://home.example".to_owned()),
            icon: Some("https://icon.example/a.svg".to_owned()),
            sources: vec!["https://git.example".to_owned()],
            ..InstalledChart::default()
        },
    };
    assert_eq!(decoded, expected);
}

#[test]
fn releases_without_gzip_and_with_the_base64_of_secrets_are_decoded() {
    let json = release("", METADATA, "");
    let expected = decode_json(&json).unwrap();
    assert_eq!(decode(base64(json.as_bytes()).as_bytes(), &object()).unwrap(), expected);
    let of_secret = base64(base64(&gzip(json.as_bytes())).as_bytes());
    assert_eq!(decode_secret(&of_secret, &object()).unwrap(), expected);
}

#[rstest]
#[case("deployed", ReleaseState::Deployed)]
#[case("failed", ReleaseState::Failed)]
#[case("pending-upgrade", ReleaseState::Pending)]
#[case("uninstalling", ReleaseState::Other("uninstalling".to_owned()))]
fn the_state_is_that_of_the_release(#[case] status: &str, #[case] state: ReleaseState) {
    let json =
        release("", METADATA, "")
            .replacen("deployed", "x", 1)
            .replacen(r#""deployed""#, &format!("{status:?}"), 1);
    assert_eq!(decode_json(&json).unwrap().state, state);
}

/// Counts the bytes that are read of an encoded release.
struct Counted<'a>(Cursor<&'a [u8]>, &'a Cell<usize>);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.set(self.1.get() + read);
        Ok(read)
    }
}

#[test]
fn nothing_is_read_after_the_metadata() {
    // Incompressible, so that the position in the encoded text shows that in the decoded one.
    let mut state = 1_u32;
    let noise: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{state:08x}")
    })
    .take(100_000)
    .collect();
    let broken = release("", METADATA, &format!("{noise:?} this is no JSON"));
    let encoded = base64(&gzip(broken.as_bytes()));
    assert!(encoded.len() > 300_000, "{} bytes", encoded.len());
    let read = Cell::new(0);
    let decoded = decode_stream(Counted(Cursor::new(encoded.as_bytes()), &read), &object()).unwrap();
    assert_eq!(decoded.chart.version, "1.2.3");
    assert!(
        read.get() < 64 << 10,
        "{} of {} bytes are read",
        read.get(),
        encoded.len()
    );
}

#[test]
fn other_orders_are_decoded_within_the_limit() {
    let templates = "x".repeat(500_000);
    let json = format!(
        r#"{{"manifest":"m","chart":{{"templates":["{templates}"],"metadata":{METADATA}}},"name":"site","info":{{"status":"deployed"}}}}"#
    );
    let decoded = decode_json(&json).unwrap();
    assert_eq!((decoded.chart.name.as_str(), decoded.name.as_str()), ("web", "site"));
    assert_eq!(
        decoded.state,
        ReleaseState::Other("unknown".to_owned()),
        "the state comes later"
    );
}

#[test]
fn metadata_beyond_the_limit_is_refused() {
    let notes = "x".repeat(1 << 20);
    assert_eq!(
        decode_json(&release(&notes, METADATA, "")),
        Err(PayloadError::NoMetadata)
    );
    let json = format!(r#"{{"chart":{{"templates":["{notes}"],"metadata":{METADATA}}}}}"#);
    assert_eq!(decode_json(&json), Err(PayloadError::NoMetadata));
    let large = format!(
        r#"{{"name":"web","version":"1.2.3","description":"{}"}}"#,
        "x".repeat(64 << 10)
    );
    assert_eq!(decode_json(&release("", &large, "")), Err(PayloadError::LargeMetadata));
    let fits = large.replacen(&"x".repeat(1 << 10), "", 1);
    assert_eq!(decode_json(&release("", &fits, "")).unwrap().chart.name, "web");
}

/// Returns 1 GiB of a byte as JSON, in blocks that need no earlier ones.
fn bomb(byte: u8) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    let mut block = |bytes: &[u8]| {
        let mut block = Vec::with_capacity(64 << 10);
        compress.compress_vec(bytes, &mut block, FlushCompress::Full).unwrap();
        block
    };
    let start = block(br#"{"info":{"x":"#);
    let mebibyte = block(&vec![byte; 1 << 20]);
    [&GZIP[..], &[0, 0, 0, 0, 0, 0, 0xff], &start, &mebibyte.repeat(1 << 10)].concat()
}

#[rstest]
#[case::of_zeros(0, false)]
#[case::of_blanks(b' ', true)]
#[case::of_brackets(b'[', false)]
fn a_bomb_is_inflated_to_the_limit_only(#[case] byte: u8, #[case] is_json: bool) {
    let encoded = base64(&bomb(byte));
    let read = Cell::new(0);
    let error = decode_stream(Counted(Cursor::new(encoded.as_bytes()), &read), &object()).unwrap_err();
    let is_limit = error == PayloadError::NoMetadata;
    assert!(is_limit || error == PayloadError::Json, "{error}");
    assert!(is_limit || !is_json, "{error}");
    assert!(
        read.get() < 32 << 10,
        "{} of {} bytes are read",
        read.get(),
        encoded.len()
    );
}

#[rstest]
#[case::no_base64(b"{\"name\":\"site\"}".to_vec())]
#[case::empty(Vec::new())]
#[case::no_json(base64(b"hello").into_bytes())]
#[case::no_object(base64(b"[1,2]").into_bytes())]
#[case::no_gzip(base64(b"\x1f\x8b\x08hello, this is no gzip at all").into_bytes())]
#[case::no_chart(base64(&gzip(br#"{"name":"site","chart":{"lock":null}}"#)).into_bytes())]
#[case::null_chart(base64(&gzip(br#"{"chart":null}"#)).into_bytes())]
#[case::null_metadata(base64(&gzip(br#"{"chart":{"metadata":null}}"#)).into_bytes())]
#[case::numbers(base64(&gzip(br#"{"chart":{"metadata":{"name":1,"version":2}}}"#)).into_bytes())]
#[case::no_version(base64(&gzip(br#"{"chart":{"metadata":{"name":"web"}}}"#)).into_bytes())]
#[case::control_characters(base64(&gzip(br#"{"chart":{"metadata":{"name":"web\u001b[31m","version":"1.0.0"}}}"#)).into_bytes())]
#[case::deep(base64(&gzip("{\"info\":".repeat(100_000).as_bytes())).into_bytes())]
#[case::not_text(b"\xff\xfe".to_vec())]
fn what_is_no_release_is_refused(#[case] value: Vec<u8>) {
    assert!(decode(&value, &object()).is_err());
}

#[test]
fn truncated_releases_are_refused() {
    let encoded = base64(&gzip(release("", METADATA, "").as_bytes()));
    for end in (0..encoded.len() / 2).step_by(7) {
        assert!(decode(&encoded.as_bytes()[..end], &object()).is_err(), "{end}");
    }
}

#[test]
fn an_object_of_another_name_is_refused() {
    let encoded = base64(&gzip(release("", METADATA, "").as_bytes()));
    let decode_as = |name: &str| decode(encoded.as_bytes(), &NamespacedName::new("team", name));
    assert_eq!(
        decode_as("sh.helm.release.v1.other.v7"),
        Err(PayloadError::OtherRelease)
    );
    for name in [
        "web",
        "",
        "sh.helm.release.v1.site",
        "sh.helm.release.v1.site.vx",
        "sh.helm.release.v1..v1",
    ] {
        assert_eq!(decode_as(name), Err(PayloadError::Name), "{name}");
    }
}

#[test]
fn long_links_are_dropped() {
    let icon = format!("data:image/png;base64,{}", "A".repeat(10_000));
    let sources: Vec<String> = (0..100).map(|number| format!("https://git.example/{number}")).collect();
    let metadata = json!({ "name": "web", "version": "1.2.3", "icon": icon, "sources": sources, "home": "" });
    let chart = decode_json(&release("", &metadata.to_string(), "")).unwrap().chart;
    assert_eq!((chart.icon, chart.home, chart.sources.len()), (None, None, MAX_SOURCES));
}

#[test]
fn errors_quote_nothing_of_the_content() {
    for json in [
        r#"{"chart":{"metadata":{"name":{"hush":1}}}}"#,
        r#"{"chart":{"metadata":"hush"}}"#,
        r#"{"info":"hush"}"#,
        r#"{"name":"site","hush"}"#,
    ] {
        let error = decode_json(json).unwrap_err();
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_payload_panics(value in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&value, &object());
        let _ = decode(base64(&value).as_bytes(), &object());
        let _ = decode(base64(&gzip(&value)).as_bytes(), &object());
    }
}
