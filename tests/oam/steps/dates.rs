//! Steps that convert dates.

use serde_json::{Value, json};

use super::*;

const OP: &str = r#"
import "vela/op"

read: op.#DateToTimestamp & {date: parameter.date}
write: op.#TimestampToDate & {timestamp: read.timestamp, layout: "Mon, 02 Jan 2006 15:04:05 MST"}
parameter: date: string
"#;

const TIME: &str = r#"
import "vela/time"

read: time.#DateToTimestamp & {$params: {date: parameter.date, layout: parameter.layout}}
write: time.#TimestampToDate & {$params: timestamp: read.$returns.timestamp}
parameter: {
	date:   string
	layout: *"" | string
}
"#;

async fn outputs(step: Step) -> Vec<Value> {
    let ended = step.run(nothing).await;
    let StepResult::Succeeded { outputs, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    outputs.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn dates_become_seconds_and_seconds_become_dates_by_layouts_of_go() {
    let step = Step::new(OP, json!({ "date": "2019-03-01T16:00:00+01:00" }))
        .output("read.timestamp")
        .output("write.date");
    assert_eq!(
        outputs(step).await,
        [json!(1_551_452_400), json!("Fri, 01 Mar 2019 15:00:00 UTC")]
    );
    for (date, layout, time, written) in [
        ("2021-11-07T01:47:51Z", "", 1_636_249_671, "2021-11-07T01:47:51Z"),
        (
            "Fri, 01 Mar 2019 15:00:00 GMT",
            "Mon, 02 Jan 2006 15:04:05 MST",
            1_551_452_400,
            "2019-03-01T15:00:00Z",
        ),
    ] {
        let step = Step::new(TIME, json!({ "date": date, "layout": layout }))
            .output("read.$returns.timestamp")
            .output("write.$returns.date");
        assert_eq!(outputs(step).await, [json!(time), json!(written)]);
    }
}

#[tokio::test]
async fn a_date_with_another_layout_fails_by_name() {
    let ended = Step::new(TIME, json!({ "date": "soon", "layout": "2006-01-02" }))
        .run(nothing)
        .await;
    let StepResult::Failed { reason, message } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(reason, FailureReason::Execute);
    let expected = r#"read: date "soon" can't be read with layout "2006-01-02""#;
    assert!(message.starts_with(expected), "{message}");
}
