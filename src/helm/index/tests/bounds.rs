use super::*;

fn rejected(index: &str, limits: &DecodeLimits) -> String {
    let error = decode_within(index.as_bytes(), limits).unwrap_err();
    assert_eq!(error.reason(), "TooComplex", "{error}");
    error.to_string()
}

/// Low limits for small documents.
fn small() -> DecodeLimits {
    DecodeLimits {
        charts: 3,
        versions_per_chart: 3,
        chart_bytes: 4_000,
        depth: 4,
        nodes: 1_000,
        scalar_bytes: 100,
        anchored_bytes: 1_000,
        aliased_nodes: 100,
        aliased_bytes: 1_000,
    }
}

fn both(json: &str, limits: &DecodeLimits, limit: &str) {
    for index in [json.to_owned(), format!("#\n{json}")] {
        let message = rejected(&index, limits);
        assert!(message.contains(limit), "{message}");
    }
}

#[test]
fn a_billion_laughs_document_is_rejected_before_its_expansion() {
    let mut bomb = String::from("apiVersion: v1\na0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    bomb.push_str("entries:\n  a:\n  - name: a\n    version: 1\n    keywords: *a19\n");
    let message = rejected(&bomb, &DecodeLimits::default());
    assert!(
        message.contains("aliases expand to more than 5000000 nodes"),
        "{message}"
    );
}

#[test]
fn a_long_text_repeated_by_aliases_is_rejected() {
    let text = "x".repeat(500_000);
    let aliases = vec!["*a"; 500].join(", ");
    let bomb =
        |field: &str| format!("a: &a {text}\nentries:\n  a:\n  - {{name: a, version: 1, {field}: [{aliases}]}}\n");
    // Skipped nodes are not expanded but still count.
    let message = rejected(&bomb("dependencies"), &DecodeLimits::default());
    assert!(
        message.contains("aliases expand to more than 134217728 bytes"),
        "{message}"
    );
    let message = rejected(&bomb("keywords"), &DecodeLimits::default());
    assert!(
        message.contains("a chart version takes more than 12582912 bytes"),
        "{message}"
    );
}

#[test]
fn merge_keys_are_limited_like_aliases() {
    let mut bomb = String::from("m0: &m0 {home: x, icon: y}\n");
    for level in 1..8 {
        bomb.push_str(&format!(
            "m{level}: &m{level} {{<<: [{}]}}\n",
            vec![format!("*m{}", level - 1); 10].join(", ")
        ));
    }
    bomb.push_str("entries:\n  a:\n  - {name: a, version: 1, <<: *m7}\n");
    assert!(rejected(&bomb, &DecodeLimits::default()).contains("aliases expand to"));
}

#[test]
fn anchored_nodes_are_limited() {
    let index = format!("a: &a [{}]\nentries: {{}}\n", "x, ".repeat(100));
    assert!(rejected(&index, &small()).contains("anchored nodes take more than 1000 bytes"));
    let nested = format!("a: {}x{}\nentries: {{}}\n", "&a [".repeat(7), "]".repeat(7));
    let message = rejected(
        &nested,
        &DecodeLimits {
            anchored_bytes: 500,
            ..DecodeLimits::default()
        },
    );
    assert!(message.contains("anchored nodes take"), "{message}");
    let named = format!("a: &{} x\nentries: {{}}\n", "n".repeat(2_000));
    assert!(rejected(&named, &small()).contains("anchored nodes take"));
}

#[test]
fn nesting_is_limited_through_aliases_too() {
    let deep = |levels: usize| {
        format!(
            "entries:\n  a:\n  - {{name: a, version: 1, x: {}{}}}\n",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert_eq!(decode_text(deep(32)).unwrap().1.skipped.count, 0);
    for levels in [33, 9_000] {
        let (_, summary) = decode_text(deep(levels)).unwrap();
        assert_eq!(
            summary.skipped.first[0].reason, "its lists and maps are nested too deeply",
            "{levels}"
        );
    }
    assert!(decode_text(deep(200_000)).is_err());
    assert!(
        decode_text(format!(
            "{{\"entries\":{{\"a\":[{{\"name\":\"a\",\"version\":\"1\",\"x\":{}{}}}]}}}}",
            "[".repeat(200_000),
            "]".repeat(200_000)
        ))
        .is_ok()
    );

    let mut towers = String::from("a0: &a0 []\n");
    for level in 1..40 {
        towers.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(rejected(&towers, &DecodeLimits::default()).contains("nested more than 32 levels deep"));
}

#[test]
fn a_version_that_is_nested_too_deeply_is_skipped_alone() {
    let (open, close) = ("[".repeat(40), "]".repeat(40));
    let block: String = (0..40)
        .map(|level| format!("\n      {}- - x", "  ".repeat(level)))
        .collect();
    for deep in [
        format!("{{name: a, version: 2.0.0, keywords: {open}x{close}}}"),
        format!("{{version: 2.0.0, x: {{y: {open}{close}}}, name: a}}"),
        format!("{{name: a, version: 2.0.0, x: &deep {open}{close}, y: [*deep, {{z: *deep}}]}}"),
        format!("{{name: a, version: 2.0.0, <<: {{x: {open}{close}}}}}"),
        format!("{open}{close}"),
        format!("name: a\n    version: 2.0.0\n    x:{block}"),
    ] {
        let index = format!(
            "entries:\n  a:\n  - {{name: a, version: 1.1.0}}\n  - {deep}\n  - {{name: a, version: 1.0.0}}\n  \
             b: [{{name: b, version: 1}}]\n"
        );
        let (charts, summary) = decode_text(&index).unwrap();
        assert_eq!(
            (charts.len(), versions(&charts[0])),
            (2, vec!["1.1.0", "1.0.0"]),
            "{index}"
        );
        let reasons: Vec<_> = summary.skipped.first.iter().map(|skip| skip.reason.as_str()).collect();
        assert_eq!(reasons, ["its lists and maps are nested too deeply"], "{index}");
    }
    // An alias is as deep as what it stands for.
    let index = format!(
        "entries:\n  a: [{{name: a, version: 2, x: &deep {open}{close}}}, {{name: a, version: 1, x: *deep}}]\n"
    );
    let (charts, summary) = decode_text(index).unwrap();
    assert_eq!((charts.len(), summary.skipped.count), (0, 2));
}

#[test]
fn deeply_nested_json_in_a_used_field_skips_the_version() {
    let index = format!(
        "{{\"entries\":{{\"a\":[{{\"name\":\"a\",\"version\":\"1\",\"keywords\":{}{}}}]}}}}",
        "[".repeat(90),
        "]".repeat(90)
    );
    let (_, summary) = decode_text(index).unwrap();
    assert_eq!(
        summary.skipped.first[0].reason,
        "its lists and maps are nested too deeply"
    );
}

#[test]
fn empty_charts_and_versions_count_towards_the_limits() {
    let nulls = |count: usize| vec!["null"; count].join(",");
    both(
        &format!("{{\"entries\":{{\"a\":[{}]}}}}", nulls(4)),
        &small(),
        "a has more than 3 versions",
    );
    both(
        "{\"entries\":{\"a\":null,\"b\":null,\"c\":null,\"d\":null}}",
        &small(),
        "more than 3 charts",
    );
    assert!(
        decode_within(
            format!("entries: {{a: [{}], b: [null]}}", nulls(3)).as_bytes(),
            &small()
        )
        .is_ok()
    );
}

#[test]
fn the_memory_of_a_chart_is_limited() {
    let urls = |count: usize| vec!["\"https://example.com/a.tgz\""; count].join(",");
    let one = format!(
        "{{\"entries\":{{\"a\":[{{\"version\":\"1\",\"urls\":[{}]}}]}}}}",
        urls(90)
    );
    both(&one, &small(), "a chart version takes more than 4000 bytes");
    let version = format!("{{\"name\":\"a\",\"version\":\"1\",\"urls\":[{}]}}", urls(30));
    let many = format!("{{\"entries\":{{\"a\":[{version},{version},{version}]}}}}");
    both(&many, &small(), "a takes more than 4000 bytes");
    let message = rejected(&many.replace("},{", "},\n{"), &small());
    assert!(message.contains("near line 3"), "{message}");
}

#[test]
fn nodes_and_texts_are_limited() {
    let nodes = format!("x: [{}]\nentries: {{}}\n", "1, ".repeat(1_000));
    assert!(rejected(&nodes, &small()).contains("more than 1000 nodes"));
    let text = format!("x: {}\nentries: {{}}\n", "x".repeat(101));
    assert!(rejected(&text, &small()).contains("a text has more than 100 bytes"));
}

#[test]
fn an_endless_text_is_rejected_before_it_is_buffered() {
    let limits = DecodeLimits {
        scalar_bytes: 10_000,
        ..DecodeLimits::default()
    };
    for index in [
        "entries: {a: [{name: \"",
        "#",
        "{\"entries\":{\"a\":[{\"name\":\"",
        "{\"",
    ] {
        let endless = Cursor::new([index.as_bytes(), &vec![b'x'; 4 << 20]].concat());
        let mut charts = Vec::new();
        let error = decode(endless, &limits, &mut charts).unwrap_err();
        assert_eq!(error.reason(), "TooComplex", "{index}: {error}");
        assert!(error.to_string().contains("60000 bytes"), "{error}");
    }
}

#[test]
fn the_default_limits_allow_25_000_versions() {
    let versions: String = (0..25_000)
        .map(|number| format!("  - {{name: a, version: 1.0.{number}, urls: [https://example.com/a-1.0.{number}.tgz], maintainers: *m, keywords: *k}}\n"))
        .collect();
    let index = format!("x: [&m [{{name: m, email: e}}], &k [a, b, c]]\nentries:\n  a:\n{versions}");
    let (charts, summary) = decode_text(index).unwrap();
    assert_eq!((charts[0].versions.len(), summary.skipped.count), (25_000, 0));
    assert_eq!(charts[0].versions[0].version, "1.0.24999");
}
