//! Steps that send HTTP requests.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_response_is_an_output() {
    let properties = json!({
        "url": "http://a", "method": "POST", "body": { "a": 1 }, "header": { "X": "y" }, "timeout": "1s",
        "headersFromSecret": [{ "header": "Y", "secret": "s", "key": "k" }],
    });
    let step = Step::of_type("request", properties).output("response.answer");
    let ended = step
        .run(|_| returned(json!({ "statusCode": 200, "body": "{\"answer\": 42}" })))
        .await;
    assert_eq!(ended.names(), ["req http.do"]);
    let expected = json!({ "method": "POST", "url": "http://a", "request": {
        "body": "{\"a\":1}", "header": { "X": "y" }, "timeout": "1s",
        "headersFromSecret": [{ "header": "Y", "secret": "s", "key": "k" }],
    } });
    assert_eq!(ended.calls[0].params, expected);
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(json!(42))],
        message: String::new(),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn a_response_that_is_no_json_fails_only_the_output() {
    let step = Step::of_type("request", json!({ "url": "http://a" })).output("response");
    let ended = step.run(|_| returned(json!({ "statusCode": 204, "body": "" }))).await;
    let StepResult::Succeeded { outputs, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert!(outputs[0].is_err(), "{outputs:?}");
}

#[tokio::test]
async fn a_refused_request_fails_with_the_message_of_the_template() {
    let step = Step::of_type("request", json!({ "url": "http://a" }));
    let ended = step.run(|_| returned(json!({ "statusCode": 503, "body": "{}" }))).await;
    assert_eq!(
        ended.end,
        failed(FailureReason::Action, "request of http://a is fail: 503")
    );
}

#[tokio::test]
async fn a_parameter_of_another_type_fails_before_the_request() {
    let ended = Step::of_type("request", json!({ "url": 5 })).run(nothing).await;
    let StepResult::Failed { reason, message } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(reason, FailureReason::Execute);
    assert!(
        message.contains("conflicting values") && !message.contains("vela"),
        "{message}"
    );
}

#[tokio::test]
async fn a_parameter_that_is_not_given_fails_before_the_request() {
    let ended = Step::of_type("request", json!({})).run(nothing).await;
    let message = "req.$params.url: cannot convert incomplete value \"string\" to JSON";
    assert_eq!(ended.end, failed(FailureReason::Execute, message));
}

#[tokio::test]
async fn a_webhook_gets_data() {
    let step = Step::of_type("webhook", json!({ "url": { "value": "http://a" }, "data": { "a": 1 } }));
    let ended = step.run(|_| returned(json!({ "statusCode": 200, "body": "" }))).await;
    assert_eq!(
        (ended.names(), ended.end),
        (vec!["webhook.req http.do".to_owned()], succeeded())
    );
    let expected = json!({ "method": "POST", "url": "http://a", "request": {
        "body": "{\"a\":1}", "header": { "Content-Type": "application/json" },
    } });
    assert_eq!(ended.calls[0].params, expected);
}

#[tokio::test]
async fn a_webhook_with_its_address_in_a_secret_gets_the_application() {
    let url = json!({ "secretRef": { "name": "hook", "key": "url" } });
    let answer = |call: &Call| match call.path.as_str() {
        "data.read" => object(call, json!({ "spec": {} })),
        "webhook.read" => object(call, json!({ "data": { "url": "aHR0cDovL2I=" } })),
        _ => returned(json!({ "statusCode": 200, "body": "" })),
    };
    let ended = Step::of_type("webhook", json!({ "url": url })).run(answer).await;
    assert_eq!(
        ended.names(),
        ["data.read kube.read", "webhook.read kube.read", "webhook.req http.do"]
    );
    assert_eq!(ended.calls[2].params["url"], "http://b");
    let body = ended.calls[2].params["request"]["body"].as_str().unwrap();
    assert!(body.contains("\"kind\":\"Application\""), "{body}");
    assert_eq!(ended.end, succeeded());
}

const OLD_NOTIFICATION: &str = r#"
import (
	"vela/op"
	"encoding/base64"
)

block: {
	type:      string
	block_id?: string
	elements?: [...{type: string, text?: textType}]
}
textType: {type: string, text: string}
parameter: {
	dingding?: {
		url: close({value: string}) | close({secretRef: {name: string, key: string}})
		message: {
			msgtype: *"text" | "link"
			#link: {text?: string}
			link?: #link
			text?: close({content: string})
		}
	}
	slack?: {
		url: close({value: string}) | close({secretRef: {name: string, key: string}})
		message: {text: string, blocks?: [...block]}
	}
}
ding: op.#Steps & {
	if parameter.dingding != _|_ {
		if parameter.dingding.url.value != _|_ {
			ding1: op.#DingTalk & {message: parameter.dingding.message, dingUrl: parameter.dingding.url.value}
		}
	}
}
slack: op.#Steps & {
	if parameter.slack != _|_ {
		if parameter.slack.url.secretRef != _|_ && parameter.slack.url.value == _|_ {
			read: op.#Read & {value: {kind: "Secret", apiVersion: "v1", metadata: name: parameter.slack.url.secretRef.name}}
			text: op.#ConvertString & {bt: base64.Decode(null, read.value.data[parameter.slack.url.secretRef.key])}
			slack2: op.#Slack & {message: parameter.slack.message, slackUrl: text.str}
		}
	}
}
"#;

#[tokio::test]
async fn messages_of_the_old_form_are_requests() {
    let properties = json!({
        "dingding": { "url": { "value": "http://d" }, "message": { "text": { "content": "hello" } } },
        "slack": { "url": { "secretRef": { "name": "s", "key": "k" } }, "message": { "text": "hi" } },
    });
    let answer = |call: &Call| match call.provider.as_str() {
        "kube" => object(call, json!({ "data": { "k": "aHR0cDovL3M=" } })),
        _ => returned(json!({ "statusCode": 200, "body": "" })),
    };
    let ended = Step::new(OLD_NOTIFICATION, properties).run(answer).await;
    assert_eq!(
        ended.names(),
        ["ding.ding1 http.do", "slack.read kube.read", "slack.slack2 http.do"]
    );
    let sent = |index: usize| {
        let params = &ended.calls[index].params;
        (
            params["method"].clone(),
            params["url"].clone(),
            params["request"]["body"].clone(),
        )
    };
    let ding = json!("{\"msgtype\":\"text\",\"text\":{\"content\":\"hello\"}}");
    assert_eq!(sent(0), (json!("POST"), json!("http://d"), ding));
    assert_eq!(sent(2), (json!("POST"), json!("http://s"), json!("{\"text\":\"hi\"}")));
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn notifications_are_sent_to_the_channels_that_are_given() {
    let secret = json!({ "secretRef": { "name": "s", "key": "k" } });
    let properties = json!({
        "dingding": { "url": { "value": "http://d" }, "message": { "text": { "content": "hello" } } },
        "slack": { "url": secret, "message": { "text": "hi" } },
        "lark": { "url": { "value": "http://l" }, "message": { "msg_type": "text", "content": "{}" } },
    });
    let answer = |call: &Call| match call.provider.as_str() {
        "kube" => object(call, json!({ "data": { "k": "aHR0cDovL3M=" } })),
        _ => returned(json!({ "statusCode": 200, "body": "" })),
    };
    let ended = Step::of_type("notification", properties).run(answer).await;
    let names = [
        "channels.slack.read kube.read",
        "channels.slack.req http.do",
        "channels.dingding.req http.do",
        "channels.lark.req http.do",
    ];
    assert_eq!(ended.names(), names);
    let read = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "team" } });
    assert_eq!(ended.calls[0].params["value"], read);
    let sent = ended.calls[1..].iter().map(|call| {
        let request = &call.params["request"];
        assert_eq!(request["header"], json!({ "Content-Type": "application/json" }));
        (call.params["url"].as_str().unwrap(), request["body"].as_str().unwrap())
    });
    let expected = [
        ("http://s", r#"{"text":"hi"}"#),
        ("http://d", r#"{"msgtype":"text","text":{"content":"hello"}}"#),
        ("http://l", r#"{"msg_type":"text","content":"{}"}"#),
    ];
    assert_eq!(sent.collect::<Vec<_>>(), expected);
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_channel_that_is_not_supported_is_named_only_when_it_is_used() {
    let email = json!({ "email": { "to": ["a@b"] } });
    let ended = Step::of_type("notification", email).run(nothing).await;
    let message =
        "email.#SendEmail is not supported by this controller: it would log in to mail servers; use a webhook";
    assert_eq!(ended.end, failed(FailureReason::Rendering, message));
}

#[tokio::test]
async fn a_response_of_the_old_form_stands_beside_the_request() {
    let template = r#"
import "vela/op"

http: op.#HTTPGet & {url: parameter.url}
fail: op.#Steps & {
	if http.response.statusCode > 400 {
		stop: op.#Fail & {message: "status \(http.response.statusCode)"}
	}
}
parameter: url: string
"#;
    let step = Step::new(template, json!({ "url": "http://a" }));
    let ended = step.run(|_| returned(json!({ "statusCode": 500, "body": "" }))).await;
    assert_eq!(ended.calls[0].params, json!({ "method": "GET", "url": "http://a" }));
    assert_eq!(ended.end, failed(FailureReason::Action, "status 500"));
}
