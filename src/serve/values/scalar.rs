use granit_parser::{ScalarStyle, Tag};

use super::Kind;

/// Returns the type that Helm reads: its parser has the booleans of YAML 1.1.
pub(super) fn kind(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Kind {
    match tag.and_then(Tag::core_suffix) {
        Some("bool") => return Kind::Boolean,
        Some("float") => return Kind::Number,
        Some("int") => return Kind::Integer,
        Some("null") => return Kind::Null,
        Some("str") => return Kind::String,
        _ => {}
    }
    if style != ScalarStyle::Plain {
        return Kind::String;
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" | "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "on"
        | "On" | "ON" | "off" | "Off" | "OFF" => Kind::Boolean,
        _ if is_integer(text) => Kind::Integer,
        _ if is_number(text) => Kind::Number,
        _ => Kind::String,
    }
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

fn is_integer(text: &str) -> bool {
    let text = unsigned(text);
    match text.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()),
    }
}

fn is_number(text: &str) -> bool {
    let text = unsigned(text);
    let has_digits = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    matches!(text, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") || (has_digits && text.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_texts_have_types() {
        for (text, expected) in [
            ("", Kind::Null),
            ("~", Kind::Null),
            ("true", Kind::Boolean),
            ("off", Kind::Boolean),
            ("-80", Kind::Integer),
            ("0x1F", Kind::Integer),
            ("0.5", Kind::Number),
            ("1e3", Kind::Number),
            ("-.inf", Kind::Number),
            ("1.2.3", Kind::String),
            ("1Gi", Kind::String),
            ("inf", Kind::String),
            ("-", Kind::String),
            ("0x", Kind::String),
        ] {
            assert_eq!(kind(text, ScalarStyle::Plain, None), expected, "{text}");
        }
        assert_eq!(kind("80", ScalarStyle::DoubleQuoted, None), Kind::String);
    }
}
