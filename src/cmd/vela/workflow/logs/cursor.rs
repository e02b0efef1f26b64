//! The position in the log of a container, by the times that the API server puts before lines.

use jiff::Timestamp;

#[derive(Clone, Debug, Default)]
pub struct LogCursor {
    last: Option<Timestamp>,
    /// Lines with the time of the last one.
    lines_at_last: usize,
}

impl LogCursor {
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Drops the times of lines. The API server returns lines of the same second again.
    pub fn new_lines<'a>(&mut self, text: &'a str) -> Vec<&'a str> {
        let (last, mut known) = (self.last, self.lines_at_last);
        let mut new = Vec::new();
        for line in text.lines() {
            let (time, content) = line.split_once(' ').unwrap_or((line, ""));
            let Ok(time) = time.parse::<Timestamp>() else {
                // A message of the container runtime.
                new.push(line);
                continue;
            };
            if last.is_some_and(|last| time < last) {
                continue;
            }
            if last == Some(time) && known > 0 {
                known -= 1;
                continue;
            }
            if self.last == Some(time) {
                self.lines_at_last += 1;
            } else {
                self.last = Some(time);
                self.lines_at_last = 1;
            }
            new.push(content);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_returned_once() {
        let mut cursor = LogCursor::default();
        let first = "2026-01-02T03:04:05.000000001Z a\n2026-01-02T03:04:05.000000002Z b b\n";
        assert_eq!(cursor.new_lines(first), ["a", "b b"]);
        assert_eq!(cursor.new_lines(first), [""; 0]);
        let more = format!("{first}2026-01-02T03:04:05.000000002Z c\n2026-01-02T03:04:06Z d\n");
        assert_eq!(cursor.new_lines(&more), ["c", "d"]);
        assert_eq!(cursor.new_lines(&more), [""; 0]);
        assert_eq!(cursor.last(), "2026-01-02T03:04:06Z".parse().ok());
    }

    #[test]
    fn a_line_without_a_time_is_kept() {
        assert_eq!(
            LogCursor::default().new_lines("unable to retrieve logs\n"),
            ["unable to retrieve logs"]
        );
        assert_eq!(LogCursor::default().new_lines("2026-01-02T03:04:06Z\n"), [""]);
    }
}
