use std::io::Read as _;

use portolan::http as fetch;
use portolan::oci::ChartReference;
use serde_json::Value;

use super::{chart, client};
use crate::support::archives::sha256;
use crate::support::registry::{Registry, Setup};

#[tokio::test]
async fn a_chart_pushed_by_helm_is_pulled_unchanged() {
    let registry = Registry::start(Setup::default()).await;
    let archive = chart("1.2.3+b.1");
    registry.helm_push(&archive, "ports").await;
    let client = client(&registry, "ports");
    let url = client.chart_url("ports/harbour", "1.2.3_b.1");
    assert_eq!(url, registry.oci_url("ports/harbour:1.2.3_b.1"));
    let reference = ChartReference::parse(&registry.oci_url("ports/harbour"), Some("1.2.3+b.1")).unwrap();

    let found = client
        .manifest(&reference.repository, &reference.reference)
        .await
        .unwrap();
    assert_eq!(client.digest("ports/harbour", "1.2.3_b.1").await.unwrap(), found.digest);
    assert_eq!(client.manifest("ports/harbour", &found.digest).await.unwrap(), found);
    let config: Value = serde_json::from_slice(&client.config("ports/harbour", &found).await.unwrap()).unwrap();
    assert_eq!(
        (config["name"].as_str(), config["version"].as_str()),
        (Some("harbour"), Some("1.2.3+b.1"))
    );

    let body = client
        .layer("ports/harbour", &found, &fetch::FetchLimits::default())
        .await
        .unwrap();
    assert_eq!(body.sha256, archive.sha256());
    let mut bytes = Vec::new();
    body.into_reader().read_to_end(&mut bytes).unwrap();
    assert_eq!(sha256(&bytes), archive.sha256());
}

#[tokio::test]
async fn images_signatures_and_indexes_are_not_charts() {
    let registry = Registry::start(Setup::default()).await;
    let pushed = registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    registry.push_image("harbour", "2.0.0").await;
    registry.push_image_index("harbour", "3.0.0").await;
    let signature = registry.push_signature("harbour", &pushed).await;
    registry.push_charts_index("ports", &["harbour"]).await;
    let client = client(&registry, "");
    assert!(client.manifest("harbour", "1.0.0").await.is_ok());
    for (repository, tag, what) in [
        ("harbour", "2.0.0", "a container image"),
        ("harbour", "3.0.0", "an image index"),
        ("harbour", &signature, "a signature"),
        ("ports/charts-index", "latest", "a charts index"),
    ] {
        let error = client.manifest(repository, tag).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("NotAChart", false));
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[tokio::test]
async fn a_tag_pushed_again_has_another_digest_and_a_deleted_tag_has_none() {
    let registry = Registry::start(Setup::default()).await;
    let client = client(&registry, "");
    let first = registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    assert_eq!(client.digest("harbour", "1.0.0").await.unwrap(), first.digest);
    let second = registry
        .push_chart("harbour", "1.0.0", &chart("1.0.0").truncated(10))
        .await;
    assert_ne!(first.digest, second.digest);
    assert_eq!(client.digest("harbour", "1.0.0").await.unwrap(), second.digest);
    assert_eq!(
        client.manifest("harbour", &first.digest).await.unwrap().digest,
        first.digest
    );

    registry.delete_tag("harbour", "1.0.0").await;
    let error = client.digest("harbour", "1.0.0").await.unwrap_err();
    assert!(error.is_not_found() && !error.is_transient(), "{error}");
    let error = client.tags("no/such", None).await.unwrap_err();
    assert!(
        error.is_not_found() && error.to_string().contains("spec.ociRepositories"),
        "{error}"
    );
}

#[tokio::test]
async fn an_archive_that_exceeds_the_limit_is_not_downloaded() {
    let registry = Registry::start(Setup::default()).await;
    registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    let client = client(&registry, "");
    let found = client.manifest("harbour", "1.0.0").await.unwrap();
    let limits = fetch::FetchLimits {
        max_bytes: found.layer.size - 1,
        ..fetch::FetchLimits::default()
    };
    let error = client.layer("harbour", &found, &limits).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("TooLarge", false));
}
