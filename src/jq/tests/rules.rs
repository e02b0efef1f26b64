//! Expected results of rules. All were verified with gojq 0.12.16, the interpreter of Kubeapps.

use serde_json::json;

use super::*;

/// A chart as stored.
fn chart() -> serde_json::Value {
    json!({
        "name": "loki",
        "repo": {
            "name": "grafana",
            "namespace": "kubeapps",
            "url": "https://grafana.github.io/helm-charts",
            "type": ""
        },
        "description": "Loki: like Prometheus, but for logs. Größe",
        "home": "https://grafana.github.io/helm-charts",
        "keywords": [
            "logs",
            "Grafana"
        ],
        "maintainers": [
            {
                "name": "trevorwhitney",
                "email": "t@example.com"
            },
            {
                "name": "jeschkies"
            }
        ],
        "sources": null,
        "icon": "https://x/y.svg",
        "category": "",
        "raw_icon": null,
        "chartVersions": [
            {
                "version": "6.24.0",
                "app_version": "3.3.1",
                "created": "2024-12-10T00:00:00Z",
                "digest": "abc",
                "urls": [
                    "https://x/loki-6.24.0.tgz"
                ]
            },
            {
                "version": "5.9.1",
                "app_version": "2.9.0",
                "created": "2023-12-10T00:00:00Z",
                "digest": "abd",
                "urls": null
            }
        ]
    })
}

const ANSWERS: [(&str, bool); 232] = [
    (".name == $var0 or .name == $var1", true),
    (r#".name == "tempo""#, false),
    (r#".name == "loki""#, true),
    (".name | test($var0)", true),
    (".name | test($var1)", false),
    (".name | test($var0) | not", false),
    (".name == $var0 or .name == $var1 | not", false),
    (".maintainers | any(.name == $var1)", false),
    (r#".maintainers | any(.name == "jeschkies")"#, true),
    (".maintainers | all(.email)", false),
    (r#".maintainers | all(.name != "")"#, true),
    (r#".maintainers[] | .name == "jeschkies""#, false),
    (r#".name | startswith("lo")"#, true),
    (r#".name | endswith("ki")"#, true),
    (r#".name | contains("ok")"#, true),
    (r#".keywords | contains(["log"])"#, true),
    (r#".keywords | contains(["logs","Gra"])"#, true),
    (r#".keywords | index("logs") == 0"#, true),
    (r#".name | index("ki") == 2"#, true),
    (r#".keywords | map(ascii_downcase) | index("grafana") == 1"#, true),
    (r#"[.keywords[] | ascii_downcase] | any(. == "grafana")"#, true),
    (r#".keywords | any(IN("logs","metrics"))"#, true),
    (r#".name | IN("loki","tempo")"#, true),
    (r#"IN(.name; "loki","tempo")"#, true),
    (r#".name as $n | ["loki","tempo"] | any(. == $n)"#, true),
    (".name | length == 4", true),
    (r#".description | test("größe"; "i")"#, true),
    (r#".description | test("GRÖSSE"; "i")"#, false),
    (r#".description | test("^loki: \\w+ prom"; "i")"#, true),
    (r#".description | test("Gr\\wße")"#, false),
    (r#".description | test("\\bGr.ße$")"#, true),
    (r#".description | test("Prometheus.*logs"; "gim")"#, true),
    (r#".name | test("l[ok]+i")"#, true),
    (r#".name | test("(?<a>l)o")"#, true),
    (r#".name | test("[[:alpha:]]+")"#, true),
    (r#".category == """#, true),
    (".category | not", false),
    (".sources | not", true),
    (".nothing == null", true),
    (".chartVersions | length > 1", true),
    (
        r#".chartVersions[0].version | split(".") | map(tonumber) | . >= [6,0,0]"#,
        true,
    ),
    (
        r#".chartVersions[0].version | split(".") | map(tonumber) | . >= [6,30,0]"#,
        false,
    ),
    (
        r#".chartVersions[0].app_version | ltrimstr("v") | split(".")[0] | tonumber > 2"#,
        true,
    ),
    (r#".chartVersions | map(.version) | index("5.9.1") != null"#, true),
    (".chartVersions | any(.urls == null)", true),
    (r#"[.chartVersions[] | select(.created > "2024")] | length == 1"#, true),
    (r#".chartVersions | first | .version == "6.24.0""#, true),
    (r#".chartVersions | last | has("digest")"#, true),
    (r#"has("name") and has("category")"#, true),
    (r#"has("nothing")"#, false),
    (
        r#".repo.name == "grafana" and (.repo.namespace | startswith("kube"))"#,
        true,
    ),
    (r#"(.icon // "") | endswith(".svg")"#, true),
    (r#"(.nothing // "x") == "x""#, true),
    (r#".name as $x | $x == "loki""#, true),
    (r#"if .name == "loki" then true else false end"#, true),
    (
        r#"if .name == "tempo" then true elif .category == "" then true else false end"#,
        true,
    ),
    (r#".name | ascii_upcase == "LOKI""#, true),
    (r#"[.maintainers[].name] | sort == ["jeschkies","trevorwhitney"]"#, true),
    (
        r#"[.maintainers[].name] | join(",") == "trevorwhitney,jeschkies""#,
        true,
    ),
    (
        r#".maintainers | map(.name) | inside(["trevorwhitney","jeschkies","x"])"#,
        true,
    ),
    (r#".name | in({"loki":1})"#, true),
    (r#"[.keywords[] | select(test("^g"; "i"))] | length > 0"#, true),
    (r#".keywords | map(select(. == "logs")) == ["logs"]"#, true),
    (r#"reduce .keywords[] as $k (false; . or $k == "logs")"#, true),
    (r#"any(.keywords[]; . == "logs")"#, true),
    ("all(.keywords[]; length > 3)", true),
    (r#"isempty(.keywords[] | select(. == "x"))"#, true),
    (r#"first(.keywords[]) == "logs""#, true),
    (r#"[limit(1; .keywords[])] == ["logs"]"#, true),
    (".keywords | unique | length == 2", true),
    (r#".maintainers | map(has("email")) | any"#, true),
    (r#".maintainers | map(has("email")) | all"#, false),
    (r#"to_entries | map(.key) | index("name") != null"#, true),
    (r#"with_entries(select(.key == "name")) == {"name":"loki"}"#, true),
    (r#"del(.chartVersions, .maintainers) | has("maintainers")"#, false),
    (r#".name |= ascii_upcase | .name == "LOKI""#, true),
    (r#".name += "x" | .name == "lokix""#, true),
    ("[paths] | length > 10", true),
    ("(.keywords | length) % 2 == 0", true),
    (r#".name | sub("k"; "c") == "loci""#, true),
    (r#".name | gsub("[ok]"; "") == "li""#, true),
    (r#".name | gsub("(?<c>[ok])"; "<\(.c)>") == "l<o><k>i""#, true),
    (r#".name | [match("o|k"; "g").offset] == [1,2]"#, true),
    (
        r#".name | capture("(?<first>.)(?<rest>.*)") == {"first":"l","rest":"oki"}"#,
        true,
    ),
    (r#".name | [scan("[aeiou]")] == ["o","i"]"#, true),
    (r#".name | [scan("([aeiou])")] == [["o"],["i"]]"#, true),
    (r#""a, b,c" | split(", *"; null) == ["a","b","c"]"#, true),
    (r#".name | explode | implode == "loki""#, true),
    (r#".name | @json == "\"loki\"""#, true),
    (r#".chartVersions | tojson | contains("6.24")"#, true),
    (r#""[1,{\"a\":2}]" | fromjson == [1,{"a":2}]"#, true),
    (".chartVersions | group_by(.created[:4]) | length == 2", true),
    (r#".chartVersions | max_by(.created) | .version == "6.24.0""#, true),
    (r#".chartVersions | min_by(.created) | .version == "5.9.1""#, true),
    (r#".chartVersions | sort_by(.created) | .[0].version == "5.9.1""#, true),
    ("[1,[2,[3]]] | flatten == [1,2,3]", true),
    ("[1,[2,[3]]] | flatten(1) == [1,2,[3]]", true),
    ("[range(5)] == [0,1,2,3,4]", true),
    ("[range(0;10;3)] == [0,3,6,9]", true),
    ("[range(5;0;-2)] == [5,3,1]", true),
    (r#".name[1:3] == "ok""#, true),
    (r#".name[-2:] == "ki""#, true),
    (r#".keywords[1:] == ["Grafana"]"#, true),
    (r#".keywords[-1] == "Grafana""#, true),
    (r#""\(.name)-\(.repo.name)" == "loki-grafana""#, true),
    (r#".name * 2 == "lokiloki""#, true),
    (r#"{"a":{"b":1}} * {"a":{"c":2}} == {"a":{"b":1,"c":2}}"#, true),
    ("[1,2,3] - [2] == [1,3]", true),
    ("1 / 3 < 0.34", true),
    ("7 % 3 == 1", true),
    ("-7 % 3 == -1", true),
    ("5.9 % 3 == 2", true),
    (
        r#"null < false and false < true and true < 0 and 0 < "" and "" < [] and [] < {}"#,
        true,
    ),
    (r#"{"a":1} < {"b":0}"#, true),
    (r#"{"b":1,"a":2} == {"a":2,"b":1}"#, true),
    ("nan < nan", true),
    ("nan == nan", false),
    ("[nan] == [nan]", false),
    ("[nan] | sort == [nan]", false),
    (r#"try error("x") catch . == "x""#, true),
    ("(.name | tonumber)? // true", true),
    (r#""12" | tonumber == 12"#, true),
    (".maintainers | has(0)", true),
    ("true, false", true),
    (r#"false, error("late")"#, false),
    ("[true][]", true),
    (
        r#".maintainers[0] as {name: $n, email: $e} | $n == "trevorwhitney" and $e == "t@example.com""#,
        true,
    ),
    (r#". as {$name} | $name == "loki""#, true),
    ("def f(x): x | length; f(.name) == 4", true),
    (r#"def f($a; $b): $a + $b; f("a"; "b") == "ab""#, true),
    (r#"[.keywords[] | if . == "logs" then 1 else 2 end] | add == 3"#, true),
    ("[1,null,2] | add == 3", true),
    (
        r#"label $out | foreach .keywords[] as $k (0; . + 1; if $k == "logs" then ., break $out else empty end) | . == 1"#,
        true,
    ),
    ("[foreach (1,2,3) as $x (0; . + $x)] == [1,3,6]", true),
    (
        r#"[.keywords[] | ascii_downcase | . as $k | ["x","grafana"] | index($k)] | any(. != null)"#,
        true,
    ),
    ("[[1,2],[3]] | transpose == [[1,3],[2,null]]", true),
    (r#"getpath(["repo","name"]) == "grafana""#, true),
    (r#"setpath(["repo","name"]; "x") | .repo.name == "x""#, true),
    (r#"[paths(type == "number")] == []"#, true),
    (
        r#".chartVersions | map(.version | test("^[0-9]+\\.[0-9]+\\.[0-9]+$")) | all"#,
        true,
    ),
    (r#".name | ltrimstr("lo") == "ki""#, true),
    (r#".name | rtrimstr("ki") == "lo""#, true),
    (r#""  x " | trim == "x""#, true),
    (
        r#".keywords | walk(if type == "string" then ascii_downcase else . end) == ["logs","grafana"]"#,
        true,
    ),
    (r#".name | test("\\Qlo\\E")"#, true),
    (r#""a[b" | test("[[]")"#, true),
    (r#""é" | test("^\\w$")"#, false),
    (r#""é" | test("^\\W$")"#, true),
    (r#""é" | test("^.$")"#, true),
    (r#""a&&b" | test("^[a&&b]+$")"#, true),
    (r#""a]" | test("^[]a]+$")"#, true),
    (r#".keywords | index(["logs"]) == 0"#, true),
    (r#""abcabc" | indices("bc") == [1,4]"#, true),
    ("[1,2,1] | indices(1) == [0,2]", true),
    (r#""x" | ascii_downcase | . == "x""#, true),
    (r#".description | ascii_upcase | contains("LOKI")"#, true),
    (r#"(.keywords | join(" ")) == "logs Grafana""#, true),
    (r#"[1,null,"a",true] | join("-") == "1--a-true""#, true),
    (r#"1.5 | tostring == "1.5""#, true),
    (r#"3.0 | tostring == "3""#, true),
    (r#"$var0 == "loki""#, true),
    (r#"[.maintainers[] | .name | IN($var0, "jeschkies")] | any"#, true),
    (".name | not | not", true),
    ("not", false),
    (".name and true", true),
    (".keywords and .maintainers", true),
    ("null and true", false),
    (".x.y.z == null", true),
    (r#".chartVersions[].version | test("^6")"#, true),
    (r#"[.chartVersions[].version] | any(test("^5"))"#, true),
    (r#""a,b" | [splits(",")] == ["a","b"]"#, true),
    (r#"pick(.name) == {"name":"loki"}"#, true),
    (r#""aXbX" | ascii_downcase | [match("x"; "g").offset] == [1,3]"#, true),
    (r#"{"a":1} | to_entries == [{"key":"a","value":1}]"#, true),
    (r#"[{"name":"a","value":1}] | from_entries == {"a":1}"#, true),
    ("[3,1,2] | min == 1 and max == 3", true),
    ("{} | length == 0", true),
    ("-5 | length == 5", true),
    (r#"[1,[2]] | tostring == "[1,[2]]""#, true),
    (r#""a" | until(length > 8; . + .) | length == 16"#, true),
    ("[1 | while(. < 100; . * 2)] | length == 7", true),
    ("[1 | recurse(if . < 3 then . + 1 else empty end)] == [1,2,3]", true),
    ("first(range(10;0;-1)) == 10", true),
    (r#"nth(1; .keywords[]) == "Grafana""#, true),
    ("[[1,2],[3,4]] | [combinations] | length == 4", true),
    ("[0,1] | [combinations(2)] | length == 4", true),
    (r#""test" | ltrimstr("te") | rtrimstr("t") == "s""#, true),
    (r#"{"a":[1,2]} | [paths] == [["a"],["a",0],["a",1]]"#, true),
    (r#"{"a":[1,2]} | delpaths([["a",0]]) == {"a":[2]}"#, true),
    (r#"{"a":[1,2,3]} | del(.a[0,2]) == {"a":[2]}"#, true),
    (r#"null | .a.b = 1 | . == {"a":{"b":1}}"#, true),
    ("null | .[2] = 1 | . == [null,null,1]", true),
    (r#"[1,2,3] | .[1:] = ["x"] | . == [1,"x"]"#, true),
    ("[1,2,3] | .[-1] = 9 | . == [1,2,9]", true),
    ("pow(2;10) == 1024", true),
    ("4 | sqrt == 2", true),
    ("-1.5 | fabs == 1.5", true),
    ("-1.5 | abs == 1.5", true),
    ("1.5 | floor == 1 and (1.5 | ceil) == 2 and (1.5 | round == 2)", true),
    ("infinite | isinfinite", true),
    ("[1,1,2] | unique == [1,2]", true),
    (r#"[{"a":1,"b":2},{"a":1,"b":3}] | unique_by(.a) | length == 1"#, true),
    (
        r#"[{"a":1,"b":2},{"a":1,"b":3}] | group_by(.a) == [[{"a":1,"b":2},{"a":1,"b":3}]]"#,
        true,
    ),
    (r#"INDEX(.chartVersions[]; .version) | has("5.9.1")"#, true),
    (r#""é1" | @text == "é1""#, true),
    ("[1,2] | contains([1])", true),
    (r#"{"a":"xyz"} | contains({"a":"y"})"#, true),
    (r#"{"a":1} | contains({"b":1})"#, false),
    (r#"["a",1] | contains(["b"])"#, false),
    ("[1] | inside([1,2])", true),
    (r#""b" | inside("abc")"#, true),
    (r#".name | type == "string""#, true),
    (r#""x" | tojson | fromjson == "x""#, true),
    (r#"{(.name): 1} | has("loki")"#, true),
    (r#"{name} == {"name":"loki"}"#, true),
    (r#"{"x":1,name} | length == 2"#, true),
    ("{$var0} | length == 1", true),
    (r#"{"a":(1,2)} | .a == 1"#, true),
    (r#".["name"] == "loki""#, true),
    (r#"."name" == "loki""#, true),
    (r#".maintainers[0]["name"] | type == "string""#, true),
    (".maintainers | .[0].name | length > 3", true),
    (
        r#"(.maintainers | map(.name)) as $names | $names | index("jeschkies") | . != null"#,
        true,
    ),
    ("[.maintainers[]?.name?] | length == 2", true),
    (r#".name? == "loki""#, true),
    (".name | .x? // true", true),
    ("try (.name | .x) catch true", true),
    (r#".chartVersions | .[0] | .urls[0] | test("^https://")"#, true),
    (r#""a-b-c" | split("-") == ["a","b","c"]"#, true),
    (r#""abc" | split("") == ["a","b","c"]"#, true),
    (r#""" | split(",") == []"#, false),
    ("true # comment", true),
];

/// Rules that fail at run time.
const FAILURES: [&str; 26] = [
    r#".name | test("a"; "x")"#,
    r#".name | test("(")"#,
    r#".name | test("(?=l)")"#,
    r#".name | test(["LOKI","i"])"#,
    "1 / 0",
    ".name | error",
    r#"error("own words")"#,
    r#"error({"a":1})"#,
    ".name | tonumber",
    r#""0x1F" | tonumber"#,
    r#"" 12 " | tonumber"#,
    r#""nan" | tonumber"#,
    r#".name | has("x")"#,
    r#".name | ltrimstr(1) == "loki""#,
    ".name | startswith(1)",
    r#"1 | startswith("a")"#,
    ".name | contains(1)",
    r#"[splits("a")] == 1"#,
    r#""abc" | .[1:2] = ["x"]"#,
    r#"[{"key":null,"value":1},{"key":"b"}] | from_entries"#,
    "true | length",
    r#"splits("x")"#,
    "[1] | .[-5] = 9",
    r#"ltrimstr("x") | type == "object""#,
    r#""{" | fromjson"#,
    "[.name] | implode",
];

fn answer(jq: &str) -> Result<bool, FilterError> {
    Filter::compile(&rule(jq, &[("$var0", "loki"), ("$var1", "tempo")]), Limits::default())?.keeps(&chart())
}

#[tokio::test]
async fn rules_give_the_same_results_as_gojq() {
    let wrong = on_large_stack(|| {
        let differs = |(jq, expected): &&(&str, bool)| answer(jq).ok() != Some(*expected);
        let wrong = ANSWERS.iter().filter(differs);
        wrong
            .map(|(jq, _)| format!("{jq}: {:?}", answer(jq)))
            .collect::<Vec<_>>()
    });
    assert_eq!(wrong.await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn rules_fail_where_gojq_fails() {
    let wrong = on_large_stack(|| {
        let answers = FAILURES.iter().map(|jq| (jq, answer(jq)));
        let wrong = answers.filter(|(_, answer)| !matches!(answer, Err(FilterError::Failed { .. })));
        wrong
            .map(|(jq, answer)| format!("{jq}: {answer:?}"))
            .collect::<Vec<_>>()
    });
    assert_eq!(wrong.await.unwrap(), Vec::<String>::new());
}
