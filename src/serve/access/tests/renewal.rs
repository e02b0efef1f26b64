use tokio::time::{Instant, advance};

use super::super::credentials::tests::jwt;
use super::*;

/// Lets background tasks run.
async fn settle() {
    sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_was_taken_away_is_gone_after_a_minute() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a", "b"]);
    assert_eq!(site.ask("jane", None).await, list(&["a", "b"]));
    site.cluster.revoke_rights();
    site.cluster.reviews();
    advance(Duration::from_secs(44)).await;
    assert_eq!(site.ask("jane", None).await, list(&["a", "b"]));
    assert_eq!(site.ask("jane", Some("a")).await, list(&["a"]));
    assert_eq!(site.cluster.reviews(), [""; 0]);
    advance(Duration::from_secs(16)).await;
    assert_eq!(site.ask("jane", Some("a")).await, forbidden_in("jane", "a"));
    assert_eq!(site.ask("jane", None).await, list(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_revoked_is_refused_after_a_minute() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["*"]);
    assert_eq!(site.ask("jane", None).await, list(&["*"]));
    site.cluster.revoke_token("jane");
    advance(Duration::from_secs(60)).await;
    assert_eq!(site.ask("jane", None).await, Err(AccessError::Unauthenticated));
}

#[tokio::test(start_paused = true)]
async fn a_named_namespace_that_was_refused_is_reviewed_again_after_ten_seconds() {
    let site = Site::new(AccessOptions::default());
    assert_eq!(site.ask("jane", None).await, list(&[]));
    assert_eq!(site.ask("jane", Some("b")).await, forbidden_in("jane", "b"));
    site.cluster.allow("jane", &["b"]);
    site.cluster.reviews();
    advance(Duration::from_secs(9)).await;
    assert_eq!(site.ask("jane", Some("b")).await, forbidden_in("jane", "b"));
    advance(Duration::from_secs(1)).await;
    assert_eq!(site.ask("jane", Some("b")).await, list(&["b"]));
    assert_eq!(site.cluster.reviews(), ["b"]);
    // The set of all stays as it is.
    assert_eq!(site.ask("jane", None).await, list(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_request_after_45_seconds_renews_the_set_for_later_ones() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a", "b"]);
    assert_eq!(site.ask("jane", None).await, list(&["a", "b"]));
    site.cluster.revoke_rights();
    site.cluster.allow("jane", &["c"]);
    site.cluster.reviews();
    advance(Duration::from_secs(45)).await;
    assert_eq!(site.ask("jane", None).await, list(&["a", "b"]));
    assert_eq!(site.ask("jane", None).await, list(&["a", "b"]));
    settle().await;
    let mut reviews = site.cluster.reviews();
    reviews.sort();
    assert_eq!(reviews, ["*", "a", "b", "c", "token"]);
    assert_eq!(site.ask("jane", None).await, list(&["c"]));
    advance(Duration::from_secs(40)).await;
    assert_eq!(site.ask("jane", None).await, list(&["c"]));
    assert_eq!(site.cluster.reviews(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_keeps_the_set_until_its_minute_ends() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a"]);
    assert_eq!(site.ask("jane", None).await, list(&["a"]));
    site.cluster.go_away(true);
    advance(Duration::from_secs(45)).await;
    for _ in 0..3 {
        assert_eq!(site.ask("jane", None).await, list(&["a"]));
        settle().await;
    }
    advance(Duration::from_secs(15)).await;
    assert_eq!(site.ask("jane", None).await, Err(AWAY));
    site.cluster.go_away(false);
    assert_eq!(site.ask("jane", None).await, list(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_renewal_keeps_the_set_no_longer_than_its_minute() {
    let site = Site::of(
        Cluster {
            delay: Some(Duration::from_secs(1)),
            ..Cluster::default()
        },
        AccessOptions::default(),
    );
    site.cluster.allow("jane", &["a"]);
    let start = Instant::now();
    assert_eq!(site.ask("jane", None).await, list(&["a"]));
    site.cluster.revoke_rights();
    // A renewal takes longer than the rest of the minute.
    advance(Duration::from_secs(58).saturating_sub(start.elapsed())).await;
    assert_eq!(site.ask("jane", None).await, list(&["a"]));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(site.ask("jane", None).await, list(&[]));
}

#[tokio::test(start_paused = true)]
async fn the_reviews_of_a_renewal_that_takes_too_long_count_for_the_next_request() {
    let rate = NonZeroU32::new(10).unwrap();
    let limits = Limits {
        reviews_per_second: rate,
        review_burst: rate,
        ..Limits::default()
    };
    let site = Site::new(AccessOptions {
        limits,
        ..AccessOptions::default()
    });
    let namespaces: Vec<String> = (0..200).map(|number| format!("team-{number}")).collect();
    let start = Instant::now();
    while site.ask_of("jane", &namespaces, None).await.is_err() {}
    advance(Duration::from_secs(45).saturating_sub(start.elapsed())).await;
    site.cluster.reviews();
    assert_eq!(site.ask_of("jane", &namespaces, None).await, list(&[]));
    sleep(Duration::from_secs(16)).await;
    assert_eq!(site.ask_of("jane", &namespaces, None).await, list(&[]));
    assert_eq!(site.cluster.reviews().len(), 202);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_reviewed_again_once_it_has_expired() {
    let site = Site::new(AccessOptions::default());
    let now = jiff::Timestamp::now().as_second();
    let (short, expired, long) = (jwt(&(now + 30).to_string()), jwt(&(now - 30).to_string()), jwt("4e9"));
    for token in [&short, &expired, &long] {
        site.cluster.allow(token, &["*"]);
        assert_eq!(site.ask(token, None).await, list(&["*"]));
        site.cluster.revoke_token(token);
    }
    assert_eq!(site.ask(&short, None).await, list(&["*"]));
    assert_eq!(site.ask(&expired, None).await, Err(AccessError::Unauthenticated));
    advance(Duration::from_secs(30)).await;
    assert_eq!(site.ask(&short, None).await, Err(AccessError::Unauthenticated));
    assert_eq!(site.ask(&long, None).await, list(&["*"]));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_token_is_refused_for_ten_seconds_without_a_review() {
    let site = Site::new(AccessOptions::default());
    for _ in 0..3 {
        assert_eq!(site.ask("guess", None).await, Err(AccessError::Unauthenticated));
    }
    assert_eq!(site.cluster.reviews(), ["token"]);
    advance(Duration::from_secs(10)).await;
    assert_eq!(site.ask("guess", None).await, Err(AccessError::Unauthenticated));
    assert_eq!(site.cluster.reviews(), ["token"]);
}
