use jiff::Timestamp;
use serde_json::{Map, Value};

use super::functions::StepFunctions;
use super::template::template_stop;
use crate::controllers::oam::functions::metrics::{MetricCheck, sample};
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::steps::{Answer, Call, condition};

impl StepFunctions<'_, '_, '_> {
    /// Does a call of `metrics.#PromCheck`. The results of a step before this one are in the values of the workflow.
    pub(super) async fn check_metrics(&mut self, params: &Value) -> Result<Answer, Stop> {
        let check = match MetricCheck::parse(params) {
            Ok(check) => check,
            Err(message) => return Ok(Answer::failed(message)),
        };
        let env = self.rollout.env();
        let response = match self.query(&check).await {
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

    /// Sends the query. The next pass goes on with the answer if the evaluation of the condition is deferred.
    async fn query(&mut self, check: &MetricCheck) -> Answer {
        let env = self.rollout.env();
        let call = Call {
            path: String::new(),
            provider: "http".to_owned(),
            function: "do".to_owned(),
            params: check.request(),
        };
        let known = env.answers.lock().get(self.step_id, &call);
        if let Some(response) = known {
            return Answer::Returned(response);
        }
        let secrets = self.rollout.objects.cluster.secrets();
        let requests = &env.reconciler.http_requests;
        let answer = requests.send(env.name, &call.params, &secrets, &mut self.permit).await;
        env.answers.lock().record(self.step_id, &call, &answer);
        answer
    }
}
