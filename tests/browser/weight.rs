//! Bytes that a page takes on the wire, into an empty cache.

use super::catalog::{Catalog, WEB};

const MAX_PAGE: u64 = 60 * 1024;
const MAX_SCRIPT: usize = 8 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_light_and_loads_nothing_but_its_style_sheet_and_script() {
    let catalog = Catalog::new().await;
    for path in ["/", WEB] {
        let browser = catalog.browser().await;
        browser.open(path).await;
        let events = browser.events().await;
        let weight = events.weight_without_images();
        // More than nothing: the document, the style sheet and the script.
        assert!((4 * 1024..=MAX_PAGE).contains(&weight), "{path}: {weight} bytes");
        for url in events.requests() {
            assert!(url.starts_with(&catalog.serving.url), "{path}: {url}");
        }
        let (styles, scripts): (usize, usize) = browser
            .js("return [document.querySelectorAll('link[rel=stylesheet], style').length, document.scripts.length]")
            .await;
        assert_eq!((styles, scripts), (1, 1), "{path}");
        let script: usize = browser
            .js("return fetch(document.scripts[0].src).then((script) => script.blob()).then((script) => script.size)")
            .await;
        assert!(script <= MAX_SCRIPT, "{script} bytes");
    }
}
