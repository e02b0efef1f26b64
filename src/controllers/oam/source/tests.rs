use proptest::prelude::*;

use super::*;

fn body(template: &str) -> String {
    scan(template, Role::Trait, false).unwrap().body
}

fn error(template: &str) -> String {
    scan(template, Role::Trait, false).unwrap_err().to_string()
}

#[test]
fn a_marker_becomes_a_sibling_of_its_field() {
    let template = "patch: spec: {\n\t// +patchKey=name\n\tcontainers: [{name: \"a\"}]\n}\n";
    let expected = "patch: spec: {\n\t// +patchKey=name\n\t\"$+containers\": {patchKey: \"name\"}, containers: [{name: \"a\"}]\n}\n";
    assert_eq!(body(template), expected);
}

#[test]
fn a_marker_above_a_chain_belongs_to_its_last_label() {
    let template = "// +patchStrategy=retainKeys\npatch: spec: replicas: 3\n";
    let expected = "// +patchStrategy=retainKeys\n\
                    patch: spec: \"$+replicas\": {patchStrategy: \"retainKeys\"}, patch: spec: replicas: 3\n";
    assert_eq!(body(template), expected);
}

#[test]
fn several_markers_of_one_field_become_one_sibling() {
    let template = "// +patchKey=name\n// +usage=text\n//+patchStrategy = retainKeys\nvolumes: []\n";
    assert!(body(template).contains("\"$+volumes\": {patchStrategy: \"retainKeys\", patchKey: \"name\"}, volumes: []"));
}

#[test]
fn markers_are_found_in_conditions_lists_and_helpers() {
    for template in [
        "if parameter.x {\n// +patchKey=name\nenv: []\n}",
        "patch: a: [{\n// +patchKey=name\nenv: []\n}, ...]",
        "#Helper: {\n// +patchKey=name\nenv: []\n}",
        "patch: a: [for c in list {\n// +patchKey=name\nenv: []\n}]",
        "patch: a: close({\n// +patchKey=name\nenv: []\n})",
        "let x = {\n// +patchKey=name\nenv: []\n}",
    ] {
        assert!(
            body(template).contains("\"$+env\": {patchKey: \"name\"}, env: []"),
            "{template}"
        );
    }
}

#[test]
fn a_marker_stays_a_comment_where_it_has_no_effect() {
    for template in [
        "parameter: {\n// +patchKey=name\nenv: []\n}",
        "// +patchKey=name\nenv?: []",
        "// +patchKey=name\n_hidden: []",
        "// +patchKey=name\n\nenv: []",
        "x: 1 // +patchKey=name\nenv: []",
        "// +patchKey=name\nif true {env: []}",
        "// +patchKey=two words\nenv: []",
        "// +patchKey\nenv: []",
        "// +usage=text\nenv: []",
        "text: \"\"\"\n// +patchKey=name\nenv: []\n\"\"\"",
        "text: \"\\(\"// +patchKey=name\")\"\nenv: []",
    ] {
        assert_eq!(body(template), template);
    }
}

#[test]
fn a_component_has_no_markers() {
    let template = "// +patchKey=name\nenv: []";
    assert_eq!(scan(template, Role::Component, false).unwrap().body, template);
}

#[test]
fn labels_keep_their_quotes() {
    for (label, sibling) in [
        ("\"a-b\"", "\"$+a-b\""),
        ("#\"a\"#", "#\"$+a\"#"),
        ("\"\\(k)-x\"", "\"$+\\(k)-x\""),
    ] {
        let template = format!("// +patchKey=name\n{label}: []");
        assert!(
            body(&template).contains(&format!("{sibling}: {{patchKey: \"name\"}}, {label}")),
            "{label}"
        );
    }
}

#[test]
fn a_marker_on_a_pattern_is_refused_by_line() {
    assert_eq!(
        error("a: 1\n// +patchKey=name\n[string]: []"),
        "line 3: a patch marker needs a field with a name, not [string]"
    );
}

#[test]
fn an_open_list_is_marked_only_beside_other_markers() {
    let template = "patch: a: [{x: 1}, ...]\n";
    assert_eq!(body(template), template);
    let marked = format!("{template}// +patchKey=name\npatch: b: []\n");
    assert!(body(&marked).starts_with("patch: \"$+a\": {open: \"true\"}, patch: a: [{x: 1}, ...]\n"));
}

#[test]
fn an_open_list_of_a_patch_of_outputs_is_always_marked() {
    let template = "patchOutputs: service: ports: [{port: 1}, ...]";
    assert!(body(template).contains("patchOutputs: service: \"$+ports\": {open: \"true\"}, "));
}

#[test]
fn a_list_within_an_expression_is_not_open() {
    let template = "// +patchKey=name\npatch: b: []\npatch: a: [1, ...] & x\npatch: c: x[0]\n";
    assert!(!body(template).contains("open"));
}

#[test]
fn a_comprehension_over_a_reference_gets_a_guard() {
    let template = "outputs: {\nfor v in parameter.claims {\n\"\\(v.name)\": v\n}\nif x for k, v in a.b {}\n}";
    let expected = "outputs: {\nif parameter.claims != _|_ for v in parameter.claims {\n\"\\(v.name)\": v\n}\n\
                    if x if a.b != _|_ for k, v in a.b {}\n}";
    assert_eq!(scan(template, Role::Component, false).unwrap().body, expected);
}

#[test]
fn other_comprehensions_stay_as_they_are() {
    for template in [
        "output: {for v in parameter.claims {}}",
        "outputs: a: [for v in parameter.claims {v}]",
        "outputs: {for v in [1, 2] {}}",
        "outputs: {for v in {a: 1} {(v): 1}}",
        "outputs: {if parameter.x {a: 1}}",
        "outputs: {for: 1, if: 2}",
    ] {
        assert_eq!(body(template), template);
    }
}

#[test]
fn imports_and_the_package_clause_are_lifted() {
    let template = "package main\n\nimport \"strings\"\nimport (\n\t\"list\"\n\tj \"encoding/json\"\n)\nimport k8s \"x/y\"\noutput: 1\n";
    let scan = scan(template, Role::Component, false).unwrap();
    assert_eq!(
        scan.imports,
        "import \"strings\"\nimport (\n\t\"list\"\n\tj \"encoding/json\"\n)\nimport k8s \"x/y\"\n"
    );
    assert_eq!(scan.body.trim(), "output: 1");
    assert_eq!(scan_fields("import: 1"), ["import"]);
}

fn scan_fields(template: &str) -> Vec<String> {
    scan(template, Role::Trait, false).unwrap().fields
}

#[test]
fn unconditional_fields_of_the_top_level_are_known() {
    let template =
        "output: a: 1, \"outputs\": {}\n#patch: 1\nif x {errs: []}\npatchOutputs?: 1\nX=patch: {output2: 1}\n";
    assert_eq!(scan_fields(template), ["output", "outputs", "#patch", "patch"]);
}

#[test]
fn private_details_are_known() {
    let template = "a: 1 @local()\nb: {c: 2 @private()}\nd: [1] @private(x)\ne: 1 @other()\n";
    assert_eq!(scan(template, Role::Status, false).unwrap().private, ["a", "d"]);
}

#[test]
fn constrained_lists_beside_markers_yield_a_copy_without_marked_values() {
    let template = "patch: {\n// +patchKey=name\nenv: [{a: [1, ...{}]}]\nlist: [...{x: 1}]\n}";
    let unmarked = scan(template, Role::Trait, false).unwrap().unmarked.unwrap();
    assert_eq!(unmarked, "patch: {\n// +patchKey=name\nenv: _\nlist: [...{x: 1}]\n}");
    assert!(
        scan("patch: list: [...{x: 1}]", Role::Trait, false)
            .unwrap()
            .unmarked
            .is_none()
    );
}

#[test]
fn names_selected_from_the_context_are_known() {
    let only = |names: &[&str]| ContextNames::Only(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(
        context_names("a: context.name\nb: \"x-\\(context.namespace).\\(context.name)\""),
        only(&["name", "namespace"])
    );
    assert_eq!(context_names("a: x.context\n// context\nb: \"context\""), only(&[]));
    assert_eq!(context_names("a: context[\"name\"]"), ContextNames::All);
    assert_eq!(context_names("a: {b: context}"), ContextNames::All);
    assert_eq!(context_names("context: name: \"web\""), ContextNames::All);
    assert_eq!(context_names("a: \"unclosed"), ContextNames::All);
}

#[test]
fn broken_source_is_named_by_line() {
    for (template, expected) in [
        ("a: {\nb: [1}\n", "line 2: unexpected '}'"),
        ("a: 1\n}", "line 2: unexpected '}'"),
        ("a: 1\nb: {", "line 2: a bracket is not closed"),
        ("a: \"x\nb: 1", "line 1: a string is not closed"),
        ("a: \"\"\"\nx", "line 1: a string is not closed"),
        ("a: \"\\(x]\"", "line 1: unexpected ']'"),
        ("a: \"\\(x", "line 1: a bracket is not closed"),
    ] {
        assert_eq!(error(template), expected, "{template}");
    }
}

#[test]
fn deep_and_large_templates_are_refused() {
    for bracket in ["{", "[", "(", "\"\\(", "{a: [", "if x {"] {
        assert_eq!(
            error(&bracket.repeat(3_000)),
            "line 1: brackets are nested more than 200 deep",
            "{bracket}"
        );
    }
    let large = format!("a: \"{}\"", "x".repeat(1024 * 1024));
    assert_eq!(error(&large), "line 1: the template is larger than 1024 KiB");
}

#[test]
fn literals_of_all_forms_hide_their_content() {
    for literal in [
        "\"{\"",
        "'{'",
        "\"\"",
        "\"\\\"{\"",
        "#\"\\(\"{\"#",
        "##\"\"#\"##",
        "\"\"\"\n{ \"\" \\\"\"\"\n\"\"\"",
        "'''\n{\n'''",
        "#\"\"\"\n\\(\n\"\"\"#",
        "\"\\(\"}\")\\(\"\\(1)\")\"",
        "#\"\\#(\"}\")\"#",
    ] {
        let template = format!("a: {literal}\n// +patchKey=name\nb: []\n");
        assert!(body(&template).contains("\"$+b\""), "{literal}");
    }
}

#[test]
fn a_strict_template_declares_its_parameter_in_a_definition() {
    let template = "parameter: a: int\nif x {parameter: b: int}\noutput: {parameter: 1}\n";
    let strict = scan(template, Role::Component, true).unwrap();
    assert_eq!(
        strict.body,
        "#velaParameter: a: int\nif x {#velaParameter: b: int}\noutput: {parameter: 1}\n"
    );
    assert!(strict.closes_parameter);
    assert!(!scan("output: {}", Role::Component, true).unwrap().closes_parameter);
    assert_eq!(scan(template, Role::Component, false).unwrap().body, template);
}

#[test]
fn repeated_pieces_are_scanned_in_linear_time() {
    for piece in PIECES
        .iter()
        .copied()
        .chain(["a: ", "a: b\n", "[string]: ", "for x in y ", "a: [1, ...]\n", "X=a: "])
    {
        let text = format!(
            "patch: x: {}\n// +patchKey=name\nb: []",
            piece.repeat(200_000 / piece.len())
        );
        let _ = scan(&text, Role::Trait, true);
        let _ = context_names(&text);
    }
}

#[test]
fn templates_nested_to_the_limit_are_scanned() {
    for (open, close) in [
        ("{a: ", "}"),
        ("[", "]"),
        ("(", ")"),
        ("{if x {", "}}"),
        ("\"\\(", ")\""),
        ("[for x in y {", "}]"),
    ] {
        let depth = 199 / open.matches(['{', '[', '(']).count();
        let template = format!("patch: {}1{}", open.repeat(depth), close.repeat(depth));
        assert!(scan(&template, Role::Trait, false).is_ok(), "{open}");
    }
}

/// Pieces of templates, which random sequences turn into valid and broken ones.
const PIECES: [&str; 40] = [
    "patch",
    "patchOutputs",
    "outputs",
    "parameter",
    "context",
    "a",
    "\"b\"",
    "$c",
    "_d",
    "#E",
    ": ",
    ", ",
    "\n",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "...",
    "if ",
    "for ",
    "let ",
    "in ",
    "x.y",
    " = ",
    " & ",
    " | ",
    "*",
    "?",
    "!=",
    "_|_",
    "@",
    "1.5e+3",
    "\"\\(",
    "\"",
    "\"\"\"\n",
    "#\"",
    "// +patchKey=name\n",
    "é",
];

/// Has all that the rules look at.
const TEMPLATE: &str = r##"package main
import ("strings", j "encoding/json")
let x = {for k, v in parameter.env {(k): v}}
#Base: {
	// +patchKey=name
	// +patchStrategy=retainKeys
	containers: [{name: context.name, env: [for k, v in x {name: k, value: "\(strings.ToLower("\(v)"))"}]}, ...]
	text: """
		a {
		"""
	raw: #"\(x)"#, optional?: [string]: *1 | int
}
// +patchStrategy=jsonMergePatch
patch: spec: template: spec: #Base & {"quoted-label": 'bytes', X=alias: [...{a: X}]} @attribute(a, b={c})
if parameter.on {
	patchOutputs: service: ports: [{port: 1}, ...]
}
outputs: {for v in parameter.claims if v != _|_ {"c-\(v)": j.Marshal(v)}}
parameter: {on: *false | bool, env: [string]: string, claims?: [...string]}
"##;

fn pieces() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES.as_slice()), 0..60).prop_map(|pieces| pieces.concat())
}

/// A value without lists, markers or comprehensions.
fn plain_value() -> impl Strategy<Value = String> {
    let scalar = prop::sample::select(
        [
            "1",
            "\"x\"",
            "string",
            "*1 | int",
            "parameter.a",
            "\"\\(context.name)-x\"",
            "'y'",
        ]
        .as_slice(),
    );
    scalar.prop_map(str::to_owned).prop_recursive(4, 32, 4, |value| {
        prop::collection::vec(value, 0..4).prop_map(|values| {
            let fields = values
                .iter()
                .enumerate()
                .map(|(index, value)| format!("f{index}: {value}\n"));
            format!("{{\n{}}}", fields.collect::<String>())
        })
    })
}

proptest! {
    #[test]
    fn any_text_is_scanned_or_refused(text in "\\PC*") {
        for role in [Role::Component, Role::Trait, Role::Status] {
            let _ = scan(&text, role, false);
        }
        let _ = context_names(&text);
    }

    #[test]
    fn any_sequence_of_pieces_is_scanned_or_refused(text in pieces()) {
        for role in [Role::Component, Role::Trait, Role::Status] {
            let _ = scan(&text, role, false);
        }
    }

    #[test]
    fn any_bytes_are_scanned_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = scan(&String::from_utf8_lossy(&bytes), Role::Trait, true);
    }

    #[test]
    fn a_mutated_template_is_scanned_or_refused(at in 0..TEMPLATE.len(), length in 0..40_usize, piece in pieces()) {
        let start = TEMPLATE.floor_char_boundary(at);
        let end = TEMPLATE.floor_char_boundary((at + length).min(TEMPLATE.len()));
        let mutated = format!("{}{piece}{}", &TEMPLATE[..start], &TEMPLATE[end.max(start)..]);
        for role in [Role::Component, Role::Trait, Role::Status] {
            let _ = scan(&mutated, role, true);
        }
        let _ = context_names(&mutated);
    }

    #[test]
    fn a_template_to_which_no_rule_applies_stays_equal(value in plain_value()) {
        let template = format!("output: {value}\npatch: {value}\n// a comment\noutputs: {value}\n");
        prop_assert_eq!(body(&template), template);
    }

    #[test]
    fn a_rewritten_template_without_the_siblings_is_the_template(text in pieces()) {
        if let Ok(scan) = scan(&text, Role::Component, false)
            && scan.imports.is_empty()
            && !text.contains("for ")
        {
            prop_assert_eq!(scan.body, text);
        }
    }
}

#[test]
fn templates_that_read_the_status_of_the_workload_are_found() {
    for (template, expected) in [
        ("a: context.output.status.ready", true),
        ("if context . output.status != _|_ {a: 1}", true),
        ("a: \"\\(context.output.status.ready)\"", true),
        ("a: context.output[\"status\"]", true),
        ("let o = context.output\na: o.status.ready", true),
        ("a: context[\"output\"].status", true),
        ("a: context.output.metadata.name", false),
        ("// context.output.status", false),
        ("a: context.output.spec", false),
        ("a: context.outputs.status", false),
        ("{", false),
    ] {
        assert_eq!(reads_output_status(template), expected, "{template}");
    }
}

#[test]
fn a_template_that_reads_its_patch_is_told_from_one_that_only_sets_it() {
    for (template, expected) in [
        ("patch: spec: 1", true),
        ("if parameter.x {patch: spec: 1}", true),
        ("patch: spec: context.patch", true),
        ("patch: a: 1\noutputs: x: patch.a", false),
        ("patch: a: 1\nb: \"\\(patch.a)\"", false),
        ("outputs: x: {}", false),
    ] {
        assert_eq!(
            scan(template, Role::Trait, false).unwrap().only_sets_patch,
            expected,
            "{template}"
        );
    }
}
