use super::{CueSource, Error, Evaluator, protocol};
use crate::budget::leave_runtime_if_large;

impl Evaluator {
    /// Returns the OpenAPI 3.0 schema of the field `parameter` of a template, as JSON. Other fields are not compiled.
    pub async fn schema(&self, namespace: &str, template: &str) -> Result<String, Error> {
        leave_runtime_if_large(template.len()).await;
        let source = CueSource::of_template(template);
        self.request(namespace, source, protocol::schema_request, protocol::decode_schema)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_a_text_of_its_own() {
        let request = protocol::schema_request(4, CueSource::of_template("parameter: a?: int")).unwrap();
        assert_eq!(
            String::from_utf8(request).unwrap(),
            r#"{"id":4,"source":"parameter: a?: int","template":{"first":1,"count":1},"schema":true}"#
        );
        let decoded = |response: &str| protocol::decode_schema(4, response.as_bytes());
        let schema = r#"{"type":"object","x":"\u003c"}"#;
        assert_eq!(
            decoded(&format!(r#"{{"id":4,"schema":{schema}}}"#)),
            Ok(schema.to_owned())
        );
        let error = decoded(r#"{"id":4,"errors":[{"text":"a","line":2}],"kind":"conflict"}"#).unwrap_err();
        assert_eq!(error.to_string(), "a (line 2)");
        assert!(matches!(decoded(r#"{"id":4,"result":1}"#), Err(Error::Crashed(_))));
    }
}
