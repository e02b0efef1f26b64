use proptest::prelude::*;

use super::*;

fn keys(text: &str) -> Vec<ValueKey> {
    parse(text).unwrap().items
}

/// Path, default, type, line and comment.
fn rows(text: &str) -> Vec<(String, String, Kind, usize, String)> {
    let row = |key: ValueKey| {
        (
            key.path,
            key.default.unwrap_or_default(),
            key.kind,
            key.line,
            key.comment,
        )
    };
    keys(text).into_iter().map(row).collect()
}

#[test]
fn each_value_has_a_path_a_default_a_type_and_a_line() {
    let text = "replicas: 2\nimage:\n  tag: \"1.0\"\n  pullSecrets: []\nhosts:\n  - host: a.example\n    paths: [/, /b]\n\
                labels: {}\nnote: |\n  # no comment\n  text\n\"a.b\":\n";
    let found: Vec<_> = rows(text)
        .into_iter()
        .map(|(path, default, kind, line, _)| (path, default, kind, line))
        .collect();
    let row = |path: &str, default: &str, kind, line| (path.to_owned(), default.to_owned(), kind, line);
    assert_eq!(
        found,
        [
            row("replicas", "2", Kind::Integer, 1),
            row("image.tag", "1.0", Kind::String, 3),
            row("image.pullSecrets", "[]", Kind::Array, 4),
            row("hosts[0].host", "a.example", Kind::String, 6),
            row("hosts[0].paths[0]", "/", Kind::String, 7),
            row("hosts[0].paths[1]", "/b", Kind::String, 7),
            row("labels", "{}", Kind::Object, 8),
            row("note", "# no comment\ntext\n", Kind::String, 9),
            row("a\\.b", "null", Kind::Null, 12),
        ]
    );
}

#[test]
fn comments_above_and_beside_a_key_belong_to_it() {
    let text = "# License\n\n# old: 1\n# -- Number of pods,\n# at least 2\n# @default -- 2\nreplicas: 2 # per zone\n\
                other: 1\n\n# Plain\nimage:\n  ## Tag of the image\n  ##\n  tag: x\n";
    let comments: Vec<_> = rows(text)
        .into_iter()
        .map(|(path, _, _, _, comment)| (path, comment))
        .collect();
    let row = |path: &str, comment: &str| (path.to_owned(), comment.to_owned());
    assert_eq!(
        comments,
        [
            row("replicas", "Number of pods, at least 2 per zone"),
            row("other", ""),
            row("image", "Plain"),
            row("image.tag", "Tag of the image"),
        ]
    );
}

#[test]
fn descriptions_of_bitnami_belong_to_the_key_that_they_name() {
    let text = "## @param image.registry [default: x] Registry\n## @param image.tag Tag, immutable\n##\nimage:\n  registry: x\n  tag: y\n";
    let comments: Vec<_> = keys(text).into_iter().map(|key| (key.path, key.comment)).collect();
    assert_eq!(
        comments,
        [
            ("image.registry".to_owned(), "Registry".to_owned()),
            ("image.tag".to_owned(), "Tag, immutable".to_owned())
        ]
    );
}

#[test]
fn aliases_are_not_expanded_and_a_second_document_is_ignored() {
    let text = "base: &base {a: 1}\nmore:\n  <<: *base\ncopy: *base\n---\nsecond: 1\n";
    let paths: Vec<_> = keys(text)
        .into_iter()
        .map(|key| (key.path, key.default.unwrap_or_default()))
        .collect();
    let row = |path: &str, default: &str| (path.to_owned(), default.to_owned());
    assert_eq!(
        paths,
        [row("base.a", "1"), row("more.<<", "*base"), row("copy", "*base")]
    );
}

#[test]
fn texts_without_keys_have_none() {
    for text in ["", "# only a comment\n", "text", "{}", "[]", "null\n", "---\n"] {
        assert_eq!(parse(text), Ok(Keys::default()), "{text}");
    }
    let unusual = keys("? [a, {b: c}]\n: d: 1\n? {}\n: 2\n");
    assert_eq!(
        unusual.iter().map(|key| key.path.as_str()).collect::<Vec<_>>(),
        ["?.d", "?"]
    );
}

#[test]
fn json_is_read_too() {
    let found = keys("{\n  \"type\": \"object\",\n  \"required\": [\"a\"]\n}\n");
    let paths: Vec<_> = found.iter().map(|key| (key.path.as_str(), key.line)).collect();
    assert_eq!(paths, [("type", 2), ("required[0]", 3)]);
}

#[test]
fn size_nesting_number_and_length_are_limited() {
    assert_eq!(parse(&" ".repeat(MAX_BYTES + 1)), Err(ValuesError::TooLarge));
    for deep in [
        "[".repeat(100_000),
        "a: ".repeat(3),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
    ] {
        let error = parse(&deep).unwrap_err();
        assert!(matches!(error, ValuesError::Invalid { .. }), "{error}");
    }
    let comments = |count: usize| parse(&format!("a:\n{}b: 1\n", "#\n".repeat(count)));
    assert!(comments(MAX_COMMENTS).is_ok());
    assert!(matches!(comments(MAX_COMMENTS + 1), Err(ValuesError::Invalid { .. })));
    let many: String = (0..2 * MAX_KEYS).map(|number| format!("k{number}: 1\n")).collect();
    let many = parse(&many).unwrap();
    assert_eq!((many.items.len(), many.is_incomplete), (MAX_KEYS, true));

    let long = "x".repeat(MAX_PATH_BYTES);
    let long = parse(&format!("a:\n  {long}: 1\n  b: 2\nc: 3\n")).unwrap();
    let paths: Vec<_> = long.items.iter().map(|key| key.path.as_str()).collect();
    assert_eq!((paths, long.is_incomplete), (vec!["a.b", "c"], true));
    let below = parse(&format!(
        "a:\n  {}:\n    d: [1, {{e: f}}]\nc: 3\n",
        "x".repeat(MAX_PATH_BYTES)
    ))
    .unwrap();
    assert_eq!(below.items.len(), 1);

    // One comment is repeated for no other key on its line.
    let comment = "x".repeat(100_000);
    let flow = keys(&format!("a: {{b: 1, c: 2}} # {comment}\n"));
    let lengths: Vec<_> = flow.iter().map(|key| key.comment.len()).collect();
    assert_eq!(lengths, [super::super::MAX_TEXT_BYTES, 0, 0]);
}

#[test]
fn an_error_names_the_line() {
    let error = parse("a: 1\nb: [1\n").unwrap_err();
    assert!(error.to_string().starts_with("line "), "{error}");
    assert!(parse("a: *unknown\n").is_err());
}

proptest! {
    #[test]
    fn any_text_has_keys_within_the_limits_or_an_error(text in "[a-c:\\-\\[\\]{},&*#?|> \"'\n]{0,200}") {
        if let Ok(keys) = parse(&text) {
            let lines = text.split('\n').count();
            for key in &keys.items {
                prop_assert!(key.path.len() <= MAX_PATH_BYTES && (1..=lines).contains(&key.line), "{key:?}");
            }
        }
    }
}
