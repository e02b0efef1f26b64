//! Bodies that are read as fast as the client takes them.

use std::io::{self, Read};

use axum::body::{Body, Bytes};
use futures::stream;

const CHUNK_BYTES: usize = 64 * 1024;

/// Returns a body that holds one chunk of the content in memory, and drops the reader at its end.
pub(super) fn stream_body(reader: impl Read + Send + 'static) -> Body {
    let chunks = stream::try_unfold(reader, |mut reader| async move {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        // On this thread: a chunk comes from the page cache faster than from another thread.
        reader.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        Ok::<_, io::Error>((!chunk.is_empty()).then(|| (Bytes::from(chunk), reader)))
    });
    Body::from_stream(chunks)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn the_content_is_streamed_to_its_end() {
        let content = vec![7; 3 * CHUNK_BYTES + 1];
        let body = stream_body(io::Cursor::new(content.clone()));
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap(), content);
    }
}
