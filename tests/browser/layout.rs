//! Every page at all widths, in both themes.

use rstest::rstest;

use super::accessibility::inspect;
use super::catalog::{Catalog, TABS, WEB};

/// Names of pictures, and paths.
fn lists() -> Vec<(String, String)> {
    [
        ("catalog", "/"),
        ("catalog-search", "/?q=web&sort=name"),
        ("catalog-filtered", "/?category=Web&keyword=http&namespace=default"),
        ("catalog-nothing-found", "/?q=nothing-like-it"),
        ("repositories", "/repositories"),
        ("repositories-failing", "/repositories?ready=false"),
        ("repository", "/repositories/default/stable"),
        ("repository-failing", "/repositories/default/broken"),
        ("applications", "/applications"),
        ("help", "/help"),
        ("login-not-needed", "/login"),
        ("error-not-found", "/charts/default/stable/nothing"),
        ("error-parameter", "/?limit=-1&cursor=nothing"),
    ]
    .map(|(name, path)| (name.to_owned(), path.to_owned()))
    .into()
}

fn of_chart() -> Vec<(String, String)> {
    let tabs = TABS.map(|tab| (format!("chart-{tab}"), format!("{WEB}?tab={tab}")));
    let bare = TABS.map(|tab| {
        (
            format!("chart-bare-{tab}"),
            format!("/charts/default/stable/redis?tab={tab}"),
        )
    });
    let others = [
        ("chart", WEB.to_owned()),
        ("chart-older", format!("{WEB}/1.0.0")),
        ("chart-values-filtered", format!("{WEB}?tab=values&q=ingress")),
        ("chart-values-file", format!("{WEB}?tab=values&view=file")),
        ("chart-values-no-key", format!("{WEB}?tab=values&q=nothing")),
        ("chart-diff", format!("{WEB}/diff?from=1.0.0&to=1.2.0")),
        ("chart-diff-same", format!("{WEB}/diff?from=1.0.0&to=1.0.0")),
        ("chart-diff-unknown", format!("{WEB}/diff?from=1.0.0&to=9.9.9")),
    ];
    let others = others.map(|(name, path)| (name.to_owned(), path));
    tabs.into_iter().chain(bare).chain(others).collect()
}

#[rstest]
#[case::lists(lists())]
#[case::charts(of_chart())]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_fits_all_widths_and_breaks_no_rule_of_axe(#[case] pages: Vec<(String, String)>) {
    let catalog = Catalog::new().await;
    // The page of the failing repository has its cause.
    catalog
        .world
        .until_status("broken", "its failure", |status| status["ready"] == false)
        .await;
    let browser = catalog.browser().await;
    for (name, path) in pages {
        inspect(&browser, &name, &path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_catalog_says_how_to_fill_it() {
    let catalog = Catalog::empty().await;
    let browser = catalog.browser().await;
    for (name, path) in [("empty-catalog", "/"), ("empty-repositories", "/repositories")] {
        inspect(&browser, name, path).await;
        assert!(browser.text("main").await.contains("kind: AppRepository"), "{path}");
    }
}
