use std::io::Read as _;

use crate::http::{Body, FetchError};

/// Reads a body whose size the request has limited.
pub(super) fn bytes(body: Body) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::with_capacity(usize::try_from(body.bytes).unwrap_or_default());
    body.into_reader().read_to_end(&mut bytes).map_err(FetchError::Spool)?;
    Ok(bytes)
}
