use std::io::{self, BufRead, Read as _, Write};

const PREFIX: usize = size_of::<u32>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The length of a message in four bytes, little endian, and the message.
    LengthPrefix,
    /// A message that holds no line break, and a line break.
    Lines,
}

impl Framing {
    pub(super) fn write(self, mut output: impl Write, message: &[u8]) -> io::Result<()> {
        match self {
            Self::LengthPrefix => {
                let length = u32::try_from(message.len()).map_err(io::Error::other)?;
                output.write_all(&length.to_le_bytes())?;
                output.write_all(message)?;
            }
            Self::Lines => {
                output.write_all(message)?;
                output.write_all(b"\n")?;
            }
        }
        output.flush()
    }

    pub(super) fn read(self, mut input: impl BufRead, limit: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::LengthPrefix => {
                let mut prefix = [0; PREFIX];
                input.read_exact(&mut prefix)?;
                let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
                if length > limit {
                    return Err(too_long(&format!("{length} bytes"), limit));
                }
                let mut message = vec![0; length];
                input.read_exact(&mut message)?;
                Ok(message)
            }
            Self::Lines => {
                let mut message = Vec::new();
                let end = limit as u64 + 1;
                input.by_ref().take(end).read_until(b'\n', &mut message)?;
                match message.pop() {
                    Some(b'\n') => Ok(message),
                    Some(_) if message.len() >= limit => Err(too_long("more bytes", limit)),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
        }
    }
}

fn too_long(length: &str, limit: usize) -> io::Error {
    let message = format!("a message of {length} exceeds the limit of {limit}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(input: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        Framing::Lines.read(input, limit)
    }

    #[test]
    fn a_line_ends_at_its_line_break() {
        let mut input = &b"one\n\ntwo\nrest"[..];
        for line in [&b"one"[..], b"", b"two"] {
            assert_eq!(Framing::Lines.read(&mut input, 3).unwrap(), line);
        }
        let end = Framing::Lines.read(&mut input, 10).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_longer_line_than_the_limit_is_an_error() {
        assert_eq!(read_line(b"four\n", 4).unwrap(), b"four");
        for input in [&b"fives\n"[..], b"fives", b"a much longer line"] {
            let error = read_line(input, 4).unwrap_err();
            assert_eq!(error.to_string(), "a message of more bytes exceeds the limit of 4");
        }
        assert_eq!(read_line(b"four", 4).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_line(b"", 4).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for framing in [Framing::LengthPrefix, Framing::Lines] {
            let mut stream = Vec::new();
            for message in [&b"a"[..], b"", b"\0\xff"] {
                framing.write(&mut stream, message).unwrap();
            }
            let mut stream = &stream[..];
            for message in [&b"a"[..], b"", b"\0\xff"] {
                assert_eq!(framing.read(&mut stream, 2).unwrap(), message);
            }
            assert!(stream.is_empty());
        }
    }
}
