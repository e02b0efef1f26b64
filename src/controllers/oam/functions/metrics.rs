//! `metrics.#PromCheck`: a condition on the result of a query to Prometheus, which must be met for some time.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use super::params::{decode, required};
use crate::controllers::oam::workflow::Streak;
use crate::runtime::cron::parse_duration;
use crate::text::{sanitize, truncate};

/// As in KubeVela.
const DEFAULT_ENDPOINT: &str = "http://prometheus-server.o11y-system.svc:9090";
const DEFAULT_DURATION: Duration = Duration::from_mins(5);
const DEFAULT_FAIL_DURATION: Duration = Duration::from_mins(2);
/// The time of one query.
const QUERY_TIMEOUT: &str = "10s";
/// The longest time between two queries of a step, as often as Prometheus usually collects.
const INTERVAL: Duration = Duration::from_secs(15);
/// The shortest, as times are stored in whole seconds: an earlier query would not see the end.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_QUERY: usize = 64 * 1024;
/// Bytes of a response: many results would be parsed only to be refused.
const MAX_RESPONSE: usize = 64 * 1024;
const MAX_CONDITION: usize = 1024;
/// Bytes of a condition, or of an error of Prometheus, in a message.
const MAX_SHOWN: usize = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    query: Option<String>,
    metric_endpoint: Option<String>,
    condition: Option<String>,
    duration: Option<String>,
    fail_duration: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct MetricCheck {
    query: String,
    endpoint: String,
    condition: String,
    /// Time for which the condition must be met.
    duration: Duration,
    /// Time for which the condition may not be met.
    fail_duration: Duration,
}

/// The result of a check at one time.
#[derive(Debug, PartialEq)]
pub struct Judgment {
    pub streak: Streak,
    /// The fields of `$returns`.
    pub returned: Value,
    /// The time until the next query, if the check goes on.
    pub next: Option<Duration>,
}

#[derive(Deserialize)]
struct PrometheusResponse {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

impl MetricCheck {
    /// Decodes the parameters of `#PromCheck`.
    ///
    /// # Errors
    /// The parameters are not valid.
    pub fn parse(params: &Value) -> Result<Self, String> {
        let Params {
            query,
            metric_endpoint,
            condition,
            duration,
            fail_duration,
        } = decode(params)?;
        let (query, condition) = (required(query, "query")?, required(condition, "condition")?);
        for (text, name, limit) in [(&query, "query", MAX_QUERY), (&condition, "condition", MAX_CONDITION)] {
            if text.len() > limit {
                return Err(format!("$params.{name} is longer than {limit} bytes"));
            }
        }
        let endpoint = metric_endpoint.filter(|endpoint| !endpoint.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        if endpoint.contains(['?', '#']) {
            return Err("$params.metricEndpoint must not have a query or a fragment".to_owned());
        }
        Ok(Self {
            query,
            endpoint,
            condition,
            duration: duration_of(duration, "duration", DEFAULT_DURATION)?,
            fail_duration: duration_of(fail_duration, "failDuration", DEFAULT_FAIL_DURATION)?,
        })
    }

    /// Returns the request as parameters of `http.#HTTPDo`. A query may be too long for a URL.
    #[must_use]
    pub fn request(&self) -> Value {
        let body = Serializer::new(String::new())
            .append_pair("query", &self.query)
            .finish();
        json!({
            "method": "POST",
            "url": format!("{}/api/v1/query", self.endpoint.trim_end_matches('/')),
            "request": {
                "body": body,
                "header": { "Content-Type": "application/x-www-form-urlencoded" },
                "timeout": QUERY_TIMEOUT,
            },
        })
    }

    /// Returns the condition on a value as CUE. `None` if the value is not finite, as of `0/0`: no condition is met then.
    #[must_use]
    pub fn expression(&self, value: f64) -> Option<String> {
        value.is_finite().then(|| format!("{value} {}", self.condition))
    }

    /// Decides by a result and those before it.
    #[must_use]
    pub fn judge(&self, value: f64, is_met: bool, before: Option<Streak>, now: Timestamp) -> Judgment {
        // As it is stored.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let same = before.filter(|streak| streak.is_met == is_met && streak.since <= now);
        let since = same.map_or(now, |streak| streak.since);
        let elapsed: Duration = now.duration_since(since).try_into().unwrap_or_default();
        let needed = if is_met { self.duration } else { self.fail_duration };
        let has_ended = elapsed >= needed;
        let condition = truncate(&sanitize(&self.condition), MAX_SHOWN);
        // Without the value, which changes with each query: a new message is a write of the status.
        let message = match (is_met, has_ended) {
            (true, true) => "The metric check has passed successfully.".to_owned(),
            (true, false) => format!("the condition {condition} is met since {since}; it must be for {needed:?}"),
            (false, true) => format!("the condition {condition} is not met by {value}, nor since {since}"),
            (false, false) => format!("the condition {condition} is not met since {since}; it may be for {needed:?}"),
        };
        Judgment {
            streak: Streak { is_met, since },
            returned: json!({ "result": is_met && has_ended, "failed": !is_met && has_ended, "message": message }),
            next: (!has_ended).then(|| needed.saturating_sub(elapsed).clamp(MIN_INTERVAL, INTERVAL)),
        }
    }
}

fn duration_of(text: Option<String>, name: &str, default: Duration) -> Result<Duration, String> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(default),
        Some(text) => parse_duration(&text).ok_or_else(|| format!("$params.{name} is not a duration such as 5m")),
    }
}

/// Returns the one value of a response to a query, as `http.#HTTPDo` returns responses.
///
/// # Errors
/// Prometheus refuses the query, or its result is not one number.
pub fn sample(response: &Value) -> Result<f64, String> {
    let status_code = response["statusCode"].as_u64().unwrap_or_default();
    let body = response["body"].as_str().unwrap_or_default();
    if body.len() > MAX_RESPONSE {
        return Err(format!(
            "the response is larger than {MAX_RESPONSE} bytes; aggregate the query to one value"
        ));
    }
    let Ok(PrometheusResponse { status, error, data }) = serde_json::from_str(body) else {
        return Err(format!("the response {status_code} is not one of Prometheus"));
    };
    let Some(Data { result_type, result }) = data.filter(|_| status == "success") else {
        let error = truncate(&sanitize(&error), MAX_SHOWN);
        return Err(format!("Prometheus refuses the query: {status_code} {error}"));
    };
    let sample = match result_type.as_str() {
        "scalar" => &result,
        "vector" => match result.as_array().map(Vec::as_slice) {
            Some([one]) => &one["value"],
            results => {
                let count = results.map_or(0, <[Value]>::len);
                return Err(format!("the query has {count} results; aggregate them to one"));
            }
        },
        _ => return Err("the result of the query is neither a vector nor a scalar".to_owned()),
    };
    // A pair of time and value.
    let value = sample[1].as_str().and_then(|text| text.parse().ok());
    value.ok_or_else(|| "the result of the query is not a number".to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn check(more: Value) -> Result<MetricCheck, String> {
        let mut params = json!({ "query": "up", "condition": ">=0.95" });
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        MetricCheck::parse(&params)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn response(data: &Value) -> Value {
        let body = json!({ "status": "success", "data": data });
        json!({ "statusCode": 200, "body": body.to_string() })
    }

    #[test]
    fn a_query_is_sent_as_a_form_to_the_endpoint() {
        let more = json!({ "query": "a{b=\"c\"} + d", "metricEndpoint": "http://prometheus:9090/path/" });
        let request = check(more).unwrap().request();
        assert_eq!(request["url"], "http://prometheus:9090/path/api/v1/query");
        assert_eq!(request["request"]["body"], "query=a%7Bb%3D%22c%22%7D+%2B+d");
        let default = check(json!({ "metricEndpoint": "" })).unwrap();
        assert_eq!(default.request()["url"], format!("{DEFAULT_ENDPOINT}/api/v1/query"));
        assert_eq!(
            (default.duration, default.fail_duration),
            (DEFAULT_DURATION, DEFAULT_FAIL_DURATION)
        );
    }

    #[rstest]
    #[case(json!({ "query": "" }), "$params.query is required")]
    #[case(json!({ "query": "x".repeat(MAX_QUERY + 1) }), "$params.query is longer")]
    #[case(json!({ "condition": null }), "$params.condition is required")]
    #[case(json!({ "condition": "<".repeat(MAX_CONDITION + 1) }), "$params.condition is longer")]
    #[case(json!({ "metricEndpoint": "http://a?b" }), "must not have a query")]
    #[case(json!({ "duration": "soon" }), "$params.duration is not a duration")]
    #[case(json!({ "failDuration": "-1s" }), "$params.failDuration is not a duration")]
    #[case(json!({ "duration": 5 }), "$params.duration has the wrong type")]
    fn invalid_parameters_are_named(#[case] more: Value, #[case] why: &str) {
        let error = check(more).unwrap_err();
        assert!(error.contains(why) && error.len() < 200, "{error}");
    }

    #[test]
    fn one_value_is_the_sample_of_a_query() {
        let vector = json!({ "resultType": "vector", "result": [{ "metric": {}, "value": [1.5, "0.97"] }] });
        assert_eq!(sample(&response(&vector)), Ok(0.97));
        let scalar = json!({ "resultType": "scalar", "result": [1.5, "-1e+06"] });
        assert_eq!(sample(&response(&scalar)), Ok(-1e6));
        let nothing = json!({ "resultType": "scalar", "result": [1.5, "NaN"] });
        assert!(sample(&response(&nothing)).unwrap().is_nan());
    }

    #[rstest]
    #[case(json!({ "resultType": "vector", "result": [] }), "0 results")]
    #[case(json!({ "resultType": "vector", "result": [{}, {}] }), "2 results")]
    #[case(json!({ "resultType": "vector", "result": 5 }), "0 results")]
    #[case(json!({ "resultType": "vector", "result": [{}] }), "not a number")]
    #[case(json!({ "resultType": "matrix", "result": [] }), "neither a vector nor a scalar")]
    #[case(json!({ "resultType": "scalar", "result": [1.5, "1 } x: {"] }), "not a number")]
    #[case(json!({ "resultType": "scalar", "result": [] }), "not a number")]
    fn results_that_are_no_number_are_errors(#[case] data: Value, #[case] why: &str) {
        let error = sample(&response(&data)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_prometheus_refuses_is_said_and_another_server_is_none() {
        let body = json!({ "status": "error", "error": format!("parse error\u{1b}{}", "x".repeat(1_000)) });
        let refused = sample(&json!({ "statusCode": 400, "body": body.to_string() })).unwrap_err();
        assert!(
            refused.starts_with("Prometheus refuses the query: 400 parse error"),
            "{refused}"
        );
        assert!(refused.len() < 400 && !refused.contains('\u{1b}'), "{refused}");
        let other = sample(&json!({ "statusCode": 200, "body": "<html>" })).unwrap_err();
        assert_eq!(other, "the response 200 is not one of Prometheus");
        let other = sample(&json!({ "statusCode": 200, "body": "{\"color\": \"blue\"}" })).unwrap_err();
        assert_eq!(other, "the response 200 is not one of Prometheus");
        assert!(sample(&Value::Null).is_err());
    }

    #[test]
    fn responses_with_many_results_are_not_parsed() {
        let error = sample(&json!({ "statusCode": 200, "body": " ".repeat(MAX_RESPONSE + 1) })).unwrap_err();
        assert!(error.contains("aggregate the query to one value"), "{error}");
    }

    #[test]
    fn a_condition_is_on_the_value_and_nothing_is_met_by_no_number() {
        let check = check(json!({})).unwrap();
        assert_eq!(check.expression(1.0).as_deref(), Some("1 >=0.95"));
        assert_eq!(check.expression(-0.5).as_deref(), Some("-0.5 >=0.95"));
        assert_eq!(check.expression(f64::NAN), None);
        assert_eq!(check.expression(f64::INFINITY), None);
    }

    #[test]
    fn a_condition_must_be_met_for_its_duration_without_a_break() {
        let check = check(json!({ "duration": "1m", "failDuration": "30s" })).unwrap();
        let first = check.judge(0.97, true, None, at(0));
        assert_eq!((first.streak.since, first.next), (at(0), Some(INTERVAL)));
        assert_eq!(
            (&first.returned["result"], &first.returned["failed"]),
            (&json!(false), &json!(false))
        );
        let later = check.judge(0.98, true, Some(first.streak), at(50));
        assert_eq!(later.next, Some(Duration::from_secs(10)));
        assert_eq!(later.returned["message"], first.returned["message"], "the status stays");
        let end = check.judge(0.99, true, Some(first.streak), at(60));
        assert_eq!((&end.returned["result"], end.next), (&json!(true), None));
        let broken = check.judge(0.5, false, Some(later.streak), at(55));
        assert_eq!((broken.streak.since, broken.streak.is_met), (at(55), false));
        let again = check.judge(0.97, true, Some(broken.streak), at(60));
        assert_eq!((again.streak.since, &again.returned["result"]), (at(60), &json!(false)));
    }

    #[test]
    fn the_next_query_comes_a_second_later_at_the_earliest() {
        let check = check(json!({ "duration": "1ms" })).unwrap();
        assert_eq!(check.judge(0.97, true, None, at(0)).next, Some(MIN_INTERVAL));
    }

    #[test]
    fn a_condition_that_is_not_met_for_too_long_fails_and_names_the_value() {
        let check = check(json!({ "failDuration": "30s" })).unwrap();
        let first = check.judge(0.5, false, None, at(0));
        assert_eq!(first.returned["failed"], false);
        let end = check.judge(0.25, false, Some(first.streak), at(30));
        assert_eq!(
            (&end.returned["failed"], &end.returned["result"]),
            (&json!(true), &json!(false))
        );
        assert!(end.returned["message"].as_str().unwrap().contains("by 0.25"), "{end:?}");
        assert_eq!(end.next, None);
    }

    #[test]
    fn a_clock_that_was_put_back_begins_a_new_streak() {
        let check = check(json!({ "duration": "1m" })).unwrap();
        let future = Streak {
            is_met: true,
            since: at(1_000),
        };
        assert_eq!(check.judge(1.0, true, Some(future), at(0)).streak.since, at(0));
    }
}
