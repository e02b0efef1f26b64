//! Extended headers of a tar stream (POSIX pax).

use std::io;

/// The fields that affect the next entry. All others are ignored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) is_sparse: bool,
}

impl Extended {
    /// Parses records of the form `LENGTH KEY=VALUE\n`. Values may contain newlines, so only the length counts.
    pub(super) fn read(mut bytes: &[u8]) -> io::Result<Self> {
        let mut extended = Self::default();
        while !bytes.is_empty() {
            let (key, value, rest) =
                record(bytes).ok_or_else(|| io::Error::other("an extended header is malformed"))?;
            bytes = rest;
            match key {
                // As in Go, an empty value does not override the name.
                b"path" if !value.is_empty() => extended.path = Some(value.to_vec()),
                b"size" => extended.size = Some(size(value)?),
                _ => extended.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
        Ok(extended)
    }
}

fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let length: usize = number(&bytes[..space])?;
    let record = bytes.get(..length)?.strip_suffix(b"\n")?.get(space + 1..)?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[length..]))
}

fn size(value: &[u8]) -> io::Result<u64> {
    number(value).ok_or_else(|| io::Error::other("the size in an extended header is not a number"))
}

/// Accepts digits only. `str::parse` would also accept a sign.
fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    let are_digits = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| are_digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_delimited_by_their_lengths() {
        let read = Extended::read(b"22 SCHILY.xattr.a=\n\n=\n15 path=a/long\n11 size=42\n").unwrap();
        let expected = Extended {
            path: Some(b"a/long".to_vec()),
            size: Some(42),
            is_sparse: false,
        };
        assert_eq!(read, expected);
        assert!(Extended::read(b"22 GNU.sparse.major=1\n").unwrap().is_sparse);
        assert_eq!(Extended::read(b"8 path=\n").unwrap(), Extended::default());
    }

    #[test]
    fn malformed_records_are_errors() {
        for bytes in [
            &b"x"[..],
            b"5",
            b"5 a=b",
            b"0 a=b\n",
            b"2 a=b\n",
            b"99 a=b\n",
            b"6 a=b\n\0",
            b"5 ab\n",
            b"-6 a=b\n",
            b"11 size=-1\n",
            b"99999999999999999999999 a=b\n",
        ] {
            assert!(Extended::read(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
