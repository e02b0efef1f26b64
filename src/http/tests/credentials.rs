//! Scope of a repository's credentials.

use super::*;
use crate::http::secret::Secret;

const HEADER: &str = "Basic dXNlcjpzZWNyZXQ=";

fn access(scope: &Url) -> Access {
    Access {
        authorization: Some(Secret::new(HEADER.to_owned())),
        scope: Some(scope.clone()),
        ..Access::default()
    }
}

/// Returns the `Authorization` header of the request with this index.
fn sent(server: &Server, index: usize) -> Option<String> {
    let request = &server.requests()[index];
    let line = request
        .lines()
        .find(|line| line.to_lowercase().starts_with("authorization:"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

async fn server() -> Server {
    Server::start(|_| response("200 OK", "", b"hello")).await
}

async fn redirecting_to(target: &Url) -> Server {
    let target = target.to_string();
    Server::start(move |_| redirect(&target)).await
}

#[tokio::test]
async fn credentials_are_sent_only_to_the_origin_of_the_repository() {
    let (own, other) = (server().await, server().await);
    let fetcher = fetcher().with(access(&own.at("charts"))).unwrap();
    // Archives may have another port or host name.
    let mut other_name = own.at("a.tgz");
    other_name.set_host(Some("localhost")).unwrap();
    for url in [
        own.at("charts/index.yaml"),
        own.at("elsewhere.tgz"),
        other.at("a.tgz"),
        other_name,
    ] {
        fetcher.get(&url, None, &limits()).await.unwrap();
    }
    assert_eq!(sent(&own, 0).as_deref(), Some(HEADER));
    assert_eq!(sent(&own, 1).as_deref(), Some(HEADER));
    assert_eq!(sent(&own, 2), None);
    assert_eq!(sent(&other, 0), None);
}

#[tokio::test]
async fn a_redirect_to_another_origin_drops_credentials_and_a_redirect_back_restores_them() {
    let away = Arc::new(parking_lot::Mutex::new(String::new()));
    let home = Server::start({
        let away = Arc::clone(&away);
        move |request| {
            if request.starts_with("GET /home") {
                response("200 OK", "", b"hello")
            } else {
                redirect(&away.lock())
            }
        }
    })
    .await;
    let elsewhere = redirecting_to(&home.at("home")).await;
    *away.lock() = elsewhere.url.to_string();
    let response = fetcher()
        .with(access(&home.url))
        .unwrap()
        .send(&Request::new(home.at("start")), &limits())
        .await
        .unwrap();
    assert_eq!(response.url, home.at("home"));
    assert_eq!(sent(&home, 0).as_deref(), Some(HEADER));
    assert_eq!(sent(&elsewhere, 0), None);
    assert_eq!(sent(&home, 1).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn pass_credentials_sends_credentials_to_all_hosts() {
    let target = server().await;
    let home = redirecting_to(&target.url).await;
    let everywhere = Access {
        pass_credentials: true,
        ..access(&home.url)
    };
    fetcher()
        .with(everywhere)
        .unwrap()
        .get(&home.url, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&target, 0).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn credentials_for_https_are_never_sent_over_http() {
    let target = server().await;
    let to = target.url.to_string();
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let home = Server::start_with(Some(acceptor), move |_| redirect(&to)).await;
    for pass_credentials in [false, true] {
        let access = Access {
            pass_credentials,
            ca: Some(pem.clone()),
            ..access(&home.url)
        };
        let fetcher = fetcher().with(access).unwrap();
        for url in [&home.url, &target.url] {
            fetcher.get(url, None, &limits()).await.unwrap();
        }
    }
    assert_eq!(sent(&home, 0).as_deref(), Some(HEADER));
    assert!((0..4).all(|at| sent(&target, at).is_none()));

    // The same host and port with another scheme is a different origin.
    let scope = format!("https{}", target.url.as_str().strip_prefix("http").unwrap());
    fetcher()
        .with(access(&scope.parse().unwrap()))
        .unwrap()
        .get(&target.url, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&target, 4), None);
}

#[tokio::test]
async fn an_oci_url_has_the_origin_of_https() {
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let registry = Server::start_with(Some(acceptor), |_| response("200 OK", "", b"")).await;
    let scope = registry.url.as_str().replacen("https", "oci", 1).parse().unwrap();
    let access = Access {
        ca: Some(pem),
        ..access(&scope)
    };
    fetcher()
        .with(access)
        .unwrap()
        .get(&registry.at("v2/"), None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&registry, 0).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn credentials_without_a_scope_are_not_sent() {
    let server = server().await;
    let access = Access {
        scope: None,
        ..access(&server.url)
    };
    fetcher()
        .with(access)
        .unwrap()
        .get(&server.url, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&server, 0), None);
}

#[tokio::test]
async fn user_information_of_the_repository_url_has_the_same_scope() {
    let (own, other) = (server().await, server().await);
    let mut scope = own.at("charts");
    scope.set_username("us%40er").unwrap();
    scope.set_password(Some("p:w")).unwrap();
    let access_by_url = Access {
        scope: Some(scope.clone()),
        ..Access::default()
    };
    let fetcher = fetcher().with(access_by_url).unwrap();
    for url in [&scope, &own.at("a.tgz"), &other.url] {
        fetcher.get(url, None, &limits()).await.unwrap();
    }
    // us@er:p:w
    for index in [0, 1] {
        assert_eq!(sent(&own, index).as_deref(), Some("Basic dXNAZXI6cDp3"));
    }
    assert_eq!(sent(&other, 0), None);

    // The header from the Secret has precedence.
    fetcher
        .with(access(&scope))
        .unwrap()
        .get(&scope, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&own, 2).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn credentials_in_a_redirect_target_are_ignored() {
    let target = server().await;
    let mut url = target.url.clone();
    url.set_username("admin").unwrap();
    url.set_password(Some("admin")).unwrap();
    let home = redirecting_to(&url).await;
    let response = fetcher()
        .send(&Request::new(home.url.clone()), &limits())
        .await
        .unwrap();
    assert_eq!((sent(&target, 0), response.url), (None, target.url.clone()));
}

#[tokio::test]
async fn a_token_is_sent_only_to_the_origin_of_the_request() {
    let target = server().await;
    let home = redirecting_to(&target.url).await;
    let everywhere = Access {
        pass_credentials: true,
        ..access(&home.url)
    };
    let fetcher = fetcher().with(everywhere).unwrap();
    let request = Request {
        authorization: Authorization::Bearer(Secret::new("token".to_owned())),
        ..Request::new(home.url.clone())
    };
    fetcher.send(&request, &limits()).await.unwrap();
    assert_eq!(sent(&home, 0).as_deref(), Some("Bearer token"));
    assert_eq!(sent(&target, 0), None);

    let mut url = home.url.clone();
    url.set_username("user").unwrap();
    let request = Request {
        authorization: Authorization::None,
        ..Request::new(url)
    };
    fetcher.send(&request, &limits()).await.unwrap();
    assert_eq!((sent(&home, 1), sent(&target, 1)), (None, None));
}

/// A token server's response is a secret even if the credentials are not sent on.
#[tokio::test]
async fn a_tls_only_request_rejects_redirects_to_plain_http() {
    let target = server().await;
    let to = target.url.to_string();
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let home = Server::start_with(Some(acceptor), move |_| redirect(&to)).await;
    let trusting = Access {
        ca: Some(pem),
        ..Access::default()
    };
    let fetcher = fetcher().with(trusting).unwrap();
    let request = |tls_only| Request {
        tls_only,
        ..Request::new(home.url.clone())
    };
    let error = fetcher.send(&request(true), &limits()).await.unwrap_err();
    assert!(matches!(error, FetchError::BadRedirect { .. }), "{error}");
    assert!(target.requests().is_empty());
    fetcher.send(&request(false), &limits()).await.unwrap();
}

#[tokio::test]
async fn invalid_credentials_are_rejected_before_a_request_is_sent() {
    let server = server().await;
    let broken = || Secret::new("Basic x\r\nX-Injected: secret".to_owned());
    let from_access = fetcher().with(Access {
        authorization: Some(broken()),
        ..Access::default()
    });
    let request = Request {
        authorization: Authorization::Bearer(broken()),
        ..Request::new(server.url.clone())
    };
    let from_request = fetcher().send(&request, &limits()).await;
    for error in [from_access.unwrap_err(), from_request.unwrap_err()] {
        assert_eq!((error.reason(), error.is_transient()), ("InvalidCredentials", false));
        assert!(!format!("{error} {error:?}").contains("Injected"), "{error}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn secrets_are_not_printed() {
    let url: Url = "http://user:hunter2@nowhere.invalid/a?token=hunter2".parse().unwrap();
    let access = Access {
        authorization: Some(Secret::new("Bearer hunter2".to_owned())),
        ca: Some(connections::tls("127.0.0.1").1),
        proxies: Some(Proxies {
            http: Some("http://user:hunter2@127.0.0.1:1".to_owned()),
            ..Proxies::default()
        }),
        ..access(&url)
    };
    let fetcher = fetcher().with(access.clone()).unwrap();
    let request = Request {
        authorization: Authorization::Bearer(Secret::new("hunter2".to_owned())),
        ..Request::new(url)
    };
    // Each of these errors is built from an error of reqwest.
    let by_proxy = fetcher.send(&request, &limits()).await.unwrap_err();
    let unresolved = fetcher
        .with(Access::default())
        .unwrap()
        .send(&request, &limits())
        .await
        .unwrap_err();
    let truncated = Server::always("HTTP/1.1 200 OK\nContent-Length: 10", b"hello").await;
    let mut truncated_url = truncated.at("a?token=hunter2");
    truncated_url.set_password(Some("hunter2")).unwrap();
    let truncated = fetcher
        .with(Access::default())
        .unwrap()
        .send(&Request::new(truncated_url), &limits())
        .await
        .unwrap_err();
    assert_eq!(
        [by_proxy.reason(), unresolved.reason(), truncated.reason()],
        ["ConnectFailed", "DNSFailure", "ConnectionInterrupted"]
    );
    let shown = format!(
        "{access:?} {fetcher:?} {request:?} {by_proxy} {by_proxy:?} {unresolved} {unresolved:?} {truncated} {truncated:?}"
    );
    assert!(
        shown.contains("nowhere.invalid") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[tokio::test]
async fn challenges_of_a_401_are_returned_within_limits() {
    let long = "x".repeat(5_000);
    let headers = format!(
        "WWW-Authenticate: Bearer realm=\"https://auth.example.com/token\"\nWWW-Authenticate: {long}\n{}",
        ["WWW-Authenticate: Basic realm=\"a\""; 20].join("\n")
    );
    for (status, count) in [("401 Unauthorized", 8), ("403 Forbidden", 0)] {
        let headers = headers.clone();
        let server = Server::start(move |_| response(status, &headers, b"")).await;
        let error = fetcher().get(&server.url, None, &limits()).await.unwrap_err();
        let FetchError::Status { challenges, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(challenges.len(), count);
        assert!(challenges.iter().all(|challenge| challenge.len() < 100));
    }
}

/// Set in the child process of `secrets_are_not_logged`.
const LOGGED: &str = "PORTOLAN_TEST_LOGGED";

#[tokio::test]
async fn child_process_with_trace_logs() {
    // A process has one global subscriber, so this runs in a child process.
    if std::env::var_os(LOGGED).is_none() {
        return;
    }
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).init();
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let target = Server::start_with(Some(acceptor), |_| response("200 OK", "", b"hello")).await;
    let to = target.at("b?token=hunter2").to_string();
    let proxy = Server::start(move |_| redirect(&to)).await;
    let mut scope: Url = "http://charts.invalid/?token=hunter2".parse().unwrap();
    scope.set_password(Some("hunter2")).unwrap();
    let mut proxy_url = proxy.url.clone();
    proxy_url.set_password(Some("hunter2")).unwrap();
    let fetcher = fetcher().with(Access {
        authorization: Some(Secret::new("Bearer hunter2".to_owned())),
        ca: Some(pem),
        pass_credentials: true,
        proxies: Some(Proxies {
            http: Some(proxy_url.to_string()),
            ..Proxies::default()
        }),
        ..access(&scope)
    });
    fetcher.unwrap().get(&scope, None, &limits()).await.unwrap();
    assert_eq!(sent(&target, 0).as_deref(), Some("Bearer hunter2"));
}

#[tokio::test]
async fn secrets_are_not_logged() {
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "http::tests::credentials::child_process_with_trace_logs",
        ])
        .env(LOGGED, "yes")
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(
        shown.contains("starting new connection") && shown.contains("TRACE"),
        "{shown}"
    );
    // Omh1bnRlcjI= = :hunter2
    for secret in ["hunter2", "Omh1bnRlcjI"] {
        let line = shown.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
}
