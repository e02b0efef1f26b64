//! Go durations, and Kubeapps' translation of them to cron expressions.

/// Parses a duration like Go's `time.ParseDuration`: `90s`, `1h30m`, `1.5h`, with the units ns, us, µs, ms, s, m and
/// h. Returns nanoseconds; none for other texts and beyond Go's range of about 292 years.
pub fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    loop {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        let unit_end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        total = total.checked_add(nanoseconds(whole, fraction, unit)?)?;
        if total > i128::from(i64::MAX) {
            return None;
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanoseconds(whole: &str, fraction: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits after the eighteenth are below a nanosecond in any unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    whole.checked_mul(unit)?.checked_add(fraction * unit / scale)
}

/// Translates a duration to a cron expression like Kubeapps: every N minutes, hours, days or months, with the first
/// unit whose N is in range, rounded up. None if there is no such expression or it never fires.
pub fn to_cron(nanoseconds: i64) -> Option<String> {
    let minutes = u64::try_from(nanoseconds).ok()?.div_ceil(60_000_000_000);
    let (hours, days) = (minutes.div_ceil(60), minutes.div_ceil(24 * 60));
    let months = days.div_ceil(31);
    match (minutes, hours, days, months) {
        (0, ..) => None,
        (1..60, ..) => Some(format!("*/{minutes} * * * *")),
        (_, 1..24, ..) => Some(format!("0 */{hours} * * *")),
        (_, _, 1..32, _) => Some(format!("0 0 */{days} * *")),
        (.., 1..13) => Some(format!("0 0 1 */{months} *")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2ns", "*/1 * * * *")]
    #[case("2us", "*/1 * * * *")]
    #[case("2µs", "*/1 * * * *")]
    #[case("2μs", "*/1 * * * *")]
    #[case("2ms", "*/1 * * * *")]
    #[case("2s", "*/1 * * * *")]
    #[case("60s", "*/1 * * * *")]
    #[case("61s", "*/2 * * * *")]
    #[case("2m", "*/2 * * * *")]
    #[case("10m", "*/10 * * * *")]
    #[case("+10m", "*/10 * * * *")]
    #[case("59m", "*/59 * * * *")]
    #[case("59m1s", "0 */1 * * *")]
    #[case("60m", "0 */1 * * *")]
    #[case("90m", "0 */2 * * *")]
    #[case("1.5h", "0 */2 * * *")]
    #[case(".5h", "*/30 * * * *")]
    #[case("1.h", "0 */1 * * *")]
    #[case("1h30m", "0 */2 * * *")]
    #[case("2h", "0 */2 * * *")]
    #[case("23h", "0 */23 * * *")]
    #[case("23h1m", "0 0 */1 * *")]
    #[case("24h", "0 0 */1 * *")]
    #[case("72h", "0 0 */3 * *")]
    #[case("744h", "0 0 */31 * *")]
    #[case("745h", "0 0 1 */2 *")]
    #[case("1460h", "0 0 1 */2 *")]
    #[case("8928h", "0 0 1 */12 *")]
    fn durations_translate_to_the_expressions_of_kubeapps(#[case] text: &str, #[case] expression: &str) {
        assert_eq!(parse(text).and_then(to_cron).as_deref(), Some(expression));
    }

    #[rstest]
    #[case("0s")]
    #[case("0")]
    #[case("-5m")]
    #[case("8929h")]
    #[case("17532h")]
    fn durations_without_an_expression_are_rejected(#[case] text: &str) {
        assert_eq!(parse(text).and_then(to_cron), None);
        assert!(parse(text).is_some());
    }

    #[rstest]
    #[case("")]
    #[case("1d")]
    #[case("10")]
    #[case("m")]
    #[case(".m")]
    #[case("-")]
    #[case("1m ")]
    #[case("1 m")]
    #[case("1h-2m")]
    #[case("10 minutes")]
    #[case("9223372036854775808ns")]
    #[case("99999999999999999999999999999999999999999h")]
    #[case("é")]
    fn texts_that_go_rejects_are_rejected(#[case] text: &str) {
        assert_eq!(parse(text), None);
    }

    #[test]
    fn fractions_are_exact_to_the_nanosecond() {
        assert_eq!(parse("1.5s"), Some(1_500_000_000));
        assert_eq!(parse("0.100000000000000000000h"), Some(360_000_000_000));
        assert_eq!(parse("1h15m30.918273645s"), Some(4_530_918_273_645));
        assert_eq!(parse("9223372036854775807ns"), Some(i64::MAX));
    }
}
