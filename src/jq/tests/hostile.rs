use rstest::rstest;
use serde_json::json;

use super::*;

/// Low limits keep the tests fast in a debug build.
fn limits() -> Limits {
    Limits {
        steps: 200_000,
        ..Limits::default()
    }
}

fn stopped(jq: &str, limits: Limits) -> String {
    let filter = Filter::compile(&rule(jq, &[]), limits).unwrap();
    let chart = json!({ "name": "loki", "description": "a".repeat(300), "keywords": ["a", "b"] });
    match filter.keeps(&chart) {
        Err(error @ FilterError::TooCostly { .. }) => {
            assert_eq!(error.reason(), "FilterTooCostly");
            let text = error.to_string();
            let start = "spec.filterRule was stopped at chart loki: ";
            text.strip_prefix(start)
                .unwrap()
                .strip_suffix("; simplify the rule")
                .unwrap()
                .to_owned()
        }
        other => panic!("{jq}: {other:?}"),
    }
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
    let message = stopped(jq, limits());
    assert!(
        message.contains("steps") || message.contains("values of more than"),
        "{jq}: {message}"
    );
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
    assert!(stopped(jq, Limits::default()).contains("nested too deeply"), "{jq}");
}

#[rstest]
#[case::doubled_text(".description | last(limit(60; recurse(. + .)))")]
#[case::repeated_text("\"a\" * 1e12 | length > 0")]
#[case::repeated_again("(\"a\" * 1e6) as $a | [range(1000) | $a * 60] | length > 0")]
#[case::many_texts("(\"a\" * 1e6) as $a | [range(1000) | $a + \"b\" | length] | length > 0")]
#[case::doubled_list("[.description] | last(limit(60; recurse(. + .)))")]
#[case::shared("reduce range(60) as $i (0; [., .]) | tojson | length > 0")]
#[case::shared_map("reduce range(60) as $i (0; {a: ., b: .}) | . == 1")]
#[case::deep_list("reduce range(1e6) as $i (0; [.]) | length > 0")]
#[case::deep_map("reduce range(1e6) as $i (0; {a: .}) | length > 0")]
#[case::far_index("null | .[1e12] = 1 | length > 0")]
#[case::far_path("null | setpath([1e12]; 1) | length > 0")]
#[case::joined("[range(1000) | \"aaaaaaaaaaaaaaaaaaaa\" * 1e4] | join(\",\") | length > 0")]
#[case::escaped("\"\\u0001\" * 3e7 | tojson | tojson | length > 0")]
#[case::substituted("\"aaaaaaaaaa\" * 1000 | gsub(\"a\"; \"b\" * 10000) | length > 0")]
#[case::exploded("\"a\" * 3e7 | explode | length > 0")]
#[case::split("\"a\" * 3e7 | split(\"\") | length > 0")]
fn memory_is_charged_before_it_is_allocated(#[case] jq: &str) {
    // Large values also cost steps, so either limit may be first.
    let message = stopped(jq, Limits::default());
    let limits = ["a value of more than", "values of more than", "levels deep", "steps"];
    assert!(limits.iter().any(|limit| message.contains(limit)), "{jq}: {message}");
}

/// Quadratic time, unless each step is charged.
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
    let started = Instant::now();
    let message = stopped(jq, Limits::default());
    assert!(
        message.contains("steps") || message.contains("values of more than"),
        "{jq}: {message}"
    );
    assert!(started.elapsed() < Duration::from_secs(20), "{jq}");
}

#[test]
fn each_memory_limit_is_named() {
    let limits = Limits {
        value_bytes: 10_000,
        allocated_bytes: 100_000,
        depth: 20,
        ..Limits::default()
    };
    for (jq, expected) in [
        (
            "\"a\" * 10001 | length > 0",
            "it creates a value of more than 10000 bytes",
        ),
        (
            "[range(1e9) | [1]] | length > 0",
            "it creates a value of more than 10000 bytes",
        ),
        (
            "[range(1e9) | \"a\" * 1000 | length] | length > 0",
            "it creates values of more than 100000 bytes",
        ),
        (
            "reduce range(1e9) as $i (0; [.]) | length > 0",
            "its lists and objects are more than 20 levels deep",
        ),
    ] {
        assert_eq!(stopped(jq, limits), expected, "{jq}");
    }
}

/// Chains of bindings, which are dropped recursively.
#[rstest]
#[case::argument("def f(g): f(g | g); f(.)")]
#[case::closure("def f(g): f(1 + g); f(.)")]
#[case::variable("def f($a; g): f($a + 1; $a, g); f(0; 0)")]
#[case::path("def f: .[0] | f; null | path(f)")]
#[case::path_of_recursion("null | last(path(recurse(.a)))")]
#[case::fold("def f(g): reduce 1 as $x (.; f(g | $x)); f(.)")]
#[case::outputs("def f: 1, (f | . + 1); last(f)")]
#[case::list_of_a_fold("reduce repeat(1) as $x (0; .)")]
fn deep_values_are_dropped_without_a_stack_overflow(#[case] jq: &str) {
    let message = stopped(
        jq,
        Limits {
            steps: u64::MAX,
            ..Limits::default()
        },
    );
    let limits = ["steps", "nested too deeply", "values of more than"];
    assert!(limits.iter().any(|limit| message.contains(limit)), "{jq}: {message}");
}

#[test]
fn all_charts_of_a_sync_share_the_time_limit() {
    let limits = Limits {
        steps: u64::MAX,
        time: Duration::from_millis(20),
        ..Limits::default()
    };
    let filter = Filter::compile(&rule("last(repeat(0)) or true", &[]), limits).unwrap();
    let message = filter.keeps(&json!({ "name": "a" })).unwrap_err().to_string();
    assert!(message.contains("0.02 seconds for all charts together"), "{message}");
    // The clone has no time left, even for a trivial rule.
    let message = filter.clone().keeps(&json!({ "name": "b" })).unwrap_err().to_string();
    assert!(message.contains("at chart b: it takes more than"), "{message}");
}

#[test]
fn a_single_search_is_limited() {
    let limits = Limits::default();
    for (jq, expected) in [
        (r#""a" | test("a{1000}{1000}{1000}")"#, "too large once compiled"),
        (r#""a" | test("(" * 1000 + "a" + ")" * 1000)"#, "nest"),
        (r#""a" * 300000 | test("a")"#, "too long for a regular expression"),
        (
            r#""a" | test("a?" * 1.7e6)"#,
            "a regular expression of 3400000 bytes is too long",
        ),
        (r#""a" | test("\\p{L}" * 3200; "i")"#, "too large once compiled"),
    ] {
        let filter = Filter::compile(&rule(jq, &[]), limits).unwrap();
        let message = filter.keeps(&json!({})).unwrap_err().to_string();
        assert!(message.contains(expected), "{jq}: {message}");
    }
}

/// Each match searches all of the remaining text for a `b`.
#[test]
fn the_deadline_is_checked_between_matches() {
    let limits = Limits {
        steps: u64::MAX,
        time: Duration::from_millis(200),
        ..Limits::default()
    };
    let started = Instant::now();
    let message = stopped(r#""a" * 250000 | [match("a(?:[^b]*b)?"; "g")] | length > 0"#, limits);
    assert!(message.contains("0.2 seconds"), "{message}");
    assert!(started.elapsed() < Duration::from_secs(20), "{message}");
}

#[test]
fn a_rule_that_nests_deeply_is_compiled_or_refused() {
    // Any result is fine, as long as nothing overflows or takes long.
    let size = Limits::default().rule_bytes - 100;
    let fill = |part: &str| part.repeat(size / part.len());
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
        for jq in [
            format!("{}.{}", start.repeat(pairs), end.repeat(pairs)),
            fill(start),
            format!("{} {}", fill(start), end),
        ] {
            let jq = jq.get(..size).unwrap_or(&jq);
            if let Ok(filter) = Filter::compile(&rule(jq, &[]), limits()) {
                let _ = filter.keeps(&json!({ "a": 1 }));
            }
        }
    }
}

#[tokio::test]
async fn a_dropped_future_does_not_wait_for_its_filter() {
    let limits = Limits {
        steps: u64::MAX,
        time: Duration::from_millis(50),
        ..Limits::default()
    };
    let (ended, end) = tokio::sync::oneshot::channel();
    let work = on_large_stack(move || {
        let filter = Filter::compile(&rule("last(repeat(0))", &[]), limits).unwrap();
        let _ = ended.send(filter.keeps(&json!({})).is_err());
    });
    drop(work);
    assert!(end.await.unwrap());
}

#[tokio::test]
async fn work_on_a_large_stack_returns_its_result_or_panic() {
    assert_eq!(on_large_stack(|| 1 + 1).await.unwrap(), 2);
    let panicked = on_large_stack(|| std::panic::resume_unwind(Box::new("on purpose"))).await;
    let error = panicked.map(|(): ()| ()).unwrap_err();
    assert!(
        matches!(error, FilterError::Panicked) && !error.is_transient(),
        "{error}"
    );
}
