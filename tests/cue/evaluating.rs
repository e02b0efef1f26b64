//! Results and errors of texts, and the protocol.

use std::io::Write as _;
use std::process::{Command, Stdio};

use portolan::cue::{Error, TextErrorKind};
use rstest::rstest;
use serde_json::{Value, json};

use super::{WEB_SERVICE, evaluate, evaluator, options};
use crate::support::cue::executable;

#[tokio::test]
async fn a_text_is_exported_as_json() {
    let evaluator = evaluator(options());
    for (source, expected) in [
        ("", json!({})),
        ("a: 1 + 1\nb: \"\\(a)x\"", json!({"a": 2, "b": "2x"})),
        ("a: *1 | int\n_hidden: 1\n#Definition: 1\nb?: 2", json!({"a": 1})),
        ("import \"strings\"\na: strings.ToUpper(\"x\")", json!({"a": "X"})),
        (
            "import \"encoding/json\"\na: json.Marshal({b: 1})",
            json!({"a": "{\"b\":1}"}),
        ),
        ("null", Value::Null),
        ("\"\\u0000\\u2028\\U0001F6A2\"", json!("\0\u{2028}\u{1f6a2}")),
        ("\u{feff}a: \"é\"\r\nb: '\\xff'", json!({"a": "é", "b": "/w=="})),
        ("9007199254740993", json!(9_007_199_254_740_993_u64)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("1e3", json!(1e3)),
    ] {
        assert_eq!(evaluate(&evaluator, source).await, Ok(expected), "{source:?}");
    }
}

#[tokio::test]
async fn a_component_is_rendered() {
    let result = evaluate(&evaluator(options()), WEB_SERVICE).await.unwrap();
    let container = &result["output"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["ports"][1],
        json!({"containerPort": 9090, "name": "metrics", "protocol": "TCP"})
    );
    assert_eq!(
        result["outputs"]["service"]["spec"]["ports"],
        json!([{"port": 80, "targetPort": 80}])
    );
}

#[rstest]
#[case::broken("a: {", TextErrorKind::Syntax, "expected")]
#[case::nul("a: \0", TextErrorKind::Syntax, "NUL")]
#[case::odd_text("\u{1}\u{2}", TextErrorKind::Syntax, "illegal character")]
#[case::unknown_reference("a: b", TextErrorKind::Syntax, "reference \"b\" not found")]
#[case::unknown_package("import \"tool/nothing\"\na: nothing.x", TextErrorKind::Syntax, "tool/nothing")]
#[case::unused_package("import \"strings\"", TextErrorKind::Syntax, "imported and not used")]
#[case::separator("a: 1 b: 2", TextErrorKind::Syntax, "missing ','")]
#[case::conflict("a: 1\na: 2", TextErrorKind::Conflict, "conflicting values 2 and 1")]
#[case::types("a: 1 & \"x\"", TextErrorKind::Conflict, "mismatched types")]
#[case::bounds("a: >5 & 1", TextErrorKind::Conflict, "invalid value 1")]
#[case::closed("#A: {b: 1}\na: #A & {c: 1}", TextErrorKind::Conflict, "field not allowed")]
#[case::list_lengths("a: [1] & [1, 2]", TextErrorKind::Conflict, "incompatible list lengths")]
#[case::cycle("a: {b: a}", TextErrorKind::Conflict, "structural cycle")]
#[case::without_a_path("1 & 2", TextErrorKind::Conflict, "conflicting values")]
#[case::call(
    "import \"strings\"\na: strings.Repeat(\"a\", -1)",
    TextErrorKind::Conflict,
    "error in call to"
)]
#[case::condition("if a {b: 1}\na: bool", TextErrorKind::Incomplete, "incomplete bool")]
#[case::alternatives("a: 1 | 2", TextErrorKind::Incomplete, "a: cannot convert incomplete value")]
#[case::incomplete(
    "a: string",
    TextErrorKind::Incomplete,
    "a: cannot convert incomplete value \"string\""
)]
#[case::required("a: {b!: int}", TextErrorKind::Incomplete, "a.b: field is required")]
#[case::absent(
    "a: {b?: 1}\nc: a.b",
    TextErrorKind::Incomplete,
    "c: cannot reference optional field: b"
)]
#[case::bottom("a: _|_", TextErrorKind::User, "explicit error")]
#[case::builtin("a: error(\"too many\")", TextErrorKind::User, "too many")]
#[tokio::test]
async fn an_error_has_a_kind(#[case] source: &str, #[case] kind: TextErrorKind, #[case] words: &str) {
    match evaluate(&evaluator(options()), source).await {
        Err(Error::Failed { kind: found, errors }) => {
            let text = errors.to_string();
            assert!(found == kind && text.contains(words), "{source:?}: {found:?}: {text}");
        }
        other => panic!("{source:?}: {other:?}"),
    }
}

#[tokio::test]
async fn evaluations_share_nothing() {
    let evaluator = evaluator(options());
    evaluate(&evaluator, "_vela: {secret: 1}\n#Secret: 1\nsecret: 1")
        .await
        .unwrap();
    for name in ["secret", "_vela", "#Secret"] {
        let error = evaluate(&evaluator, &format!("a: {name}"))
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, format!("a: reference \"{name}\" not found"));
    }
    assert_eq!(evaluate(&evaluator, "secret: 2").await, Ok(json!({"secret": 2})));
}

#[tokio::test]
async fn numbers_that_no_object_holds_are_refused() {
    let evaluator = evaluator(options());
    let error = evaluate(&evaluator, "a: 1e400").await.unwrap_err().to_string();
    assert!(
        error.starts_with("the result is not supported: number out of range"),
        "{error}"
    );
    let digits = "9".repeat(100_000);
    assert!(evaluate(&evaluator, &format!("a: {digits}")).await.is_err());
    assert_eq!(evaluate(&evaluator, "a: 1").await, Ok(json!({"a": 1})));
}

/// Runs the program with an input, as a user would.
fn pipe(input: &[u8]) -> (String, String) {
    let mut command = Command::new(executable());
    let command = command
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || {
        // The program may end before it has read everything.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn requests_are_lines_of_json() {
    let requests = concat!(
        "{\"id\": 1, \"version\": true}\n",
        "{\"id\": 2, \"source\": \"a: 1\", \"more\": []}\n",
        "nothing\n",
        "\n",
        "{\"id\": 3}\n",
        "{\"id\": 4, \"source\": \"a: 1\\na: 2\"}\n",
    );
    let (answers, errors) = pipe(requests.as_bytes());
    let answers: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(errors, "");
    assert_eq!(answers[0], json!({"id": 1, "version": 4}));
    assert_eq!(answers[1], json!({"id": 2, "result": {"a": 1}}));
    for invalid in [&answers[2], &answers[3]] {
        assert_eq!(invalid["id"], 0);
        assert!(
            invalid["errors"][0]["text"]
                .as_str()
                .unwrap()
                .starts_with("invalid request: "),
            "{invalid}"
        );
    }
    assert_eq!(
        answers[4],
        json!({"id": 3, "errors": [{"text": "invalid request: no source"}], "kind": "user"})
    );
    assert_eq!(
        (&answers[5]["id"], &answers[5]["kind"]),
        (&json!(4), &json!("conflict"))
    );
    assert_eq!(answers.len(), 6);
}

#[test]
fn odd_bytes_are_an_invalid_request() {
    let mut requests = b"{\"id\": 1, \"source\": \"\xff\xfe\"}\n\0\0\n\x80\n".to_vec();
    requests.extend([b"[".repeat(100_000), b"\n{\"id\": 2, \"source\": \"a: 1\"}\n".to_vec()].concat());
    let (answers, _) = pipe(&requests);
    let answers: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 5);
    assert!(
        answers[..4].iter().all(|answer| answer["kind"] == "user"),
        "{answers:?}"
    );
    assert_eq!(answers[4], json!({"id": 2, "result": {"a": 1}}));
}

#[test]
fn a_line_that_is_too_long_ends_the_program() {
    let (answers, errors) = pipe(&b"x".repeat(30 * 1024 * 1024));
    assert_eq!(answers, "");
    assert!(
        errors.contains("a message of more bytes exceeds the limit of"),
        "{errors}"
    );
}
