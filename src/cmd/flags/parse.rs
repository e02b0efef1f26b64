//! Parsers of flag values.

use std::{fmt, str::FromStr, time::Duration};

use clap::{Arg, ArgAction};
use jiff::SignedDuration;

const ZERO: &str = "must be greater than zero";

/// Parses a boolean in all forms that Go's flags accept.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Lets a boolean flag take a value as in Go: `--flag`, `--flag=false`.
pub fn go_boolean(argument: Arg) -> Arg {
    if !matches!(argument.get_action(), ArgAction::SetTrue) {
        return argument;
    }
    let argument = match argument.get_default_values() {
        [] => argument.default_value("false"),
        _ => argument,
    };
    argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_name("BOOL")
        .value_parser(boolean)
}

/// Parses a duration as in Go and Kubernetes: `90s`, `1m30s`, `500ms`, `2h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "expected a duration with a unit, such as 90s, 5m or 1h30m";
    let duration: SignedDuration = text.trim().parse().map_err(|_| FORM.to_owned())?;
    Duration::try_from(duration).map_err(|_| FORM.to_owned())
}

pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(ZERO.to_owned()),
        duration => Ok(duration),
    }
}

/// Parses whole seconds without a unit, as in kubernetes-sigs/application, or a [`positive_duration`].
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<u64>() {
        Ok(0) => Err(ZERO.to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => positive_duration(text),
    }
}

/// Parses a number of bytes with an optional unit as in Kubernetes: `104857600`, `100Mi`, `1Gi`, `500k`.
pub fn bytes(text: &str) -> Result<u64, String> {
    const FORM: &str = "expected a number of bytes, such as 104857600, 100Mi or 1Gi";
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().map_err(|_| FORM.to_owned())?;
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1000,
        "M" => 1000_u64.pow(2),
        "G" => 1000_u64.pow(3),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(FORM.to_owned()),
    };
    match number.checked_mul(factor) {
        Some(0) | None => Err("must be greater than zero and less than 16Ei".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// A list in one CSV record, as in the flags of Kubernetes programs: `a,b`, or with quotes as in Helm charts,
/// `"a","b, with a comma"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommaSeparated(pub Vec<String>);

impl FromStr for CommaSeparated {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut fields = Vec::new();
        let mut remaining = text;
        loop {
            let (field, after) = match remaining.strip_prefix('"') {
                Some(quoted) => quoted_field(quoted)?,
                None => {
                    let end = remaining.find(',').unwrap_or(remaining.len());
                    (remaining[..end].to_owned(), &remaining[end..])
                }
            };
            fields.push(field);
            match after.strip_prefix(',') {
                Some(next) => remaining = next,
                None if after.is_empty() => return Ok(Self(fields)),
                None => return Err("expected a comma or the end after a closing double quote"),
            }
        }
    }
}

/// Splits at the closing quote. Two quotes in the field are one escaped quote.
fn quoted_field(mut text: &str) -> Result<(String, &str), &'static str> {
    let mut field = String::new();
    loop {
        let quote = text.find('"').ok_or("missing a closing double quote")?;
        field.push_str(&text[..quote]);
        text = &text[quote + 1..];
        match text.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                text = after;
            }
            None => return Ok((field, text)),
        }
    }
}

/// A value that may contain a secret and cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(String);

impl Sensitive {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Sensitive {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a,b", &["a", "b"])]
    #[case("\"a=b\"", &["a=b"])]
    #[case("\"a\",\"b, c\",d", &["a", "b, c", "d"])]
    #[case("\"say \"\"hi\"\"\"", &["say \"hi\""])]
    #[case("a,", &["a", ""])]
    #[case("\"\"", &[""])]
    #[case("", &[])]
    fn a_list_is_one_record_of_comma_separated_values(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(text.parse::<CommaSeparated>().unwrap().0, expected);
    }

    #[test]
    fn a_list_with_unbalanced_quotes_is_invalid() {
        assert!("\"a".parse::<CommaSeparated>().is_err());
        assert!("\"a\"b".parse::<CommaSeparated>().is_err());
    }

    #[rstest]
    #[case("90s", 90_000)]
    #[case("1m30s", 90_000)]
    #[case("500ms", 500)]
    #[case("2h", 7_200_000)]
    #[case("0s", 0)]
    fn durations_have_the_syntax_of_go(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case("10")]
    #[case("-5s")]
    #[case("soon")]
    #[case("")]
    fn an_invalid_duration_names_a_valid_one(#[case] text: &str) {
        assert!(duration(text).unwrap_err().contains("such as 90s"));
    }

    #[test]
    fn a_positive_duration_is_not_zero() {
        assert!(positive_duration("0s").is_err());
    }

    #[rstest]
    #[case("104857600", 104_857_600)]
    #[case("100Mi", 104_857_600)]
    #[case("1Gi", 1 << 30)]
    #[case("500k", 500_000)]
    fn bytes_have_the_units_of_kubernetes(#[case] text: &str, #[case] expected: u64) {
        assert_eq!(bytes(text), Ok(expected));
    }

    #[rstest]
    #[case("0")]
    #[case("-1")]
    #[case("1.5Gi")]
    #[case("99999999999Gi")]
    #[case("10MB")]
    fn an_invalid_number_of_bytes_is_an_error(#[case] text: &str) {
        assert!(bytes(text).is_err());
    }

    #[test]
    fn a_sensitive_value_cannot_be_printed() {
        assert_eq!(
            format!("{:?}", Some(Sensitive::from("secret".to_owned()))),
            "Some([redacted])"
        );
    }
}
