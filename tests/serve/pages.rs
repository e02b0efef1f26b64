//! Pages over HTTP: headers, markup that needs no script, and texts of charts that try to be markup.

use super::{Answer, Serving, declare, fill, fill_archives, sync};
use crate::support::archives::{Archive, Chart};
use crate::support::world::World;

const WEB: &str = "/charts/default/stable/web";
const CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                   form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The weight of a page with its style sheet and script, compressed.
const MAX_WEIGHT: usize = 60 * 1024;
const MAX_SCRIPT: usize = 8 * 1024;

fn paths() -> Vec<String> {
    let tabs = ["readme", "values", "schema", "versions", "changes", "about"];
    let of_chart = tabs.map(|tab| format!("{WEB}?tab={tab}"));
    let of_version = tabs.map(|tab| format!("{WEB}/1.0.0?tab={tab}"));
    let others = [
        "/",
        "/?q=web",
        "/?q=nothing",
        "/repositories",
        "/repositories/default/stable",
        "/help",
        "/login",
        WEB,
        "/charts/default/stable/web/1.0.0",
        "/charts/default/stable/web/diff?from=1.0.0&to=1.1.0",
    ];
    let others = others.map(str::to_owned);
    of_chart.into_iter().chain(of_version).chain(others).collect()
}

fn web(version: &str) -> Archive {
    Chart::new("web", version)
        .file("README.md", format!("# Web {version}\n\nServes files.\n"))
        .file("values.yaml", format!("# Version of the image\ntag: \"{version}\"\n"))
        .file("values.schema.json", "{\"type\": \"object\"}")
        .pack()
}

async fn page(serving: &Serving, path: &str) -> Answer {
    serving.request(path, &[("accept", "text/html")]).await
}

/// Returns the values of an attribute, which pages write with double quotes.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let separator = format!(" {name}=\"");
    let mut parts = page.split(separator.as_str());
    parts.next();
    parts.filter_map(|part| part.split('"').next()).collect()
}

/// Returns the tags of a page, in which all other `<` and `>` are escaped.
fn tags(page: &str) -> impl Iterator<Item = &str> {
    page.split('<').skip(1).filter_map(|tag| tag.split('>').next())
}

fn assert_headers(path: &str, answer: &Answer) {
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value, "{path}: {name}");
    }
    let caching = answer.header("cache-control");
    assert!(
        caching.contains("no-cache") || caching.contains("no-store"),
        "{path}: {caching}"
    );
}

/// Asserts what a browser without scripts, a keyboard and a screen reader need, and what the policy would block.
fn assert_markup(path: &str, page: &str) {
    assert!(
        page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"),
        "{path}"
    );
    for part in ["<main", "</main>", "</head>", "</html>"] {
        assert_eq!(page.matches(part).count(), 1, "{path}: {part} in {page}");
    }
    assert!(page.contains("<title>") && page.contains("<h1"), "{path}: {page}");
    assert_eq!(attributes(page, "lang").first(), Some(&"en"), "{path}");
    assert!(page.contains("name=\"viewport\""), "{path}");
    for tag in tags(page) {
        let is_inline = tag.starts_with("style") || (tag.starts_with("script") && !tag.contains(" src=\""));
        let is_active = tag.starts_with("iframe") || tag.contains(" style=\"") || tag.contains("=\"javascript:");
        let has_handler = ["click", "error", "focus", "load"]
            .iter()
            .any(|event| tag.contains(&format!(" on{event}=\"")));
        assert!(!is_inline && !is_active && !has_handler, "{path}: {tag}");
    }
    for url in ["src", "action"].iter().flat_map(|name| attributes(page, name)) {
        assert!(url.starts_with('/') && !url.starts_with("//"), "{path}: {url}");
    }
    let mut ids = attributes(page, "id");
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "{path}: ids are unique");
}

#[tokio::test]
async fn every_page_has_the_headers_and_the_markup_that_browsers_need() {
    let world = World::new().await;
    let url = world.database_url();
    fill_archives(&world, &url, "stable", &[web("1.0.0"), web("1.1.0")]).await;
    let serving = Serving::of(&world, &url).await;
    for path in paths() {
        let answer = page(&serving, &path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_headers(&path, &answer);
        assert_markup(&path, &answer.text());
    }
    for path in [
        "/repositories/default/nothing",
        "/charts/default/stable/nothing",
        "/charts/default/stable/web/9.9.9",
        "/charts/default/stable/web/diff?from=1.0.0&to=9.9.9",
    ] {
        let answer = page(&serving, path).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        assert_headers(path, &answer);
        assert_markup(path, &answer.text());
    }
    let foreign = [("accept", "text/html"), ("host", "evil.example")];
    let answer = serving.request("/", &foreign).await;
    assert_eq!(answer.status, 403);
    assert!(!answer.text().contains("stable"), "{answer:?}");
}

#[tokio::test]
async fn pages_link_to_each_other() {
    let world = World::new().await;
    let url = world.database_url();
    fill_archives(&world, &url, "stable", &[web("1.0.0"), web("1.1.0")]).await;
    let serving = Serving::of(&world, &url).await;
    let mut links: Vec<String> = Vec::new();
    for path in paths() {
        let answer = page(&serving, &path).await.text();
        let local = attributes(&answer, "href")
            .into_iter()
            .filter(|link| link.starts_with('/'));
        links.extend(local.map(|link| link.replace("&amp;", "&").replace("&#38;", "&")));
    }
    links.sort();
    links.dedup();
    for linked in [WEB, "/repositories", "/repositories/default/stable", "/help"] {
        assert!(
            links.iter().any(|link| link.starts_with(linked)),
            "{linked} in {links:?}"
        );
    }
    for link in links {
        let answer = serving.request(&link, &[]).await;
        assert_eq!(answer.status, 200, "{link}: {answer:?}");
    }
}

#[tokio::test]
async fn a_page_that_did_not_change_is_not_sent_again() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let first = page(&serving, "/help").await;
    assert_ne!(first.header("etag"), "");
    let again = serving
        .request("/help", &[("if-none-match", first.header("etag"))])
        .await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert!(first.header("vary").contains("Cookie"), "{first:?}");
}

#[tokio::test]
async fn a_page_is_light() {
    let world = World::new().await;
    let url = world.database_url();
    let names: Vec<String> = (0..200).map(|number| format!("chart-{number}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    fill(&world, &url, "stable", &charts).await;
    let serving = Serving::of(&world, &url).await;
    let packed = async |path: &str| serving.request(path, &[("accept-encoding", "gzip")]).await;
    let start = page(&serving, "/").await.text();
    let mut weight = packed("/").await.body.len();
    let style = attributes(&start, "href")
        .into_iter()
        .filter(|link| link.ends_with(".css"));
    let script = attributes(&start, "src")
        .into_iter()
        .filter(|link| link.ends_with(".js"));
    let (style, script): (Vec<&str>, Vec<&str>) = (style.collect(), script.collect());
    assert_eq!((style.len(), script.len()), (1, 1), "{start}");
    for asset in style.into_iter().chain(script) {
        let plain = serving.request(asset, &[]).await;
        assert_eq!(plain.status, 200, "{asset}");
        assert!(plain.header("cache-control").contains("immutable"), "{plain:?}");
        assert!(
            !asset.ends_with(".js") || plain.body.len() <= MAX_SCRIPT,
            "{}",
            plain.body.len()
        );
        weight += packed(asset).await.body.len();
    }
    assert!(weight <= MAX_WEIGHT, "{weight} bytes");
}

#[tokio::test]
async fn texts_of_charts_are_shown_as_text() {
    const MARKUP: &str = "<img src=x onerror=alert(1)>";
    let world = World::new().await;
    let url = world.database_url();
    let index = format!(
        "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    appVersion: '{MARKUP}'\n    \
         description: 'A \"quoted\" {MARKUP} \u{202E} text'\n    keywords: ['{MARKUP}']\n    home: 'javascript:alert(1)'\n    \
         maintainers: [{{name: '{MARKUP}', url: 'javascript:alert(1)'}}]\n    sources: ['javascript:alert(1)']\n    \
         annotations: {{category: '{MARKUP}', artifacthub.io/changes: '- \"{MARKUP}\"'}}\n    urls: [web-1.0.0.tgz]\n"
    );
    declare(&world, "stable", index);
    sync(&world, &url).await;
    let name = "<script>alert(1)<%2Fscript>";
    let renamed = format!(
        "UPDATE charts SET chart_id = 'stable/{name}', info = replace(info, '\"name\":\"web\"', '\"name\":\"{name}\"')"
    );
    assert_eq!(world.execute(&renamed).await, 1);
    let serving = Serving::of(&world, &url).await;
    let chart = "/charts/default/stable/%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in [
        "/",
        "/?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/?q=%22%20autofocus%20onfocus=%22alert(1)",
        "/repositories/default/stable",
        chart,
        &format!("{chart}?tab=about"),
        &format!("{chart}?tab=versions"),
        &format!("{chart}/1.0.0?tab=readme"),
        &format!("{chart}/%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
        "/repositories/default/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/charts/default/stable/%3Cimg%20src=x%20onerror=alert(1)%3E",
    ] {
        let answer = page(&serving, path).await;
        assert!([200, 404].contains(&answer.status), "{path}: {answer:?}");
        let page = answer.text();
        assert_headers(path, &answer);
        for markup in ["<script>", "<img src=x", " onfocus=\"", "href=\"javascript:"] {
            assert!(!page.contains(markup), "{path}: {markup} in {page}");
        }
    }
    let about = page(&serving, &format!("{chart}?tab=about")).await;
    assert_eq!(about.status, 200, "{about:?}");
    assert!(about.text().contains("alert(1)"), "{about:?}");
}

#[tokio::test]
async fn a_readme_and_values_are_inert() {
    let readme = "# Web\n\n<script>alert(1)</script>\n\n<img src=\"https://evil.example/a.png\" onerror=\"alert(1)\">\n\n\
                  ![pixel](https://evil.example/pixel.png)\n\n[link](javascript:alert(1)) [data](data:text/html,x)\n\n\
                  <form action=\"https://evil.example\"><input name=\"token\"></form>\n\n<style>body{display:none}</style>\n\n\
                  <svg onload=\"alert(1)\"><script>alert(1)</script></svg>\n\n<iframe src=\"https://evil.example\"></iframe>\n\n\
                  <a href=\"https://good.example\" onclick=\"alert(1)\" style=\"position:fixed\">good</a>\n\n**kept**\n";
    let values = "# </pre><script>alert(1)</script>\nkey: \"<img src=x onerror=alert(1)>\"\n";
    let world = World::new().await;
    let url = world.database_url();
    let chart = Chart::new("web", "1.0.0")
        .file("README.md", readme)
        .file("values.yaml", values)
        .pack();
    fill_archives(&world, &url, "stable", &[chart]).await;
    let serving = Serving::of(&world, &url).await;
    for tab in ["readme", "values", "schema"] {
        let path = format!("{WEB}?tab={tab}");
        let answer = page(&serving, &path).await;
        assert_headers(&path, &answer);
        let page = answer.text();
        assert_markup(&path, &page);
        assert_eq!(page.matches("name=\"token\"").count(), 0, "{page}");
        for foreign in [
            " src=\"https://evil",
            " action=\"https://evil",
            "href=\"data:",
            "<svg onload",
            "<script>",
        ] {
            assert!(!page.contains(foreign), "{path}: {foreign} in {page}");
        }
    }
    let shown = page(&serving, &format!("{WEB}?tab=readme")).await.text();
    assert!(shown.contains("<strong>kept</strong>"), "{shown}");
    let link = shown
        .split("<a ")
        .find(|link| link.contains("https://good.example"))
        .unwrap();
    let link = link.split('>').next().unwrap();
    for relation in ["nofollow", "noopener", "noreferrer"] {
        assert!(link.contains(relation), "{link}");
    }
}

#[tokio::test]
async fn crawlers_are_kept_out_and_other_clients_get_problems() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let robots = serving.request("/robots.txt", &[]).await;
    assert_eq!(robots.status, 200);
    assert_eq!(robots.text().trim(), "User-agent: *\nDisallow: /");
    let icon = serving.request("/favicon.ico", &[]).await;
    assert!(icon.header("content-type").starts_with("image/"), "{icon:?}");
    // The API does not turn into pages.
    page(&serving, "/api/v1/nothing").await.problem(404);
    let accept = [("accept", "text/html,*/*;q=0.8")];
    let missing = serving.request("/api/v1/charts/default/stable/nothing", &accept).await;
    missing.problem(404);
}
