//! Conditions of steps.

use portolan::controllers::oam::steps::condition;
use serde_json::json;

use super::{evaluator, fields};

async fn check(expression: &str) -> Result<bool, String> {
    let scope = fields(json!({
        "status": { "a-b": { "phase": "failed", "failed": true }, "c": { "succeeded": true, "message": "done" } },
        "inputs": { "count": 3 },
        "context": { "name": "shop" },
    }));
    condition(&evaluator(), expression, &scope).await.unwrap()
}

#[tokio::test]
async fn conditions_see_status_inputs_and_context() {
    assert_eq!(check("status[\"a-b\"].failed && status.c.succeeded").await, Ok(true));
    assert_eq!(check("inputs.count > 3 || context.name == \"other\"").await, Ok(false));
    assert_eq!(check("status.c.message =~ \"^do\" // matches").await, Ok(true));
}

#[tokio::test]
async fn a_condition_that_can_not_be_evaluated_says_why() {
    assert_eq!(check("status.x.failed").await, Err("undefined field: x".to_owned()));
    let unknown = check("nope.x").await.unwrap_err();
    assert!(unknown.starts_with("reference \"nope\" not found"), "{unknown}");
    assert_eq!(
        check("inputs.count").await,
        Err("the condition is neither true nor false".to_owned())
    );
    let broken = check("true &&").await.unwrap_err();
    assert!(broken.starts_with("expected operand"), "{broken}");
    assert_eq!(check("true } {").await, Err("line 1: unexpected '}'".to_owned()));
}
