//! Times, numbers, names, health and options as pages show them.

use jiff::Timestamp;

use crate::text::printable;

/// Options of a select element, besides the selected one.
const MAX_OPTIONS: usize = 500;

/// A time, relative to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub(super) relative: String,
    /// For people, in UTC.
    pub(super) absolute: String,
    pub(super) rfc3339: String,
}

impl When {
    pub(super) fn new(time: Timestamp, now: Timestamp) -> Self {
        Self {
            relative: relative(time, now),
            absolute: time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            rfc3339: time.to_string(),
        }
    }
}

fn relative(time: Timestamp, now: Timestamp) -> String {
    let difference = now.as_second() - time.as_second();
    let (amount, unit) = seconds(difference.unsigned_abs());
    let amount = count(usize::try_from(amount).unwrap_or(usize::MAX), unit);
    if difference == 0 {
        "now".to_owned()
    } else if difference > 0 {
        format!("{amount} ago")
    } else {
        format!("in {amount}")
    }
}

/// Returns the largest unit of which a time has at least one.
pub(super) fn seconds(seconds: u64) -> (u64, &'static str) {
    const UNITS: [(u64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let unit = UNITS.into_iter().find(|(length, _)| seconds >= *length);
    unit.map_or((0, "second"), |(length, name)| (seconds / length, name))
}

/// Returns a number with its unit, such as `1,204 charts`.
pub(super) fn count(amount: usize, unit: &str) -> String {
    let plural = if amount == 1 { "" } else { "s" };
    format!("{} {unit}{plural}", number(amount))
}

pub(super) fn number(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the name of a chart for people. Templates escape it.
pub(super) fn name(stored: &str) -> String {
    printable(&stored.replace("%2F", "/"))
}

/// Returns the first letter or digit of the last part of a name.
pub(super) fn letter(stored: &str) -> String {
    let name = name(stored);
    let part = name.rsplit('/').next().unwrap_or_default();
    let letter = part.chars().find(|c| c.is_alphanumeric());
    letter.map_or_else(|| "?".to_owned(), |letter| letter.to_uppercase().collect())
}

/// An option of a select element.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) label: String,
    pub(super) is_selected: bool,
}

/// Returns the options of a select element with the selected one, also if there are too many.
pub(super) fn choices(values: impl Iterator<Item = String>, selected: Option<&str>) -> Vec<Choice> {
    let choice = |value: String| Choice {
        label: printable(&value),
        is_selected: selected == Some(value.as_str()),
        value,
    };
    let mut choices: Vec<Choice> = values.take(MAX_OPTIONS).map(choice).collect();
    if let Some(selected) = selected
        && !choices.iter().any(|choice| choice.is_selected)
    {
        choices.push(choice(selected.to_owned()));
    }
    choices
}

/// A badge: never a color alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Badge {
    /// `ok`, `bad` or `unknown`.
    pub(super) class: &'static str,
    pub(super) label: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_unit_and_a_direction() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let shown = |seconds: i64| relative(Timestamp::from_second(1_800_000_000 + seconds).unwrap(), now);
        for (seconds, expected) in [
            (0, "now"),
            (-1, "1 second ago"),
            (-59, "59 seconds ago"),
            (-60, "1 minute ago"),
            (-7200, "2 hours ago"),
            (-2 * 86_400, "2 days ago"),
            (-60 * 86_400, "2 months ago"),
            (-800 * 86_400, "2 years ago"),
            (300, "in 5 minutes"),
        ] {
            assert_eq!(shown(seconds), expected);
        }
    }

    #[test]
    fn thousands_are_separated() {
        for (plain, expected) in [(0, "0"), (999, "999"), (1204, "1,204"), (1_234_567, "1,234,567")] {
            assert_eq!(number(plain), expected);
        }
        assert_eq!(
            (count(1, "chart"), count(2, "chart")),
            ("1 chart".to_owned(), "2 charts".to_owned())
        );
    }

    #[test]
    fn characters_that_reorder_text_are_removed() {
        assert_eq!(name("team%2Fweb\u{202e}\u{7}"), "team/web ");
    }

    #[test]
    fn the_letter_is_that_of_the_last_part() {
        for (name, expected) in [("loki", "L"), ("team%2F_web", "W"), ("", "?"), ("日本", "日")] {
            assert_eq!(letter(name), expected, "{name}");
        }
    }

    fn values(choices: &[Choice]) -> Vec<(&str, bool)> {
        choices
            .iter()
            .map(|choice| (choice.value.as_str(), choice.is_selected))
            .collect()
    }

    #[test]
    fn the_selected_option_is_always_offered() {
        let all = || ["a", "b"].into_iter().map(str::to_owned);
        assert_eq!(values(&choices(all(), Some("b"))), [("a", false), ("b", true)]);
        assert_eq!(
            values(&choices(all(), Some("c"))),
            [("a", false), ("b", false), ("c", true)]
        );
        let many = (0..=MAX_OPTIONS).map(|number| number.to_string());
        assert_eq!(choices(many, None).len(), MAX_OPTIONS);
    }
}
