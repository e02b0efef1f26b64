use super::*;

#[test]
fn the_index_is_looked_for_below_the_path_of_the_repository() {
    let cases = [
        ("https://example.com", "https://example.com/index.yaml"),
        (" https://example.com/charts/ ", "https://example.com/charts/index.yaml"),
        (
            "http://example.com:8080//a//b?token=x#y",
            "http://example.com:8080/a/b/index.yaml?token=x",
        ),
        ("https://example.com/a%20b", "https://example.com/a%20b/index.yaml"),
    ];
    for (repository, index) in cases {
        assert_eq!(index_url(repository).unwrap().as_str(), index);
    }
}

#[test]
fn what_is_no_url_of_http_is_refused() {
    for url in [
        "",
        "charts",
        "ftp://example.com",
        "oci://example.com/charts",
        "http://",
        "https:///x y",
    ] {
        match index_url(url) {
            Err(error) => assert_eq!(error.reason(), "InvalidURL"),
            // `https:///x y` has a host by the rules of browsers.
            Ok(found) => assert!(found.host_str().is_some(), "{url}"),
        }
    }
}

#[test]
fn the_user_agent_carries_the_operators_comment() {
    assert!(user_agent(Some("kubeapps/2.12.1")).ends_with(" (kubeapps/2.12.1)"));
    assert_eq!(user_agent(Some("")), user_agent(None));
}
