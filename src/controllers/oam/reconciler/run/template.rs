use serde_json::{Value, json};

use super::execute_failure;
use super::functions::StepFunctions;
use super::restart::{is_restart, request_restart};
use crate::api::oam::{Definition as _, WorkflowStep};
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::rollout::Rollout;
use crate::controllers::oam::reconciler::rollout::render::{invalid_key, set_path};
use crate::controllers::oam::reconciler::rollout::stopped;
use crate::controllers::oam::steps::{self, StepTemplate};
use crate::controllers::oam::workflow::{FailureReason, StepResult, WorkflowRun};
use crate::cue;

pub(super) async fn run_template(
    rollout: &mut Rollout<'_, '_>,
    run: &mut WorkflowRun<'_>,
    index: usize,
) -> Result<StepResult, Stop> {
    let Some(step) = run.step(index) else {
        return Ok(execute_failure("the step is missing".to_owned()));
    };
    let Some(definition) = rollout.target.parsed.workflow.definitions.get(&step.type_) else {
        return Ok(execute_failure(format!(
            "workflow step definition {} not found",
            step.type_
        )));
    };
    let source = definition.template().unwrap_or_default();
    let inputs = run.inputs(index).map_err(|error| error.to_string());
    let properties = match inputs.and_then(|inputs| with_inputs(step, &inputs)) {
        Ok(properties) => properties,
        Err(message) => {
            return Ok(StepResult::Failed {
                reason: FailureReason::Input,
                message,
            });
        }
    };
    if is_restart(step) {
        return Ok(request_restart(rollout, properties.as_ref()).await);
    }
    // Labels and annotations can be large, and each evaluation gets the context.
    let expressions = step.outputs.iter().map(|output| output.value_from.as_str());
    let texts: Vec<&str> = std::iter::once(source).chain(expressions).collect();
    let context = run.context(index).named_in(&texts.join("\n"));
    let env = rollout.env();
    let evaluator = env.evaluator();
    let (id, resumptions) = (run.id(index).to_owned(), run.resumptions(index));
    let mut functions = StepFunctions {
        rollout,
        values: run.values_mut(),
        step_name: &step.name,
        step_id: &id,
        stop: None,
        permit: None,
    };
    let template = StepTemplate {
        type_name: &step.type_,
        source,
        properties: properties.as_ref(),
        context: &context,
        outputs: &step.outputs,
        resumptions,
    };
    let end = steps::run(&evaluator, &mut functions, &template).await;
    if let Some(stop) = functions.stop.take() {
        return Err(stop);
    }
    let end = end.map_err(template_stop)?;
    env.answers.lock().forget(&id);
    Ok(end)
}

pub(super) async fn check_condition(
    env: &Env<'_>,
    run: &WorkflowRun<'_>,
    index: usize,
) -> Result<Result<bool, String>, Stop> {
    let Some(step) = run.step(index) else {
        return Ok(Err("the step is missing".to_owned()));
    };
    let scope = match run.condition_scope(index) {
        Ok(scope) => scope,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let result = steps::condition(&env.evaluator(), &step.condition, &scope).await;
    result.map_err(template_stop)
}

fn with_inputs(step: &WorkflowStep, inputs: &[(&str, Value)]) -> Result<Option<Value>, String> {
    let mut properties = step.properties.clone();
    for (path, value) in inputs.iter().filter(|(path, _)| !path.is_empty()) {
        let target = properties.get_or_insert_with(|| json!({}));
        set_path(target, path, value.clone()).ok_or_else(|| invalid_key(path))?;
    }
    Ok(properties)
}

pub(super) fn template_stop(error: steps::StepError<cue::Error>) -> Stop {
    match error {
        steps::StepError::Evaluator(error) => error.into(),
        error @ steps::StepError::Stopped { .. } => stopped(error.to_string()),
    }
}
