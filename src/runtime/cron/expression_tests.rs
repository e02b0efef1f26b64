//! Known expressions, next ticks, and a comparison with a naive matcher.

use jiff::{Zoned, civil::Weekday, tz::TimeZone};
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn ticks(text: &str, from: &str, count: usize) -> Vec<String> {
    let cron = parse(text).unwrap();
    let next = |time: &Timestamp| cron.next_after(*time);
    std::iter::successors(next(&at(from)), next)
        .take(count)
        .map(|time| time.to_string())
        .collect()
}

#[rstest]
#[case("*/10 * * * *", "*/10 * * * *", &["0 */10 * * * *"])]
#[case("  0  3\t* * * ", "0 3 * * *", &["0 0 3 * * *"])]
#[case("30 0 3 * * *", "30 0 3 * * *", &["30 0 3 * * *"])]
#[case("0 3 1 1 * 2030", "0 3 1 1 * 2030", &["0 0 3 1 1 * 2030"])]
#[case("0 0 3 1 1 * 2030", "0 3 1 1 * 2030", &["0 0 3 1 1 * 2030"])]
#[case("0 0 3 1 1 * *", "0 3 1 1 *", &["0 0 3 1 1 *"])]
#[case("0 0 ? JAN MON", "0 0 * 1 1", &["0 0 0 * 1 1"])]
#[case("0 0 13 * 5", "0 0 13 * 5", &["0 0 0 13 * *", "0 0 0 * * 5"])]
#[case("0 0 */2 * */2", "0 0 */2 * */2", &["0 0 0 */2 * *", "0 0 0 * * */2"])]
#[case("0 0 */1 * 5", "0 0 */1 * 5", &["0 0 0 */1 * 5"])]
#[case("0 0 L * 5L", "0 0 L * 5L", &["0 0 0 L * *", "0 0 0 * * 5L"])]
#[case("0 0 31 2 5", "0 0 31 2 5", &["0 0 0 * 2 5"])]
#[case("@hourly", "0 * * * *", &["0 0 * * * *"])]
#[case("@Daily", "0 0 * * *", &["0 0 0 * * *"])]
#[case("@weekly", "0 0 * * 0", &["0 0 0 * * 0"])]
#[case("@monthly", "0 0 1 * *", &["0 0 0 1 * *"])]
#[case("@yearly", "0 0 1 1 *", &["0 0 0 1 1 *"])]
#[case("@annually", "0 0 1 1 *", &["0 0 0 1 1 *"])]
#[case("@always", "* * * * *", &["0 * * * * *"])]
#[case("@5minutes", "*/5 * * * *", &["0 */5 * * * *"])]
#[case("@10minutes", "*/10 * * * *", &["0 */10 * * * *"])]
#[case("@15minutes", "*/15 * * * *", &["0 */15 * * * *"])]
#[case("@30minutes", "0,30 * * * *", &["0 0,30 * * * *"])]
#[case("@everysecond", "* * * * * *", &["* * * * * *"])]
#[case("2ns", "*/1 * * * *", &["0 */1 * * * *"])]
#[case("10m", "*/10 * * * *", &["0 */10 * * * *"])]
#[case("2h", "0 */2 * * *", &["0 0 */2 * * *"])]
#[case("72h", "0 0 */3 * *", &["0 0 0 */3 * *"])]
#[case("1460h", "0 0 1 */2 *", &["0 0 0 1 */2 *"])]
fn an_interval_becomes_expressions_for_the_scheduler(
    #[case] text: &str,
    #[case] display: &str,
    #[case] expressions: &[&str],
) {
    let cron = parse(text).unwrap();
    assert_eq!(
        (cron.to_string().as_str(), cron.expressions()),
        (
            display,
            &*expressions.iter().map(ToString::to_string).collect::<Vec<_>>()
        )
    );
    assert_eq!(parse(&cron.to_string()).unwrap(), cron, "the normal form is equivalent");
    if let Some(schedule) = cron.for_kubernetes() {
        let translated = parse(&schedule).unwrap();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(translated.next_after(start), cron.next_after(start), "{schedule}");
    }
}

#[rstest]
#[case("", "empty")]
#[case("@every 5m", "unknown nickname")]
#[case("@reboot", "unknown nickname")]
#[case("@midnight", "unknown nickname")]
#[case("H * * * *", "minute `H`")]
#[case("*/0 * * * *", "step 0")]
#[case("TZ=Europe/Berlin 0 3 * * *", "second `TZ=Europe/Berlin`")]
#[case("* * * *", "five to seven fields, found 4")]
#[case("* * * * * * * *", "found 8")]
#[case("0 0 * * MONDAY", "day of week `MONDAY`")]
#[case("60 * * * *", "minute `60` is out of range")]
#[case("1d", "units s, m and h")]
#[case("10", "units s, m and h")]
#[case("17532h", "8928h")]
#[case("0s", "must be positive")]
#[case("-5m", "must be positive")]
#[case("0 0 31 2 *", "date does not exist")]
#[case("0 0 30,31 feb *", "date does not exist")]
#[case("0 0 31 4,6,9,11 *", "date does not exist")]
#[case("0 0 29 2 * 2026", "date does not exist")]
#[case("0 0 31W 2 *", "date does not exist")]
#[case("0 0 * 2 5#5 2027", "date does not exist")]
#[case("daily", "five to seven fields")]
fn invalid_intervals_are_rejected_with_the_valid_forms(#[case] text: &str, #[case] reason: &str) {
    let error = parse(text).map(|cron| cron.to_string()).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    assert!(error.contains("@hourly") && error.contains("10m"), "{error}");
}

#[test]
fn an_interval_of_any_length_gives_a_short_error_without_control_characters() {
    let error = parse(&"\u{1b}x ".repeat(100_000)).unwrap_err().to_string();
    assert!(error.len() < 500 && !error.contains('\u{1b}'), "{error}");
}

#[rstest]
#[case::both_days("0 0 13 * 5", "2026-11-01T00:00:00Z", &["2026-11-06", "2026-11-13", "2026-11-20", "2026-11-27", "2026-12-04", "2026-12-11", "2026-12-13"])]
#[case::friday_the_thirteenth_once("0 0 13 11 5", "2026-11-12T00:00:00Z", &["2026-11-13", "2026-11-20"])]
#[case::leap_day("0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29", "2032-02-29"])]
#[case::last_day("0 0 L * *", "2027-01-31T00:00:00Z", &["2027-02-28", "2027-03-31"])]
#[case::last_friday("0 0 * * 5L", "2026-11-01T00:00:00Z", &["2026-11-27", "2026-12-25"])]
#[case::last_sunday("0 0 * * 7L", "2026-11-01T00:00:00Z", &["2026-11-29", "2026-12-27"])]
#[case::second_friday("0 0 * * 5#2", "2026-11-01T00:00:00Z", &["2026-11-13", "2026-12-11"])]
#[case::workday("0 0 15W * *", "2026-11-01T00:00:00Z", &["2026-11-16", "2026-12-15"])]
#[case::sunday_is_seven("0 0 * * 7", "2026-11-16T00:00:00Z", &["2026-11-22", "2026-11-29"])]
#[case::weekend("0 0 * * fri-sun", "2026-11-16T00:00:00Z", &["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-27"])]
#[case::three_days("72h", "2026-11-26T00:00:00Z", &["2026-11-28", "2026-12-01", "2026-12-04"])]
#[case::year("0 0 1 1 * 2030", "2026-01-01T00:00:00Z", &["2030-01-01"])]
fn next_days_follow_cron_semantics(#[case] text: &str, #[case] from: &str, #[case] days: &[&str]) {
    let expected: Vec<_> = days.iter().map(|day| format!("{day}T00:00:00Z")).collect();
    assert_eq!(ticks(text, from, days.len()), expected);
}

#[rstest]
#[case("*/90 * * * *", "2026-11-21T00:00:00Z", &["01:00:00", "02:00:00"])]
#[case("5/15 * * * *", "2026-11-21T00:05:00Z", &["00:20:00", "00:35:00", "00:50:00", "01:05:00"])]
#[case("*/40 * * * *", "2026-11-21T00:00:00Z", &["00:40:00", "01:00:00"])]
#[case("* * * * * *", "2026-11-21T00:00:00.5Z", &["00:00:01", "00:00:02"])]
#[case("0 3 * * *", "2026-11-21T02:59:59.999Z", &["03:00:00"])]
fn next_ticks_are_after_the_given_time(#[case] text: &str, #[case] from: &str, #[case] times: &[&str]) {
    let expected: Vec<_> = times.iter().map(|time| format!("2026-11-21T{time}Z")).collect();
    assert_eq!(ticks(text, from, times.len()), expected);
}

#[test]
fn a_past_year_has_no_next_tick() {
    let cron = parse("0 0 1 1 * 2020").unwrap();
    assert_eq!(cron.next_after(at("2026-01-01T00:00:00Z")), None);
}

#[rstest]
#[case("* * * * * *", 1)]
#[case("*/7 * * * * *", 4)]
#[case("0,59 * * * * *", 1)]
#[case("* * * * *", 60)]
#[case("2s", 60)]
#[case("*/10 * * * *", 600)]
#[case("*/45 * * * *", 900)]
#[case("0 3 * * *", 86_400)]
#[case("59,0 0,23 * * *", 60)]
#[case("0 0 13 * 5", 86_400)]
fn the_shortest_gap_is_independent_of_the_clock(#[case] text: &str, #[case] seconds: u64) {
    let cron = parse(text).unwrap();
    assert_eq!(cron.shortest_gap(), Duration::from_secs(seconds));
    let minimum = Duration::from_secs(60);
    assert_eq!(cron.below_minimum(minimum).is_some(), seconds < 60);
    let error = cron.below_minimum(Duration::MAX).unwrap().to_string();
    assert!(error.contains("minimum is"), "{error}");
}

/// Expands a field into its values.
fn naive(field: &str, min: i8, max: i8) -> Vec<i8> {
    let number = |text: &str| text.parse::<i8>().unwrap();
    let item = |item: &str| {
        let (range, step) = item
            .split_once('/')
            .map_or((item, 1), |(range, step)| (range, number(step)));
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (min, max),
            (_, Some((first, last))) => (number(first), number(last)),
            _ if item.contains('/') => (number(range), max),
            _ => (number(range), number(range)),
        };
        (first..=last)
            .filter(|value| (value - first) % step == 0)
            .collect::<Vec<_>>()
    };
    field.split(',').flat_map(item).collect()
}

/// Finds the next tick of a five-field expression by trying every minute.
fn naive_next(expression: &str, after: Timestamp) -> Timestamp {
    let fields: Vec<&str> = expression.split(' ').collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        panic!("{expression}")
    };
    let open = |field: &str| field.split(',').any(|item| item == "*" || item == "*/1");
    let is_day = |time: &Zoned| {
        let dom = naive(day, 1, 31).contains(&time.day());
        let dow = naive(weekday, 0, 6).contains(&time.weekday().since(Weekday::Sunday));
        let either = if open(day) || open(weekday) {
            dom && dow
        } else {
            dom || dow
        };
        either && naive(month, 1, 12).contains(&time.month())
    };
    let start = after.to_zoned(TimeZone::UTC);
    let mut date = start.date();
    loop {
        let midnight = date.at(0, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap();
        if is_day(&midnight) {
            for h in naive(hour, 0, 23)
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
            {
                for m in naive(minute, 0, 59)
                    .into_iter()
                    .collect::<std::collections::BTreeSet<_>>()
                {
                    let time = date.at(h, m, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp();
                    if time > after {
                        return time;
                    }
                }
            }
        }
        date = date.tomorrow().unwrap();
    }
}

fn field(min: u8, max: u8) -> impl Strategy<Value = String> {
    let item = prop_oneof![
        2 => Just("*".to_owned()),
        2 => (1..=max).prop_map(|step| format!("*/{step}")),
        3 => (min..=max).prop_map(|value| value.to_string()),
        1 => (min..=max, 1..=9_u8).prop_map(|(first, step)| format!("{first}/{step}")),
        2 => (min..=max, min..=max, 1..=4_u8).prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
    ];
    prop::collection::vec(item, 1..3).prop_map(|items| items.join(","))
}

proptest! {
    #[test]
    fn the_next_tick_matches_a_naive_search(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 28), month in field(1, 12), weekday in field(0, 6),
        after in 1_700_000_000_i64..1_900_000_000,
    ) {
        let expression = format!("{minute} {hour} {day} {month} {weekday}");
        let after = Timestamp::from_second(after).unwrap();
        prop_assert_eq!(parse(&expression).unwrap().next_after(after), Some(naive_next(&expression, after)));
    }

    #[test]
    fn the_shortest_gap_is_never_longer_than_a_gap(
        second in field(0, 59), minute in field(0, 59), hour in field(0, 23), weekday in field(0, 6),
        after in 1_700_000_000_i64..1_900_000_000,
    ) {
        let cron = parse(&format!("{second} {minute} {hour} * * {weekday}")).unwrap();
        let first = cron.next_after(Timestamp::from_second(after).unwrap()).unwrap();
        let gap = cron.next_after(first).unwrap().duration_since(first);
        prop_assert!(cron.shortest_gap() <= gap.unsigned_abs());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_expression_of_cron_characters_makes_the_parser_panic_or_search_for_long(
        text in "([0-9*/?LW#,-]{1,5} ){4,6}[0-9*/?LW#,-]{1,5}",
    ) {
        let _ = parse(&text);
    }
}

#[rstest]
#[case("2h", Some("0 */2 * * *"))]
#[case("@5minutes", Some("*/5 * * * *"))]
#[case("0 3 * * mon-sun", Some("0 3 * * 1-6,0"))]
#[case("0 3 * * 7", Some("0 3 * * 0"))]
#[case("30 0 3 * * *", None)]
#[case("0 3 L * *", None)]
#[case("0 3 * * 1#2", None)]
fn a_schedule_of_a_cronjob_has_the_same_ticks(#[case] text: &str, #[case] expected: Option<&str>) {
    assert_eq!(parse(text).unwrap().for_kubernetes().as_deref(), expected);
}
