//! Policies for declared kinds, whose definition may be missing.

use super::*;

const REQUIRED: ErrorPolicy = ErrorPolicy::Required;

#[tokio::test(start_paused = true)]
async fn a_missing_definition_is_polled() {
    let watch = scripted_with(REQUIRED, vec![list_fails(404), list_fails(404), list(&[])]);
    advance(10).await;
    assert_eq!(watch.notifications(), ["not served", "not served", "listed true"]);
    assert_eq!(watch.starts(), [0, 3, 6], "it is polled every three seconds");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_restarts_the_watch() {
    let mut script = list(&[]);
    script.extend([watch_fails(404), Ok(Event::Apply(object("a")))]);
    let watch = scripted_with(REQUIRED, vec![script, list(&[])]);
    advance(10).await;
    assert_eq!(watch.notifications(), ["listed true", "not served", "listed false"]);
    assert_eq!((watch.starts().len(), watch.store.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn objects_are_removed_with_an_optional_definition_but_not_with_a_required_one() {
    let scripts = || {
        let mut known = list(&["a"]);
        known.push(watch_fails(404));
        vec![known, list_fails(404), list_fails(404)]
    };
    let watch = scripted_with(ErrorPolicy::Optional, scripts());
    advance(70).await;
    let expected = [
        "listed true",
        "not served",
        "not served",
        "object false",
        "listed false",
        "not served",
    ];
    assert_eq!(watch.notifications(), expected);
    assert_eq!(watch.starts()[..3], [0, 30, 60]);
    let watch = scripted_with(REQUIRED, scripts());
    advance(70).await;
    assert_eq!(
        watch.notifications(),
        ["listed true", "not served", "not served", "not served"]
    );
    assert_eq!(watch.store.len(), 1);
    // Nothing was listed, so nothing is removed.
    let watch = scripted_with(ErrorPolicy::Optional, vec![list_fails(404), list_fails(404)]);
    advance(70).await;
    assert_eq!(watch.notifications(), ["not served", "not served"]);
    assert!(!watch.store.is_synced() && watch.store.is_synced_or_not_served());
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_restarts_the_watch() {
    let status = Box::new(Status {
        code: 410,
        ..Status::default()
    });
    for expired in [watch_fails(410), Err(watcher::Error::WatchError(status))] {
        let script = vec![Ok(Event::Apply(object("a"))), expired, Ok(Event::Apply(object("b")))];
        let watch = scripted_with(REQUIRED, vec![script]);
        advance(5).await;
        assert_eq!(watch.notifications(), ["object true"]);
        assert_eq!(watch.starts().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn other_failures_resume_the_watch_with_backoff() {
    for code in [403, 500] {
        let failures = (0..20).map(|_| watch_fails(code));
        let applied = |name: &str| [Ok(Event::Apply(object(name)))];
        let script = applied("a").into_iter().chain(failures).chain(applied("b"));
        let watch = scripted_with(REQUIRED, vec![script.collect()]);
        advance(40).await;
        assert_eq!(watch.notifications(), ["object true"]);
        advance(200).await;
        assert_eq!(watch.notifications(), ["object true", "object true"], "{code}");
        assert_eq!(watch.starts().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_back_within_ten_seconds_after_a_long_outage() {
    for policy in [REQUIRED, POLL] {
        let mut script = list(&["a"]);
        script.extend((0..1000).flat_map(|_| list_fails(503)));
        let watch = scripted_with(policy, vec![script]);
        let mut longest = 0;
        let (mut last, mut since) = (watch.steps(), 0);
        for _ in 0..300 {
            advance(1).await;
            since = if watch.steps() == last { since + 1 } else { 0 };
            last = watch.steps();
            longest = longest.max(since);
        }
        assert!((3..9).contains(&longest), "{longest} s between two attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_worked_is_soon_retried_when_denied() {
    let denied = || {
        let mut script = list(&["a"]);
        script.push(watch_fails(403));
        script
    };
    let mut worked = list(&["a"]);
    worked.extend([Ok(Event::Apply(object("b"))), watch_fails(403)]);
    let watch = scripted(vec![worked, denied(), denied(), list(&["c"])]);
    advance(8).await;
    assert_eq!((watch.starts().len(), polled(&watch.store)), (4, None));
    assert_eq!(watch.store.names()[0].name, "c");

    let scripts = std::iter::once(denied()).chain((0..20).map(|_| denied()));
    let mut scripts: Vec<_> = scripts.collect();
    scripts[0].insert(2, Ok(Event::Apply(object("b"))));
    let watch = scripted(scripts);
    advance(60).await;
    assert_eq!(watch.starts().len(), 11, "denials that stay are polled");
    assert!(polled(&watch.store).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_restarted() {
    let scripts = Mutex::new(VecDeque::from([list(&["a"]), list(&["b"])]));
    let (watch, store) = unobserved(move || match scripts.lock().pop_front() {
        Some(script) => stream::iter(script).boxed(),
        None => stream::pending().boxed(),
    });
    let task = tokio::spawn(watch.run_despite_panics());
    advance(1).await;
    assert_eq!(store.names()[0].name, "b");
    task.abort();
}
