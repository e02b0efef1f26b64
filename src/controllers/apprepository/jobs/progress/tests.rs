use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn job(name: &str, created: &str, status: Value) -> JobView {
    let job: Job = serde_json::from_value(json!({
        "metadata": { "name": name, "creationTimestamp": created, "uid": name },
        "spec": { "template": {} },
        "status": status,
    }))
    .unwrap();
    JobView::of(&job)
}

fn running(name: &str) -> JobView {
    job(name, CREATED, json!({ "startTime": CREATED, "active": 1 }))
}

fn failed(name: &str, reason: &str) -> JobView {
    let condition = json!({ "type": "Failed", "status": "True", "reason": reason, "message": "Job has failed." });
    job(
        name,
        CREATED,
        json!({ "startTime": CREATED, "conditions": [condition] }),
    )
}

fn pod(job: &str, status: Value) -> PodView {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": format!("{job}-pod"), "labels": { "batch.kubernetes.io/job-name": job } },
        "status": status,
    }))
    .unwrap();
    PodView::of(&pod)
}

fn waiting(reason: &str) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": "back-off 5m0s" } });
    json!({ "phase": "Pending", "containerStatuses": [container(state)] })
}

fn container(state: Value) -> Value {
    json!({ "name": "sync", "image": "i", "imageID": "", "ready": false, "restartCount": 1, "state": state })
}

fn record(attempt: &str) -> Record {
    Record {
        last_attempt: Some(time(attempt)),
        ..Record::default()
    }
}

fn assessed(jobs: &[JobView], pods: &[PodView], record: Option<&Record>, now: &str) -> JobAssessment {
    assess(jobs, pods, record, "portolan", time(now))
}

/// The reported problem, and true if it is stalled.
fn problem_of(jobs: &[JobView], pods: &[PodView], record: Option<&Record>) -> Option<(String, bool, String)> {
    match assessed(jobs, pods, record, "2026-01-01T00:10:00Z").progress {
        JobProgress::Problem(state) => Some((state.reason, state.stalled, state.message)),
        _ => None,
    }
}

#[rstest]
#[case("ImagePullBackOff", "--job-image")]
#[case("CreateContainerConfigError", "Secrets")]
fn a_pod_that_never_starts_is_stalled_with_its_reason(#[case] reason: &str, #[case] advice: &str) {
    let found = problem_of(&[running("a")], &[pod("a", waiting(reason))], None).unwrap();
    assert_eq!((found.0.as_str(), found.1), (reason, true));
    assert!(
        found.2.contains("back-off 5m0s") && found.2.contains(advice),
        "{}",
        found.2
    );
}

#[test]
fn a_container_that_is_created_is_no_problem() {
    let pods = [pod("a", waiting("ContainerCreating"))];
    assert_eq!(problem_of(&[running("a")], &pods, None), None);
}

#[test]
fn an_unschedulable_pod_is_a_problem_after_a_while() {
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
        "lastTransitionTime": CREATED,
    });
    let pods = [pod("a", json!({ "phase": "Pending", "conditions": [condition] }))];
    let early = assessed(&[running("a")], &pods, None, "2026-01-01T00:00:10Z");
    assert_eq!(
        (early.progress, early.recheck),
        (JobProgress::Running, Some(Duration::from_secs(50)))
    );
    let found = problem_of(&[running("a")], &pods, None).unwrap();
    assert_eq!((found.0.as_str(), found.1), ("Unschedulable", true));
}

#[test]
fn a_job_whose_pod_is_refused_is_a_problem_after_a_while() {
    let found = problem_of(&[running("a")], &[], None).unwrap();
    assert_eq!((found.0.as_str(), found.1), ("PodNotCreated", true));
    let early = assessed(&[running("a")], &[], None, "2026-01-01T00:00:10Z");
    assert_eq!(early.progress, JobProgress::Running);
}

#[test]
fn an_evicted_pod_is_retried() {
    let status = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory" });
    let pods = [pod("a", status)];
    for jobs in [[running("a")], [failed("a", "BackoffLimitExceeded")]] {
        let found = problem_of(&jobs, &pods, None).unwrap();
        assert_eq!((found.0.as_str(), found.1), ("Evicted", false));
        assert!(found.2.contains("low on resource"), "{}", found.2);
    }
}

#[test]
fn memory_that_ran_out_is_named() {
    let ended = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    let pods = [pod(
        "a",
        json!({ "phase": "Failed", "containerStatuses": [container(ended)] }),
    )];
    let found = problem_of(&[failed("a", "BackoffLimitExceeded")], &pods, None).unwrap();
    assert_eq!((found.0.as_str(), found.1), ("OOMKilled", true));
    assert!(found.2.contains("--job-limits"), "{}", found.2);
}

#[test]
fn a_deadline_is_named() {
    let found = problem_of(&[failed("a", "DeadlineExceeded")], &[], None).unwrap();
    assert!(
        found.0 == "DeadlineExceeded" && found.2.contains("--job-deadline"),
        "{found:?}"
    );
}

#[test]
fn an_error_that_the_pod_recorded_is_left_to_the_record() {
    let jobs = [failed("a", "BackoffLimitExceeded")];
    assert_eq!(problem_of(&jobs, &[], Some(&record("2026-01-01T00:00:05Z"))), None);
    assert!(
        problem_of(&jobs, &[], Some(&record("2025-12-31T23:00:00Z"))).is_some(),
        "an earlier record"
    );
}

#[test]
fn a_problem_ends_with_the_next_job_that_succeeds() {
    let complete = json!({ "startTime": CREATED, "conditions": [{ "type": "Complete", "status": "True" }] });
    let jobs = [
        failed("a", "DeadlineExceeded"),
        job("b", "2026-01-01T01:00:00Z", complete),
    ];
    assert_eq!(assessed(&jobs, &[], None, CREATED).progress, JobProgress::Idle);
}

#[test]
fn while_the_next_job_runs_a_failure_is_not_stalled() {
    let started = json!({ "startTime": "2026-01-01T00:09:50Z", "active": 1 });
    let jobs = [
        failed("a", "DeadlineExceeded"),
        job("b", "2026-01-01T00:09:50Z", started),
    ];
    let found = problem_of(&jobs, &[], None).unwrap();
    assert_eq!((found.0.as_str(), found.1), ("DeadlineExceeded", false));
}

#[test]
fn a_suspended_job_waits() {
    let mut waiting = running("a");
    waiting.is_suspended = true;
    let at = |now: &str| assessed(&[waiting.clone()], &[], None, now).progress;
    assert_eq!(at(CREATED), JobProgress::Running, "it may be released at once");
    assert_eq!(at("2026-01-01T00:00:05Z"), JobProgress::Waiting);
}

/// The reason for which a Job yields its slot at this time.
fn yields(job: &JobView, pods: &[PodView], now: &str) -> Option<String> {
    let job = JobView {
        generation: Some(1),
        ..job.clone()
    };
    not_started(&job, pods, "portolan", time(now)).map(|reason| reason.reason)
}

#[rstest]
#[case::no_pod(vec![], Some("PodNotCreated"))]
#[case::image(vec![pod("a", waiting("ImagePullBackOff"))], Some("ImagePullBackOff"))]
#[case::volume(vec![pod("a", waiting("ContainerCreating"))], Some("PodPending"))]
#[case::running(vec![pod("a", json!({ "phase": "Running" }))], None)]
#[case::a_retry(vec![pod("a", json!({ "phase": "Failed" })), pod("a", waiting("ContainerCreating"))], None)]
fn a_job_without_a_started_pod_yields_its_slot_after_two_minutes(
    #[case] pods: Vec<PodView>,
    #[case] reason: Option<&str>,
) {
    assert_eq!(yields(&running("a"), &pods, "2026-01-01T00:01:59Z"), None);
    assert_eq!(yields(&running("a"), &pods, "2026-01-01T00:02:00Z").as_deref(), reason);
    let cleanup = not_started(&running("a"), &pods, "portolan", time("2026-01-01T01:00:00Z"));
    assert_eq!(cleanup, None, "a cleanup Job has no generation");
}

#[rstest]
#[case::first_release(json!({}))]
#[case::later_release(json!({ "startTime": CREATED, "conditions": [{ "type": "Suspended", "status": "True" }] }))]
fn a_job_that_was_just_released_keeps_its_slot_and_has_no_problem(#[case] status: Value) {
    let released = job("a", CREATED, status);
    let long_after = "2026-01-01T00:10:00Z";
    assert_eq!(yields(&released, &[], long_after), None);
    let found = assess(&[released], &[], None, "portolan", time(long_after));
    assert_eq!(found.progress, JobProgress::Running);
}

#[test]
fn the_reason_of_a_suspended_job_is_reported_until_its_pod_runs() {
    let mut job = running("a");
    job.is_suspended = true;
    job.not_started = Some(NotStarted {
        at: time(CREATED),
        reason: "Unschedulable".to_owned(),
        message: "0/3 nodes are available".to_owned(),
    });
    let jobs = [job];
    let found = problem_of(&jobs, &[], None).unwrap();
    assert_eq!((found.0.as_str(), found.1), ("Unschedulable", true));
    assert!(
        found.2.contains("0/3 nodes") && found.2.contains("in turn"),
        "{}",
        found.2
    );

    let resumed = JobView {
        is_suspended: false,
        started: Some(time("2026-01-01T00:09:59Z")),
        ..jobs[0].clone()
    };
    let pending = pod("a", waiting("ContainerCreating"));
    let jobs = [resumed];
    assert!(problem_of(&jobs, &[pending], None).is_some_and(|found| found.0 == "Unschedulable"));
    let started = pod("a", json!({ "phase": "Running" }));
    assert_eq!(problem_of(&jobs, &[started], None), None);
}

#[test]
fn the_texts_of_a_node_are_bounded_and_printable() {
    let long = "x\u{1b}[31m".repeat(1000);
    let state = json!({ "waiting": { "reason": "ErrImagePull", "message": long } });
    let found = problem_of(
        &[running("a")],
        &[pod("a", json!({ "containerStatuses": [container(state)] }))],
        None,
    )
    .unwrap();
    assert!(found.2.len() < 700 && !found.2.contains('\u{1b}'), "{}", found.2);
    assert_eq!(condition_reason("bad reason!"), "badreason");
    assert_eq!(condition_reason("??"), "JobFailed");
}

#[rstest]
#[case::of_a_tick(json!({ "portolan.dev/start-delay-seconds": "37" }), true, 37)]
#[case::without_a_delay(json!({}), true, 0)]
#[case::edited(json!({ "portolan.dev/start-delay-seconds": "86400" }), true, 60)]
#[case::unreadable(json!({ "portolan.dev/start-delay-seconds": "soon" }), true, 0)]
#[case::of_kubectl(json!({ "portolan.dev/start-delay-seconds": "37", "cronjob.kubernetes.io/instantiate": "manual" }), true, 0)]
#[case::requested(json!({ "portolan.dev/start-delay-seconds": "37" }), false, 0)]
fn a_job_of_a_tick_starts_after_its_delay(
    #[case] annotations: Value,
    #[case] is_scheduled: bool,
    #[case] seconds: i64,
) {
    let owner = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c" });
    let owners = if is_scheduled { json!([owner]) } else { json!([]) };
    let job: Job = serde_json::from_value(json!({
        "metadata": {
            "name": "j", "creationTimestamp": CREATED, "annotations": annotations, "ownerReferences": owners,
        },
        "spec": { "template": {}, "suspend": true },
    }))
    .unwrap();
    let expected = time(CREATED) + SignedDuration::from_secs(seconds);
    assert_eq!(JobView::of(&job).not_before, expected);
}
