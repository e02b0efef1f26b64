//! A field of a cron expression: parsed strictly, formatted in the form that the scheduler's parser accepts.

use std::fmt::{self, Display};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Steps above this are clamped: beyond the range of every field they select only the first value.
const MAX_STEP: u16 = 9_999;

impl Unit {
    /// Returns the range of values. The scheduler's parser ends at the year 5000.
    pub const fn bounds(self) -> (u16, u16) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
            Self::Year => (1, 5_000),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
            Self::Year => "year",
        }
    }

    /// Parses a number or a name. Sunday is 0 and 7.
    fn value(self, text: &str) -> Option<u16> {
        let named = |names: &[&str], first: u16| {
            let position = names.iter().position(|name| name.eq_ignore_ascii_case(text))?;
            Some(u16::try_from(position).ok()? + first)
        };
        match self {
            Self::Month => named(&MONTHS, 1),
            Self::DayOfWeek => named(&WEEKDAYS, 0),
            _ => None,
        }
        .or_else(|| number(text))
    }
}

fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CronItem {
    Every { step: Option<u16> },
    Range { first: u16, last: u16, step: Option<u16> },
    Value(u16),
    LastDay,
    NearestWorkday(u16),
    LastWeekday(u16),
    NthWeekday(u16, u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronField {
    unit: Unit,
    items: Vec<CronItem>,
}

impl CronField {
    /// Parses a field; the error is a phrase that describes the problem.
    pub fn parse(unit: Unit, text: &str) -> Result<Self, String> {
        let item =
            |text: &str| CronItem::parse(unit, text).map_err(|reason| format!("{} `{text}` {reason}", unit.name()));
        let items = text.split(',').map(item).collect::<Result<Vec<_>, _>>()?;
        let field = Self { unit, items };
        // The scheduler's parser rejects `*` in a list, where it makes the other items redundant.
        Ok(if field.items.len() > 1 && field.is_open() {
            Self::every(unit)
        } else {
            field
        })
    }

    pub fn every(unit: Unit) -> Self {
        Self {
            unit,
            items: vec![CronItem::Every { step: None }],
        }
    }

    /// Returns true if the field accepts every value. `*/1` does, as in Kubernetes.
    pub fn is_open(&self) -> bool {
        self.items
            .iter()
            .any(|item| matches!(item, CronItem::Every { step: None | Some(1) }))
    }

    pub fn values(&self) -> Vec<u16> {
        let (min, max) = self.unit.bounds();
        (min..=max)
            .filter(|value| self.items.iter().any(|item| item.contains(*value, min, max)))
            .collect()
    }

    /// Returns the minimum length of a month in which the field can match; none if every month matches.
    pub fn least_day(&self) -> Option<u16> {
        let least = self.items.iter().map(|item| match *item {
            CronItem::Every { .. } | CronItem::LastDay | CronItem::LastWeekday(_) => 1,
            CronItem::Range { first, .. } => first,
            CronItem::Value(day) | CronItem::NearestWorkday(day) => day,
            // The fifth of a weekday is on the 29th or later.
            CronItem::NthWeekday(_, n) => (n - 1) * 7 + 1,
        });
        least.min().filter(|day| *day > 28)
    }
}

impl CronItem {
    fn parse(unit: Unit, text: &str) -> Result<Self, &'static str> {
        if let Some(item) = Self::parse_day(unit, text) {
            return item;
        }
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => {
                let is_number = step.bytes().all(|b| b.is_ascii_digit());
                let step = step.parse::<u64>().ok().filter(|_| is_number);
                let step = step.ok_or("has no number after `/`")?;
                (range, Some(u16::try_from(step).unwrap_or(MAX_STEP).min(MAX_STEP)))
            }
            None => (text, None),
        };
        if step == Some(0) {
            return Err("has step 0");
        }
        let (min, max) = unit.bounds();
        match (range, range.split_once('-'), step) {
            ("*" | "?", _, Some(step)) if unit == Unit::Year => Self::from(unit, step, step),
            ("*" | "?", _, step) => Ok(Self::Every { step }),
            (_, Some((first, last)), step) => Self::range(unit, first, last, step),
            // Units without 0 start at the step: `0/5` means 5, 10, 15…
            (_, None, Some(step)) if min == 1 && number(range) == Some(0) => Self::from(unit, step, step),
            (_, None, Some(step)) => Self::from(unit, unit.value(range).ok_or("has no valid number before `/`")?, step),
            (_, None, None) => match unit.value(range) {
                Some(7) if unit == Unit::DayOfWeek => Ok(Self::Value(0)),
                Some(value) if (min..=max).contains(&value) => Ok(Self::Value(value)),
                Some(_) => Err("is out of range"),
                None => Err("is not a valid value"),
            },
        }
    }

    fn from(unit: Unit, first: u16, step: u16) -> Result<Self, &'static str> {
        let (min, last) = unit.bounds();
        if !(min..=last).contains(&first) {
            return Err("is out of range");
        }
        Ok(Self::Range {
            first,
            last,
            step: Some(step),
        })
    }

    fn range(unit: Unit, first: &str, last: &str, step: Option<u16>) -> Result<Self, &'static str> {
        const INVALID_RANGE: &str = "is not a valid range";
        let (min, mut max) = unit.bounds();
        let mut from = unit.value(first).ok_or(INVALID_RANGE)?;
        let mut to = unit.value(last).ok_or(INVALID_RANGE)?;
        if unit == Unit::DayOfWeek {
            // Sunday starts a range as 0 and ends it as 7, so that 7-2 and fri-sun are valid ranges.
            max = 7;
            if from == 7 {
                from = 0;
            }
            if last.eq_ignore_ascii_case("SUN") && from > 0 {
                to = 7;
            }
        }
        if from < min || to > max {
            return Err("is out of range");
        }
        if from > to {
            return Err("ends before it starts");
        }
        Ok(Self::Range {
            first: from,
            last: to,
            step,
        })
    }

    /// Parses the forms of day fields: `L`, `15W`, `5L`, `5#2`. None for other texts.
    fn parse_day(unit: Unit, text: &str) -> Option<Result<Self, &'static str>> {
        let text = text.to_ascii_uppercase();
        match unit {
            Unit::DayOfMonth if text == "L" => Some(Ok(Self::LastDay)),
            Unit::DayOfMonth => {
                let day = number(text.strip_suffix('W')?).filter(|day| (1..=31).contains(day));
                let item = day.map(Self::NearestWorkday);
                Some(item.ok_or("is not a day of the month with `W`"))
            }
            Unit::DayOfWeek => {
                let weekday = |text: &str| unit.value(text).filter(|day| *day <= 7).map(|day| day % 7);
                if let Some((day, n)) = text.split_once('#') {
                    let n = number(n).filter(|n| (1..=5).contains(n));
                    let item = weekday(day).zip(n).map(|(day, n)| Self::NthWeekday(day, n));
                    return Some(item.ok_or("is not a weekday with `#1` to `#5`"));
                }
                let day = text.strip_suffix('L')?;
                Some(weekday(day).map(Self::LastWeekday).ok_or("is not a weekday with `L`"))
            }
            _ => None,
        }
    }

    fn contains(self, value: u16, min: u16, max: u16) -> bool {
        let within = |first: u16, last: u16, step: Option<u16>| {
            (first..=last).contains(&value) && (value - first).is_multiple_of(step.unwrap_or(1))
        };
        match self {
            Self::Every { step } => within(min, max, step),
            Self::Range { first, last, step } => within(first, last, step),
            Self::Value(only) => value == only,
            Self::LastDay | Self::NearestWorkday(_) | Self::LastWeekday(_) | Self::NthWeekday(..) => false,
        }
    }
}

impl Display for CronItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Every { step } => write!(f, "*{}", Step(step)),
            Self::Range { first, last, step } => write!(f, "{first}-{last}{}", Step(step)),
            Self::Value(value) => write!(f, "{value}"),
            Self::LastDay => write!(f, "L"),
            Self::NearestWorkday(day) => write!(f, "{day}W"),
            Self::LastWeekday(day) => write!(f, "{day}L"),
            Self::NthWeekday(day, n) => write!(f, "{day}#{n}"),
        }
    }
}

struct Step(Option<u16>);

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |step| write!(f, "/{step}"))
    }
}

impl Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, item) in self.items.iter().enumerate() {
            write!(f, "{}{item}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Unit::Minute, "*", "*")]
    #[case(Unit::Minute, "?", "*")]
    #[case(Unit::Minute, "*/90", "*/90")]
    #[case(Unit::Minute, "*/99999999999", "*/9999")]
    #[case(Unit::Minute, "5/15", "5-59/15")]
    #[case(Unit::Minute, "0/15", "0-59/15")]
    #[case(Unit::Minute, "*/1", "*/1")]
    #[case(Unit::Minute, "5,*", "*")]
    #[case(Unit::Minute, "*/5,7", "*/5,7")]
    #[case(Unit::Minute, "00,05,7-9", "0,5,7-9")]
    #[case(Unit::Month, "jan-Mar,DEC", "1-3,12")]
    #[case(Unit::Month, "0/5", "5-12/5")]
    #[case(Unit::DayOfMonth, "l,15w,31", "L,15W,31")]
    #[case(Unit::DayOfWeek, "7", "0")]
    #[case(Unit::DayOfWeek, "sun,MON", "0,1")]
    #[case(Unit::DayOfWeek, "5-7", "5-7")]
    #[case(Unit::DayOfWeek, "7-2", "0-2")]
    #[case(Unit::DayOfWeek, "fri-sun", "5-7")]
    #[case(Unit::DayOfWeek, "sun-tue", "0-2")]
    #[case(Unit::DayOfWeek, "sun-sun", "0-0")]
    #[case(Unit::DayOfWeek, "1/2", "1-6/2")]
    #[case(Unit::DayOfWeek, "7L,friL,mon#2", "0L,5L,1#2")]
    #[case(Unit::Year, "*/2", "2-5000/2")]
    #[case(Unit::Year, "2030-2040/5", "2030-2040/5")]
    fn fields_are_formatted_in_normal_form(#[case] unit: Unit, #[case] text: &str, #[case] written: &str) {
        assert_eq!(CronField::parse(unit, text).unwrap().to_string(), written);
    }

    #[rstest]
    #[case(Unit::Minute, "60")]
    #[case(Unit::Minute, "")]
    #[case(Unit::Minute, "1,,2")]
    #[case(Unit::Minute, "H")]
    #[case(Unit::Minute, "*/0")]
    #[case(Unit::Minute, "*/")]
    #[case(Unit::Minute, "*/-5")]
    #[case(Unit::Minute, "*/5/5")]
    #[case(Unit::Minute, "/5")]
    #[case(Unit::Minute, "-5")]
    #[case(Unit::Minute, "+5")]
    #[case(Unit::Minute, "1-2-3")]
    #[case(Unit::Minute, "*-5")]
    #[case(Unit::Minute, "5-*")]
    #[case(Unit::Minute, "jan")]
    #[case(Unit::Minute, "L")]
    #[case(Unit::Hour, "24")]
    #[case(Unit::Hour, "22-2")]
    #[case(Unit::DayOfMonth, "0")]
    #[case(Unit::DayOfMonth, "32")]
    #[case(Unit::DayOfMonth, "LW")]
    #[case(Unit::DayOfMonth, "W")]
    #[case(Unit::DayOfMonth, "0W")]
    #[case(Unit::DayOfMonth, "5#2")]
    #[case(Unit::Month, "13")]
    #[case(Unit::Month, "JANUARY")]
    #[case(Unit::Month, "0/13")]
    #[case(Unit::DayOfWeek, "8")]
    #[case(Unit::DayOfWeek, "L")]
    #[case(Unit::DayOfWeek, "MONDAY")]
    #[case(Unit::DayOfWeek, "5#6")]
    #[case(Unit::DayOfWeek, "5#0")]
    #[case(Unit::DayOfWeek, "7/2")]
    #[case(Unit::DayOfWeek, "8L")]
    #[case(Unit::Year, "0")]
    #[case(Unit::Year, "9999")]
    fn invalid_fields_are_rejected_with_a_reason(#[case] unit: Unit, #[case] text: &str) {
        let error = CronField::parse(unit, text).unwrap_err();
        assert!(error.contains(unit.name()), "{error}");
    }
}
