mod limits;
mod renewal;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use axum::http::{HeaderValue, header};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::*;

/// An API server. Tokens are valid unless they begin with `guess`, and name the user.
#[derive(Default)]
struct Cluster {
    /// Users and namespaces in which they may list; `*` for all.
    rights: Mutex<BTreeSet<(String, String)>>,
    /// The reviews so far.
    log: Mutex<Vec<String>>,
    invalid: Mutex<BTreeSet<String>>,
    is_away: AtomicBool,
    delay: Option<Duration>,
    current: AtomicUsize,
    highest: AtomicUsize,
}

impl Cluster {
    fn allow(&self, user: &str, namespaces: &[&str]) {
        let rights = namespaces
            .iter()
            .map(|namespace| (user.to_owned(), (*namespace).to_owned()));
        self.rights.lock().extend(rights);
    }

    fn revoke_rights(&self) {
        self.rights.lock().clear();
    }

    fn revoke_token(&self, token: &str) {
        self.invalid.lock().insert(token.to_owned());
    }

    fn go_away(&self, is_away: bool) {
        self.is_away.store(is_away, SeqCst);
    }

    /// Returns the reviews since the last call.
    fn reviews(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }

    fn answer<T: Send + 'static>(&self, review: String, answer: T) -> BoxFuture<'_, Result<T, ReviewError>> {
        async move {
            self.log.lock().push(review);
            self.highest.fetch_max(self.current.fetch_add(1, SeqCst) + 1, SeqCst);
            if let Some(delay) = self.delay {
                sleep(delay).await;
            }
            self.current.fetch_sub(1, SeqCst);
            if self.is_away.load(SeqCst) {
                return Err(ReviewError::unavailable("connection refused".to_owned()));
            }
            Ok(answer)
        }
        .boxed()
    }
}

impl Reviews for Cluster {
    fn authenticate(&self, token: String) -> BoxFuture<'_, Result<Option<User>, ReviewError>> {
        let is_valid = !token.starts_with("guess") && !self.invalid.lock().contains(&token);
        let user = is_valid.then(|| User {
            username: Some(token),
            ..User::default()
        });
        self.answer("token".to_owned(), user)
    }

    fn may_list(&self, user: &User, namespace: Option<&str>) -> BoxFuture<'_, Result<bool, ReviewError>> {
        let namespace = namespace.unwrap_or("*").to_owned();
        let right = (user.username.clone().unwrap(), namespace.clone());
        let is_allowed = self.rights.lock().contains(&right);
        self.answer(namespace, is_allowed)
    }
}

struct Site {
    cluster: Arc<Cluster>,
    access: Access,
}

impl Site {
    fn new(options: AccessOptions) -> Self {
        Self::of(Cluster::default(), options)
    }

    fn of(cluster: Cluster, options: AccessOptions) -> Self {
        let cluster = Arc::new(cluster);
        let access = Access::new(options, Arc::clone(&cluster) as Arc<dyn Reviews>);
        Self { cluster, access }
    }

    /// Asks for namespaces `a`, `b` and `c`, or the named one.
    async fn ask(&self, token: &str, named: Option<&str>) -> Result<Vec<String>, AccessError> {
        self.ask_of(token, &["a", "b", "c"].map(str::to_owned), named).await
    }

    async fn ask_of(&self, token: &str, all: &[String], named: Option<&str>) -> Result<Vec<String>, AccessError> {
        let caller = self.access.caller(&bearer(token), all, named, None).await?;
        assert_eq!(caller.user.as_deref(), Some(token));
        Ok(names(&caller.namespaces))
    }
}

fn bearer(token: &str) -> HeaderMap {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(header::AUTHORIZATION, value)])
}

fn from_host(mut headers: HeaderMap, host: &'static str) -> HeaderMap {
    headers.insert(header::HOST, HeaderValue::from_static(host));
    headers
}

fn names(visible: &Visible) -> Vec<String> {
    match visible {
        Visible::All => vec!["*".to_owned()],
        Visible::Only(namespaces) => namespaces.iter().cloned().collect(),
    }
}

fn list(namespaces: &[&str]) -> Result<Vec<String>, AccessError> {
    Ok(namespaces.iter().map(|namespace| (*namespace).to_owned()).collect())
}

fn forbidden_in(user: &str, namespace: &str) -> Result<Vec<String>, AccessError> {
    Err(AccessError::Forbidden {
        user: user.to_owned(),
        resource: ListedResource::AppRepositories,
        namespace: Some(namespace.to_owned()),
    })
}

const AWAY: AccessError = AccessError::Unavailable {
    retry_after: RETRY_AFTER,
};

fn anonymous_in(namespaces: &[&str]) -> AccessOptions {
    AccessOptions {
        anonymous: namespaces.iter().map(|namespace| (*namespace).to_owned()).collect(),
        ..AccessOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_sees_the_namespaces_in_which_the_user_may_list() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a", "c"]);
    assert_eq!(site.ask("jane", None).await, list(&["a", "c"]));
    let mut reviews = site.cluster.reviews();
    reviews.sort();
    assert_eq!(reviews, ["*", "a", "b", "c", "token"]);
    assert_eq!(site.ask("joe", None).await, list(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_all_namespaces_needs_two_reviews() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["*"]);
    for named in [None, Some("a"), Some("missing"), Some("not a name")] {
        assert_eq!(site.ask("jane", named).await, list(&["*"]));
    }
    assert_eq!(site.cluster.reviews(), ["token", "*"]);
}

#[tokio::test(start_paused = true)]
async fn a_named_namespace_is_reviewed_alone() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a", "c"]);
    assert_eq!(site.ask("jane", Some("c")).await, list(&["c"]));
    assert_eq!(site.cluster.reviews(), ["token", "*", "c"]);
    assert_eq!(site.ask("jane", None).await, list(&["a", "c"]));
    assert_eq!(site.ask("jane", Some("a")).await, list(&["a"]));
    let mut reviews = site.cluster.reviews();
    reviews.sort();
    assert_eq!(reviews, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_catalog_is_not_remembered() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a"]);
    assert_eq!(site.ask_of("jane", &[], None).await, list(&[]));
    assert_eq!(site.ask("jane", None).await, list(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn refused_and_missing_namespaces_answer_alike() {
    let site = Site::new(AccessOptions::default());
    for namespace in ["b", "missing"] {
        assert_eq!(site.ask("jane", Some(namespace)).await, forbidden_in("jane", namespace));
        let text = site.ask("jane", Some(namespace)).await.unwrap_err().to_string();
        let expected = "user jane may not list apprepositories.kubeapps.com in the namespace";
        assert_eq!(text, format!("{expected} {namespace}"));
    }
    site.cluster.reviews();
    let long = "x".repeat(64);
    for name in ["", "*", "A", "a/b", "a\0", &long] {
        assert!(site.ask("jane", Some(name)).await.is_err(), "{name}");
    }
    assert_eq!(site.cluster.reviews(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn other_namespaces_than_the_watched_one_cost_no_review() {
    let site = Site::new(AccessOptions {
        watched_namespace: Some("a".to_owned()),
        ..AccessOptions::default()
    });
    site.cluster.allow("jane", &["a", "b"]);
    assert_eq!(site.ask("jane", Some("a")).await, list(&["a"]));
    assert_eq!(site.cluster.reviews(), ["token", "*", "a"]);
    for namespace in ["b", "missing"] {
        assert_eq!(site.ask("jane", Some(namespace)).await, forbidden_in("jane", namespace));
    }
    assert_eq!(site.cluster.reviews(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_global_namespace_is_visible_to_every_authenticated_caller() {
    let site = Site::new(AccessOptions {
        global_repos_namespace: Some("global".to_owned()),
        ..AccessOptions::default()
    });
    assert_eq!(site.ask("jane", None).await, list(&["global"]));
    assert_eq!(site.ask("jane", Some("global")).await, list(&["global"]));
    assert_eq!(
        site.ask("guess", Some("global")).await,
        Err(AccessError::Unauthenticated)
    );
    let anonymous = site.access.caller(&HeaderMap::new(), &[], Some("global"), None).await;
    assert_eq!(anonymous.unwrap_err(), AccessError::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn anonymous_callers_see_the_namespaces_of_the_option_only() {
    let headers = from_host(HeaderMap::new(), "localhost");
    type Case = (
        &'static [&'static str],
        Option<&'static str>,
        Option<&'static [&'static str]>,
    );
    let cases: [Case; 7] = [
        (&[], None, None),
        (&[], Some("a"), None),
        (&["a", "b"], None, Some(&["a", "b"])),
        (&["a", "b"], Some("b"), Some(&["b"])),
        (&["a", "b"], Some("c"), None),
        (&["*"], None, Some(&["*"])),
        (&["*"], Some("c"), Some(&["*"])),
    ];
    for (allowed, named, visible) in cases {
        let site = Site::new(anonymous_in(allowed));
        let caller = site.access.caller(&headers, &["a".to_owned()], named, None).await;
        let expected = visible.map_or(Err(AccessError::Unauthenticated), list);
        assert_eq!(
            caller.map(|caller| names(&caller.namespaces)),
            expected,
            "{allowed:?} {named:?}"
        );
        assert_eq!(site.cluster.reviews(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_adds_to_what_anonymous_callers_see_and_a_wrong_one_is_refused() {
    let site = Site::new(anonymous_in(&["a"]));
    site.cluster.allow("jane", &["b"]);
    let ask = async |token: &str| {
        let headers = from_host(bearer(token), "localhost");
        let all = ["a", "b", "c"].map(str::to_owned);
        let caller = site.access.caller(&headers, &all, None, None).await;
        caller.map(|caller| names(&caller.namespaces))
    };
    assert_eq!(ask("jane").await, list(&["a", "b"]));
    assert_eq!(ask("guess").await, Err(AccessError::Unauthenticated));
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_a_token_is_known_whatever_the_owner_may_list() {
    let site = Site::new(AccessOptions::default());
    let owner = async |headers: &HeaderMap| site.access.owner(headers, None).await;
    assert_eq!(owner(&bearer("jane")).await, Ok(Some("jane".to_owned())));
    assert_eq!(site.cluster.reviews(), ["token", "*"]);
    assert_eq!(owner(&bearer("guess")).await, Err(AccessError::Unauthenticated));
    assert_eq!(owner(&HeaderMap::new()).await, Ok(None));
    site.cluster.go_away(true);
    assert_eq!(owner(&bearer("joe")).await, Err(AWAY));
    assert!(site.access.has_sign_in());

    let everything = Access::everything();
    let local = from_host(bearer("jane"), "localhost");
    assert_eq!(everything.owner(&local, None).await, Ok(None));
    let rebound = from_host(bearer("jane"), "rebound.example");
    assert_eq!(everything.owner(&rebound, None).await, Err(AccessError::ForeignHost));
    assert!(!everything.has_sign_in());
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_everything_is_visible_on_loopback_only() {
    let access = Access::everything();
    for headers in [HeaderMap::new(), bearer("guess")] {
        let local = from_host(headers.clone(), "127.0.0.1:8090");
        let caller = access.caller(&local, &[], Some("a"), None).await.unwrap();
        assert_eq!(names(&caller.namespaces), ["*"]);
        let rebound = from_host(headers, "rebound.example:8090");
        let error = access.caller(&rebound, &[], None, None).await.unwrap_err();
        assert_eq!(error, AccessError::ForeignHost);
    }
}

#[tokio::test(start_paused = true)]
async fn the_host_is_checked_with_an_external_host_or_anonymous_callers() {
    let external = AccessOptions {
        external_host: Some("charts.example".to_owned()),
        allowed_hosts: vec!["portolan-serve.ns".to_owned()],
        ..AccessOptions::default()
    };
    let cases = [
        (AccessOptions::default(), "foreign.example", true),
        (anonymous_in(&["a"]), "foreign.example", false),
        (external.clone(), "foreign.example", false),
        (external.clone(), "charts.example", true),
        (external, "portolan-serve.ns:8090", true),
    ];
    for (options, host, is_served) in cases {
        let site = Site::new(options);
        let caller = site
            .access
            .caller(&from_host(bearer("jane"), host), &[], None, None)
            .await;
        let is_misdirected = caller.is_err_and(|error| error == AccessError::Misdirected);
        assert_eq!(is_misdirected, !is_served, "{host}");
    }
}
