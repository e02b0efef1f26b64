//! Timestamps of chart versions in the format of Go's `time.Time`.

/// Go's zero time. Kubeapps expects it for a version without `created`.
pub(super) const ZERO: &str = "0001-01-01T00:00:00Z";

/// Normalizes an RFC 3339 time as Go does: strict parsing, offset kept (`Z` for zero), at most nine fraction digits
/// without trailing zeros. Anything else becomes [`ZERO`].
pub(super) fn normalize(text: &str) -> String {
    parse(text).unwrap_or_else(|| ZERO.to_owned())
}

/// Forms of date and time, and of the offset. A zero is any digit.
const TIME: &[u8] = b"0000-00-00T00:00:00";
const OFFSET: &[u8] = b"00:00";

fn has_form(bytes: &[u8], form: &[u8]) -> bool {
    let is_like = |(byte, expected): (&u8, &u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    };
    bytes.len() == form.len() && bytes.iter().zip(form).all(is_like)
}

/// Returns true if the bytes look like an RFC 3339 time with at most nine fraction digits. Does not check the date.
pub(super) fn is_time(bytes: &[u8]) -> bool {
    let Some((time, rest)) = bytes.split_at_checked(TIME.len()) else {
        return false;
    };
    let offset = match rest {
        [b'.', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &rest[digits..]
        }
        rest => rest,
    };
    has_form(time, TIME)
        && match offset {
            [b'Z'] => true,
            [b'+' | b'-', offset @ ..] => has_form(offset, OFFSET),
            _ => false,
        }
}

fn parse(text: &str) -> Option<String> {
    let (time, rest) = text.split_at_checked(TIME.len())?;
    has_form(time.as_bytes(), TIME).then_some(())?;
    jiff::civil::Date::new(
        time[0..4].parse().ok()?,
        time[5..7].parse().ok()?,
        time[8..10].parse().ok()?,
    )
    .ok()?;
    // Texts of two digits are ordered like their numbers.
    (&time[11..13] < "24" && &time[14..16] < "60" && &time[17..19] < "60").then_some(())?;
    let (fraction, offset) = split_fraction(rest)?;
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{time}{dot}{fraction}{}", normalize_offset(offset)?))
}

fn split_fraction(rest: &str) -> Option<(&str, &str)> {
    const NANOSECONDS: usize = 9;
    let Some(digits) = rest.strip_prefix('.') else {
        return Some(("", rest));
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then_some(())?;
    let (fraction, offset) = digits.split_at(length);
    Some((fraction[..length.min(NANOSECONDS)].trim_end_matches('0'), offset))
}

fn normalize_offset(offset: &str) -> Option<&str> {
    match offset.as_bytes() {
        b"Z" | b"+00:00" | b"-00:00" => Some("Z"),
        [b'+' | b'-', time @ ..] if has_form(time, OFFSET) => {
            (&offset[1..3] < "24" && &offset[4..] < "60").then_some(offset)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2020-12-15T06:16:10.559559718Z", "2020-12-15T06:16:10.559559718Z")]
    #[case("2022-08-12T07:14:13.4578277+02:00", "2022-08-12T07:14:13.4578277+02:00")]
    #[case("2017-10-04T19:08:39+00:00", "2017-10-04T19:08:39Z")]
    #[case("2017-10-04T19:08:39-00:00", "2017-10-04T19:08:39Z")]
    #[case("2017-10-04T19:08:39.120Z", "2017-10-04T19:08:39.12Z")]
    #[case("2017-10-04T19:08:39.000Z", "2017-10-04T19:08:39Z")]
    #[case("2017-10-04T19:08:39.1234567899Z", "2017-10-04T19:08:39.123456789Z")]
    #[case("2020-02-29T00:00:00-07:00", "2020-02-29T00:00:00-07:00")]
    fn timestamps_are_written_like_in_go(#[case] text: &str, #[case] written: &str) {
        assert_eq!(normalize(text), written);
    }

    #[rstest]
    fn timestamps_that_go_rejects_become_the_zero_time(
        #[values(
            "",
            "yesterday",
            "2020-01-01",
            "2020-01-01 00:00:00Z",
            "2020-01-01T00:00:00",
            "2020-01-01t00:00:00Z",
            "2020-01-01T00:00:00z",
            "2021-02-29T00:00:00Z",
            "2020-13-01T00:00:00Z",
            "2020-01-01T24:00:00Z",
            "2020-01-01T00:00:60Z",
            "2020-01-01T00:00:00,5Z",
            "2020-01-01T00:00:00.Z",
            "2020-01-01T00:00:00+24:00",
            "2020-01-01T00:00:00+0100",
            "2020-01-01T0:00:00Z",
            "+020-01-01T00:00:00Z",
            "1577836800",
            "2020-01-01T00:00:00Zä",
            "2020-01-01T00:00:00ZZ",
            "ä020-01-01T00:00:00Z"
        )]
        text: &str,
    ) {
        assert_eq!(normalize(text), ZERO);
    }

    proptest! {
        #[test]
        fn any_text_can_be_normalized(text in ".{0,40}") {
            let _ = normalize(&text);
        }

        #[test]
        fn normalization_is_idempotent(text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,11})?(Z|[+-][012][0-9]:[0-5][0-9])") {
            let once = normalize(&text);
            prop_assert_eq!(normalize(&once), once);
        }
    }
}
