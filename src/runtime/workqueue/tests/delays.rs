//! Timers, retries and the token bucket.

use rstest::rstest;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_dequeued_when_its_time_expires() {
    let queue = queue(&[]);
    queue.add_after(name("a"), 5 * SECOND, Priority::USER);
    assert_eq!(queue.len(), 0);
    assert_eq!(next(&queue).await, ("a".to_owned(), 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_zero_delay_is_a_plain_add() {
    let queue = queue(&[]);
    queue.add_after(name("a"), Duration::ZERO, Priority::USER);
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
}

#[rstest]
#[case::the_second_is_earlier(9, 2)]
#[case::the_first_is_earlier(2, 9)]
#[tokio::test(start_paused = true)]
async fn two_delays_merge_to_the_earlier_time_and_higher_priority(#[case] first: u64, #[case] second: u64) {
    let queue = queue(&[]);
    queue.add_after(name("a"), Duration::from_secs(first), Priority::LOW);
    settle().await;
    queue.add_after(name("a"), Duration::from_secs(second), Priority::USER);
    let start = Instant::now();
    let claim = queue.get().await.unwrap();
    assert_eq!((start.elapsed(), claim.priority()), (2 * SECOND, Priority::USER));
    drop(claim);
    assert!(timeout(HOUR, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_plain_add_cancels_the_timer_and_keeps_the_higher_priority() {
    let queue = queue(&[]);
    queue.add_after(name("a"), SECOND, Priority::USER);
    queue.add(name("a"), Priority::LOW);
    assert_eq!(take(&queue).map(|claim| claim.priority()), Some(Priority::USER));
    assert!(timeout(HOUR, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_of_a_ready_key_only_raises_its_priority() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::LOW);
    queue.add_after(name("a"), SECOND, Priority::USER);
    assert_eq!(take(&queue).map(|claim| claim.priority()), Some(Priority::USER));
    assert!(timeout(HOUR, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_delay_set_during_processing_applies_afterwards() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::USER);
    let claim = take(&queue).unwrap();
    queue.add_after(name("a"), SECOND, Priority::USER);
    pass(5 * SECOND).await;
    assert!(take(&queue).is_none());
    drop(claim);
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn the_maximum_duration_is_accepted_as_a_delay() {
    let queue = queue(&[]);
    queue.add_after(name("never"), Duration::MAX, Priority::USER);
    queue.add_after(name("a"), SECOND, Priority::USER);
    assert_eq!(next(&queue).await, ("a".to_owned(), SECOND));
}

#[tokio::test(start_paused = true)]
async fn backoff_grows_until_the_key_is_forgotten() {
    let queue = queue(&[]);
    for seconds in [1, 2, 4, 8] {
        assert_eq!(
            queue.add_rate_limited(name("a"), BACKOFF, Priority::USER),
            Duration::from_secs(seconds)
        );
        assert_eq!(next(&queue).await, ("a".to_owned(), Duration::from_secs(seconds)));
    }
    queue.forget(&name("a"));
    assert_eq!(queue.add_rate_limited(name("a"), BACKOFF, Priority::USER), SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_a_retry_is_at_least_what_the_server_asks_for() {
    for (at_least, expected) in [(30 * SECOND, 30 * SECOND), (Duration::ZERO, SECOND)] {
        let queue = queue(&[]);
        let delay = queue.add_rate_limited_after(name("a"), BACKOFF, at_least, Priority::USER);
        assert_eq!(delay, expected);
        assert_eq!(next(&queue).await.1, delay);
    }
}

#[tokio::test(start_paused = true)]
async fn the_bucket_limits_retries_but_not_plain_adds() {
    let queue = queue(&[]);
    for key in 0..130 {
        queue.add_rate_limited(Name(format!("retry {key}")), BACKOFF, Priority::USER);
    }
    pass(SECOND).await;
    assert_eq!(queue.len(), 100, "the burst");
    for _ in 0..100 {
        take(&queue);
    }
    queue.add(name("plain"), Priority::USER);
    queue.add_after(name("delayed"), 50 * MILLISECOND, Priority::USER);
    assert_eq!(next(&queue).await, ("plain".to_owned(), Duration::ZERO));
    assert_eq!(next(&queue).await, ("delayed".to_owned(), 50 * MILLISECOND));
    assert_eq!(next(&queue).await, ("retry 100".to_owned(), 50 * MILLISECOND));
    for key in 101..130 {
        assert_eq!(next(&queue).await, (format!("retry {key}"), 100 * MILLISECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_taken_only_after_the_backoff_has_expired() {
    let mut settings = settings(&[]);
    settings.burst = NonZeroU32::MIN;
    let queue = Queue::new(settings, &WorkqueueMetrics::register(&mut Registry::default()));
    let slow = Backoff {
        base: 10 * SECOND,
        cap: HOUR,
    };
    queue.add_rate_limited(name("slow"), slow, Priority::USER);
    queue.add_rate_limited(name("fast"), BACKOFF, Priority::USER);
    assert_eq!(next(&queue).await, ("fast".to_owned(), SECOND));
    assert_eq!(next(&queue).await, ("slow".to_owned(), 9 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn high_priority_retries_get_tokens_first() {
    let mut settings = settings(&[]);
    settings.burst = NonZeroU32::MIN;
    let queue = Queue::new(settings, &WorkqueueMetrics::register(&mut Registry::default()));
    for key in 0..50 {
        queue.add_rate_limited(Name(format!("low {key}")), BACKOFF, Priority::LOW);
    }
    queue.add_rate_limited(name("user"), BACKOFF, Priority::USER);
    assert_eq!(next(&queue).await, ("user".to_owned(), SECOND));
    assert_eq!(next(&queue).await, ("low 0".to_owned(), 100 * MILLISECOND));
}
