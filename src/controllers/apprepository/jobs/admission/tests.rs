use jiff::{SignedDuration, Timestamp};

use super::super::progress::view::JobOutcome;
use super::*;
use crate::api::NamespacedName;

const LIMITS: JobLimits = JobLimits {
    total: 4,
    per_namespace: 2,
};

fn job(namespace: &str, name: &str, age: i64, is_suspended: bool) -> JobView {
    JobView {
        name: name.to_owned(),
        uid: name.to_owned(),
        repository: Some(NamespacedName::new(namespace, name)),
        repository_uid: None,
        generation: Some(1),
        created: before(age),
        not_before: before(age),
        started: None,
        is_suspended,
        is_deleted: false,
        is_scheduled: true,
        not_started: None,
        outcome: None,
    }
}

fn before(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH - SignedDuration::from_secs(seconds)
}

fn of_repository(mut job: JobView, repository: &str) -> JobView {
    job.repository = Some(NamespacedName::new("a", repository));
    job
}

/// The steps as texts: `+released`, `-suspended`.
fn steps(jobs: &[JobView], idle: &[&str], queue: &JobQueue, limits: JobLimits) -> Vec<String> {
    let not_started = |job: &JobView| idle.contains(&job.name.as_str()).then(reason);
    let steps = plan(jobs, not_started, queue, limits, before(0));
    let text = |step: &Step| match step {
        Step::Release(job) => format!("+{}", job.name),
        Step::Suspend(job, _) => format!("-{}", job.name),
    };
    steps.iter().map(text).collect()
}

fn admitted(jobs: &[JobView]) -> Vec<String> {
    steps(jobs, &[], &JobQueue::default(), LIMITS)
}

#[test]
fn a_namespace_with_many_jobs_leaves_room_for_others() {
    let mut jobs: Vec<_> = (0..9).map(|n| job("many", &format!("m{n}"), 100 - n, true)).collect();
    jobs.push(job("few", "f", 1, true));
    assert_eq!(admitted(&jobs), ["+m0", "+f", "+m1"]);
}

#[test]
fn jobs_that_run_count_and_finished_ones_do_not() {
    let mut jobs: Vec<_> = ["a", "b", "c"].map(|name| job(name, name, 9, false)).into();
    jobs.extend([job("d", "d", 5, true), job("e", "e", 4, true)]);
    assert_eq!(admitted(&jobs), ["+d"]);
    jobs[0].outcome = Some(JobOutcome::Succeeded);
    assert_eq!(admitted(&jobs), ["+d", "+e"]);
}

#[test]
fn a_write_counts_before_the_watch_delivers_it() {
    let mut queue = JobQueue::default();
    let limits = JobLimits {
        total: 4,
        per_namespace: 1,
    };
    let seen = [job("a", "first", 5, true), job("a", "second", 5, true)];
    let mut jobs = seen.clone();
    queue.update(&mut jobs, before(0));
    assert_eq!(steps(&jobs, &[], &queue, limits), ["+first"]);
    queue.record(&Step::Release(jobs[0].clone()), before(0));
    let mut jobs = seen.clone();
    queue.update(&mut jobs, before(0));
    assert!(steps(&jobs, &[], &queue, limits).is_empty());

    // Suspended again: the watch still shows it running.
    let mut running = seen;
    running[0].is_suspended = false;
    let mut jobs = running.clone();
    queue.update(&mut jobs, before(0));
    assert_eq!(steps(&jobs, &["first"], &queue, limits), ["-first", "+second"]);
    queue.record(&Step::Suspend(jobs[0].clone(), reason()), before(0));
    queue.update(&mut running, before(0));
    assert_eq!(
        steps(&running, &[], &queue, limits),
        ["+second"],
        "the one that was suspended comes later"
    );
}

fn reason() -> NotStarted {
    NotStarted {
        at: before(0),
        reason: "Unschedulable".to_owned(),
        message: String::new(),
    }
}

#[test]
fn the_repository_that_has_waited_longest_comes_first() {
    let jobs = [
        job("a", "young", 1, true),
        job("a", "old", 9, true),
        job("a", "middle", 5, true),
    ];
    assert_eq!(admitted(&jobs), ["+old", "+middle"]);
}

#[test]
fn a_job_that_replaces_a_waiting_one_continues_its_wait() {
    let limits = JobLimits {
        total: 1,
        per_namespace: 1,
    };
    let mut queue = JobQueue::default();
    // All repositories of a schedule tick at once, and each tick replaces the Jobs that wait. The last name is released too.
    let mut released = Vec::new();
    for tick in 0..3 {
        let now = before(1000 - 30 * tick);
        let mut jobs: Vec<_> = ["x", "y", "z"]
            .map(|name| of_repository(job("a", &format!("{name}-{tick}"), 1000 - 30 * tick, true), name))
            .into();
        queue.update(&mut jobs, now);
        for step in plan(&jobs, |_| None, &queue, limits, before(0)) {
            queue.record(&step, now);
            released.push(step.job().name.clone());
        }
    }
    assert_eq!(released, ["x-0", "y-1", "z-2"]);
}

#[test]
fn a_wait_ends_with_its_repository() {
    let mut queue = JobQueue::default();
    queue.update(&mut [job("a", "a", 9, true)], before(100));
    queue.update(&mut [], before(50));
    assert_eq!(queue.waits.len(), 1);
    queue.update(&mut [], before(40));
    assert!(queue.waits.is_empty());
}

#[test]
fn a_job_whose_pod_does_not_start_yields_its_slot_only_to_one_that_waits() {
    let hostile = ["h1", "h2"].map(|name| job("hostile", name, 900, false));
    let other = ["o1", "o2"].map(|name| job("other", name, 800, false));
    let mut jobs = [hostile, other].concat();
    let idle = ["h1", "h2", "o1", "o2"];
    let queue = JobQueue::default();
    assert!(steps(&jobs, &idle, &queue, LIMITS).is_empty());
    jobs.push(job("victim", "v", 1, true));
    assert_eq!(steps(&jobs, &idle, &queue, LIMITS), ["-h1", "+v"]);
    assert!(
        steps(&jobs, &[], &queue, LIMITS).is_empty(),
        "pods that run keep their slots"
    );
}

#[test]
fn a_job_keeps_its_slot_if_its_end_releases_no_other_one() {
    let mut jobs: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .map(|name| job(name, name, 9, false))
        .into();
    jobs.push(job("g", "waiting", 5, true));
    let steps = |idle: &[&str]| steps(&jobs, idle, &JobQueue::default(), LIMITS);
    assert!(steps(&["a"]).is_empty());
    assert_eq!(steps(&["a", "b", "c"]), ["-a", "-b", "-c", "+waiting"]);
}

#[test]
fn a_namespace_at_its_limit_takes_only_slots_of_its_own() {
    let mut jobs = vec![
        job("a", "a1", 9, false),
        job("a", "a2", 9, false),
        job("b", "b1", 9, false),
        job("a", "a3", 1, true),
    ];
    let queue = JobQueue::default();
    assert!(steps(&jobs, &["b1"], &queue, LIMITS).is_empty());
    assert_eq!(steps(&jobs, &["a2", "b1"], &queue, LIMITS), ["-a2", "+a3"]);
    jobs.push(job("a", "a4", 0, true));
    assert_eq!(steps(&jobs, &["a2", "b1"], &queue, LIMITS), ["-a2", "+a3"]);
}

#[test]
fn a_job_that_was_suspended_for_its_pod_waits_behind_the_others() {
    let mut suspended = job("a", "suspended", 900, true);
    suspended.not_started = Some(NotStarted {
        at: before(10),
        ..reason()
    });
    let mut jobs = vec![suspended, job("a", "later", 5, true), job("a", "waiting", 60, true)];
    let mut queue = JobQueue::default();
    // Also for a process that has just started.
    queue.update(&mut jobs, before(0));
    let one = JobLimits {
        total: 1,
        per_namespace: 1,
    };
    assert_eq!(steps(&jobs, &[], &queue, one), ["+waiting"]);
    jobs.pop();
    assert_eq!(
        steps(&jobs, &[], &queue, one),
        ["+suspended"],
        "it is tried again in turn"
    );
}

#[test]
fn a_repository_has_one_waiting_job_of_its_cron_job_and_one_that_was_requested() {
    let of = |name: &str, age, is_scheduled| {
        let mut job = of_repository(job("a", name, age, true), "x");
        job.is_scheduled = is_scheduled;
        job
    };
    let jobs = [
        of("tick-3", 10, true),
        of("tick-1", 30, true),
        of("tick-2", 20, true),
        of("request-1", 25, false),
        of("request-2", 15, false),
        of_repository(job("a", "other", 5, true), "y"),
    ];
    let names = |jobs: &[JobView]| superseded(jobs).iter().map(|job| job.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&jobs), ["tick-2", "request-1", "tick-3"]);
    assert_eq!(admitted(&jobs), ["+tick-1", "+request-2"]);
    // Those of an earlier generation are ended by the reconciler, and stand for no later one.
    let mut later = of("tick-4", 1, true);
    later.generation = Some(2);
    assert!(names(&[of("tick-1", 30, true), later]).is_empty());
    // One that runs stands for none that waits.
    let mut running = of("tick-0", 40, true);
    running.is_suspended = false;
    assert!(names(&[running, of("tick-1", 30, true)]).is_empty());
}

#[test]
fn a_job_of_a_tick_waits_for_its_delay_and_holds_nobody_up() {
    let second = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
    let mut jobs = [
        job("a", "late", 9, true),
        job("b", "at-once", 1, true),
        job("c", "soon", 9, true),
    ];
    jobs[0].not_before = second(40);
    jobs[2].not_before = second(5);
    assert_eq!(admitted(&jobs), ["+at-once"]);
    assert_eq!(until_next_start(&jobs, second(0)), Some(Duration::from_secs(5)));
    jobs[2].not_before = second(0);
    assert_eq!(admitted(&jobs), ["+soon", "+at-once"]);
    assert_eq!(until_next_start(&jobs[1..], second(0)), None);
}
