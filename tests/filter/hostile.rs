//! Rules that never end or exhaust memory, in the child process of the real binary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::controllers::apprepository::sync::filter::ChartFilter;
use portolan::controllers::apprepository::sync::filter_process::FilterProcesses;
use portolan::jq::{FilterError, FilterLimits, charts_request};
use portolan::runtime::worker_process::WorkerError;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::rule;
use crate::support::portolan::BINARY;

/// Fewer steps keep the tests fast in a debug build.
const STEPS: u64 = 200_000;
/// Enough for what other limits stop.
const CPU_SECONDS: u64 = 2;

const MIB: u64 = 1024 * 1024;

fn processes(memory: u64, steps: u64) -> FilterProcesses {
    let limits = FilterLimits {
        steps,
        cpu_seconds: CPU_SECONDS,
        ..FilterLimits::default()
    };
    FilterProcesses::new(BINARY.into(), memory, limits)
}

fn filter(jq: &str, processes: FilterProcesses) -> ChartFilter {
    ChartFilter::new(processes, Arc::new(rule(jq, &[("$v", "x")])), CancellationToken::new())
}

fn keeps(filter: &mut ChartFilter, charts: &[Value]) -> Result<Vec<bool>, FilterError> {
    let mut request = charts_request();
    for chart in charts {
        request.extend(format!("{chart}\n").into_bytes());
    }
    let names: Vec<&str> = charts.iter().map(|chart| chart["name"].as_str().unwrap()).collect();
    filter.keeps(&request, &names)
}

fn chart() -> Value {
    json!({ "name": "loki", "description": "a".repeat(300), "keywords": ["a", "b"] })
}

/// Returns the cause of the stop.
fn stopped(jq: &str, processes: FilterProcesses) -> String {
    let started = Instant::now();
    let error = keeps(&mut filter(jq, processes), &[chart()]).unwrap_err();
    assert!(
        started.elapsed() < Duration::from_secs(100),
        "{jq}: {:?}",
        started.elapsed()
    );
    match error {
        FilterError::LimitExceeded { place, cause } => {
            assert_eq!(place, " at chart loki", "{jq}");
            cause
        }
        // A process that gets little CPU time reaches its deadline first.
        FilterError::Process(cause) if cause == WorkerError::Deadline.to_string() => cause,
        other => panic!("{jq}: {other}"),
    }
}

fn assert_stopped(jq: &str) {
    let message = stopped(jq, processes(32 * MIB, STEPS));
    let limits = [
        "steps",
        "bytes of memory",
        "seconds of CPU",
        "nested too deeply",
        "too large",
        "deadline exceeded",
    ];
    assert!(limits.iter().any(|limit| message.contains(limit)), "{jq}: {message}");
}

#[rstest]
#[case::repeat("last(repeat(0))")]
#[case::itself("def f: f; f")]
#[case::each_other("def f: def g: f; g; f")]
#[case::range("[range(1e12)] | length > 0")]
#[case::range_without_outputs("[range(1e12) | empty] == []")]
#[case::range_without_an_end("last(range(0; infinite; 1e-300))")]
#[case::recurse("last(recurse(.))")]
#[case::until("until(false; .)")]
#[case::while_("last(while(true; .))")]
#[case::limit("last(limit(1e15; repeat(1)))")]
#[case::reduce("reduce range(1e12) as $i (0; . + 1)")]
#[case::foreach("last(foreach repeat(1) as $i (0; . + 1))")]
#[case::any("any(repeat(false); .)")]
#[case::label("label $out | last(repeat(1))")]
#[case::caught_and_again("def f: (last(repeat(1))? // 1) | f; f")]
#[case::first("first(repeat(empty))")]
#[case::update(".name |= last(repeat(1))")]
#[case::path("path(last(repeat(.name)))")]
#[case::combinations("[[range(100)], [range(100)], [range(100)], [range(100)]] | [combinations] | length")]
#[case::product("[range(300) as $a | range(300) as $b | range(300) as $c | 1] | length")]
#[case::outputs_of_interpolation("[\"\\(range(1000))\\(range(1000))\\(range(1000))\"] | length")]
#[case::expressions("[range(1e6) | tostring as $i | \"a\" | test(\"[a-z]{100}\" + $i)] | any")]
fn an_endless_rule_is_stopped(#[case] jq: &str) {
    assert_stopped(jq);
}

#[rstest]
#[case::addition("def f: 1 + f; f")]
#[case::nesting("def f: [f]; f")]
#[case::object("def f: {a: f}; f")]
#[case::piped("def f: f | f; f")]
#[case::negated("def f: -f; f")]
#[case::alternative("def f: f // 1; f")]
#[case::interpolated("def f: \"\\(f)\"; f")]
#[case::updated("def f: . |= f; f")]
#[case::path("def f: .[0] | f | .; null | path(f)")]
#[case::caught("def f: try error(1) catch f; f")]
fn deep_recursion_is_stopped(#[case] jq: &str) {
    assert_stopped(jq);
}

#[rstest]
#[case::doubled_text(".description | last(limit(60; recurse(. + .)))")]
#[case::repeated_text("\"a\" * 1e12 | length > 0")]
#[case::repeated_again("(\"a\" * 1e6) as $a | [range(1000) | $a * 60] | length > 0")]
#[case::doubled_list("[.description] | last(limit(60; recurse(. + .)))")]
#[case::shared("reduce range(60) as $i (0; [., .]) | tojson | length > 0")]
#[case::shared_map("reduce range(60) as $i (0; {a: ., b: .}) | tojson | length > 0")]
#[case::deep_list("reduce range(1e6) as $i (0; [.]) | length > 0")]
#[case::deep_map("reduce range(1e6) as $i (0; {a: .}) | length > 0")]
#[case::far_index("null | .[1e12] = 1 | length > 0")]
#[case::far_path("null | setpath([1e12]; 1) | length > 0")]
#[case::joined("[range(1000) | \"aaaaaaaaaaaaaaaaaaaa\" * 1e4] | join(\",\") | length > 0")]
#[case::escaped("\"\\u0001\" * 3e7 | tojson | tojson | length > 0")]
#[case::substituted("\"aaaaaaaaaa\" * 1000 | gsub(\"a\"; \"b\" * 10000) | length > 0")]
#[case::exploded("\"a\" * 3e7 | explode | length > 0")]
#[case::split("\"a\" * 3e7 | split(\"\") | length > 0")]
fn large_values_are_stopped(#[case] jq: &str) {
    assert_stopped(jq);
}

#[rstest]
#[case::text(r#"("a" * 1e7) | indices("a" * 5e6) | length > 0"#)]
#[case::text_index(r#"("a" * 1e7) | rindex("a" * 5e6) > 0"#)]
#[case::short_text(r#"("a" * 2e7) | indices("a" * 60) | length > 0"#)]
#[case::contains(r#"["a" * 2e7 + "b"] | contains([range(10000) | "ab"])"#)]
#[case::list("[range(40000) | 1] | indices(.[20000:]) | length > 0")]
#[case::list_as_an_index("[range(40000) | 1] | .[.[20000:]] | length > 0")]
#[case::subtraction("[range(20000)] as $all | last(repeat($all - $all)) == []")]
#[case::subtraction_of_everything_from_little("[range(20000)] as $all | last(repeat([1] - $all)) == []")]
#[case::flags(r#"("g" * 1e7) as $flags | last(repeat("a" | test("b"; $flags)))"#)]
fn a_quadratic_search_is_stopped(#[case] jq: &str) {
    assert_stopped(jq);
}

#[rstest]
#[case::argument("def f(g): f(g | g); f(.)")]
#[case::closure("def f(g): f(1 + g); f(.)")]
#[case::variable("def f($a; g): f($a + 1; $a, g); f(0; 0)")]
#[case::path("def f: .[0] | f; null | path(f)")]
#[case::path_of_recursion("null | last(path(recurse(.a)))")]
#[case::fold("def f(g): reduce 1 as $x (.; f(g | $x)); f(.)")]
#[case::outputs("def f: 1, (f | . + 1); last(f)")]
#[case::list_of_a_fold("reduce repeat(1) as $x (0; .)")]
fn deep_chains_of_bindings_are_stopped(#[case] jq: &str) {
    assert_stopped(jq);
}

#[test]
fn each_limit_is_named() {
    for (jq, steps, expected) in [
        ("last(repeat(0))", 1000, "it takes more than 1000 steps"),
        (
            "[limit(1e6; repeat(\"a\" * 1000))] | length > 0",
            u64::MAX,
            "it takes more than 8388608 bytes of memory",
        ),
        (
            "reduce range(1e6) as $i (0; [.]) | length > 0",
            u64::MAX,
            "it takes more than 8388608 bytes of memory",
        ),
        ("def f: [f]; f", u64::MAX, "its calls or values are nested too deeply"),
        (
            "\"a\" * 1e300 | length > 0",
            STEPS,
            "it creates a value that is too large",
        ),
        (
            "last(repeat(empty))",
            u64::MAX,
            "it takes more than 2 seconds of CPU time for all charts together",
        ),
    ] {
        let cause = stopped(jq, processes(8 * MIB, steps));
        // On a busy machine, two seconds of CPU time may take longer than the deadline.
        let is_late = expected.contains("CPU time") && cause == WorkerError::Deadline.to_string();
        assert!(is_late || cause == expected, "{jq}: {cause}");
    }
}

#[test]
fn a_filter_is_usable_after_another_one_was_stopped() {
    let processes = processes(32 * MIB, STEPS);
    for jq in ["\"a\" * 1e9 | length > 0", "def f: [f]; f", "-".repeat(15_000).as_str()] {
        assert!(matches!(
            keeps(&mut filter(jq, processes.clone()), &[chart()]),
            Err(FilterError::LimitExceeded { .. })
        ));
        let mut honest = filter(".name == $v or .name == \"loki\"", processes.clone());
        assert_eq!(
            keeps(&mut honest, &[chart(), json!({ "name": "other" })]),
            Ok(vec![true, false])
        );
    }
}

#[test]
fn a_stopped_batch_names_its_first_and_last_chart() {
    let charts = ["a", "b", "c"].map(|name| json!({ "name": name }));
    let rule = ".name == \"b\" and (\"a\" * 1e9 | length > 0)";
    let error = keeps(&mut filter(rule, processes(32 * MIB, STEPS)), &charts).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.filterRule was stopped at one of the charts from a to c: it takes more than 33554432 bytes of memory; simplify the rule"
    );
}

#[test]
fn a_chart_with_many_versions_is_filtered_within_the_limits() {
    let versions: Vec<Value> = (0..25_000)
        .map(|number| {
            json!({
                "version": format!("1.{number}.0"), "app_version": "1.0.0", "created": "2024-01-01T00:00:00Z",
                "digest": "ab".repeat(32), "urls": [format!("https://charts.example/archive-{number}.tgz")],
                "readme": "", "values": "", "schema": "",
            })
        })
        .collect();
    let chart = json!({ "name": "large", "chartVersions": versions });
    let rule = "[.chartVersions[] | select(.version | test(\"^1[.]\"))] | length == 25000";
    let processes = FilterProcesses::new(BINARY.into(), 32 * MIB, FilterLimits::default());
    assert_eq!(keeps(&mut filter(rule, processes), &[chart]), Ok(vec![true]));
}

#[test]
fn a_rule_that_nests_deeply_is_compiled_or_refused() {
    // Any result is fine, as long as the error is one of the rule.
    let size = FilterLimits::default().rule_bytes - 100;
    let processes = processes(32 * MIB, STEPS);
    for (start, end) in [
        ("(", ")"),
        ("[", "]"),
        ("{a:", "}"),
        ("-", ""),
        ("try ", ""),
        ("if ", ""),
        ("if 1 then ", " end"),
        ("def f: ", "; f"),
        ("reduce ", ""),
        (". as $x | ", ""),
        (". as [", ""),
        (". as {a:", ""),
        ("\"\\(", ")\""),
        ("label $x | ", ""),
        (".[", "]"),
        ("1 + (", ")"),
        ("1 | ", ""),
        ("1 , ", ""),
        ("1 // ", ""),
        (". |= ", ""),
        ("map(", ")"),
        ("f(", ")"),
        ("def f: def g: ", ""),
        ("foreach . as $x (", ")"),
        ("{(", ")}"),
        ("{(", "):1}"),
        ("@json \"\\(", ")\""),
        ("not|", ""),
        ("..", ""),
        (".a", ""),
        ("?", ""),
        ("import ", ""),
        ("{a:(", ")}"),
        ("{\"\\(", ")\":1}"),
        (". as {(", "):$x} | "),
        ("elif ", ""),
        ("1 as $x | [", "]"),
        ("$__loc__ ", ""),
        ("{$x,", ""),
    ] {
        let pairs = size / (start.len() + end.len());
        let jq = format!("{}.{}", start.repeat(pairs), end.repeat(pairs));
        if let Err(error) = keeps(&mut filter(&jq, processes.clone()), &[json!({ "name": "a", "a": 1 })]) {
            assert!(!error.is_transient(), "{start}: {error}");
        }
    }
}

/// Fragments with a meaning in jq.
const PIECES: [&str; 72] = [
    ".",
    "..",
    ".[]",
    ".name",
    ".keywords",
    "|",
    ",",
    "//",
    "?",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ";",
    "=",
    "|=",
    "+=",
    "==",
    "<",
    "+",
    "-",
    "*",
    "/",
    "%",
    " and ",
    " or ",
    "not",
    "1",
    "0.5",
    "1e9",
    "\"a\"",
    "\"\\(",
    "\"",
    "$v",
    "$x",
    " as $x |",
    " as [$x] |",
    " as {$x} |",
    "def f: ",
    "f",
    "def f(g): ",
    "f(.)",
    "if ",
    " then ",
    " else ",
    " end",
    "try ",
    " catch ",
    "reduce ",
    "foreach ",
    "label $x | ",
    "break $x",
    "true",
    "null",
    "empty",
    "error",
    "range(3)",
    "recurse",
    "repeat(.)",
    "limit(2; ",
    "first(",
    "path(",
    "map(",
    "tojson",
    "fromjson",
    "test(\"a*\")",
    "sort",
    "add",
    "[.[]?]",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_rules_end_with_an_answer_or_an_error_of_the_rule(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..14)
    ) {
        let limits = processes(16 * MIB, 20_000);
        let chart = json!({ "name": "a", "keywords": ["a", "b"] });
        if let Err(error) = keeps(&mut filter(&pieces.concat(), limits), &[chart]) {
            prop_assert!(!error.to_string().contains("please report"), "{}", error);
            prop_assert!(!error.is_transient(), "{}", error);
        }
    }
}
