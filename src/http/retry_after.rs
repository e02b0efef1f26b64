//! The header `Retry-After`: seconds, or a date.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// How long from `now` the server wants to be left alone. None if it does not say so in a way that can be read; nothing
/// for a date that is past.
pub(super) fn parse(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds are as good as for ever.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = http_date(value)?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// A date in the form that HTTP prefers, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(value: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(value).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("120", Some(120))]
    #[case(" 0 ", Some(0))]
    #[case("99999999999999999999999", Some(u64::MAX))]
    #[case("Sun, 06 Nov 1994 08:49:37 GMT", Some(37))]
    #[case("Sun, 06 Nov 1994 08:48:00 GMT", Some(0))]
    #[case("", None)]
    #[case("-1", None)]
    #[case("1.5", None)]
    #[case("soon", None)]
    fn seconds_and_dates_are_understood(#[case] value: &str, #[case] seconds: Option<u64>) {
        let now: Timestamp = "1994-11-06T08:49:00Z".parse().unwrap();
        assert_eq!(parse(value, now), seconds.map(Duration::from_secs));
    }
}
