//! Flags of exported traces.

use clap::Args;
use url::Url;

use super::non_empty;
use crate::cmd::Error;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Traces")]
pub struct TraceFlags {
    /// URL of an OpenTelemetry collector that receives traces (OTLP over HTTP), such as http://otel-collector:4318;
    /// requires a build with the Cargo feature otel
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of traces to export, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub otlp_sampling_ratio: f64,
}

/// The export of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    pub endpoint: Url,
    /// The share of traces to export.
    pub ratio: f64,
}

impl TraceFlags {
    /// Returns none without an endpoint.
    pub fn options(&self) -> Result<Option<TraceOptions>, Error> {
        let Some(text) = non_empty(self.otlp_endpoint.as_deref()) else {
            return Ok(None);
        };
        // The value may contain a password, so the message does not repeat it.
        let invalid = |reason: &str| Error::Usage(format!("invalid value for --otlp-endpoint: {reason}"));
        let mut endpoint = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host().is_none() {
            return Err(invalid("expected a URL such as http://otel-collector:4318"));
        }
        if !endpoint.username().is_empty() || endpoint.password().is_some() || endpoint.query().is_some() {
            return Err(invalid(
                "the URL has a user, a password or a query; set headers in OTEL_EXPORTER_OTLP_HEADERS instead",
            ));
        }
        if endpoint.path() == "/" {
            endpoint.set_path("/v1/traces");
        }
        endpoint.set_fragment(None);
        let ratio = self.otlp_sampling_ratio;
        Ok(Some(TraceOptions { endpoint, ratio }))
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.trim().parse().ok();
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn options(endpoint: &str) -> Result<Option<TraceOptions>, Error> {
        let flags = TraceFlags {
            otlp_endpoint: Some(endpoint.to_owned()),
            otlp_sampling_ratio: 1.0,
        };
        flags.options()
    }

    #[rstest]
    #[case("http://collector:4318", "http://collector:4318/v1/traces")]
    #[case("https://collector/", "https://collector/v1/traces")]
    #[case("https://collector/otlp/traces", "https://collector/otlp/traces")]
    fn an_endpoint_without_a_path_gets_that_of_the_protocol(#[case] flag: &str, #[case] endpoint: &str) {
        assert_eq!(options(flag).unwrap().unwrap().endpoint.as_str(), endpoint);
    }

    #[rstest]
    #[case("collector:4318")]
    #[case("file:///tmp/x")]
    #[case("http://user:secret@collector:4318")]
    #[case("http://collector:4318/?token=secret")]
    fn other_endpoints_are_refused_without_repeating_them(#[case] flag: &str) {
        let Err(Error::Usage(message)) = options(flag) else {
            panic!("{flag} was accepted")
        };
        assert!(
            message.contains("--otlp-endpoint") && !message.contains("secret"),
            "{message}"
        );
    }

    #[test]
    fn an_empty_endpoint_counts_as_not_set() {
        assert_eq!(options(" ").unwrap(), None);
    }

    #[test]
    fn a_ratio_is_between_0_and_1() {
        assert_eq!(ratio("0.25"), Ok(0.25));
        for text in ["-0.1", "1.5", "NaN", "all", ""] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }
}
