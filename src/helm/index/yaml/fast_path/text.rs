//! Reads scalars. Each function starts at the current line and stops at the first line after the scalar.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr2_iter};

use super::lines::Lines;
use super::{Step, UnsupportedStyle};

/// Returns the slice as text if it ends with a line break and contains no character that parsers treat differently:
/// control characters, tabs, other line breaks, byte order marks.
pub(super) fn printable(slice: &[u8]) -> Option<&str> {
    let is_odd = |byte: u8| (byte < b' ' && byte != b'\n') || byte == 0x7f;
    // No early exit, so that the loop is vectorized.
    if slice.last() != Some(&b'\n') || slice.iter().fold(false, |odd, &byte| odd | is_odd(byte)) {
        return None;
    }
    let text = std::str::from_utf8(slice).ok()?;
    (text.is_ascii() || !text.chars().any(is_odd_character)).then_some(text)
}

const fn is_odd_character(character: char) -> bool {
    matches!(
        character,
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

fn fold(text: &mut String, empty_before: usize) {
    if empty_before == 0 {
        text.push(' ');
    }
    text.extend(std::iter::repeat_n('\n', empty_before));
}

pub(super) fn plain<'s>(lines: &mut Lines<'s>, first: &'s str, column: usize) -> Step<Cow<'s, str>> {
    if !may_begin_plain(first.as_bytes()) || !may_be_plain(first.as_bytes()) {
        return Err(UnsupportedStyle);
    }
    lines.advance()?;
    if lines.deeper_than(column).is_none() {
        return Ok(Cow::Borrowed(first));
    }
    let mut text = first.to_owned();
    while let Some(line) = lines.deeper_than(column) {
        if line.text.starts_with('#') || !may_be_plain(line.text.as_bytes()) {
            return Err(UnsupportedStyle);
        }
        fold(&mut text, line.empty_before);
        text.push_str(line.text);
        lines.advance()?;
    }
    Ok(Cow::Owned(text))
}

fn may_begin_plain(text: &[u8]) -> bool {
    /// YAML's indicators, and `<<` and `=`, which have a special meaning in some positions.
    const INDICATORS: &[u8] = b"-?:,[]{}#&*!|>'\"%@`<=";
    match text {
        [b'-', next, ..] => *next != b' ',
        [first, ..] => !INDICATORS.contains(first),
        [] => false,
    }
}

fn may_be_plain(text: &[u8]) -> bool {
    memchr2_iter(b':', b'#', text).all(|at| match text[at] {
        b':' => text.get(at + 1).is_some_and(|next| *next != b' '),
        _ => at == 0 || text[at - 1] != b' ',
    })
}

pub(super) fn single_quoted<'s>(lines: &mut Lines<'s>, first: &'s str, column: usize) -> Step<Cow<'s, str>> {
    if let Some(end) = memchr(b'\'', first.as_bytes())
        && end + 1 == first.len()
    {
        lines.advance()?;
        return Ok(Cow::Borrowed(&first[..end]));
    }
    let mut text = String::new();
    let mut part = first;
    loop {
        match memchr(b'\'', part.as_bytes()) {
            Some(end) => {
                text.push_str(&part[..end]);
                match part.as_bytes().get(end + 1) {
                    None => break,
                    Some(b'\'') => text.push('\''),
                    Some(_) => return Err(UnsupportedStyle),
                }
                part = &part[end + 2..];
            }
            None => {
                text.push_str(part);
                part = next_line_in_quotes(lines, &mut text, column)?;
            }
        }
    }
    lines.advance()?;
    Ok(Cow::Owned(text))
}

pub(super) fn double_quoted<'s>(lines: &mut Lines<'s>, first: &'s str, column: usize) -> Step<Cow<'s, str>> {
    if let Some(end) = memchr2(b'"', b'\\', first.as_bytes())
        && end + 1 == first.len()
        && first.ends_with('"')
    {
        lines.advance()?;
        return Ok(Cow::Borrowed(&first[..end]));
    }
    let mut text = String::new();
    let mut part = first;
    loop {
        match memchr2(b'"', b'\\', part.as_bytes()) {
            Some(end) => {
                text.push_str(&part[..end]);
                let rest = &part[end + 1..];
                if part.as_bytes()[end] == b'\\' {
                    let (character, length) = escape(rest.as_bytes()).ok_or(UnsupportedStyle)?;
                    text.push(character);
                    part = &rest[length..];
                } else if rest.is_empty() {
                    break;
                } else {
                    return Err(UnsupportedStyle);
                }
            }
            None => {
                text.push_str(part);
                part = next_line_in_quotes(lines, &mut text, column)?;
            }
        }
    }
    lines.advance()?;
    Ok(Cow::Owned(text))
}

fn next_line_in_quotes<'s>(lines: &mut Lines<'s>, text: &mut String, column: usize) -> Step<&'s str> {
    lines.advance()?;
    let line = lines.deeper_than(column).ok_or(UnsupportedStyle)?;
    fold(text, line.empty_before);
    Ok(line.text)
}

/// Decodes an escape that Go writes. Returns its length after the backslash.
fn escape(rest: &[u8]) -> Option<(char, usize)> {
    let digits = match rest.first()? {
        b'"' => return Some(('"', 1)),
        b'\\' => return Some(('\\', 1)),
        b'n' => return Some(('\n', 1)),
        b't' => return Some(('\t', 1)),
        b'r' => return Some(('\r', 1)),
        // Before a leading space of a line.
        b' ' => return Some((' ', 1)),
        b'x' => 2,
        b'u' => 4,
        b'U' => 8,
        _ => return None,
    };
    let hex = rest.get(1..=digits)?;
    let code = hex
        .iter()
        .try_fold(0, |code: u32, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))?;
    // Surrogates are not characters.
    Some((char::from_u32(code).filter(|character| *character != '\0')?, digits + 1))
}

/// Reads a literal block scalar. `header` follows the bar. An explicit indent and a leading empty line are unsupported.
pub(super) fn literal<'s>(lines: &mut Lines<'s>, header: &str, column: usize, used: bool) -> Step<Cow<'s, str>> {
    let mut text = String::new();
    let mut indent = None;
    let mut empty = 0;
    while let Some(raw) = lines.peek_raw() {
        let spaces = raw.len() - raw.trim_start_matches(' ').len();
        let content = match indent {
            Some(indent) if spaces >= indent && raw.len() > indent => &raw[indent..],
            Some(_) if spaces == raw.len() => {
                empty += 1;
                lines.skip_raw(raw);
                continue;
            }
            None if spaces == raw.len() => return Err(UnsupportedStyle),
            None if spaces > column => {
                indent = Some(spaces);
                &raw[spaces..]
            }
            // A line deeper than `column` is rejected by the caller.
            _ => break,
        };
        if used {
            text.extend(std::iter::repeat_n('\n', empty));
            text.push_str(content);
            text.push('\n');
        }
        empty = 0;
        lines.skip_raw(raw);
    }
    match header {
        "" => {}
        "-" => drop(text.pop()),
        "+" if used => text.extend(std::iter::repeat_n('\n', empty)),
        "+" => {}
        _ => return Err(UnsupportedStyle),
    }
    lines.advance()?;
    Ok(Cow::Owned(text))
}
