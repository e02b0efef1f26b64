//! Pulling manifests and blobs.

use std::io::Read as _;

use rstest::rstest;

use super::*;

const CONFIG: &str = r#"{"name":"a","version":"1.0.0","apiVersion":"v2"}"#;
const LAYER: &[u8] = b"\x1f\x8bthe archive";

fn manifest_of(config: &str, layer: &[u8]) -> String {
    serde_json::json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": sha256(config), "size": config.len() },
        "layers": [{ "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": sha256(layer), "size": layer.len() }],
    })
    .to_string()
}

/// Starts a registry with the chart tag 1.0.0. `change` may replace a response.
async fn chart(change: impl Fn(&str) -> Option<Parts> + Send + Sync + 'static) -> Server {
    Server::start(move |head| {
        if let Some(changed) = change(head) {
            return changed;
        }
        let manifest = manifest_of(CONFIG, LAYER);
        let target = target(head);
        match target.trim_start_matches("HEAD ").trim_start_matches("/v2/a/") {
            "manifests/1.0.0" if head.starts_with("HEAD") => {
                response("200 OK", &format!("Docker-Content-Digest: {}", sha256(&manifest)), b"")
            }
            "manifests/1.0.0" => response(
                "200 OK",
                &format!("Docker-Content-Digest: {}", sha256(&manifest)),
                manifest.as_bytes(),
            ),
            path if path == format!("manifests/{}", sha256(&manifest)) => ok(manifest),
            path if path == format!("blobs/{}", sha256(CONFIG)) => ok(CONFIG),
            path if path == format!("blobs/{}", sha256(LAYER)) => ok(LAYER),
            _ => not_found(),
        }
    })
    .await
}

#[tokio::test]
async fn a_chart_is_pulled_by_tag_and_by_digest() {
    let server = chart(|_| None).await;
    let registry = registry(&server);
    let digest = registry.digest("a", "1.0.0").await.unwrap();
    assert_eq!(digest, sha256(manifest_of(CONFIG, LAYER)));
    let chart = registry.manifest("a", "1.0.0").await.unwrap();
    assert_eq!(chart.digest, digest);
    assert_eq!(registry.manifest("a", &digest).await.unwrap(), chart);
    assert_eq!(registry.config("a", &chart).await.unwrap(), CONFIG.as_bytes());
    let mut layer = Vec::new();
    let body = registry
        .layer("a", &chart, &fetch::FetchLimits::default())
        .await
        .unwrap();
    body.into_reader().read_to_end(&mut layer).unwrap();
    assert_eq!(layer, LAYER);

    let requests = server.requests();
    assert!(requests[0].starts_with("HEAD "));
    for kind in [
        "vnd.oci.image.manifest.v1+json",
        "vnd.oci.image.index.v1+json",
        "docker.distribution.manifest.v2+json",
    ] {
        assert!(header(&requests[1], "accept").contains(kind));
    }
}

#[tokio::test]
async fn the_digest_is_computed_if_the_header_is_missing() {
    let server = chart(|head| head.starts_with("HEAD").then(|| response("200 OK", "", b""))).await;
    assert_eq!(
        registry(&server).digest("a", "1.0.0").await.unwrap(),
        sha256(manifest_of(CONFIG, LAYER))
    );
}

#[rstest]
#[case("manifests", "1.0.0")]
#[case("manifests", "digest")]
#[case("blobs", "1.0.0")]
#[tokio::test]
async fn a_digest_mismatch_is_an_error(#[case] changed: &'static str, #[case] reference: &str) {
    let other = manifest_of("{}", LAYER);
    let digest = sha256(manifest_of(CONFIG, LAYER));
    let stated = format!("Docker-Content-Digest: {digest}");
    let server = chart(move |head| match changed {
        "manifests" if head.contains("/manifests/") => Some(response("200 OK", &stated, other.as_bytes())),
        "blobs" if head.contains("/blobs/") => Some(ok(CONFIG.replace("1.0.0", "6.6.6"))),
        _ => None,
    })
    .await;
    let registry = registry(&server);
    let reference = if reference == "digest" {
        digest.as_str()
    } else {
        reference
    };
    let error = match registry.manifest("a", reference).await {
        Ok(chart) => registry.config("a", &chart).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!((error.reason(), error.is_transient()), ("DigestMismatch", false));
}

#[tokio::test]
async fn a_size_mismatch_is_an_error() {
    let server = chart(|head| head.contains("/blobs/").then(|| ok([LAYER, b"!"].concat()))).await;
    let registry = registry(&server);
    let chart = registry.manifest("a", "1.0.0").await.unwrap();
    let error = registry
        .layer("a", &chart, &fetch::FetchLimits::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, OciError::Mismatch { .. }) && error.to_string().contains("bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_blob_that_is_too_large_by_its_manifest_is_not_requested() {
    let server = chart(|head| head.contains("/blobs/").then(|| panic!("unexpected request"))).await;
    let limits = Limits {
        config_bytes: 10,
        ..Limits::default()
    };
    let registry = registry_of(&server, "", limits);
    let chart = registry.manifest("a", "1.0.0").await.unwrap();
    let limits = fetch::FetchLimits {
        max_bytes: 5,
        ..fetch::FetchLimits::default()
    };
    for error in [
        registry.config("a", &chart).await.unwrap_err(),
        registry.layer("a", &chart, &limits).await.unwrap_err(),
    ] {
        assert_eq!((error.reason(), error.is_transient()), ("TooLarge", false));
    }
    let limits = Limits {
        manifest_bytes: 10,
        ..Limits::default()
    };
    let error = registry_of(&server, "", limits)
        .manifest("a", "1.0.0")
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "TooLarge");
}

#[rstest]
#[case::password(&basic("user", "secret"))]
#[case::token("Bearer custom")]
#[case::requested_token("")]
#[tokio::test]
async fn blobs_may_redirect_to_another_host_without_credentials(#[case] header_value: &str) {
    let store = Server::start(|_| ok(CONFIG)).await;
    let to = store.at("blob");
    let challenge = if header_value.starts_with("Basic") {
        "Basic realm=r"
    } else {
        "Bearer realm=\"http://HOST/token\""
    };
    let server = chart(move |head| {
        if target(head).starts_with("/token") {
            return Some(ok(r#"{"token":"t"}"#));
        }
        if header(head, "authorization").is_empty() {
            return Some(unauthorized(&challenge.replace("HOST", header(head, "host"))));
        }
        let elsewhere = || response("307 Temporary Redirect", &format!("Location: {to}"), b"");
        head.contains("/blobs/").then(elsewhere)
    })
    .await;
    let registry = if header_value.is_empty() {
        registry(&server)
    } else {
        registry_with(&server, header_value)
    };
    let chart = registry.manifest("a", "1.0.0").await.unwrap();
    assert_eq!(registry.config("a", &chart).await.unwrap(), CONFIG.as_bytes());
    assert_eq!(header(&store.requests()[0], "authorization"), "");
}

#[tokio::test]
async fn an_image_is_described_in_the_error() {
    let image = r#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json"},"layers":[]}"#;
    let server = chart(move |head| head.contains("/manifests/").then(|| ok(image))).await;
    let registry = registry(&server);
    let error = registry.manifest("a", "1.0.0").await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("NotAChart", false));
    assert!(
        error
            .to_string()
            .ends_with("/v2/a/manifests/1.0.0 is not a Helm chart: found a container image"),
        "{error}"
    );
    assert_eq!(registry.digest("a", "1.0.0").await.unwrap(), sha256(image));
}

#[tokio::test]
async fn a_missing_tag_is_not_found() {
    let server = chart(|_| None).await;
    let registry = registry(&server);
    for error in [
        registry.digest("a", "2.0.0").await.unwrap_err(),
        registry.manifest("a", "2.0.0").await.unwrap_err(),
    ] {
        assert!(error.is_not_found() && !error.is_transient(), "{error}");
    }
}
