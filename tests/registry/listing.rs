use portolan::http::Access;
use portolan::oci::{Limits, is_version, version_of};

use super::{chart, client, client_with, tags};
use crate::support::archives::Chart;
use crate::support::registry::{Registry, Setup};

#[tokio::test]
async fn tags_are_listed_in_pages() {
    let registry = Registry::start(Setup::default().pages_of(3)).await;
    let versions: Vec<String> = (0..8).map(|number| format!("1.{number}.0")).collect();
    let archives = versions.iter().map(|version| chart(version));
    registry.push_charts("ports/harbour", archives).await;
    // The registry's page size, and a smaller requested one.
    for page_names in [1_000, 2] {
        let limits = Limits {
            page_names,
            ..Limits::default()
        };
        let client = client_with(&registry, "ports", Access::default(), limits);
        assert_eq!(tags(&client, &client.repository("harbour")).await.unwrap(), versions);
    }
    let limits = Limits {
        page_names: 2,
        pages: 3,
        ..Limits::default()
    };
    let client = client_with(&registry, "ports", Access::default(), limits);
    assert_eq!(tags(&client, "ports/harbour").await.unwrap_err().reason(), "TooMany");
}

#[tokio::test]
async fn tags_are_listed_with_and_without_versions() {
    let registry = Registry::start(Setup::default()).await;
    registry.helm_push(&chart("1.0.0+build.7"), "ports").await;
    let pushed = registry.push_chart("ports/harbour", "v1.1.0", &chart("1.1.0")).await;
    registry.push_image("ports/harbour", "latest").await;
    let signature = registry.push_signature("ports/harbour", &pushed).await;
    let listed = tags(&client(&registry, "ports"), "ports/harbour").await.unwrap();
    assert_eq!(listed, ["1.0.0_build.7", "latest", &signature, "v1.1.0"]);
    let versions: Vec<String> = listed
        .iter()
        .filter(|tag| is_version(tag))
        .map(|tag| version_of(tag))
        .collect();
    assert_eq!(versions, ["1.0.0+build.7", "v1.1.0"]);
}

#[tokio::test]
async fn repositories_below_a_path_are_listed_by_catalog() {
    let registry = Registry::start(Setup::default().pages_of(2)).await;
    for repository in [
        "harbour",
        "other/tide",
        "ports/harbour",
        "ports/north/pier",
        "ports/tide",
        "portside/x",
    ] {
        registry.push_chart(repository, "1.0.0", &chart("1.0.0")).await;
    }
    let names = client(&registry, "ports").list().await.unwrap();
    assert_eq!(names, ["harbour", "north/pier", "tide"]);
    assert_eq!(client(&registry, "").list().await.unwrap().len(), 6);
    assert!(client(&registry, "nobody").list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_charts_index_is_preferred_to_the_catalog() {
    let registry = Registry::start(Setup::default()).await;
    registry.push_chart("ports/hidden", "1.0.0", &chart("1.0.0")).await;
    registry.push_charts_index("ports", &["tide", "harbour"]).await;
    assert_eq!(client(&registry, "ports").list().await.unwrap(), ["harbour", "tide"]);
}

#[tokio::test]
async fn a_chart_named_charts_index_is_a_chart() {
    let registry = Registry::start(Setup::default()).await;
    let archive = Chart::new("charts-index", "1.0.0").pack();
    registry.push_chart("ports/charts-index", "latest", &archive).await;
    assert_eq!(client(&registry, "ports").list().await.unwrap(), ["charts-index"]);
}
