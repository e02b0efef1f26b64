//! Search while typing, filters, and both without scripts.

use super::catalog::Catalog;
use super::driver::Browser;
use super::webdriver::Key;
use crate::support::eventually::{SOON, eventually};

const NAMES: &str = "return [...document.querySelectorAll('#cards h2')].map((name) => name.textContent.trim())";
/// The cards of one page.
const PAGE: usize = 24;

pub(super) async fn until_names(browser: &Browser, expected: &[&str]) {
    eventually(SOON, &format!("the cards {expected:?}"), async || {
        let names: Vec<String> = browser.js(NAMES).await;
        if names == expected {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
}

async fn until_count(browser: &Browser, count: usize) {
    browser
        .until(&format!("document.querySelectorAll('#cards > li').length === {count}"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_are_found_while_typing() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.open("/").await;
    until_count(&browser, PAGE).await;
    browser.js::<()>("window.isFirstPage = true").await;

    browser.enter("#q", "redis").await;
    until_names(&browser, &["redis"]).await;
    browser.until("location.search.includes('q=redis')").await;
    assert_eq!(browser.text("#count").await, "1 chart");
    browser.enter("#q", "-and-nothing-like-it").await;
    browser.until("!document.getElementById('none').hidden").await;
    assert!(browser.text("#none").await.contains("No chart matches"));
    browser.press(Key::Escape).await;
    until_count(&browser, PAGE).await;
    browser.until("document.getElementById('none').hidden").await;

    browser.click("#repository option[value='default/edge']").await;
    until_names(&browser, &["web"]).await;
    browser.enter("#q", "redis").await;
    browser.until("!document.getElementById('none').hidden").await;
    assert!(
        browser.js::<bool>("return window.isFirstPage === true").await,
        "the page was loaded again"
    );
    // The address of the page shows the same again.
    let path = browser.path().await;
    browser.open(&path).await;
    browser.until("document.getElementById('q').value === 'redis'").await;
    browser
        .until("document.getElementById('repository').value === 'default/edge'")
        .await;
    until_count(&browser, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_and_filters_work_without_scripts() {
    let catalog = Catalog::new().await;
    let browser = Browser::without_scripts(&catalog.serving.url).await;
    browser.open("/").await;
    until_count(&browser, PAGE).await;
    // A button that only a script could serve.
    browser
        .until("!document.getElementById('theme').checkVisibility()")
        .await;
    browser.load(async || browser.click("#next").await).await;
    assert!(browser.path().await.contains("cursor="), "{}", browser.path().await);

    browser.open("/").await;
    browser.enter("#q", "redis").await;
    browser.load(async || browser.press(Key::Enter).await).await;
    until_names(&browser, &["redis"]).await;
    browser.click("#repository option[value='default/edge']").await;
    browser
        .load(async || browser.click(".filter button[type='submit']").await)
        .await;
    until_names(&browser, &[]).await;
    assert!(browser.text("#none").await.contains("No chart matches"));
    browser.load(async || browser.click("#none a").await).await;
    until_count(&browser, PAGE).await;

    browser.click("#category option[value='Web']").await;
    browser
        .load(async || browser.click(".filter button[type='submit']").await)
        .await;
    until_names(&browser, &["web"]).await;
    assert!(browser.path().await.contains("category=Web"));
}
