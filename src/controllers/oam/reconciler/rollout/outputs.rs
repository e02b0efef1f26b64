use serde_json::{Map, Value, json};

use super::render::RenderError;
use super::{ComponentDeployment, Rollout};
use crate::api::oam::StepOutput;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::render::clean_errors;
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::cue::{self, TextErrors};

/// The label of an expression in its source.
const VALUE: &str = "$value";

impl Rollout<'_, '_> {
    /// Uses live objects. `None` if an output may come from a trait of the last stage that is not applied yet.
    pub async fn outputs(
        &self,
        deployment: &ComponentDeployment,
        outputs: &[StepOutput],
    ) -> Result<Option<Vec<Result<Value, String>>>, Stop> {
        let mut values = Vec::new();
        if outputs.is_empty() {
            return Ok(Some(values));
        }
        let objects = &deployment.objects;
        let mut scope = self.assessor().live_context(objects).await;
        let is_complete = self.add_post_traits(deployment, &mut scope).await?;
        for output in outputs {
            let context = objects.context.named_in(&output.value_from);
            scope.insert("context".to_owned(), Value::Object(context));
            values.push(
                match self
                    .env()
                    .evaluator()
                    .evaluate(expression(&output.value_from, &scope).into())
                    .await
                {
                    Ok(mut result) => Ok(result["value"].take()),
                    Err(cue::Error::Failed { .. }) if !is_complete => return Ok(None),
                    Err(cue::Error::Failed { errors, .. }) => Err(cause(&output.value_from, &errors)),
                    Err(error) => return Err(error.into()),
                },
            );
        }
        Ok(Some(values))
    }

    /// Adds the live objects of traits of the last stage. Returns false if one of them does not exist yet.
    async fn add_post_traits(
        &self,
        deployment: &ComponentDeployment,
        scope: &mut Map<String, Value>,
    ) -> Result<bool, Stop> {
        let placed = &deployment.component;
        let settings = self.target.current.release.settings;
        let mut traits = placed.component.traits.iter();
        if !traits.any(|trait_| settings.is_post_dispatch(trait_)) {
            return Ok(true);
        }
        let rendered = self
            .target
            .render_post_traits(self.objects, placed, &deployment.objects, scope)
            .await;
        let post = match rendered {
            Ok(post) => post,
            // The dispatch of these traits tells why.
            Err(RenderError::Template { .. } | RenderError::Waiting(_) | RenderError::Unreachable(_)) => {
                return Ok(false);
            }
            Err(RenderError::Evaluator(error)) => return Err(error.into()),
        };
        let mut is_complete = true;
        for object in post.iter().filter(|object| !object.key.is_empty()) {
            let Some(live) = self
                .objects
                .live(object.cluster(&deployment.objects.place), &object.manifest)
                .await
            else {
                is_complete = false;
                continue;
            };
            let outputs = scope.entry("outputs").or_insert_with(|| json!({}));
            outputs[&object.key] = live;
        }
        Ok(is_complete)
    }
}

fn expression(text: &str, scope: &Map<String, Value>) -> String {
    let fields: Vec<String> = scope.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!(
        "_vela: {{\n{}\n\"{VALUE}\": {text}\n}}\n\"value\": _vela.\"{VALUE}\"\n",
        fields.join("\n")
    )
}

/// Returns why an expression has no value, in KubeVela's words if it names a field that does not exist.
fn cause(expression: &str, errors: &TextErrors) -> String {
    if errors.first().contains("undefined field") {
        return format!("failed to lookup value: var(path={expression}) not exist");
    }
    let labels = [format!("\"{VALUE}\": "), format!("{VALUE}: "), "value: ".to_owned()];
    let without_labels = |error: &str| {
        let error = error.to_owned();
        labels.iter().fold(error, |error, label| error.replace(label, ""))
    };
    clean_errors(errors).map(without_labels).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_outputs_name_the_expression_and_nothing_that_wraps_it() {
        let missing = "_vela.$value: undefined field: data";
        let expected = "failed to lookup value: var(path=outputs.record.data.key) not exist";
        assert_eq!(
            cause("outputs.record.data.key", &TextErrors::from_text(missing)),
            expected
        );
        for (error, expected) in [
            ("_vela.$value: conflicting values 1 and 2", "conflicting values 1 and 2"),
            ("value: incomplete value string", "incomplete value string"),
            ("_vela.\"$value\": invalid operand 1", "invalid operand 1"),
            (
                "_vela.$value: Addition of lists is superseded by list.Concat; see x",
                "Addition of lists is superseded by list.Concat; see x (a template for CUE before 0.11 needs changes where \
                 an operand is not known to be a list)",
            ),
        ] {
            assert_eq!(cause("output.x", &TextErrors::from_text(error)), expected);
        }
    }
}
