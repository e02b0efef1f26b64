//! Everything by keyboard, with a focus that is seen.

use super::catalog::Catalog;
use super::driver::Browser;
use super::search::until_names;
use super::webdriver::Key;

const MAX_PRESSES: usize = 60;

/// Presses Tab until an element has the focus. Each element on the way must show it.
async fn tab_to(browser: &Browser, css: &str) {
    for _ in 0..MAX_PRESSES {
        browser.press(Key::Tab).await;
        let (is_found, is_seen, element): (bool, bool, String) = browser
            .js(&format!(
                "const element = document.activeElement;
                const outline = getComputedStyle(element);
                const hasOutline = outline.outlineStyle !== 'none' && parseFloat(outline.outlineWidth) >= 2;
                // After the last element comes the browser itself.
                const isSeen = element === document.body || hasOutline && element.checkVisibility();
                return [element.matches(\"{css}\"), isSeen, element.outerHTML.slice(0, 200)]"
            ))
            .await;
        assert!(is_seen, "the focus is not seen: {element}");
        if is_found {
            return;
        }
    }
    panic!("Tab does not reach {css}");
}

async fn until_focus(browser: &Browser, css: &str) {
    browser
        .until(&format!("document.activeElement.matches(\"{css}\")"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_is_found_read_and_copied_by_keyboard() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.allow_clipboard().await;
    browser.open("/").await;
    browser.press("/").await;
    until_focus(&browser, "#q").await;
    browser.press("redis").await;
    until_names(&browser, &["redis"]).await;
    browser.press(Key::Escape).await;
    browser
        .until("document.getElementById('q').value === '' && document.querySelectorAll('#cards > li').length > 1")
        .await;
    // In a field, the key is a character.
    browser.press("/").await;
    browser.until("document.getElementById('q').value === '/'").await;
    browser.press(Key::Escape).await;
    browser.press("web serves").await;
    until_names(&browser, &["web"]).await;
    browser.load(async || browser.press(Key::Enter).await).await;

    tab_to(&browser, "#cards h2 a").await;
    browser.load(async || browser.press(Key::Enter).await).await;
    tab_to(&browser, "main .copy").await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('main .copy').textContent === 'Copied'")
        .await;
    assert!(browser.clipboard().await.contains("helm install"));
    tab_to(&browser, ".tabs a[href*='tab=values']").await;
    browser.load(async || browser.press(Key::Enter).await).await;
    assert!(browser.path().await.contains("tab=values"));
    assert!(browser.text("main").await.contains("image.tag"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_link_skips_to_the_content() {
    let catalog = Catalog::new().await;
    let browser = catalog.browser().await;
    browser.open("/repositories").await;
    tab_to(&browser, ".skip").await;
    browser.press(Key::Enter).await;
    until_focus(&browser, "#main").await;
    browser.press(Key::Tab).await;
    until_focus(&browser, "main *").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_theme_is_kept_for_other_pages() {
    const BACKGROUND: &str = "return getComputedStyle(document.body).backgroundColor";
    let catalog = Catalog::empty().await;
    let browser = catalog.browser().await;
    browser.prefer("light").await;
    browser.open("/").await;
    let light: String = browser.js(BACKGROUND).await;
    tab_to(&browser, "#theme").await;
    for theme in ["light", "dark"] {
        browser.press(Key::Enter).await;
        browser
            .until(&format!("document.documentElement.dataset.theme === '{theme}'"))
            .await;
    }
    let dark: String = browser.js(BACKGROUND).await;
    assert_ne!(light, dark);
    browser.open("/help").await;
    assert_eq!(browser.js::<String>(BACKGROUND).await, dark);
    assert_eq!(browser.text("#theme").await, "Theme: dark");
}
