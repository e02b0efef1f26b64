//! Sign-in with a token of a ServiceAccount, which a real API server reviews, over HTTP on loopback.

use serde_json::json;

use super::accessibility::inspect;
use super::driver::Browser;
use super::webdriver::Key;
use crate::catalog::On;
use crate::serve::access::{Site, reader};
use crate::support::chart_server::{ChartServer, Page};

pub(super) async fn sign_in(browser: &Browser, token: &str) {
    browser.enter("#token", token).await;
    browser.load(async || browser.press(Key::Enter).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_sees_the_end_of_the_session_and_signs_out() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let token = reader(&site.ours).await;
    let user = format!("system:serviceaccount:{}:reader", site.ours);
    let browser = Browser::new(&serving.url).await;

    browser.open("/repositories").await;
    assert_eq!(browser.path().await, "/login?next=%2Frepositories");
    sign_in(&browser, &token).await;
    assert_eq!(browser.path().await, "/repositories");
    let shown = browser.text("main").await;
    assert!(shown.contains("ours") && !shown.contains("theirs"), "{shown}");
    assert!(browser.text(".account").await.contains(&user));
    // No script has the token.
    let readable: String = browser
        .js("return document.cookie + JSON.stringify(localStorage) + document.documentElement.outerHTML")
        .await;
    assert!(!readable.contains(&token), "{readable}");
    assert_eq!(
        browser
            .js::<Vec<String>>(
                "return [...document.querySelectorAll('main table tbody th')].map((row) => row.textContent)"
            )
            .await,
        [format!("{}/ours", site.ours)]
    );

    inspect(&browser, "login-signed-in", "/login").await;
    assert!(browser.text("main").await.contains("Your session ends at"));
    let left: f64 = browser
        .js("return (Date.parse(document.querySelector('main time').dateTime) - Date.now()) / 60000")
        .await;
    // The token is valid for an hour.
    assert!((30.0..=61.0).contains(&left), "{left} minutes");

    browser
        .load(async || browser.click(".account button[type='submit']").await)
        .await;
    assert_eq!(browser.path().await, "/login?signed-out");
    assert!(browser.text("main").await.contains("You are signed out"));
    browser.open("/").await;
    assert_eq!(browser.path().await, "/login?next=%2F");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_explained_beside_the_field() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let browser = Browser::new(&serving.url).await;
    inspect(&browser, "login", "/login?next=/repositories").await;
    sign_in(&browser, "forged").await;
    let reason = browser.text("#refused").await;
    assert!(reason.contains("does not accept this token"), "{reason}");
    let described: bool = browser
        .js("return document.getElementById('token').getAttribute('aria-describedby').split(' ').includes('refused')")
        .await;
    assert!(described);
    // The next page is kept.
    sign_in(&browser, &reader(&site.ours).await).await;
    assert_eq!(browser.path().await, "/repositories");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_has_ended_leads_to_the_sign_in_and_back() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let token = reader(&site.ours).await;
    let browser = Browser::new(&serving.url).await;
    for ended in [format!("1000000000.{token}"), "9000000000.forged".to_owned()] {
        let cookie = json!({ "name": "portolan", "value": ended, "url": serving.url, "httpOnly": true });
        browser.devtools("Network.setCookie", cookie).await;
        browser.open("/repositories?ready=true").await;
        let path = browser.path().await;
        assert_eq!(path, "/login?next=%2Frepositories%3Fready%3Dtrue");
        sign_in(&browser, &token).await;
        assert_eq!(browser.path().await, "/repositories?ready=true");
    }

    // The same while the page is open: the search leads to the sign-in, which returns to the search.
    browser.open("/").await;
    browser.devtools("Network.clearBrowserCookies", json!({})).await;
    browser.load(async || browser.enter("#q", "web").await).await;
    let path = browser.path().await;
    assert!(path.starts_with("/login?next=") && path.contains("q%3Dweb"), "{path}");
}

/// Ports are no part of a site, so that the browser sends the cookie.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_another_origin_is_refused_and_the_session_goes_on() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let browser = Browser::new(&serving.url).await;
    browser.open("/").await;
    sign_in(&browser, &reader(&site.ours).await).await;

    let other = ChartServer::start().await;
    let form = format!(
        "<!doctype html><title>x</title><form method=\"post\" action=\"{}/logout\"><button>Go</button></form>",
        serving.url
    );
    other.serve("/form", Page::new(form).content_type("text/html"));
    browser.open_url(&other.url("/form")).await;
    browser.load(async || browser.click("button").await).await;
    assert_eq!(browser.path().await, "/logout");
    let refused = browser.text("main").await;
    assert!(refused.contains("send its form again"), "{refused}");
    browser.open("/login").await;
    assert!(browser.text("main").await.contains("Your session ends at"));
}
