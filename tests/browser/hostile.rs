//! A catalog whose texts, files and icons try to run, to load and to deceive.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::catalog::{Catalog, TABS};
use super::driver::Browser;
use crate::support::archives::{Archive, Chart};

/// Blocks of Markdown.
const README: &[&str] = &[
    "# Title <script>alert(1)</script>",
    "<script>alert(1)</script>",
    "<script src=\"https://evil.example/a.js\"></script>",
    "<img src=\"https://evil.example/a.png\" onerror=\"alert(1)\">",
    "<img src=x onerror=alert(1)>",
    "<IMG SRC=\"jav&#x09;ascript:alert(1)\">",
    "<img src=\"data:image/svg+xml,<svg onload='alert(1)'/>\" srcset=\"https://evil.example/b.png 2x\">",
    "![pixel](https://evil.example/pixel.png)",
    "![script](javascript:alert(1))",
    "![data](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)",
    "[script](javascript:alert(1))",
    "[script](JaVaScRiPt:alert(1))",
    "[script](&#106;avascript:alert(1))",
    "[script](java\tscript:alert(1))",
    "[data](data:text/html,<script>alert(1)</script>)",
    "[vbscript](vbscript:alert(1)) [file](file:///etc/passwd) [other host](//evil.example/a)",
    "<javascript:alert(1)>",
    "[reference]\n\n[reference]: javascript:alert(1) \"onmouseover=alert(1)\"",
    "<a href=\"https://good.example\" onclick=\"alert(1)\" style=\"position: fixed; inset: 0\">good</a>",
    "<a href=\" javascript:alert(1)\" autofocus onfocus=\"alert(1)\">focus</a>",
    "<form action=\"https://evil.example\" id=\"search\"><input name=\"token\" autofocus onfocus=\"alert(1)\"><button>Sign in</button></form>",
    "<input name=\"q\" id=\"q\"><button form=\"search\" formaction=\"https://evil.example\">Search</button>",
    "<style>body { display: none; background: url(https://evil.example/c.png) }</style>",
    "<link rel=\"stylesheet\" href=\"https://evil.example/a.css\">",
    "<div style=\"background: url(https://evil.example/d.png)\">styled</div>",
    "<svg onload=\"alert(1)\"><script>alert(1)</script><a xlink:href=\"javascript:alert(1)\"><text>x</text></a></svg>",
    "<svg><use href=\"https://evil.example/e.svg#x\"/><image href=\"https://evil.example/f.png\"/><animate onbegin=\"alert(1)\"/></svg>",
    "<svg><foreignObject><iframe src=\"https://evil.example\"></iframe></foreignObject></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=x onerror=alert(1)&gt;\">",
    "<math><mi xlink:href=\"data:x,<script>alert(1)</script>\">m</mi></math>",
    "<iframe src=\"https://evil.example\" srcdoc=\"<script>alert(1)</script>\"></iframe>",
    "<object data=\"https://evil.example/a.swf\"></object><embed src=\"https://evil.example/b.swf\">",
    "<video src=\"https://evil.example/a.mp4\" poster=\"https://evil.example/g.png\" onerror=\"alert(1)\" autoplay></video>",
    "<audio src=\"https://evil.example/a.mp3\" autoplay></audio><source src=\"https://evil.example/b.mp3\">",
    "<details open ontoggle=\"alert(1)\"><summary>more</summary>text</details>",
    "<marquee onstart=\"alert(1)\">text</marquee>",
    "<base href=\"https://evil.example/\">",
    "<meta http-equiv=\"refresh\" content=\"0; url=https://evil.example\">",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<template><script>alert(1)</script></template><textarea></textarea><img src=x onerror=alert(1)></textarea>",
    "<p id=\"main\" name=\"main\" class=\"skip\">clobbered</p><p id=\"results\" data-prefix=\"https://evil.example\">x</p>",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "| <img src=x onerror=alert(1)> | \u{202e}gnihsihp |\n|---|---|\n| `</code><script>alert(1)</script>` | x |",
    "**kept to the end**",
];
const VALUES: &str = "# </pre><script>alert(1)</script>\nkey: \"<img src=x onerror=alert(1)>\"\n\
                      \"<svg onload=alert(1)>\":\n  '\"><script>alert(1)</script>': 1\n";
const MARKUP: &str = "\"'><img src=x onerror=alert(1)><script>alert(1)</script>\u{202e}";
const SVG: &str = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script>\
                   <image href='https://evil.example/h.png'/><foreignObject><script xmlns='http://www.w3.org/1999/xhtml'>\
                   alert(1)</script></foreignObject><use href='https://evil.example/i.svg#x'/></svg>";

fn readme(version: &str) -> Archive {
    let values = format!("{VALUES}version: \"{version}<b>\"\n");
    let schema = json!({ "title": MARKUP, "properties": { MARKUP: { "default": MARKUP, "description": MARKUP } } });
    let hostile = json!([
        MARKUP,
        "javascript:alert(1)",
        "data:text/html,<script>alert(1)</script>"
    ]);
    Chart::new("readme", version)
        .field("description", format!("Words {MARKUP}"))
        .field("appVersion", MARKUP)
        .field("kubeVersion", MARKUP)
        .field("keywords", hostile.clone())
        .field("home", "javascript:alert(1)")
        .field("sources", hostile)
        .field(
            "maintainers",
            json!([{ "name": MARKUP, "email": "javascript:alert(1)", "url": "javascript:alert(1)" }]),
        )
        .field(
            "dependencies",
            json!([{ "name": MARKUP, "version": MARKUP, "repository": "javascript:alert(1)" }]),
        )
        .field(
            "annotations",
            json!({
                "category": MARKUP,
                MARKUP: MARKUP,
                "artifacthub.io/license": MARKUP,
                "artifacthub.io/changes": format!("- {}\n- kind: x\n  description: {}\n", json!(MARKUP), json!(MARKUP)),
                "artifacthub.io/links": format!("- name: {}\n  url: javascript:alert(1)\n", json!(MARKUP)),
                "artifacthub.io/images": "&a [*a, *a, *a]",
                "artifacthub.io/signKey": "{{{ no YAML <script>alert(1)</script>",
            }),
        )
        .file("README.md", README.join("\n\n"))
        .file("values.yaml", values)
        .file("values.schema.json", schema.to_string())
        .pack()
}

/// A chart whose versions have no value in common.
fn vast(version: &str) -> Archive {
    let lines = (0..20_000).map(|line| format!("key-{line}: \"<script>alert('{version}')</script>\"\n"));
    let values: String = lines.collect();
    Chart::new("vast", version).file("values.yaml", values).pack()
}

fn charts() -> Vec<Archive> {
    let with_readme = |name: &str, readme: String| Chart::new(name, "1.0.0").file("README.md", readme).pack();
    let line = "<script>alert(1)</script> [x](javascript:alert(1))\n\n";
    vec![
        readme("1.1.0"),
        readme("1.0.0"),
        vast("1.1.0"),
        vast("1.0.0"),
        with_readme("large", line.repeat(5 * 1024 * 1024 / line.len())),
        with_readme("nested", format!("{} <img src=x onerror=alert(1)>", ">".repeat(10_000))),
        with_readme("plain", line.repeat(600 * 1024 / line.len())),
        Chart::new("cyclic", "1.0.0")
            .file("values.yaml", "cycle: &a [*a, <b>]\n")
            .pack(),
        Chart::new("renamed", "1.0.0").pack(),
    ]
}

/// Opens a page, and asserts that it is inert.
async fn assert_inert(browser: &Browser, origin: &str, path: &str) {
    const FOREIGN_LINKS: &str = "return [...document.querySelectorAll('[href], [src], [action], [formaction], [srcset]')].filter(
        (element) => !['http:', 'https:', 'mailto:'].includes(new URL(
            element.getAttribute('href') ?? element.getAttribute('src') ?? element.getAttribute('action') ?? 'data:x', location).protocol)
    ).map((element) => element.outerHTML.slice(0, 200))";
    const LOADS: &str = "return [...document.querySelectorAll('iframe, object, embed, video, audio, style, base, meta[http-equiv], \
                         main script, main link, main svg [href]')].map((element) => element.outerHTML.slice(0, 200))";
    const HANDLERS: &str = "return [...document.querySelectorAll('*')].filter(
        (element) => [...element.attributes].some(({ name }) => name.startsWith('on') || name === 'style' || name === 'autofocus')
    ).map((element) => element.outerHTML.slice(0, 200))";
    browser.open(path).await;
    for script in [FOREIGN_LINKS, LOADS, HANDLERS] {
        let found: Vec<String> = browser.js(script).await;
        assert!(found.is_empty(), "{path}: {found:#?}");
    }
    // The frame is what it is on other pages.
    browser
        .until("document.querySelector('header #search')?.checkVisibility() && document.querySelectorAll('#search, #q, #main').length === 3")
        .await;
    let events = browser.events().await;
    assert_eq!(events.dialogs(), 0, "{path}");
    let requests = events.requests();
    assert!(!requests.is_empty(), "{path}");
    for url in requests {
        assert!(url.starts_with(origin), "{path}: {url}");
    }
    let errors = browser.console_errors().await;
    assert!(errors.is_empty(), "{path}: {errors:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_hostile_catalog_runs_loads_or_deceives() {
    let renamed = "<script>alert(1)<%2Fscript>";
    let name = format!(
        "PRAGMA foreign_keys = OFF;
         UPDATE charts SET chart_id = 'stable/{renamed}', info = replace(info, '\"renamed\"', '\"{renamed}\"')
         WHERE chart_id = 'stable/renamed'"
    );
    let icon = format!(
        "UPDATE charts SET info = json_set(info, '$.raw_icon', '{}') WHERE chart_id = 'stable/readme'",
        BASE64_STANDARD.encode(SVG)
    );
    let text = MARKUP.replace('\'', "''");
    let condition = format!(
        "UPDATE portolan_repositories
         SET ready = FALSE, details = json_set(details, '$.state.reason', '{text}', '$.state.message', '{text}')"
    );
    let history = format!("UPDATE portolan_syncs SET result = 'Failed', reason = '{text}', message = '{text}'");
    let catalog = Catalog::of(charts(), &[name, icon, condition, history]).await;
    let (origin, browser) = (&catalog.serving.url, catalog.browser().await);
    browser.open("/").await;
    browser
        .until("document.querySelector('#cards').textContent.includes('<script>alert(1)</script>')")
        .await;
    let path = |chart: &str| format!("/charts/default/stable/{chart}");
    let mut paths: Vec<String> = [
        "/",
        "/?q=alert",
        "/?q=%22%20autofocus%20onfocus=%22alert(1)",
        "/?category=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        "/repositories",
        "/repositories/default/stable",
        "/repositories/default/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/charts/default/stable/readme/diff?from=1.0.0&to=1.1.0",
        "/charts/default/stable/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/charts/default/stable/readme/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/login?next=javascript:alert(1)",
    ]
    .map(str::to_owned)
    .into();
    paths.extend(TABS.map(|tab| format!("{}?tab={tab}", path("readme"))));
    for view in ["q=%3Cscript%3E", "view=file"] {
        paths.push(format!("{}?tab=values&{view}", path("readme")));
    }
    let large = [
        "large",
        "nested",
        "plain",
        "cyclic?tab=values",
        "vast?tab=values",
        "vast/diff?from=1.0.0&to=1.1.0",
    ];
    paths.extend(large.map(path));
    for path in &paths {
        assert_inert(&browser, origin, path).await;
    }

    // All these texts are there to read, in the order of their characters.
    for path in ["/", "/repositories", "/repositories/default/stable"] {
        browser.open(path).await;
        let shown = browser.text("main").await;
        assert!(shown.contains("<script>alert(1)</script>"), "{path}: {shown}");
        assert!(!shown.contains('\u{202e}'), "{path}: {shown}");
    }

    // Search while typing fills cards by a script.
    browser.open("/").await;
    browser.enter("#q", "readme").await;
    browser
        .until("document.querySelectorAll('#cards > li').length === 1")
        .await;
    let card: String = browser.js("return document.getElementById('cards').textContent").await;
    assert!(card.contains("<img src=x") && !card.contains('\u{202e}'), "{card}");
    assert_eq!(
        browser
            .js::<usize>("return document.querySelectorAll('#cards img:not([src^=\"/api/\"]), #cards script').length")
            .await,
        0
    );
    // An icon that is opened as a page.
    browser.open("/api/v1/charts/default/stable/readme/icon").await;
    browser.until("document.documentElement.tagName === 'svg'").await;
    let events = browser.events().await;
    assert_eq!(events.dialogs(), 0);
    for url in events.requests() {
        assert!(url.starts_with(origin), "{url}");
    }

    browser.open(&format!("{}?tab=readme", path("readme"))).await;
    let readme = browser.text("main").await;
    assert!(readme.contains("kept to the end"), "{readme}");
    assert!(
        browser
            .js::<bool>("return getComputedStyle(document.body).display !== 'none'")
            .await
    );
}
