//! Messages with a length prefix.

use std::io::{self, Read, Write};

const PREFIX: usize = size_of::<u32>();

pub(super) fn write(mut output: impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    output.write_all(&length.to_le_bytes())?;
    output.write_all(message)
}

/// Reads a message of at most `limit` bytes.
pub(super) fn read(mut input: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut prefix = [0; PREFIX];
    input.read_exact(&mut prefix)?;
    let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    if length > limit {
        let message = format!("a message of {length} bytes exceeds the limit of {limit}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut message = vec![0; length];
    input.read_exact(&mut message)?;
    Ok(message)
}
