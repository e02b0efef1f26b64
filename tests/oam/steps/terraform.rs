//! Steps with objects of terraform-controller.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_configuration_is_applied_until_its_resources_are_available() {
    let properties = json!({
        "source": { "path": "alibaba/rds" }, "variable": { "size": 1 }, "region": "eu", "providerRef": { "name": "a" },
    });
    let step = Step::of_type("apply-terraform-config", properties);
    let ended = step.run(|call| object(call, json!({}))).await;
    assert_eq!(ended.names(), ["apply kube.apply"]);
    let expected = json!({
        "apiVersion": "terraform.core.oam.dev/v1beta2", "kind": "Configuration",
        "metadata": { "name": "shop-deploy", "namespace": "team" },
        "spec": {
            "deleteResource": true, "forceDelete": false, "variable": { "size": 1 }, "region": "eu",
            "remote": "https://github.com/kubevela-contrib/terraform-modules.git", "path": "alibaba/rds",
            "providerRef": { "name": "a", "namespace": "team" },
        },
    });
    assert_eq!(ended.calls[0].params["value"], expected);
    assert_eq!(ended.end, waiting("waiting for the Configuration"));
    let status = |state: &str| json!({ "status": { "apply": { "state": state, "message": "so far" } } });
    let ended = step.run(|call| object(call, status("ProvisioningAndChecking"))).await;
    assert_eq!(ended.end, waiting("so far"));
    let ended = step.run(|call| object(call, status("Available"))).await;
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_configuration_has_its_text_or_a_repository_and_not_both() {
    let text = json!({ "source": { "hcl": "output \"a\" {}" }, "variable": {} });
    let step = Step::of_type("apply-terraform-config", text);
    let ended = step.run(|call| object(call, json!({}))).await;
    let spec = &ended.calls[0].params["value"]["spec"];
    assert_eq!(
        (&spec["hcl"], &spec["remote"]),
        (&json!("output \"a\" {}"), &json!(null))
    );
    let both = json!({ "source": { "hcl": "a", "path": "b" }, "variable": {} });
    let ended = Step::of_type("apply-terraform-config", both).run(nothing).await;
    let StepResult::Failed { reason, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(reason, FailureReason::Execute);
}

#[tokio::test]
async fn a_provider_is_a_config_by_the_template_of_its_cloud() {
    let properties = json!({ "type": "aws", "accessKey": "key", "secretKey": "hunter2", "region": "eu" });
    let step = Step::of_type("apply-terraform-provider", properties);
    let answer = |status: Value| {
        move |call: &Call| match call.function.as_str() {
            "create" => returned(json!({})),
            _ => object(call, status.clone()),
        }
    };
    let ended = step.run(answer(json!({}))).await;
    assert_eq!(ended.names(), ["cfg config.create", "read kube.read"]);
    let expected = json!({
        "name": "shop-deploy", "namespace": "team", "template": "terraform-aws",
        "config": {
            "name": "aws-provider", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2",
            "AWS_DEFAULT_REGION": "eu", "AWS_SESSION_TOKEN": "",
        },
    });
    assert_eq!(ended.calls[0].params, expected);
    let metadata = json!({ "name": "aws-provider", "namespace": "team" });
    assert_eq!(ended.calls[1].params["value"]["metadata"], metadata);
    assert_eq!(ended.end, waiting("waiting for the Provider"));
    let ended = step.run(answer(json!({ "status": { "state": "ready" } }))).await;
    assert_eq!(ended.end, succeeded());
    let other = Step::of_type(
        "apply-terraform-provider",
        json!({ "type": "ec", "name": "mine", "apiKey": "key" }),
    );
    let ended = other.run(answer(json!({}))).await;
    assert_eq!(
        ended.calls[0].params["config"],
        json!({ "name": "mine", "EC_API_KEY": "key" })
    );
}
