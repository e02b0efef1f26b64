//! A text that is never shown.

use std::fmt;

/// A password, a token, or the value of a header that holds one. It can be compared and sent, and prints as `[redacted]`
/// wherever it is logged, shown, or part of something that is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text in.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_redacted_however_it_is_printed() {
        let secret = Secret::new("hunter2".to_owned());
        let held = Some(("user", secret.clone()));
        for shown in [
            format!("{secret}"),
            format!("{secret:?}"),
            format!("{secret:#?}"),
            format!("{held:?}"),
        ] {
            assert!(shown.contains("[redacted]") && !shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(secret.expose(), "hunter2");
    }
}
