use std::fmt::{self, Display};
use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds};
use jiff::Timestamp;

use super::field::{CronField, Unit};
use super::go_duration;
use crate::text;

const MAX_LENGTH: usize = 256;

const NICKNAMES: [(&str, &str); 12] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("@always", "* * * * *"),
    ("@5minutes", "*/5 * * * *"),
    ("@10minutes", "*/10 * * * *"),
    ("@15minutes", "*/15 * * * *"),
    ("@30minutes", "0,30 * * * *"),
    ("@everysecond", "* * * * * *"),
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid interval `{interval}`: {reason}; use a cron expression of five fields such as `0 3 * * *` \
     (in UTC; a sixth in front for seconds), a nickname such as `@hourly`, or a duration such as `10m`, `2h` or `72h`"
)]
pub struct IntervalError {
    interval: String,
    reason: String,
}

impl IntervalError {
    fn new(interval: &str, reason: impl Into<String>) -> Self {
        Self {
            interval: text::truncate(&text::printable(interval), 64),
            reason: reason.into(),
        }
    }
}

/// A parsed schedule. Equal if its expressions are equal.
#[derive(Clone, Debug)]
pub struct Cron {
    expressions: Vec<String>,
    // The scheduler's own parser, so that both compute the same ticks.
    parsed: Vec<croner::Cron>,
    display: String,
    shortest_gap: Duration,
}

/// Parses an interval: a cron expression or a duration in any form that Kubeapps accepts.
///
/// - Cron expressions as in gronx, Kubeapps' parser: five fields; six with leading seconds or a trailing four-digit
///   year; seven with both; names of months and weekdays, `?`, `L`, `15W`, `5L`, `5#2`, weekday 7, and nicknames
///   (`@hourly`, `@5minutes`…).
/// - Go durations, rounded up to whole minutes, hours, days or months like Kubeapps does (`90m` is every second hour).
///
/// If both day fields are restricted, either is enough, as in cron and Kubernetes. Fails for other texts, and schedules
/// that never fire: `@every 5m`, `@reboot`, `*/0`, `1d`, `0s`, February 31st.
pub fn parse(text: &str) -> Result<Cron, IntervalError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(IntervalError::new(trimmed, "interval is empty"));
    }
    if trimmed.len() > MAX_LENGTH {
        return Err(IntervalError::new(trimmed, format!("longer than {MAX_LENGTH} bytes")));
    }
    Cron::from_expression(trimmed)
        .or_else(
            |reason| match (go_duration::parse(trimmed), looks_like_a_duration(trimmed)) {
                (Some(duration), _) => match go_duration::to_cron(duration) {
                    Some(expression) => Cron::from_expression(&expression),
                    None if duration <= 0 => Err("duration must be positive".to_owned()),
                    None => Err("duration must not exceed 8928h, which is twelve months of 31 days".to_owned()),
                },
                (None, true) => Err("not a duration with the units s, m and h".to_owned()),
                (None, false) => Err(reason),
            },
        )
        .map_err(|reason| IntervalError::new(trimmed, reason))
}

fn looks_like_a_duration(text: &str) -> bool {
    !text.contains(char::is_whitespace) && text.starts_with(|c: char| c.is_ascii_digit() || ".+-".contains(c))
}

struct CronFields {
    second: CronField,
    minute: CronField,
    hour: CronField,
    day: CronField,
    month: CronField,
    weekday: CronField,
    year: CronField,
}

impl CronFields {
    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('@') {
            let nickname = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
            let (_, expression) = nickname.ok_or("unknown nickname")?;
            return Self::parse(expression);
        }
        let mut fields: Vec<&str> = text.split_whitespace().collect();
        let has_year = |field: &str| {
            let mut runs = field.as_bytes().windows(4);
            runs.any(|run| run.iter().all(u8::is_ascii_digit))
        };
        match fields.as_slice() {
            [_, _, _, _, _] => fields.insert(0, "0"),
            [.., year] if fields.len() == 6 && has_year(year) => fields.insert(0, "0"),
            _ => {}
        }
        if fields.len() == 6 {
            fields.push("*");
        }
        let [second, minute, hour, day, month, weekday, year] = fields[..] else {
            return Err(format!(
                "cron expression must have five to seven fields, found {}",
                fields.len()
            ));
        };
        Ok(Self {
            second: CronField::parse(Unit::Second, second)?,
            minute: CronField::parse(Unit::Minute, minute)?,
            hour: CronField::parse(Unit::Hour, hour)?,
            day: CronField::parse(Unit::DayOfMonth, day)?,
            month: CronField::parse(Unit::Month, month)?,
            weekday: CronField::parse(Unit::DayOfWeek, weekday)?,
            year: CronField::parse(Unit::Year, year)?,
        })
    }

    fn expression(&self, day: &CronField, weekday: &CronField) -> String {
        let Self {
            second,
            minute,
            hour,
            month,
            year,
            ..
        } = self;
        let expression = format!("{second} {minute} {hour} {day} {month} {weekday}");
        if year.is_open() {
            expression
        } else {
            format!("{expression} {year}")
        }
    }

    fn display(&self) -> String {
        let expression = self.expression(&self.day, &self.weekday);
        expression.strip_prefix("0 ").unwrap_or(&expression).to_owned()
    }

    /// Returns true if one of the months has the day; the scheduler's parser would search until the year 5000.
    fn can_match(&self, day: &CronField, weekday: &CronField) -> bool {
        let longest = |month: u16| match month {
            2 if self.year.values().into_iter().any(is_leap) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let least = day.least_day().max(weekday.least_day());
        self.month
            .values()
            .into_iter()
            .any(|month| least.is_none_or(|day| day <= longest(month)))
    }

    fn shortest_gap(&self) -> Duration {
        const DAY: u32 = 86_400;
        let (hours, minutes, seconds) = (self.hour.values(), self.minute.values(), self.second.values());
        let times = hours
            .iter()
            .flat_map(|h| minutes.iter().map(move |m| u32::from(*h) * 3_600 + u32::from(*m) * 60));
        let mut times = times.flat_map(|time| seconds.iter().map(move |s| time + u32::from(*s)));
        let Some(first) = times.next() else {
            return Duration::MAX;
        };
        let (mut last, mut shortest) = (first, DAY);
        for time in times {
            shortest = shortest.min(time - last);
            last = time;
        }
        Duration::from_secs(shortest.min(DAY - last + first).into())
    }
}

fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

impl Cron {
    fn from_expression(text: &str) -> Result<Self, String> {
        let fields = CronFields::parse(text)?;
        // The scheduler requires both day fields to match. Two expressions give the semantics of cron, where one
        // suffices.
        let days = if fields.day.is_open() || fields.weekday.is_open() {
            vec![(fields.day.clone(), fields.weekday.clone())]
        } else {
            vec![
                (fields.day.clone(), CronField::every(Unit::DayOfWeek)),
                (CronField::every(Unit::DayOfMonth), fields.weekday.clone()),
            ]
        };
        let (mut expressions, mut parsed) = (Vec::new(), Vec::new());
        for (day, weekday) in days.iter().filter(|(day, weekday)| fields.can_match(day, weekday)) {
            let expression = fields.expression(day, weekday);
            let cron = scheduler_parser()
                .parse(&expression)
                .map_err(|error| error.to_string())?;
            if cron.find_next_occurrence(&DateTime::<Utc>::UNIX_EPOCH, true).is_ok() {
                expressions.push(expression);
                parsed.push(cron);
            }
        }
        if expressions.is_empty() {
            return Err("date does not exist".to_owned());
        }
        Ok(Self {
            expressions,
            parsed,
            display: fields.display(),
            shortest_gap: fields.shortest_gap(),
        })
    }

    /// Returns the scheduler's expressions: six fields with leading seconds, and an optional year. Two if both day
    /// fields are restricted.
    #[must_use]
    pub fn expressions(&self) -> &[String] {
        &self.expressions
    }

    /// Returns the first tick after `time`; none after the last year of the expression.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = DateTime::<Utc>::from_timestamp(time.as_second(), 0)?;
        let next = |cron: &croner::Cron| cron.find_next_occurrence(&time, false).ok();
        let tick = self.parsed.iter().filter_map(next).min()?;
        Timestamp::from_second(tick.timestamp()).ok()
    }

    #[must_use]
    pub fn shortest_gap(&self) -> Duration {
        self.shortest_gap
    }

    /// Returns the schedule of a CronJob with the same ticks; `None` if Kubernetes has no such schedule: seconds, years,
    /// `L`, `W` and `#`.
    #[must_use]
    pub fn for_kubernetes(&self) -> Option<String> {
        let mut fields: Vec<&str> = self.display.split(' ').collect();
        let is_known = |c: char| c.is_ascii_digit() || matches!(c, '*' | '/' | '-' | ',');
        if fields.len() != 5 || !fields.iter().all(|field| field.chars().all(is_known)) {
            return None;
        }
        // Sunday is only 0.
        let weekday = fields.pop()?;
        let weekdays: Option<Vec<String>> = weekday.split(',').map(weekday_for_kubernetes).collect();
        Some(format!("{} {}", fields.join(" "), weekdays?.join(",")))
    }

    #[must_use]
    pub fn below_minimum(&self, minimum: Duration) -> Option<IntervalError> {
        (self.shortest_gap < minimum).then(|| {
            let reason = format!("fires every {:?}, minimum is {minimum:?}", self.shortest_gap);
            IntervalError::new(&self.display, reason)
        })
    }
}

fn weekday_for_kubernetes(item: &str) -> Option<String> {
    let (range, step) = item
        .split_once('/')
        .map_or((item, None), |(range, step)| (range, Some(step)));
    match (range.strip_suffix("-7"), step) {
        (None, _) => Some(item.to_owned()),
        (Some("7"), None) => Some("0".to_owned()),
        (Some(first), None) => Some(format!("{first}-6,0")),
        (Some(_), Some(_)) => None,
    }
}

/// Must match the settings of the scheduler's own parser.
fn scheduler_parser() -> CronParser {
    CronParser::builder()
        .seconds(Seconds::Required)
        .dom_and_dow(true)
        .build()
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.expressions == other.expressions
    }
}

impl Eq for Cron {}

impl Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display)
    }
}

#[cfg(test)]
#[path = "expression_tests.rs"]
mod tests;
