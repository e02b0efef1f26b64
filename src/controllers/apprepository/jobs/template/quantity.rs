//! Quantities of resources, to compare quantities of tenants with the limits of the operator.

/// Returns a quantity in thousandths, rounded up; `None` if it is invalid or negative.
#[must_use]
pub fn milli(text: &str) -> Option<u128> {
    const SUFFIXES: [(&str, u128); 13] = [
        ("Ki", 1000 << 10),
        ("Mi", 1000 << 20),
        ("Gi", 1000 << 30),
        ("Ti", 1000 << 40),
        ("Pi", 1000 << 50),
        ("Ei", 1000 << 60),
        ("m", 1),
        ("k", 1000 * 1000),
        ("M", 1000 * 1000_u128.pow(2)),
        ("G", 1000 * 1000_u128.pow(3)),
        ("T", 1000 * 1000_u128.pow(4)),
        ("P", 1000 * 1000_u128.pow(5)),
        ("E", 1000 * 1000_u128.pow(6)),
    ];
    let text = text.trim();
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
    let (number, factor) = match suffix {
        Some((suffix, factor)) => (text.strip_suffix(suffix)?, *factor),
        None => (text, 1000),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) || number.len() > 18 {
        return None;
    }
    let number: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(number.checked_mul(factor)?.div_ceil(divisor))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1", Some(1000))]
    #[case("500m", Some(500))]
    #[case("0.5", Some(500))]
    #[case("1.5Gi", Some(1_610_612_736_000))]
    #[case("256Mi", Some(268_435_456_000))]
    #[case("2k", Some(2_000_000))]
    #[case("-1", None)]
    #[case("", None)]
    #[case("Gi", None)]
    #[case("1e3", None)]
    fn quantities_are_those_of_kubernetes(#[case] text: &str, #[case] expected: Option<u128>) {
        assert_eq!(milli(text), expected);
    }
}
