use std::net::IpAddr;

use futures::future::join_all;
use tokio::time::{Instant, advance};

use super::*;

fn slow(delay: Duration) -> Cluster {
    Cluster {
        delay: Some(delay),
        ..Cluster::default()
    }
}

fn many(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("team-{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_of_a_caller_share_their_reviews() {
    let site = Site::of(slow(Duration::from_millis(10)), AccessOptions::default());
    site.cluster.allow("jane", &["a"]);
    let answers = join_all((0..100).map(|_| site.ask("jane", None))).await;
    assert!(answers.iter().all(|answer| *answer == list(&["a"])));
    let named = join_all((0..100).map(|_| site.ask("jane", Some("x")))).await;
    assert!(named.iter().all(|answer| *answer == forbidden_in("jane", "x")));
    let mut reviews = site.cluster.reviews();
    reviews.sort();
    assert_eq!(reviews, ["*", "a", "b", "c", "token", "x"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_does_not_lose_the_reviews() {
    let site = Site::of(slow(Duration::from_secs(1)), AccessOptions::default());
    let namespaces = many(80);
    // Two reviews of the caller, and eight namespaces a second.
    let early = timeout(Duration::from_millis(7_500), site.ask_of("jane", &namespaces, None)).await;
    assert!(early.is_err());
    let before = site.cluster.reviews().len();
    assert!(before > 40, "{before}");
    assert_eq!(site.ask_of("jane", &namespaces, None).await, list(&[]));
    let after = site.cluster.reviews().len();
    assert!(after < 60, "{after}");
}

#[tokio::test(start_paused = true)]
async fn eight_reviews_run_at_once() {
    let site = Site::of(slow(Duration::from_millis(10)), AccessOptions::default());
    let namespaces = many(100);
    let start = Instant::now();
    let asked = join_all(["jane", "joe", "ann"].map(|user| site.ask_of(user, &namespaces, None))).await;
    assert!(asked.iter().all(|answer| *answer == list(&[])));
    assert_eq!(site.cluster.highest.load(SeqCst), 8);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reviews_beyond_a_burst_are_limited_to_fifty_a_second() {
    let site = Site::new(AccessOptions::default());
    let start = Instant::now();
    for user in ["jane", "joe"] {
        assert_eq!(site.ask_of(user, &many(300), None).await, list(&[]));
    }
    // 604 reviews, of which 500 at once.
    let seconds = start.elapsed().as_secs_f64();
    assert!((1.9..2.5).contains(&seconds), "{seconds}");
    assert_eq!(site.cluster.reviews().len(), 604);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_takes_longer_than_a_request_is_completed_by_later_ones() {
    let limits = Limits {
        review_burst: NonZeroU32::MIN,
        ..Limits::default()
    };
    let site = Site::new(AccessOptions {
        limits,
        ..AccessOptions::default()
    });
    let namespaces = many(500);
    assert_eq!(site.ask_of("jane", &namespaces, None).await, Err(AWAY));
    // Longer than named namespaces remain refused.
    advance(Duration::from_secs(RETRY_AFTER)).await;
    assert_eq!(site.ask_of("jane", &namespaces, None).await, list(&[]));
    assert_eq!(site.cluster.reviews().len(), 502);
}

#[tokio::test(start_paused = true)]
async fn among_too_many_namespaces_only_the_named_one_is_reviewed() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["team-7"]);
    site.cluster.allow("root", &["*"]);
    let namespaces = many(501);
    let error = site.ask_of("jane", &namespaces, None).await.unwrap_err();
    let forbidden = AccessError::Forbidden {
        user: "jane".to_owned(),
        resource: ListedResource::AppRepositories,
        namespace: None,
    };
    assert_eq!(error, forbidden);
    assert_eq!(
        site.ask_of("jane", &namespaces, Some("team-7")).await,
        list(&["team-7"])
    );
    assert_eq!(site.cluster.reviews(), ["token", "*", "team-7"]);
    assert_eq!(site.ask_of("root", &namespaces, None).await, list(&["*"]));
}

#[tokio::test(start_paused = true)]
async fn guessed_tokens_are_limited_and_callers_that_were_valid_notice_nothing() {
    let options = AccessOptions {
        limits: Limits {
            callers: 16,
            ..Limits::default()
        },
        ..AccessOptions::default()
    };
    let site = Site::new(options);
    site.cluster.allow("jane", &["*"]);
    assert_eq!(site.ask("jane", None).await, list(&["*"]));
    site.cluster.reviews();
    let guess = async |count: usize| {
        let tokens: Vec<String> = (0..count).map(|number| format!("guess-{number}")).collect();
        let asked = join_all(tokens.iter().map(|token| site.ask(token, None))).await;
        let too_many = Err(AccessError::TooMany { retry_after: 1 });
        asked.iter().filter(|answer| **answer == too_many).count()
    };
    let refused_early = guess(10_000).await;
    assert!(refused_early >= 9_990, "{refused_early}");
    assert!(site.cluster.reviews().len() <= 10);
    assert_eq!(site.ask("jane", None).await, list(&["*"]));
    assert_eq!(site.cluster.reviews(), [""; 0]);
    // Her reviews expire, and the limit is used up again.
    advance(Duration::from_secs(60)).await;
    guess(100).await;
    site.cluster.reviews();
    assert_eq!(site.ask("jane", None).await, list(&["*"]));
    assert_eq!(site.cluster.reviews(), ["token", "*"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_tokens_count_by_address_if_it_is_known() {
    let site = Site::new(AccessOptions::default());
    let guess = async |address: u8, number: usize| {
        let headers = bearer(&format!("guess-{address}-{number}"));
        let address = IpAddr::from([192, 0, 2, address]).into();
        site.access
            .caller(&headers, &[], None, Some(address))
            .await
            .unwrap_err()
    };
    for number in 0..10 {
        assert_eq!(guess(1, number).await, AccessError::Unauthenticated);
    }
    assert_eq!(guess(1, 10).await, AccessError::TooMany { retry_after: 1 });
    // Others, and callers whose address is not known, notice nothing.
    assert_eq!(guess(2, 0).await, AccessError::Unauthenticated);
    assert_eq!(site.ask("jane", None).await, list(&[]));
    advance(Duration::from_secs(1)).await;
    assert_eq!(guess(1, 11).await, AccessError::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_known_for_an_hour_after_a_review() {
    let site = Site::new(AccessOptions::default());
    let known = |headers: &HeaderMap| site.access.known_token(headers);
    assert_eq!(known(&bearer("jane")), None);
    assert_eq!(site.ask("jane", None).await, list(&[]));
    assert!(site.ask("guess", None).await.is_err());
    assert_eq!(known(&bearer("jane")), Some(TokenDigest::of("jane")));
    let basic = HeaderValue::from_static("Basic eDpqYW5l");
    let basic = HeaderMap::from_iter([(header::AUTHORIZATION, basic)]);
    assert_eq!(known(&basic), Some(TokenDigest::of("jane")));
    assert_eq!([known(&bearer("guess")), known(&HeaderMap::new())], [None, None]);
    advance(Duration::from_secs(3600)).await;
    assert_eq!(known(&bearer("jane")), None);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_asks_for_many_namespaces_leaves_reviews_to_others() {
    let site = Site::of(slow(Duration::from_millis(100)), AccessOptions::default());
    let names = many(200);
    let asked = names.iter().map(|name| site.ask("jane", Some(name)));
    let start = Instant::now();
    let other = async {
        // After the review of her token.
        sleep(Duration::from_millis(500)).await;
        let answer = site.ask("joe", None).await;
        (answer, start.elapsed())
    };
    let (refused, (answer, elapsed)) = tokio::join!(join_all(asked), other);
    assert!(refused.iter().all(Result::is_err));
    assert_eq!(answer, list(&[]));
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_is_unknown_again() {
    let site = Site::new(AccessOptions::default());
    assert_eq!(site.ask("jane", None).await, list(&[]));
    site.cluster.revoke_token("jane");
    advance(Duration::from_secs(60)).await;
    assert_eq!(site.ask("jane", None).await, Err(AccessError::Unauthenticated));
    advance(Duration::from_secs(10)).await;
    for number in 0..10 {
        let guessed = site.ask(&format!("guess-{number}"), None).await;
        assert_eq!(guessed, Err(AccessError::Unauthenticated));
    }
    assert_eq!(
        site.ask("jane", None).await,
        Err(AccessError::TooMany { retry_after: 1 })
    );
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_api_server_access_is_unavailable_and_not_cached() {
    let site = Site::new(AccessOptions::default());
    site.cluster.allow("jane", &["a"]);
    site.cluster.go_away(true);
    assert_eq!(site.ask("jane", None).await, Err(AWAY));
    site.cluster.go_away(false);
    assert_eq!(site.ask("jane", None).await, list(&["a"]));
    site.cluster.go_away(true);
    assert_eq!(site.ask("jane", Some("d")).await, Err(AWAY));
    assert_eq!(site.ask("jane", Some("a")).await, list(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_review_that_hangs_ends_after_five_seconds() {
    let site = Site::of(slow(Duration::from_secs(3600)), AccessOptions::default());
    let start = Instant::now();
    assert_eq!(site.ask("jane", None).await, Err(AWAY));
    assert_eq!(start.elapsed().as_secs(), 5);
    let asked = join_all((0..20).map(|_| site.ask("jane", None))).await;
    // A token that was never valid also counts toward the limit of unknown ones.
    let is_refused = |answer: &Result<_, _>| matches!(answer, Err(AccessError::TooMany { .. })) || *answer == Err(AWAY);
    assert!(asked.iter().all(is_refused), "{asked:?}");
    assert!(start.elapsed().as_secs() <= 14, "{:?}", start.elapsed());
}
