//! Times as people read them.

use jiff::Timestamp;

/// How long before `now` a time was, or how long after it, as kubectl writes ages; `-` where there is none.
#[must_use]
pub fn distance(time: Option<Timestamp>, now: Timestamp) -> String {
    let Some(time) = time else { return "-".to_owned() };
    let seconds = now.duration_since(time).as_secs();
    if seconds >= 0 {
        format!("{} ago", length(seconds.unsigned_abs()))
    } else {
        format!("in {}", length(seconds.unsigned_abs()))
    }
}

/// How old something is that was made at a time, by a clock that may be ahead of ours; `-` where that is not known.
#[must_use]
pub fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    let age = |time| length(u64::try_from(now.duration_since(time).as_secs()).unwrap_or(0));
    time.map_or_else(|| "-".to_owned(), age)
}

/// Two digits or three tell enough, in the largest unit that has them.
fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0s ago")]
    #[case(119, "119s ago")]
    #[case(120, "2m ago")]
    #[case(7_200, "2h ago")]
    #[case(172_800, "2d ago")]
    #[case(-600, "in 10m")]
    fn times_are_distances_in_the_largest_unit_that_tells_enough(#[case] seconds: i64, #[case] expected: &str) {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let time = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
        assert_eq!(distance(Some(time), now), expected);
    }

    #[test]
    fn a_time_that_is_not_known_is_a_dash() {
        assert_eq!(distance(None, Timestamp::UNIX_EPOCH), "-");
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "-");
    }

    #[test]
    fn nothing_is_younger_than_new() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let made = |second| age(Timestamp::from_second(second).ok(), now);
        assert_eq!(made(1_799_999_700), "5m");
        assert_eq!(made(1_800_000_003), "0s");
    }
}
