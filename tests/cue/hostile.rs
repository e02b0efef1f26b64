//! Texts that take all time and memory are stopped and named, and the next one is evaluated.

use std::time::Duration;

use portolan::cue::{Error, EvaluatorOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rstest::rstest;
use serde_json::json;

use super::{MIB, evaluate, evaluator, options};

/// Counts to 10^15 without memory.
pub const ENDLESS: &str = r#"
import "list"
let r = list.Range(0, 1000, 1)
a: len([for a in r for b in r for c in r for d in r for e in r if a+b+c+d+e < 0 {a}])
"#;

const LIMIT: u64 = 96 * MIB;

async fn outcome(source: &str, timeout: Duration) -> Result<serde_json::Value, Error> {
    let evaluator = evaluator(EvaluatorOptions {
        timeout,
        memory: LIMIT,
        ..options()
    });
    let result = evaluate(&evaluator, source).await;
    assert_eq!(evaluate(&evaluator, "a: 1").await, Ok(json!({"a": 1})));
    result
}

#[rstest]
#[case::comprehensions(ENDLESS)]
#[case::nested_structs(nested(|name, before| format!("{name}: {{x: {before}, y: {before}}}\n"), "{x: 1}", 40))]
#[tokio::test]
async fn an_endless_text_is_stopped(#[case] source: impl AsRef<str>) {
    let timeout = Duration::from_secs(2);
    match outcome(source.as_ref(), timeout).await {
        Err(Error::Timeout(limit)) => assert_eq!(limit, timeout),
        // Some are as slow as they are large.
        Err(Error::Memory(limit)) => assert_eq!(limit, LIMIT),
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::text(
    r#"import "strings"
    a: len(strings.Repeat(strings.Repeat("x", 20_000), 1_000_000))"#
)]
#[case::text_of_texts(
    r#"import "strings"
    a: len(strings.Repeat(strings.Repeat("x", 1_000_000), 2_000))"#
)]
#[case::list(
    r#"import "list"
    a: list.Repeat(list.Repeat([1], 1_000_000), 1_000)"#
)]
#[case::range(
    r#"import "list"
    a: list.Range(0, 1_000_000_000, 1)"#
)]
#[case::bits(
    r#"import "math/bits"
    a: bits.Lsh(1, 10_000_000_000)"#
)]
#[case::digits(
    r#"import "strconv"
    a: strconv.FormatFloat(1.0, 102, 1_000_000_000, 64)"#
)]
#[case::template(
    r#"import "text/template"
    import "list"
    let endless = "{{range .}}{{range $}}{{range $}}{{range $}}x{{end}}{{end}}{{end}}{{end}}"
    a: template.Execute(endless, list.Repeat([1], 200))"#
)]
#[case::doubled(nested(|name, before| format!("{name}: {before}+{before}+{before}+{before}\n"), "\"xxxxxxxx\"", 16))]
#[case::parentheses(format!("a: {}1{}", "(".repeat(1_000_000), ")".repeat(1_000_000)))]
#[case::alternatives(format!("a: {}", (0..25).map(|at| format!("({{x{at}: 1}} | {{y{at}: 1}})")).collect::<Vec<_>>().join(" & ")))]
#[tokio::test]
async fn a_text_that_takes_gigabytes_is_stopped(#[case] source: impl AsRef<str>) {
    let error = outcome(source.as_ref(), Duration::from_secs(120)).await.unwrap_err();
    assert_eq!(error, Error::Memory(LIMIT));
    assert_eq!(error.to_string(), "more than 96MiB");
}

/// Defines a field by the one before, again and again.
fn nested(field: impl Fn(&str, &str) -> String, first: &str, levels: usize) -> String {
    let fields = (1..levels).map(|level| field(&format!("a{level}"), &format!("a{}", level - 1)));
    std::iter::once(format!("a0: {first}\n")).chain(fields).collect()
}

async fn failure(source: &str) -> String {
    let evaluator = evaluator(options());
    let error = evaluate(&evaluator, source).await.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
    assert_eq!(evaluate(&evaluator, "a: 1").await, Ok(json!({"a": 1})));
    error.to_string()
}

#[tokio::test]
async fn a_structural_cycle_is_named() {
    assert_eq!(
        failure("#T: {v: int, next: #T}\na: #T").await,
        "#T.next: structural cycle"
    );
    assert_eq!(failure("a: {b: c}\nc: {d: a}").await, "c.d: structural cycle");
}

#[rstest]
#[case::fields(format!("{}1", "a: ".repeat(3000)))]
#[case::structs(format!("a: {}1{}", "{a: ".repeat(3000), "}".repeat(3000)))]
#[case::lists(format!("a: {}{}", "[".repeat(3000), "]".repeat(3000)))]
#[tokio::test]
async fn a_result_of_3000_levels_is_refused(#[case] source: String) {
    let error = failure(&source).await;
    assert!(
        error.starts_with("the result is not supported: recursion limit exceeded"),
        "{error}"
    );
}

#[rstest]
#[case::parentheses(format!("a: {}1{}", "(".repeat(3000), ")".repeat(3000)), json!({"a": 1}))]
#[case::interpolations(format!("a: {}1{}", "\"\\(".repeat(2000), ")\"".repeat(2000)), json!({"a": "1"}))]
#[case::long_text(format!("a: \"{}\"", "x".repeat(1024 * 1024)), json!({"a": "x".repeat(1024 * 1024)}))]
#[tokio::test]
async fn a_large_text_with_a_small_result_is_evaluated(#[case] source: String, #[case] expected: serde_json::Value) {
    assert!(evaluate(&evaluator(options()), &source).await == Ok(expected));
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    let source = "import \"strings\"\na: strings.Repeat(\"xxxxx\", 1_000_000)";
    assert_eq!(failure(source).await, "the result has 5000008 bytes, more than 4194304");
    let source = "import \"strings\"\na: strings.Repeat(\"xxxx\", 1_000_000)";
    assert!(evaluate(&evaluator(options()), source).await.is_ok());
    let source = "a".repeat(4 * 1024 * 1024 + 1);
    assert_eq!(
        failure(&source).await,
        "the CUE text has 4194305 bytes, more than 4194304"
    );
}

#[tokio::test]
async fn a_long_error_is_cut() {
    let error = failure(&format!("a: \"{}\" & 1", "x".repeat(1024 * 1024))).await;
    assert!(error.len() <= 4096 && error.ends_with('…'), "{} bytes", error.len());
}

#[rstest]
#[case::file("import \"tool/file\"\na: file.Read & {filename: \"/etc/passwd\", contents: string}")]
#[case::command("import \"tool/exec\"\na: exec.Run & {cmd: \"/bin/true\"}")]
#[case::request("import \"tool/http\"\na: http.Get & {url: \"http://127.0.0.1\"}")]
#[case::embedded("@extern(embed)\npackage a\na: _ @embed(file=\"/etc/passwd\", type=text)")]
#[case::module("import \"example.com/x@v0\"\na: x.y")]
#[case::environment("import \"tool/os\"\na: os.Getenv & {GOMEMLIMIT: string}")]
#[tokio::test]
async fn files_commands_and_the_network_are_out_of_reach(#[case] source: &str) {
    let result = evaluate(&evaluator(options()), source).await;
    let text = format!("{result:?}");
    assert!(
        !text.contains("root:") && !text.contains("stdout") && !text.contains("409"),
        "{text}"
    );
}

/// Fragments with a meaning in CUE.
const PIECES: [&str; 40] = [
    "a",
    "b",
    "_",
    "_|_",
    "#A",
    "_h",
    ": ",
    "? : ",
    "! : ",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "...",
    ", ",
    "\n",
    "1",
    "0.5",
    "\"x\"",
    "'y'",
    "\"\\(",
    "\"",
    "& ",
    "| ",
    "*",
    "+",
    ">=",
    "=~",
    "if ",
    "for v in ",
    "let x = ",
    "import \"strings\"\n",
    "strings.Repeat(",
    "null",
    "true",
    "@attr(x)",
    "// +patchKey=a\n",
    "\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn random_texts_have_a_result_or_an_error_of_the_text(
        texts in vec(vec(select(&PIECES[..]), 0..16), 40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let evaluator = evaluator(options());
            for text in texts {
                let result = evaluate(&evaluator, &text.concat()).await;
                prop_assert!(!matches!(result, Err(Error::Crashed(_) | Error::Missing)), "{:?}: {:?}", text, result);
            }
            Ok(())
        })?;
    }
}
