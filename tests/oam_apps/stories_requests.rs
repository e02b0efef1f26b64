//! Steps that send HTTP requests.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::apps::{config, spec};
use super::receiver::Receiver;
use super::site::{Site, says};
use super::stories_hostile::{declare_in_shard, shard_command};
use super::workflows::{input, outcome, output, step, until_ended, with, with_parallel_steps, with_steps};
use super::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::Portolan;
use crate::support::process::ScratchDir;

const SECRET: &str = "v1 Secret";
/// Lets steps reach the receiver.
const PRIVATE: &str = "--allow-private-http";
/// Applications whose requests hang, more than the controller reconciles at the same time.
const HANGING: usize = 8;
/// Less than the requests take that hang.
const MEANWHILE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_becomes_messages_to_chats_and_webhooks() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PRIVATE]).await;
    let receiver = Receiver::start().await;
    let addresses = json!({ "lark": receiver.url("/lark"), "hook": receiver.url("/hook"), "token": "hunter2\n" });
    site.apply(SECRET, "addresses", json!({ "stringData": addresses }))
        .await;
    let secret = |key: &str| json!({ "secretRef": { "name": "addresses", "key": key } });
    let value = |path: &str| json!({ "value": receiver.url(path) });
    let request = json!({
        "url": receiver.url("/color"), "method": "POST", "body": { "ask": "color" },
        "headersFromSecret": [{ "header": "X-Token", "secret": "addresses", "key": "token" }],
    });
    let notification = json!({
        "slack": { "url": value("/slack"), "message": {} },
        "lark": { "url": secret("lark"), "message": { "msg_type": "text", "content": "{}" } },
        "dingding": { "url": value("/ding"), "message": { "text": { "content": "ding" } } },
    });
    let steps = [
        with(step("ask", "request", request), output("color", "response.color")),
        with(
            step("notify", "notification", notification),
            input("color", "slack.message.text"),
        ),
        step("hook", "webhook", json!({ "url": secret("hook") })),
        step(
            "data",
            "webhook",
            json!({ "url": value("/data"), "data": { "a": [1] } }),
        ),
    ];
    site.declare("shop", with_steps(&[config("settings", "one")], &steps))
        .await;
    let app = site.until_running("shop").await;

    let one = |path: &str| {
        let mut received = receiver.received(path);
        assert_eq!(received.len(), 1, "{path}: {received:?}");
        received.remove(0)
    };
    let asked = one("/color");
    assert_eq!(
        (asked.line.as_str(), asked.token.as_deref()),
        ("POST /color", Some("hunter2"))
    );
    assert_eq!(asked.body, json!({ "ask": "color" }));
    assert_eq!(one("/slack").body, json!({ "text": "blue" }));
    assert_eq!(one("/lark").body, json!({ "msg_type": "text", "content": "{}" }));
    assert_eq!(
        one("/ding").body,
        json!({ "msgtype": "text", "text": { "content": "ding" } })
    );
    let hook = one("/hook").body;
    assert_eq!(
        (&hook["kind"], &hook["metadata"]["name"]),
        (&json!("Application"), &json!("shop"))
    );
    assert_eq!(one("/data").body, json!({ "a": [1] }));
    assert!(!app.to_string().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_refused_fails_its_step_and_the_next_one_is_skipped() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PRIVATE]).await;
    let receiver = Receiver::start().await;
    let url = receiver.url("/503");
    let steps = [
        step("ask", "request", json!({ "url": url })),
        step("next", "print-message-in-status", json!({ "message": "next" })),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = until_ended(&site, "shop").await;
    let message = format!("request of {url} is fail: 503");
    assert_eq!(outcome(&app, "ask"), ["failed", "Action", &message]);
    assert_eq!(outcome(&app, "next")[..2], ["skipped", "Skip"]);
    assert_eq!(receiver.received("/503").len(), 1, "no retry");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_machine_is_not_reached_without_the_flag() {
    let site = Site::new().await;
    let receiver = Receiver::start().await;
    let mut command = site.command(
        &site.control_plane.kubeconfig(),
        &["--max-workflow-step-error-retry-times=0", PRIVATE],
    );
    command.env_remove("PORTOLAN_ALLOW_LOOPBACK");
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    let hook = json!({ "url": { "value": receiver.url("/hook") }, "data": {} });
    site.declare("shop", with_steps(&[], &[step("hook", "webhook", hook)]))
        .await;
    let app = until_ended(&site, "shop").await;
    let [phase, _, message] = outcome(&app, "hook");
    assert!(phase == "failed" && message.contains("--allow-loopback"), "{message}");
    assert_eq!(receiver.received("/hook").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_not_reached_without_the_flag() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=0"]).await;
    let receiver = Receiver::start().await;
    let hook = |url: &str| json!({ "url": { "value": url }, "data": {} });
    let steps = [
        step("local", "webhook", hook(&receiver.url("/hook"))),
        step("private", "webhook", hook("http://10.255.255.1/hook")),
    ];
    site.declare("shop", with_parallel_steps(&[], &steps)).await;
    let app = until_ended(&site, "shop").await;
    for name in ["local", "private"] {
        let [phase, _, message] = outcome(&app, name);
        assert!(
            phase == "failed" && message.contains("--allow-private-http"),
            "{name}: {message}"
        );
    }
    assert_eq!(receiver.received("/hook").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_that_hang_are_named_and_delay_no_other_application() {
    let site = Site::new().await;
    let _portolan = site
        .portolan(&["--max-workflow-step-error-retry-times=0", PRIVATE])
        .await;
    let receiver = Receiver::start().await;
    let ask = |timeout: &str| {
        let properties = json!({ "url": receiver.url("/hang"), "timeout": timeout });
        with_steps(&[], &[step("ask", "request", properties)])
    };
    site.declare("short", ask("1s")).await;
    let app = until_ended(&site, "short").await;
    let [phase, reason, message] = outcome(&app, "ask");
    assert_eq!([phase, reason], ["failed", "FailedAfterRetries"]);
    assert!(message.contains("1s") && message.contains("127.0.0.1"), "{message}");
    let before = receiver.received("/hang").len();
    for number in 0..HANGING {
        site.declare(&format!("hangs-{number}"), ask("30s")).await;
    }
    site.until(APPLICATION, "hangs-0", "a request", |_| {
        receiver.received("/hang").len() > before
    })
    .await;
    let started = Instant::now();
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    assert!(started.elapsed() < MEANWHILE, "{:?}", started.elapsed());
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());

    let hanging: Option<Value> = site.get(APPLICATION, "hangs-0").await;
    assert_ne!(hanging.unwrap()["status"]["workflow"]["finished"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_many_requests_that_hang_delays_no_request_of_another() {
    let (greedy, modest) = (Site::new().await, Site::new().await);
    let (directory, shard) = (ScratchDir::new("requests"), &greedy.namespace);
    let mut command = shard_command(&greedy, &directory);
    // Two permits, one for each namespace.
    command.args([PRIVATE, "--concurrent-reconciles=4"]);
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    let receiver = Receiver::start().await;
    let ask = |path: &str| {
        let properties = json!({ "url": receiver.url(path), "timeout": "30s" });
        with_steps(&[], &[step("ask", "request", properties)])
    };
    for number in 0..HANGING {
        declare_in_shard(&greedy, shard, &format!("hangs-{number}"), ask("/hang")).await;
    }
    eventually(SOON, "a step to wait for a permit", async || {
        let apps = greedy.list(APPLICATION, "").await;
        let is_waiting = apps.iter().any(|app| says(app, "waiting for other HTTP requests"));
        (is_waiting && !receiver.received("/hang").is_empty()).then_some(())
    })
    .await;

    let started = Instant::now();
    declare_in_shard(&modest, shard, "shop", ask("/color")).await;
    let app = until_ended(&modest, "shop").await;
    assert!(started.elapsed() < MEANWHILE, "{:?}", started.elapsed());
    assert_eq!(outcome(&app, "ask")[0], "succeeded");
    let sent = receiver.received("/hang").len();
    assert!(sent < HANGING, "{sent} requests have hung before");
}
