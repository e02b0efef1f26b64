//! The errors and warnings of a review, in the form of KubeVela.

use crate::controllers::oam::webhooks::review::Verdict;
use crate::text::{sanitize, sanitize_lines, truncate};

/// Errors that an answer lists. Others are counted.
const MAX_ERRORS: usize = 50;
/// Bytes of an error.
const MAX_DETAIL: usize = 4 << 10;
/// Bytes of all listed errors.
const MAX_MESSAGE: usize = 16 << 10;
/// Warnings of an answer.
const MAX_WARNINGS: usize = 20;
/// Bytes of a warning. The API server cuts longer ones, and drops all beyond 4 KiB.
const MAX_WARNING: usize = 256;

#[derive(Debug, Default)]
pub struct Findings {
    errors: Vec<FieldError>,
    warnings: Vec<String>,
    more_errors: usize,
    more_warnings: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldError {
    field: String,
    detail: String,
}

impl Findings {
    pub fn error(&mut self, field: &str, detail: &str) {
        if self.errors.len() == MAX_ERRORS {
            self.more_errors += 1;
            return;
        }
        self.errors.push(FieldError {
            field: field.to_owned(),
            detail: sanitize_lines(detail, MAX_DETAIL),
        });
    }

    pub fn warn(&mut self, text: &str) {
        if self.warnings.len() == MAX_WARNINGS {
            self.more_warnings += 1;
            return;
        }
        self.warnings.push(short_warning(text));
    }

    pub fn append(&mut self, other: Self) {
        for error in other.errors {
            self.error(&error.field, &error.detail);
        }
        for warning in other.warnings {
            self.warn(&warning);
        }
        self.more_errors += other.more_errors;
        self.more_warnings += other.more_warnings;
    }

    /// Answers 400 if there are errors, also for what is forbidden.
    #[must_use]
    pub fn into_verdict(self, uid: &str) -> Verdict {
        if self.errors.is_empty() {
            return Verdict::Allowed {
                patch: json_patch::Patch::default(),
                warnings: self.into_warnings(),
            };
        }
        let mut message = String::new();
        let mut more = self.more_errors;
        for (index, error) in self.errors.iter().enumerate() {
            let line = format!("\n  {}) {:?}: {}.", index + 1, error.field, error.detail);
            if index > 0 && message.len() + line.len() > MAX_MESSAGE {
                more += self.errors.len() - index;
                break;
            }
            message.push_str(&line);
        }
        if more > 0 {
            message.push_str(&format!("\n  and {more} more errors"));
        }
        Verdict::Invalid(with_uid(&message, uid))
    }

    fn into_warnings(mut self) -> Vec<String> {
        if self.more_warnings > 0 {
            // The last one gives way to the count.
            self.warnings.truncate(MAX_WARNINGS - 1);
            self.warnings
                .push(format!("{} more warnings are not shown", self.more_warnings + 1));
        }
        self.warnings
    }
}

/// Makes a text fit for a warning.
#[must_use]
pub fn short_warning(text: &str) -> String {
    truncate(&sanitize(text), MAX_WARNING)
}

/// Appends the UID of the request, by which the logs of the API server name it.
#[must_use]
pub fn with_uid(message: &str, uid: &str) -> String {
    format!("{message} (requestUID={})", sanitize(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(findings: Findings) -> String {
        match findings.into_verdict("7") {
            Verdict::Invalid(message) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_are_numbered_lines_with_the_uid_of_the_request() {
        let mut findings = Findings::default();
        findings.error("spec", "a");
        let mut others = Findings::default();
        others.error("x[\"y\"]", "b");
        others.warn("not shown beside errors");
        findings.append(others);
        assert_eq!(
            message(findings),
            "\n  1) \"spec\": a.\n  2) \"x[\\\"y\\\"]\": b. (requestUID=7)"
        );
    }

    #[test]
    fn the_number_and_the_size_of_errors_are_bounded() {
        let mut findings = Findings::default();
        for _ in 0..MAX_ERRORS + 3 {
            findings.error("f", "a\u{1b}[31mb");
        }
        let text = message(findings);
        assert!(text.ends_with("\n  and 3 more errors (requestUID=7)"), "{text}");
        assert!(text.contains("\n  50) \"f\": a [31mb.") && !text.contains("51)"));
        let mut findings = Findings::default();
        for _ in 0..10 {
            findings.error("f", &"x".repeat(10 << 10));
        }
        let text = message(findings);
        assert!(text.len() < MAX_MESSAGE + 100, "{}", text.len());
        assert!(
            text.ends_with("\n  and 7 more errors (requestUID=7)"),
            "{}",
            &text[text.len() - 60..]
        );
    }

    #[test]
    fn warnings_are_short_and_few() {
        let mut findings = Findings::default();
        for number in 0..MAX_WARNINGS + 5 {
            findings.warn(&format!("{number}\u{202e}\n{}", "x".repeat(1000)));
        }
        let Verdict::Allowed { patch, warnings } = findings.into_verdict("7") else {
            panic!("refused")
        };
        assert!(patch.is_empty());
        assert_eq!(warnings.len(), MAX_WARNINGS);
        assert_eq!(warnings[MAX_WARNINGS - 1], "6 more warnings are not shown");
        assert!(
            warnings.iter().all(|warning| warning.len() <= MAX_WARNING),
            "{warnings:?}"
        );
        assert!(warnings[0].starts_with("0 x"), "{}", warnings[0]);
    }
}
