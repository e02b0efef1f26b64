use std::fmt;

/// A password, token or header value that prints as `[redacted]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the plain text, for sending only.
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
    fn a_secret_prints_as_redacted_in_every_format() {
        let secret = Secret::new("hunter2".to_owned());
        let nested = Some(("user", secret.clone()));
        for printed in [
            format!("{secret}"),
            format!("{secret:?}"),
            format!("{secret:#?}"),
            format!("{nested:?}"),
        ] {
            assert!(
                printed.contains("[redacted]") && !printed.contains("hunter2"),
                "{printed}"
            );
        }
        assert_eq!(secret.expose(), "hunter2");
    }
}
