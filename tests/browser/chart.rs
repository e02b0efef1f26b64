//! From the catalog to a chart: its files, the comparison of two versions, and the command that installs it.

use super::catalog::{Catalog, TABS, WEB};
use super::driver::Browser;
use super::webdriver::Key;

/// Opens a tab by its link, and asserts that it is the current one.
async fn open_tab(browser: &Browser, tab: &str) {
    browser
        .load(async || browser.click(&format!(".tabs a[href*='tab={tab}']")).await)
        .await;
    browser
        .until(&format!(
            "document.querySelector('.tabs a[aria-current]').search.includes('tab={tab}')"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_is_two_clicks_from_the_command_that_installs_it() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.allow_clipboard().await;
    browser.open("/?q=redis").await;
    browser.load(async || browser.click("#cards h2 a").await).await;
    assert_eq!(browser.path().await, "/charts/default/stable/redis");
    let source: String = browser
        .js("return document.getElementById(document.querySelector('main .copy').dataset.copy).textContent")
        .await;
    assert!(source.contains("helm install") && source.contains("redis"), "{source}");
    browser.click("main .copy").await;
    browser
        .until("document.querySelector('main .copy').textContent === 'Copied'")
        .await;
    assert_eq!(browser.clipboard().await, source);
    // The button says again what it does.
    browser
        .until("document.querySelector('main .copy').textContent !== 'Copied'")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tab_shows_its_part_of_the_chart() {
    let catalog = Catalog::new().await;
    for has_scripts in [true, false] {
        let browser = if has_scripts {
            catalog.browser().await
        } else {
            Browser::without_scripts(&catalog.serving.url).await
        };
        browser.open(WEB).await;
        browser.until("document.querySelector('.tabs a[aria-current]')").await;
        for (tab, expected) in TABS.into_iter().zip([
            "Serves files of a volume.",
            "image.tag",
            "replicas",
            "1.0.0",
            "1.1.0",
            "Ada",
        ]) {
            open_tab(&browser, tab).await;
            let shown = browser.text("main").await;
            assert!(shown.contains(expected), "{tab}: {expected} in {shown}");
        }
        assert_eq!(browser.console_errors().await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_filtered_by_key() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.open(&format!("{WEB}?tab=values")).await;
    browser.enter("main input[name='q']", "ingress").await;
    browser.load(async || browser.press(Key::Enter).await).await;
    let path = browser.path().await;
    assert!(path.contains("tab=values") && path.contains("q=ingress"), "{path}");
    let shown = browser.text("main").await;
    assert!(
        shown.contains("ingress.host") && shown.contains("Host of the ingress"),
        "{shown}"
    );
    assert!(!shown.contains("image.repository"), "{shown}");
    // A key leads to its line.
    browser.load(async || browser.click("main td a").await).await;
    let line = browser.text("#lines :target").await;
    assert!(line.contains("enabled: false"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_break_after_dots_only() {
    // Each part of a path is a text of its own.
    const PARTS: &str = "const parts = [...document.querySelectorAll('.key')]
            .flatMap((key) => [...key.childNodes]).filter((node) => node.nodeType === Node.TEXT_NODE);
        const lines = (node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            return range.getClientRects().length;
        };
        return parts.map((node) => [node.data, lines(node)]);";
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.open(&format!("{WEB}?tab=values")).await;
    for width in [320, 1280] {
        browser.resize(width).await;
        let parts: Vec<(String, usize)> = browser.js(PARTS).await;
        assert!(parts.contains(&("repository".to_owned(), 1)), "{width}: {parts:?}");
        assert!(parts.iter().all(|(_, lines)| *lines == 1), "{width}: {parts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version_is_selected() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.open(&format!("{WEB}?tab=values")).await;
    browser.click("#version option[value='1.0.0']").await;
    browser
        .load(async || browser.click("main form:has(#version) button").await)
        .await;
    let command = browser.text("main pre").await;
    assert!(command.contains("--version 1.0.0"), "{command}");
    assert!(browser.path().await.contains("tab=values"));
    // The tabs stay at the version.
    open_tab(&browser, "about").await;
    assert!(browser.text("main pre").await.contains("--version 1.0.0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_are_compared() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.open(WEB).await;
    open_tab(&browser, "versions").await;
    let older = "main a[href*='/diff?'][href*='1.0.0']";
    browser.load(async || browser.click(older).await).await;
    assert!(
        browser.path().await.starts_with(&format!("{WEB}/diff?")),
        "{}",
        browser.path().await
    );
    let shown = browser.text("main").await;
    for part in ["1.0.0", "1.2.0", "image.tag", "replicas"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("image.repository"), "{shown}");

    // Two versions that a form chooses.
    browser.open(&format!("{WEB}?tab=changes")).await;
    browser.click("main select[name='from'] option[value='1.0.0']").await;
    browser.click("main select[name='to'] option[value='1.1.0']").await;
    browser
        .load(async || browser.click("main form:has(select[name='from']) button").await)
        .await;
    let path = browser.path().await;
    assert!(path.contains("from=1.0.0") && path.contains("to=1.1.0"), "{path}");
    assert!(browser.text("main").await.contains("image.tag"));
}
