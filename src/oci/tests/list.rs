//! Listing repositories.

use rstest::rstest;

use super::*;

const INDEX: &str = r#"{"apiVersion":"v1","entries":{"nginx":{"versions":[]},"common":{}}}"#;

fn index_manifest() -> String {
    serde_json::json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.vmware.charts.index.config.v1+json", "digest": sha256("{}"), "size": 2 },
        "layers": [{ "mediaType": "application/vnd.vmware.charts.index.layer.v1+json", "digest": sha256(INDEX), "size": INDEX.len() }],
    })
    .to_string()
}

fn catalog(head: &str) -> Parts {
    match target(head).as_str() {
        "/v2/_catalog?n=1000" => response(
            "200 OK",
            "Link: </v2/_catalog?last=p%2Fb&n=2>; rel=\"next\"",
            br#"{"repositories":["other/x","p","p/a","p/b/c"]}"#,
        ),
        "/v2/_catalog?last=p%2Fb&n=2" => ok(r#"{"repositories":["p/b/c","p/d","pq/e"]}"#),
        _ => not_found(),
    }
}

#[rstest]
#[case("", "charts-index")]
#[case("p/q", "p/q/charts-index")]
#[tokio::test]
async fn the_charts_index_is_preferred(#[case] path: &str, #[case] repository: &'static str) {
    let server = Server::start(move |head| match target(head) {
        target if target == format!("/v2/{repository}/manifests/latest") => ok(index_manifest()),
        target if target == format!("/v2/{repository}/blobs/{}", sha256(INDEX)) => ok(INDEX),
        target => panic!("{target}"),
    })
    .await;
    assert_eq!(
        registry_of(&server, path, Limits::default()).list().await.unwrap(),
        ["common", "nginx"]
    );
}

#[rstest]
#[case("p", &["a", "b/c", "d"])]
#[case("", &["other/x", "p", "p/a", "p/b/c", "p/d", "pq/e"])]
#[case("p/b", &["c"])]
#[case("nothing", &[])]
#[tokio::test]
async fn the_catalog_is_filtered_by_the_path_prefix(#[case] path: &str, #[case] names: &[&str]) {
    let server = Server::start(catalog).await;
    let registry = registry_of(&server, path, Limits::default());
    assert_eq!(registry.list().await.unwrap(), names);
}

#[tokio::test]
async fn an_image_named_charts_index_is_ignored() {
    let server = Server::start(|head| match target(head).as_str() {
        "/v2/charts-index/manifests/latest" => ok(r#"{"schemaVersion":2,"manifests":[]}"#),
        _ => catalog(head),
    })
    .await;
    assert_eq!(registry(&server).list().await.unwrap().len(), 6);
}

#[tokio::test]
async fn docker_hub_lists_a_namespace() {
    let hub = Server::start(|head| {
        let next = format!("http://{}/v2/next", header(head, "host"));
        match target(head).as_str() {
            "/v2/namespaces/bitnamicharts/repositories/?page_size=100&ordering=name&content_types=helm" => {
                ok(format!(r#"{{"next":"{next}","results":[{{"name":"b"}}]}}"#))
            }
            "/v2/next" => ok(r#"{"next":null,"results":[{"name":"a"},{"name":"b"}]}"#),
            _ => not_found(),
        }
    })
    .await;
    let server = Server::start(|_| not_found()).await;
    let listed = |path| registry_of(&server, path, Limits::default()).with_hub(hub.url.clone());
    assert_eq!(listed("bitnamicharts").list().await.unwrap(), ["a", "b"]);
    assert!(
        hub.requests()
            .iter()
            .all(|head| header(head, "authorization").is_empty())
    );
    let error = listed("").list().await.unwrap_err();
    assert!(error.to_string().contains("must be one namespace"), "{error}");
}

#[tokio::test]
async fn a_next_page_of_docker_hub_with_another_origin_is_rejected() {
    let hub = Server::start(|_| ok(r#"{"next":"http://127.0.0.1:1/","results":[]}"#)).await;
    let server = Server::start(|_| not_found()).await;
    let error = registry_of(&server, "n", Limits::default())
        .with_hub(hub.url.clone())
        .list()
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "InvalidNextPage");
}

#[tokio::test]
async fn a_registry_without_a_listing_is_an_error_with_advice() {
    let server = Server::start(|head| match target(head).as_str() {
        "/v2/p/charts-index/manifests/latest" => not_found(),
        _ => unauthorized("Basic realm=r"),
    })
    .await;
    let error = registry_of(&server, "p", Limits::default()).list().await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("NoListing", false));
    let text = error.to_string();
    for part in [
        "set spec.ociRepositories",
        "charts-index: 404 Not Found",
        "_catalog: credentials required",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[rstest]
#[case("charts-index")]
#[case("_catalog")]
#[tokio::test]
async fn a_transient_error_does_not_switch_to_another_listing(#[case] failing_path: &'static str) {
    let server = Server::start(move |head| {
        if target(head).contains(failing_path) {
            response("502 Bad Gateway", "", b"")
        } else {
            not_found()
        }
    })
    .await;
    let error = registry(&server).list().await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("ServerError", true));
}

#[tokio::test]
async fn too_many_repositories_are_rejected() {
    let server = Server::start(catalog).await;
    let limits = Limits {
        repositories: 3,
        ..Limits::default()
    };
    let error = registry_of(&server, "", limits).list().await.unwrap_err();
    assert_eq!(error.reason(), "TooMany");
    assert!(error.to_string().contains("3 repositories"), "{error}");
}

#[rstest]
#[case(
    "oci://r.example.com/p//q/",
    "https://r.example.com/",
    "p/q",
    "oci://r.example.com/p/q/a:1.0.0"
)]
#[case(
    "https://r.example.com:5000",
    "https://r.example.com:5000/",
    "",
    "oci://r.example.com:5000/a:1.0.0"
)]
#[case(
    "http://127.0.0.1:5000/p",
    "http://127.0.0.1:5000/",
    "p",
    "oci://127.0.0.1:5000/p/a:1.0.0"
)]
#[case("oci://[::1]:5000/p?x=y#z", "https://[::1]:5000/", "p", "oci://[::1]:5000/p/a:1.0.0")]
#[case(
    "oci://docker.io/bitnamicharts",
    "https://registry-1.docker.io/",
    "bitnamicharts",
    "oci://docker.io/bitnamicharts/a:1.0.0"
)]
fn host_and_path_prefix_are_read_from_the_url(
    #[case] url: &str,
    #[case] base: &str,
    #[case] prefix: &str,
    #[case] chart: &str,
) {
    let fetcher = Fetcher::new(Settings::default()).unwrap();
    let registry = Registry::new(fetcher, &url.parse().unwrap(), Limits::default()).unwrap();
    assert_eq!((registry.base.as_str(), registry.prefix.as_str()), (base, prefix));
    assert_eq!(registry.chart_url(&registry.repository("a"), "1.0.0"), chart);
    assert_eq!(registry.hub.is_some(), url.contains("docker.io"));
    assert!(registry.contains(&ChartReference::parse(chart, None).unwrap()));
    for other in ["oci://other.example.com/p/a:1.0.0", "oci://r.example.com:5001/a:1.0.0"] {
        assert!(!registry.contains(&ChartReference::parse(other, None).unwrap()));
    }
}

#[rstest]
fn an_invalid_registry_url_is_rejected(
    #[values("ftp://r/a", "oci:///a", "oci://r/a b", "oci://r/%2e%2fa", "oci:a", "oci://r/a:1")] url: &str,
) {
    let fetcher = Fetcher::new(Settings::default()).unwrap();
    let error = Registry::new(fetcher, &url.parse().unwrap(), Limits::default()).unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("InvalidURL", false));
}
