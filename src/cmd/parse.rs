//! How the values of flags are written and read.

use std::{fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;

/// A truth value in all the forms that Go's flags take.
///
/// # Errors
/// When the text is none of them.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// A length of time as Go and Kubernetes write it: `90s`, `1m30s`, `500ms`, `2h`.
///
/// # Errors
/// When the text is no such length, is without a unit, or is negative.
pub fn duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write a length of time with its unit, such as 90s, 5m or 1h30m";
    let duration: SignedDuration = text.trim().parse().map_err(|_| FORM.to_owned())?;
    Duration::try_from(duration).map_err(|_| FORM.to_owned())
}

/// Like [`duration`], but not zero: for what would never work without any time.
///
/// # Errors
/// As [`duration`], and when it is zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A length of time that is not zero: whole seconds without a unit, as kubernetes-sigs/application has them, or as [`duration`].
///
/// # Errors
/// As [`positive_duration`].
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<u64>() {
        Ok(0) => Err("it must be longer than zero".to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => positive_duration(text),
    }
}

/// A number of bytes, with or without a unit of Kubernetes' quantities: `104857600`, `100Mi`, `1Gi`, `500k`.
///
/// # Errors
/// When the text is no whole number, its unit is unknown, or it is zero or too large.
pub fn bytes(text: &str) -> Result<u64, String> {
    const FORM: &str = "write a number of bytes, such as 104857600, 100Mi or 1Gi";
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
        Some(0) | None => Err("it must be more than zero and less than 16 EiB".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// A list written as one record of comma-separated values, as the flags of Kubernetes programs take them: `a,b` or, with literal quotes
/// as Helm charts pass them, `"a","b, with a comma"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommaSeparated(pub Vec<String>);

impl FromStr for CommaSeparated {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut fields = Vec::new();
        let mut rest = text;
        loop {
            let (field, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted_field(quoted)?,
                None => {
                    let end = rest.find(',').unwrap_or(rest.len());
                    (rest[..end].to_owned(), &rest[end..])
                }
            };
            fields.push(field);
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(Self(fields)),
                None => return Err("a closing double quote must be followed by a comma or the end"),
            }
        }
    }
}

/// The text up to the closing quote, in which a doubled quote stands for one, and what follows.
fn quoted_field(mut text: &str) -> Result<(String, &str), &'static str> {
    let mut field = String::new();
    loop {
        let quote = text.find('"').ok_or("a double quote is not closed")?;
        field.push_str(&text[..quote]);
        text = &text[quote + 1..];
        match text.strip_prefix('"') {
            Some(rest) => {
                field.push('"');
                text = rest;
            }
            None => return Ok((field, text)),
        }
    }
}

/// A value that may hold a secret: it can be used, but not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(String);

impl Sensitive {
    /// The value itself, for the one place that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Sensitive {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Sensitive {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
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
    fn a_list_is_read_as_one_record_of_comma_separated_values(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(text.parse::<CommaSeparated>().unwrap().0, expected);
    }

    #[test]
    fn a_list_with_broken_quotes_is_refused() {
        assert!("\"a".parse::<CommaSeparated>().is_err());
        assert!("\"a\"b".parse::<CommaSeparated>().is_err());
    }

    #[rstest]
    #[case("90s", 90_000)]
    #[case("1m30s", 90_000)]
    #[case("500ms", 500)]
    #[case("2h", 7_200_000)]
    #[case("0s", 0)]
    fn lengths_of_time_are_read_as_go_writes_them(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case("10")]
    #[case("-5s")]
    #[case("soon")]
    #[case("")]
    fn a_wrong_length_of_time_says_what_to_write(#[case] text: &str) {
        assert!(duration(text).unwrap_err().contains("such as 90s"));
    }

    #[test]
    fn what_needs_time_takes_no_zero() {
        assert!(positive_duration("0s").is_err());
    }

    #[rstest]
    #[case("104857600", 104_857_600)]
    #[case("100Mi", 104_857_600)]
    #[case("1Gi", 1 << 30)]
    #[case("500k", 500_000)]
    fn bytes_are_read_as_kubernetes_writes_them(#[case] text: &str, #[case] expected: u64) {
        assert_eq!(bytes(text), Ok(expected));
    }

    #[rstest]
    #[case("0")]
    #[case("-1")]
    #[case("1.5Gi")]
    #[case("99999999999Gi")]
    #[case("10MB")]
    fn a_wrong_number_of_bytes_is_refused(#[case] text: &str) {
        assert!(bytes(text).is_err());
    }

    #[test]
    fn a_secret_can_not_be_printed() {
        assert_eq!(format!("{:?}", Some(Sensitive::from("secret"))), "Some([redacted])");
    }
}
