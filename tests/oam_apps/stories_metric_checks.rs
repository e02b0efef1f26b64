//! Steps that check metrics of Prometheus.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::apps::{config, spec};
use super::receiver::Receiver;
use super::site::Site;
use super::workflows::{outcome, step, until_ended, until_step_says, with_parallel_steps, with_steps};

/// Lets steps reach the receiver.
const PRIVATE: &str = "--allow-private-http";
const QUERY: &str = "/prometheus/api/v1/query";
/// Less than servers take that hang.
const MEANWHILE: Duration = Duration::from_secs(8);

fn check(name: &str, endpoint: &str, durations: [&str; 2]) -> Value {
    let properties = json!({
        "query": "sum(rate(requests[1m]))", "metricEndpoint": endpoint, "condition": ">=0.95",
        "duration": durations[0], "failDuration": durations[1],
    });
    step(name, "check-metrics", properties)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_goes_on_once_a_condition_was_met_for_its_duration_also_over_a_restart() {
    let site = Site::new().await;
    let receiver = Receiver::start().await;
    receiver.set_sample("0.5");
    let portolan = site.portolan(&[PRIVATE]).await;
    let steps = [check("check", &receiver.url("/prometheus"), ["20s", "10m"])];
    site.declare("shop", with_steps(&[], &steps)).await;
    until_step_says(&site, "shop", "check", "the condition >=0.95 is not met since").await;
    let query = receiver.received(QUERY).remove(0);
    assert_eq!(query.line, format!("POST {QUERY}"));
    assert_eq!(query.body, "query=sum%28rate%28requests%5B1m%5D%29%29");

    receiver.set_sample("0.97");
    let app = until_step_says(&site, "shop", "check", "the condition >=0.95 is met since").await;
    let said = outcome(&app, "check")[2].to_owned();
    drop(portolan);
    let _portolan = site.portolan(&[PRIVATE]).await;
    let restarted = Timestamp::now();
    let app = site.until_running("shop").await;
    assert_eq!(outcome(&app, "check")[0], "succeeded");
    let (_, since) = said.split_once("since ").unwrap();
    let since: Timestamp = since.split(';').next().unwrap().parse().unwrap();
    let end: Timestamp = app["status"]["workflow"]["endTime"].as_str().unwrap().parse().unwrap();
    let duration = SignedDuration::from_secs(20);
    // The end is the begin of the last pass in whole seconds, a moment before its query.
    let slack = SignedDuration::from_secs(1);
    assert!(end.duration_since(since) >= duration - slack, "{end} {since}");
    assert!(
        end < restarted + duration,
        "{end} {restarted}: the restart lost the start of the streak"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_that_is_not_met_fails_the_step_and_names_the_value() {
    let site = Site::new().await;
    let receiver = Receiver::start().await;
    receiver.set_sample("0.5");
    let _portolan = site.portolan(&[PRIVATE]).await;
    let steps = [
        check("check", &receiver.url("/prometheus"), ["1s", "3s"]),
        step("next", "print-message-in-status", json!({ "message": "next" })),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = until_ended(&site, "shop").await;
    let [phase, reason, message] = outcome(&app, "check");
    assert_eq!((phase, reason), ("failed", "Action"));
    assert!(
        message.starts_with("the condition >=0.95 is not met by 0.5, nor since"),
        "{message}"
    );
    assert_eq!(outcome(&app, "next")[..2], ["skipped", "Skip"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_hang_or_answer_without_end_fail_their_steps_and_delay_no_other_application() {
    let site = Site::new().await;
    let receiver = Receiver::start().await;
    let _portolan = site
        .portolan(&[PRIVATE, "--max-workflow-step-error-retry-times=0"])
        .await;
    let steps = [
        check("hang", &receiver.url("/hang"), ["1s", "1s"]),
        check("huge", &receiver.url("/huge"), ["1s", "1s"]),
        check("other", &receiver.url("/color"), ["1s", "1s"]),
    ];
    site.declare("bad", with_parallel_steps(&[], &steps)).await;
    let start = Instant::now();
    site.declare("good", spec(&[config("settings", "one")])).await;
    site.until_running("good").await;
    assert!(start.elapsed() < MEANWHILE, "{:?}", start.elapsed());
    let app = until_ended(&site, "bad").await;
    for (name, why) in [
        ("hang", "no complete response from"),
        ("huge", "is larger than 1048576 bytes"),
        ("other", "is not one of Prometheus"),
    ] {
        let [phase, _, message] = outcome(&app, name);
        assert!(phase == "failed" && message.contains(why), "{name}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_of_prometheus_are_not_reached_without_the_flag() {
    let site = Site::new().await;
    let receiver = Receiver::start().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=0"]).await;
    let steps = [check("check", &receiver.url("/prometheus"), ["1s", "1s"])];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = until_ended(&site, "shop").await;
    let [phase, _, message] = outcome(&app, "check");
    assert!(
        phase == "failed" && message.contains("--allow-private-http"),
        "{message}"
    );
    assert_eq!(receiver.received(QUERY).len(), 0);
}
