use jiff::Timestamp;
use serde_json::{Map, Value};

use super::configs::step_secrets;
use super::functions::StepFunctions;
use super::template::template_stop;
use crate::controllers::oam::functions::metrics::{MetricCheck, sample};
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::steps::{Answer, condition};

impl StepFunctions<'_, '_, '_> {
    /// Does a call of `metrics.#PromCheck`. The results of a step before this one are in the values of the workflow.
    pub(super) async fn check_metrics(&mut self, params: &Value) -> Result<Answer, Stop> {
        let check = match MetricCheck::parse(params) {
            Ok(check) => check,
            Err(message) => return Ok(Answer::failed(message)),
        };
        let env = self.rollout.env();
        let secrets = step_secrets(&self.rollout.objects.cluster);
        let requests = &env.reconciler.step_requests;
        let response = match requests
            .send(env.name, &check.request(), &secrets, &mut self.permit)
            .await
        {
            Answer::Returned(response) => response,
            answer => return Ok(answer),
        };
        let value = match sample(&response) {
            Ok(value) => value,
            Err(message) => return Ok(Answer::failed(message)),
        };
        let is_met = match check.expression(value) {
            None => false,
            Some(expression) => {
                let result = condition(&env.evaluator(), &expression, &Map::new()).await;
                match result.map_err(template_stop)? {
                    Ok(is_met) => is_met,
                    Err(message) => return Ok(Answer::failed(format!("$params.condition: {message}"))),
                }
            }
        };
        let judgment = check.judge(value, is_met, self.values.streak(self.step_id), Timestamp::now());
        self.values.set_streak(self.step_id, judgment.streak);
        if let Some(next) = judgment.next {
            self.rollout.outcome.look_again_in(next);
        }
        Ok(Answer::Returned(judgment.returned))
    }
}
