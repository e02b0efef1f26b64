use proptest::prelude::*;

use super::*;

fn html(text: &str) -> String {
    match render(text) {
        Markup::Html(html) => html,
        Markup::Text(text) => panic!("not rendered: {text}"),
    }
}

#[test]
fn markdown_is_rendered() {
    for (text, expected) in [
        (
            "# web\n\n#### Values",
            "<h2 id=\"readme-web\">web</h2><h3 id=\"readme-values\">Values</h3>",
        ),
        (
            "# A `b` c!\n\n# A b c",
            "<h2 id=\"readme-a-b-c\">A <code>b</code> c!</h2><h2 id=\"readme-a-b-c-1\">A b c</h2>",
        ),
        (
            "~~a~~ **b**\n- [x] done",
            "<p><del>a</del> <strong>b</strong></p>\n<ul>\n<li>☑ done</li>\n</ul>\n",
        ),
        (
            "```yaml\na: <b>\n```",
            "<pre tabindex=\"0\"><code>a: &lt;b&gt;\n</code></pre>\n",
        ),
    ] {
        assert_eq!(html(text), expected, "{text}");
    }
    let table = html("|a|b|\n|-|:-:|\n|1|2|");
    assert!(table.contains("<th>b</th>") && table.contains("<td>2</td>"), "{table}");
}

#[test]
fn links_are_absolute_or_within_the_readme_and_images_are_links() {
    let rel = "rel=\"nofollow noopener noreferrer\"";
    for (text, expected) in [
        (
            "[a](https://a.example/?b=1&c=2)",
            format!("<p><a href=\"https://a.example/?b=1&amp;c=2\" {rel}>a</a></p>\n"),
        ),
        (
            "<jane@a.example>",
            format!("<p><a href=\"mailto:jane@a.example\" {rel}>jane@a.example</a></p>\n"),
        ),
        (
            "[a](#values)",
            format!("<p><a href=\"#readme-values\" {rel}>a</a></p>\n"),
        ),
        (
            "[a](docs/a.md) [b](//b.example) [c](ftp://c.example)",
            "<p>a b c</p>\n".to_owned(),
        ),
        (
            "![logo](https://a.example/a.png)",
            format!("<p><a href=\"https://a.example/a.png\" {rel}>logo</a></p>\n"),
        ),
        ("![](a.png)", "<p>image</p>\n".to_owned()),
        (
            "[![build](https://a.example/a.svg)](https://b.example)",
            format!("<p><a href=\"https://b.example\" {rel}>build</a></p>\n"),
        ),
    ] {
        assert_eq!(html(text), expected, "{text}");
    }
}

#[test]
fn an_image_in_a_heading_ends_with_it() {
    let shown = html("# ![logo](https://a.example/a.png) web\n\ntext\n\n## ![](b.png)\n\nmore");
    assert!(
        shown.starts_with("<h2 id=\"readme-logo-web\"><a href=\"https://a.example/a.png\""),
        "{shown}"
    );
    assert!(
        shown.contains(">logo</a> web</h2>") && shown.contains("<p>text</p>"),
        "{shown}"
    );
    assert!(
        shown.contains(">image</h3>") && shown.contains("<p>more</p>"),
        "{shown}"
    );
}

#[test]
fn hostile_html_is_inert() {
    for text in [
        "<script>alert(1)</script>",
        "a <script>alert(1)</script> b",
        "<img src=x onerror=alert(1)>",
        "<img src=\"https://a.example/a.png\" onload='alert(1)'>",
        "<svg onload=alert(1)><script>alert(1)</script></svg>",
        "<svg><style><img src=x onerror=alert(1)></style></svg>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "<a href=\"java&#115;cript:alert(1)\">a</a>",
        "<a href=\" \tjavascript:alert(1)\">a</a>",
        "<a href='data:text/html,<script>alert(1)</script>'>a</a>",
        "![a](data:image/svg+xml;base64,AAAA)",
        "![a](javascript:alert(1))",
        "<javascript:alert(1)>",
        "<form action=https://a.example><input name=q><button>Send</button></form>",
        "<style>body{display:none}</style>",
        "<p style=\"position:fixed\" class=card onclick=alert(1)>a</p>",
        "<iframe src=https://a.example></iframe><object data=a></object><embed src=a>",
        "<base href=https://a.example><meta http-equiv=refresh content=0><link rel=stylesheet href=//a.example>",
        "<a id=main name=x href='https://a.example' target=_top ping=https://b.example>a</a>",
        "<details open ontoggle=alert(1)><summary>a</summary></details>",
        "# <img src=x onerror=alert(1)>",
        "# a\" onclick=\"alert(1)",
        "```\" onclick=\"alert(1)\na\n```",
        "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
        "<a href=\"https://a.example\"\"onclick=alert(1)>a</a>",
        "<!--><img src=x onerror=alert(1)>-->",
    ] {
        let html = html(text);
        for tag in html
            .split('<')
            .skip(1)
            .map(|tag| tag.split('>').next().unwrap_or_default())
        {
            let mut parts = tag.trim_end_matches('/').split([' ', '\n']);
            let name = parts.next().unwrap_or_default().trim_start_matches('/');
            let allowed = [
                "a",
                "blockquote",
                "code",
                "details",
                "h2",
                "p",
                "pre",
                "span",
                "summary",
                "table",
                "tbody",
            ];
            assert!(allowed.contains(&name), "{text}: {html}");
            for attribute in parts.filter(|part| part.contains('=')) {
                let is_inert = [
                    "href=\"https://a.example",
                    "id=\"readme-",
                    "rel=\"nofollow",
                    "tabindex=\"0\"",
                ];
                assert!(
                    is_inert.iter().any(|start| attribute.starts_with(start)),
                    "{text}: {html}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn no_mixture_of_markdown_and_tags_fails_the_check(parts in prop::collection::vec(fragment(), 0..40)) {
        html(&parts.concat());
    }
}

fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        " ",
        "\n",
        "\n\n",
        "&",
        "&lt;",
        "&#60;",
        "\"",
        "'",
        "<",
        ">",
        "/",
        "=",
        "`",
        "```\n",
        "# ",
        "> ",
        "- ",
        "7. ",
        "|",
        "|-|-|\n",
        "**",
        "~~",
        "[",
        "]",
        "](",
        ")",
        "](#a)",
        "](https://a.example/?b=\"<c>&d)",
        "![",
        "---\n",
        "    ",
        "\\\n",
        "<a href=\"https://a.example\">",
        "<a href='https://a.example/\"b' id='c>\"d'>",
        "</a>",
        "<b>",
        "</b>",
        "<p",
        "<td>",
        "<table>",
        "</table>",
        "<h1 id=x>",
        "</h1>",
        "<img src=https://a.example alt='\"<b>'>",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<details>",
        "<hr/>",
        "<https://a.example/\">",
        "<jane@a.example>",
    ])
}

#[test]
fn raw_elements_end_with_the_element_that_contains_them() {
    for (text, expected) in [
        ("a <b>b\n\nc", "<p>a <b>b</b></p>\n<p>c</p>\n"),
        ("a</div></b>", "<p>a</p>\n"),
        (
            "<details>\n<summary>more</summary>\n\n*b*\n\n</details>",
            "<details>\n<summary>more</summary>\n<p><em>b</em></p>\n</details>",
        ),
        ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
        ("<pre id=b>a</pre>", "<pre id=\"readme-b\" tabindex=\"0\">a</pre>"),
        ("a &amp; <kbd>b &lt;</kbd>", "<p>a &amp; <kbd>b &lt;</kbd></p>\n"),
    ] {
        let found = html(text);
        assert_eq!(found.trim_end(), expected.trim_end(), "{text}");
    }
}

/// Browsers end elements earlier than their end tags say, such as the `div` in `<li><div><li></li></div></li>`.
#[test]
fn an_end_tag_without_an_open_element_closes_none_of_the_page() {
    let before = |template: &'static str, end: &str| template.split_once(end).unwrap().0;
    let page = [
        before(include_str!("../../templates/base.html"), "{% block main %}"),
        before(
            include_str!("../../templates/chart/chart.html"),
            "{% when Tab::Readme(content) %}",
        ),
        before(include_str!("../../templates/chart/readme.html"), "{{ html|safe }}"),
    ]
    .concat();
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let mut parts = tag.split(|c: char| !c.is_ascii_alphanumeric() && c != '/');
        let name = parts.next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(end) => assert_eq!(open.pop(), Some(end), "{tag}"),
            None if ["", "img", "input", "link", "meta"].contains(&name) => {}
            None => open.push(name),
        }
    }
    // A README can close none of these elements: the check refuses their tags.
    assert_eq!(open, ["html", "body", "main", "article"]);
}

#[test]
fn a_text_that_exceeds_a_limit_stays_text() {
    let quotes = ">".repeat(10_000) + " a";
    let long = "a\n\n".repeat(MAX_BYTES / 3 + 1);
    for text in [quotes.as_str(), &long, &"x".repeat(5 * 1024 * 1024)] {
        let Markup::Text(shown) = render(text) else {
            panic!("rendered: {} bytes", text.len());
        };
        assert!(!shown.is_empty() && shown.len() <= MAX_BYTES);
    }
}

#[test]
fn the_size_of_the_html_is_proportional_to_that_of_the_text() {
    let formats = |count: usize| (0..count).map(|id| format!("<b id=x{id}>")).collect::<String>();
    let bombs = [
        formats(5_000) + &"\n\na".repeat(5_000),
        format!("{}{}", formats(200), "<p>".repeat(50_000)),
        "<b><table></b>".repeat(20_000) + &"\n\na".repeat(10_000),
        "<a \"".repeat(100_000),
        "<div>".repeat(50_000),
        "[".repeat(100_000),
        "![".repeat(100_000),
        format!(
            "{}\n{}\n{}",
            "|a".repeat(2_000),
            "|-".repeat(2_000),
            "|\n".repeat(2_000)
        ),
    ];
    for text in bombs {
        let size = match render(&text) {
            Markup::Html(html) => html.len(),
            Markup::Text(text) => text.len(),
        };
        assert!(size <= 40 * text.len() + 1024 * 1024, "{} of {}", size, text.len());
    }
}

#[test]
fn invisible_characters_are_removed() {
    assert_eq!(html("a\u{202e}b\u{200b}c"), "<p>abc</p>\n");
    assert_eq!(html(""), "");
}
