//! Rules of accessibility (axe), widths without horizontal scrolling, and pictures to look at.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::driver::Browser;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::tool;
use crate::support::eventually::{SOON, eventually};
use crate::support::project;

const WIDTHS: [u32; 4] = [320, 768, 1280, 2560];
const PICTURED: [u32; 2] = [320, 1280];
const THEMES: [&str; 2] = ["light", "dark"];
/// Of a picture, in pixels.
const MAX_HEIGHT: f64 = 6000.0;

/// The driver runs it: a page with our policy loads no script of others.
static AXE: LazyLock<String> = LazyLock::new(|| fs::read_to_string(tool("axe.min.js")).unwrap());
const RUN_AXE: &str = "return axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.map(
    (violation) => `${violation.id}: ${violation.nodes.map((node) => node.html + ' ' + node.failureSummary).join('\\n')}`));";
/// Elements beyond the right edge that none of their containers scrolls.
const TOO_WIDE: &str = "const root = document.documentElement;
    if (root.scrollWidth <= innerWidth) return [];
    const style = (element) => getComputedStyle(element);
    const container = (element) => style(element).position === 'absolute' ? element.offsetParent : element.parentElement;
    const isScrolled = (element) => {
        const parent = container(element);
        return parent !== null && (style(parent).overflowX !== 'visible' || isScrolled(parent));
    };
    const wide = [...document.body.querySelectorAll('*')].filter(
        (element) => element.getBoundingClientRect().right > innerWidth + 1 && !isScrolled(element));
    return [`${root.scrollWidth} pixels`, ...wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 200))];";

/// Opens a page, and asserts that it fits all widths and breaks no rule of axe, in both themes. Writes pictures of it.
pub(super) async fn inspect(browser: &Browser, name: &str, path: &str) {
    browser.open(path).await;
    for width in WIDTHS {
        browser.resize(width).await;
        let wide = too_wide(browser).await;
        assert!(wide.is_empty(), "{path} at {width} pixels: {wide:#?}");
        for theme in THEMES {
            browser.prefer(theme).await;
            if PICTURED.contains(&width) {
                picture(browser, &format!("{name}-{width}-{theme}")).await;
            }
            if width == 1280 {
                let violations = violations(browser).await;
                assert!(violations.is_empty(), "{path}, {theme}: {violations:#?}");
            }
        }
    }
    let errors = browser.console_errors().await;
    assert!(errors.is_empty(), "{path}: {errors:#?}");
}

async fn too_wide(browser: &Browser) -> Vec<String> {
    browser.js(TOO_WIDE).await
}

async fn violations(browser: &Browser) -> Vec<String> {
    browser.js::<Value>(&AXE).await;
    browser.js(RUN_AXE).await
}

/// Writes a picture of the whole page.
async fn picture(browser: &Browser, name: &str) {
    let metrics = browser.devtools("Page.getLayoutMetrics", json!({})).await;
    let size = |side: &str| metrics["cssContentSize"][side].as_f64().unwrap();
    let clip = json!({ "x": 0, "y": 0, "width": size("width"), "height": size("height").min(MAX_HEIGHT), "scale": 1 });
    let capture = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
    let captured = browser.devtools("Page.captureScreenshot", capture).await;
    let image = BASE64_STANDARD.decode(captured["data"].as_str().unwrap()).unwrap();
    fs::write(screenshots().join(format!("{name}.png")), image).unwrap();
}

fn screenshots() -> PathBuf {
    let directory = project("target/screenshots");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Without it, a check that finds nothing could be one that looks at nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checks_find_what_they_look_for() {
    let (server, other) = (ChartServer::start().await, ChartServer::start().await.url("/b.png"));
    let bad = format!(
        "<!doctype html><html><head><title>x</title>
         <meta http-equiv=\"Content-Security-Policy\" content=\"img-src http:\"></head>
         <body><p style=\"width: 3000px\">wide</p><img src=\"data:image/png,x\"><img src=\"{other}\"></body></html>"
    );
    server.serve("/bad", Page::new(bad).content_type("text/html"));
    let browser = Browser::new(&server.url("")).await;
    browser.open("/bad").await;
    browser.resize(1280).await;
    let wide = too_wide(&browser).await;
    assert!(wide.iter().any(|element| element.contains("3000px")), "{wide:?}");
    let violations = violations(&browser).await;
    for rule in ["html-has-lang", "image-alt"] {
        assert!(
            violations.iter().any(|violation| violation.starts_with(rule)),
            "{violations:?}"
        );
    }
    let errors = browser.console_errors().await;
    assert!(
        errors.iter().any(|error| error.contains("Content Security Policy")),
        "{errors:?}"
    );
    let events = browser.events().await;
    let requests = events.requests();
    assert!(requests.contains(&other.as_str()), "{requests:?}");
    assert_eq!(events.dialogs(), 0);

    browser.js::<Value>("setTimeout(() => alert(1))").await;
    eventually(SOON, "the dialog", async || {
        (browser.events().await.dialogs() > 0).then_some(())
    })
    .await;
}
