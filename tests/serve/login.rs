//! Sign-in with a form, reviewed by a real API server, and the cookie of the session.

use reqwest::header::{HeaderMap, SET_COOKIE};
use reqwest::redirect::Policy;
use serde_json::json;
use url::form_urlencoded::Serializer;

use super::access::{Site, reader};
use super::{Answer, Serving, fill};
use crate::catalog::On;
use crate::support::world::World;

/// A browser at the address of a process, or of a proxy before it. It follows no redirects.
struct Browser<'a> {
    serving: &'a Serving,
    client: reqwest::Client,
    origin: String,
    prefix: &'static str,
    /// The value of the header `Cookie`.
    cookies: String,
}

impl<'a> Browser<'a> {
    fn new(serving: &'a Serving) -> Self {
        Self::at(serving, &serving.url, "")
    }

    fn at(serving: &'a Serving, origin: &str, prefix: &'static str) -> Self {
        portolan::http::install_crypto_provider();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        Self {
            serving,
            client: client.redirect(Policy::none()).build().unwrap(),
            origin: origin.to_owned(),
            prefix,
            cookies: String::new(),
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let (_, host) = self.origin.split_once("://").unwrap();
        let request = request.header("host", host).header("accept", "text/html,*/*;q=0.8");
        let request = match self.cookies.as_str() {
            "" => request,
            cookies => request.header("cookie", cookies),
        };
        let response = request.send().await.unwrap();
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{}{path}", self.serving.url, self.prefix)
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(self.client.get(self.url(path))).await
    }

    /// Sends a form with these headers only.
    async fn post(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Answer {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.client.post(self.url(path)).body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request).await
    }

    async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.post(path, fields, &[("origin", &self.origin)]).await
    }

    /// Signs in, and keeps the cookie. Returns its attributes.
    async fn sign_in(&mut self, token: &str) -> Vec<String> {
        let answer = self.submit("/login", &[("token", token)]).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let set = cookies(&answer.headers);
        let [cookie] = set.as_slice() else {
            panic!("one cookie in {set:?}")
        };
        let mut parts = cookie.split("; ").map(str::to_owned);
        self.cookies = parts.next().unwrap();
        parts.collect()
    }

    async fn user(&self) -> Option<String> {
        let answer = self.get("/api/v1/whoami").await;
        (answer.status == 200).then(|| answer.json()["user"].as_str().unwrap().to_owned())
    }
}

fn cookies(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(SET_COOKIE).iter();
    values.map(|value| value.to_str().unwrap().to_owned()).collect()
}

fn assert_refused(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(cookies(&answer.headers), [""; 0]);
    assert!(answer.header("content-type").starts_with("text/html"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_reads_and_signs_out() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let token = reader(&site.ours).await;
    let user = format!("system:serviceaccount:{}:reader", site.ours);
    let mut browser = Browser::new(&serving);

    let asked = browser.get("/").await;
    assert!([302, 303, 307].contains(&asked.status), "{asked:?}");
    let login = asked.header("location").to_owned();
    assert_eq!(login, "/login?next=%2F");
    let form = browser.get(&login).await;
    assert_eq!((form.status, form.header("cache-control")), (200, "no-store"));
    let form = form.text();
    assert!(
        form.contains("name=\"token\"") && form.contains("name=\"next\" value=\"/\""),
        "{form}"
    );
    assert_eq!(browser.user().await, None);

    let attributes = browser.sign_in(&token).await;
    assert!(browser.cookies.starts_with("portolan="), "{}", browser.cookies);
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(attributes.iter().any(|other| other == attribute), "{attributes:?}");
    }
    assert!(
        !attributes.iter().any(|attribute| attribute == "Secure"),
        "{attributes:?}"
    );
    assert_eq!(browser.user().await, Some(user.clone()));
    let start = browser.get("/").await;
    assert_eq!(start.status, 200, "{start:?}");
    let start = start.text();
    assert!(start.contains("web") && !start.contains(&token), "{start}");
    let page = browser.get("/login").await.text();
    assert!(page.contains(&user) && page.contains("session ends at"), "{page}");

    let ended = browser.submit("/logout", &[]).await;
    assert_eq!((ended.status, ended.header("location")), (303, "/login?signed-out"));
    let cleared = cookies(&ended.headers);
    assert!(
        cleared.iter().any(|cookie| cookie.starts_with("portolan=;")),
        "{cleared:?}"
    );
    assert!(cleared.iter().all(|cookie| cookie.contains("Max-Age=0")), "{cleared:?}");
    browser.cookies.clear();
    assert_eq!(browser.user().await, None);
    assert!(browser.get("/login?signed-out").await.text().contains("signed out"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cookie_does_not_count_for_clients_that_send_credentials() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let mut browser = Browser::new(&serving);
    browser.sign_in(&reader(&site.ours).await).await;
    for path in [
        format!("/helm/{}/ours/index.yaml", site.ours),
        format!("/helm/{}/ours/archives/web/1.0.0/web-1.0.0.tgz", site.ours),
        "/api/chartsvc/v1/charts/search?q=web".to_owned(),
    ] {
        browser.get(&path).await.problem(401);
    }
    // Nor beside other credentials.
    let headers = [("authorization", "Bearer forged"), ("cookie", browser.cookies.as_str())];
    serving.request("/api/v1/charts", &headers).await.problem(401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_not_accepted_shows_the_form_with_the_reason() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let browser = Browser::new(&serving);
    let long = "x".repeat(3585);
    for (token, status, reason) in [
        ("forged", 401, "does not accept this token"),
        ("", 400, "enter a token"),
        ("<script>alert(1)</script>", 400, "not a token"),
        (&*long, 400, "3584 bytes"),
    ] {
        let fields = [("token", token), ("next", "/repositories")];
        let answer = browser.submit("/login", &fields).await;
        assert_refused(&answer, status);
        let page = answer.text();
        assert!(page.contains(reason) && page.contains("name=\"token\""), "{page}");
        assert!(page.contains("value=\"/repositories\""), "{page}");
        assert!(
            token.is_empty() || !page.contains(&format!("value=\"{token}")),
            "{page}"
        );
        assert!(!page.contains("<script>alert"), "{page}");
    }
    let large = "x".repeat(17 * 1024);
    assert_refused(&browser.submit("/login", &[("token", &large)]).await, 413);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_of_other_sites_are_refused() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let mut browser = Browser::new(&serving);
    let token = reader(&site.ours).await;
    let foreign: [&[(&str, &str)]; 5] = [
        &[],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "null"), ("sec-fetch-site", "same-origin")],
    ];
    for headers in foreign {
        assert_refused(&browser.post("/login", &[("token", &token)], headers).await, 403);
    }
    browser.sign_in(&token).await;
    for headers in foreign {
        assert_refused(&browser.post("/logout", &[], headers).await, 403);
    }
    let same = [("sec-fetch-site", "same-origin")];
    assert_eq!(browser.post("/logout", &[], &same).await.status, 303);
    // Neither page has effects by GET.
    assert_eq!(browser.get("/logout").await.status, 405);
    assert_eq!(browser.get(&format!("/login?token={token}")).await.status, 200);
    assert!(browser.user().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_page_is_one_of_this_site() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let browser = Browser::new(&serving);
    let token = reader(&site.ours).await;
    for foreign in [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "/\t/evil.example",
        "/a\r\nSet-Cookie: x=y",
        "javascript:alert(1)",
    ] {
        let fields = [("token", token.as_str()), ("next", foreign)];
        assert_refused(&browser.submit("/login", &fields).await, 400);
        let query = Serializer::new(String::new()).append_pair("next", foreign).finish();
        assert_refused(&browser.get(&format!("/login?{query}")).await, 400);
    }
    let next = "/charts/a/b/c?tab=values";
    let answer = browser.submit("/login", &[("token", &token), ("next", next)]).await;
    assert_eq!((answer.status, answer.header("location")), (303, next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_an_external_url_the_cookie_is_secure_and_bound_to_its_path() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&["--external-url=https://charts.example/catalog"]).await;
    let token = reader(&site.ours).await;
    let mut browser = Browser::at(&serving, "https://charts.example", "/catalog");
    assert_eq!(
        browser.get("/").await.header("location"),
        "/catalog/login?next=%2Fcatalog%2F"
    );
    let attributes = browser.sign_in(&token).await;
    let cookie = browser.cookies.clone();
    assert!(cookie.starts_with("__Secure-portolan="), "{cookie}");
    for attribute in ["Secure", "HttpOnly", "SameSite=Lax", "Path=/catalog/"] {
        assert!(attributes.iter().any(|other| other == attribute), "{attributes:?}");
    }
    assert!(browser.user().await.is_some());
    assert_eq!(browser.get("/").await.status, 200);
    // A neighbor of the host could have set a cookie without a prefix.
    browser.cookies = cookie.replace("__Secure-", "");
    assert_eq!(browser.user().await, None);

    let mut plain = Browser::at(&serving, "http://charts.example", "/catalog");
    let refused = plain.submit("/login", &[("token", &token)]).await;
    assert_refused(&refused, 403);
    assert!(refused.text().contains("HTTPS"), "{refused:?}");
    plain.origin = "http://localhost:8090".to_owned();
    plain.sign_in(&token).await;
    assert!(plain.cookies.starts_with("portolan="), "{}", plain.cookies);
    assert!(plain.user().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_ins_of_an_address_are_limited() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let token = reader(&site.ours).await;
    let mut browser = Browser::new(&serving);
    browser.sign_in(&token).await;
    for _ in 0..4 {
        assert_refused(&browser.submit("/login", &[("token", "guess")]).await, 401);
    }
    let limited = browser.submit("/login", &[("token", &token)]).await;
    assert_refused(&limited, 429);
    let seconds: u64 = limited.header("retry-after").parse().unwrap();
    assert!((1..=12).contains(&seconds), "{seconds}");
    assert!(limited.text().contains("too many sign-ins"), "{limited:?}");
    // Those who have signed in are served.
    assert!(browser.user().await.is_some());
    let metrics = serving.portolan.metrics().await;
    let limited = metrics.sum("portolan_catalog_requests_limited_total", &[("limit", "sign_ins")]);
    assert_eq!(limited, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_has_ended_leads_to_the_sign_in() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let mut browser = Browser::new(&serving);
    browser.sign_in(&reader(&site.ours).await).await;
    let (_, value) = browser.cookies.split_once('=').unwrap();
    let (_, token) = value.split_once('.').unwrap();
    let (expired, forged) = (format!("portolan=1000000000.{token}"), "portolan=9000000000.forged");
    for ended in [expired.as_str(), forged] {
        browser.cookies = ended.to_owned();
        let answer = browser.get("/repositories").await;
        assert_eq!(answer.header("location"), "/login?next=%2Frepositories", "{answer:?}");
    }
    let page = browser.get("/login?next=/repositories").await.text();
    assert!(
        page.contains("session has ended") && page.contains("name=\"token\""),
        "{page}"
    );
}

#[tokio::test]
async fn without_an_api_server_no_sign_in_is_needed() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let browser = Browser::new(&serving);
    let page = browser.get("/login").await;
    assert_eq!(page.status, 200, "{page:?}");
    let page = page.text();
    assert!(
        page.contains("need to sign in") && !page.contains("name=\"token\""),
        "{page}"
    );
    let answer = browser.submit("/login", &[("token", "any")]).await;
    assert_eq!((answer.status, cookies(&answer.headers).len()), (200, 0));
    let whoami = browser.get("/api/v1/whoami").await.json();
    assert_eq!(whoami["user"], json!(null));
}
