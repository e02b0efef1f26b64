use serde_json::json;

use super::*;

fn rejected(jq: &str, variables: &[(&str, &str)]) -> String {
    let error = Filter::compile(&rule(jq, variables), FilterLimits::default()).unwrap_err();
    assert_eq!(error.reason(), "InvalidFilter", "{jq}");
    assert!(!error.is_transient());
    let text = error.to_string();
    text.strip_prefix("spec.filterRule is not valid: ").unwrap().to_owned()
}

fn failed(jq: &str) -> String {
    let filter = Filter::compile(&rule(jq, &[]), FilterLimits::default()).unwrap();
    let error = filter
        .keeps(&json!({ "name": "loki", "description": "x".repeat(1000) }))
        .unwrap_err();
    assert_eq!(error.reason(), "FilterFailed", "{jq}");
    let text = error.to_string();
    text.strip_prefix("spec.filterRule failed for chart loki: ")
        .unwrap()
        .to_owned()
}

#[test]
fn a_syntax_error_is_reported_with_position_and_cause() {
    let cases = [
        (".name ==", "expected term at the end (line 1, column 9)"),
        ("(.name", "expected closing parenthesis at the end (line 1, column 7)"),
        (".name == \"x", "expected closing quote at the end (line 1, column 12)"),
        (".name))", "expected token instead of \"))\" (line 1, column 6)"),
        (".name == 'x'", "expected token instead of \"'x'\" (line 1, column 10)"),
        (
            "true and\n  false )",
            "expected token instead of \")\" (line 2, column 9)",
        ),
        ("# only a comment", "expected term at the end (line 1, column 17)"),
    ];
    for (jq, expected) in cases {
        assert_eq!(rejected(jq, &[]), expected, "{jq}");
    }
}

#[test]
fn undefined_functions_and_variables_are_named() {
    let cases = [
        (
            ".name == $var",
            "the variable $var is not declared (line 1, column 10); add \"$var\" to spec.filterRule.variables",
        ),
        (
            "nonsense",
            "there is no function nonsense without arguments (line 1, column 1)",
        ),
        (
            ".name | test",
            "there is no function test without arguments (line 1, column 9)",
        ),
        (
            "any(1; 2; 3)",
            "there is no function any with 3 arguments (line 1, column 1)",
        ),
        (
            ".name | @base64",
            "there is no function @base64 without arguments (line 1, column 9)",
        ),
    ];
    for (jq, expected) in cases {
        assert_eq!(rejected(jq, &[]), expected, "{jq}");
    }
}

#[test]
fn rules_have_no_access_to_the_outside() {
    let names = [
        "env",
        "$ENV",
        "env.PATH",
        "$ENV.PATH",
        "input",
        "inputs",
        "now",
        "halt",
        "halt(1)",
        "halt_error",
        "halt_error(1)",
        "debug",
        "debug(1)",
        "stderr",
        "input_filename",
        "input_line_number",
        "$__loc__",
        "$__prog_args",
        "builtins",
        "splits",
        "get_search_list",
        "modulemeta",
        "localtime",
        "mktime",
        "error_empty(1)",
        "import \"a\" as a; true",
        "import \"a\" as $a; true",
        "include \"a\"; true",
        "include \"/etc/passwd\"; true",
        "break $x",
    ];
    for jq in names {
        let message = rejected(jq, &[]);
        assert!(
            message.contains("there is no") || message.contains("not declared") || message.contains("not allowed"),
            "{jq}: {message}"
        );
    }
}

#[test]
fn a_variable_is_bound_by_its_key_with_the_dollar_sign() {
    for (name, part) in [
        ("var", "must be written with its dollar sign, as \"$var\""),
        ("", "must be written with its dollar sign"),
        ("$", "is not a valid name"),
        ("$1", "is not a valid name"),
        ("$a-b", "is not a valid name"),
        ("$a b", "is not a valid name"),
        ("$a\u{1b}", "is not a valid name"),
        ("$é", "is not a valid name"),
        ("$ENV", "is reserved in jq"),
        ("$__loc__", "is reserved in jq"),
    ] {
        let message = rejected("true", &[(name, "x")]);
        assert!(
            message.contains(part) && !message.contains('\u{1b}'),
            "{name}: {message}"
        );
    }
    let declared = rule(
        "$_1 == \"x\" and $A == \"y\"",
        &[("$A", "y"), ("$_1", "x"), ("$unused", "")],
    );
    assert!(
        Filter::compile(&declared, FilterLimits::default())
            .unwrap()
            .keeps(&json!({}))
            .unwrap()
    );
}

#[test]
fn an_output_that_is_not_a_boolean_is_quoted_truncated() {
    let got = "unable to convert jq result to boolean. Got: ";
    for (jq, shown) in [
        (".name", "\"loki\""),
        ("1", "1"),
        ("null", "null"),
        ("empty", "nothing"),
        (".nothing", "null"),
        ("{a: [1, true]}", "{\"a\":[1,true]}"),
        ("\"a\\u001bb\"", "\"a\\u001bb\""),
    ] {
        assert_eq!(failed(jq), format!("{got}{shown}"), "{jq}");
    }
    let long = failed(".description");
    assert!(
        long.starts_with(&format!("{got}\"xxx")) && long.ends_with("x…") && long.len() < 350,
        "{long}"
    );
}

#[test]
fn only_the_first_output_counts() {
    for (jq, expected) in [
        ("true, false", true),
        ("false, 1", false),
        ("true, error(\"late\")", true),
        ("true, repeat(1)", true),
    ] {
        let filter = Filter::compile(&rule(jq, &[]), FilterLimits::default()).unwrap();
        assert_eq!(filter.keeps(&json!({})).unwrap(), expected, "{jq}");
    }
}

#[test]
fn a_failing_rule_is_reported_with_its_own_message() {
    assert_eq!(failed("error(\"own words\")"), "\"own words\"");
    assert_eq!(failed(".name.x"), "cannot index \"loki\" with \"x\"");
    assert_eq!(failed(".name | test(1)"), "cannot use 1 as regular expression");
    assert!(failed(".name | test(\"(\")").contains("unclosed group"));
    assert!(failed(".description | error").ends_with('…'));
}

#[test]
fn a_blank_rule_is_empty() {
    for jq in ["", " ", "\n\t"] {
        assert!(rule(jq, &[("var", "x")]).is_empty());
    }
    assert!(!rule("true", &[]).is_empty());
}

#[test]
fn the_size_of_a_rule_is_limited() {
    let limits = FilterLimits::default();
    assert!(rejected(&format!("true{}", " ".repeat(limits.rule_bytes)), &[]).contains("longer than 16384 bytes"));
    assert!(rejected("true", &[("$a", &"x".repeat(limits.variable_bytes))]).contains("more than 65536 bytes"));
    let many: Vec<String> = (0..=limits.variables).map(|number| format!("$v{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    assert!(rejected("true", &many).contains("more than 1000 variables"));
}

#[test]
fn a_filter_is_shareable_and_its_debug_output_hides_the_rule() {
    fn shared<T: Clone + Send + Sync>(_: &T) {}
    let filter = Filter::compile(&rule("$a == \"x\"", &[("$a", "secret")]), FilterLimits::default()).unwrap();
    shared(&filter);
    assert!(!format!("{filter:?}").contains("secret"));
}
