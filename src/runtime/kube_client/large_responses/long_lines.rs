//! Limits the memory for the lines of watches of a remote API server, which may have hundreds of watches.

use std::time::Duration;

use axum::body::{Body as ResponseBody, BodyDataStream, Bytes, HttpBody};
use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

use super::{LargeResponses, ResponsePermits};
use crate::runtime::kube_client::response_size::SMALL;

/// The time limit for the rest of a line that has a permit, which others need.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
#[error("an event of the watch is not complete within {}s", LIMIT.as_secs())]
struct SlowLine;

struct LineChunks {
    chunks: BodyDataStream,
    permits: LargeResponses,
    namespace: String,
    /// The length of the line that has begun.
    unfinished: usize,
    has_ended_line: bool,
    /// Of the line that has begun, with the end of its time.
    held: Option<(ResponsePermits, Instant)>,
}

/// Continues a line that is larger than [`SMALL`] with a permit only. The permit is held until the caller, who decodes the
/// line, wants more.
pub(in crate::runtime::kube_client) fn limit_lines<B>(
    body: B,
    permits: LargeResponses,
    namespace: String,
) -> ResponseBody
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let lines = LineChunks {
        chunks: ResponseBody::new(body).into_data_stream(),
        permits,
        namespace,
        unfinished: 0,
        has_ended_line: false,
        held: None,
    };
    let chunks = stream::unfold(lines, async |mut lines| {
        let chunk = lines.next().await?;
        Some((chunk, lines))
    });
    ResponseBody::from_stream(chunks)
}

impl LineChunks {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        if self.has_ended_line {
            self.held = None;
        }
        if self.unfinished > SMALL && self.held.is_none() {
            let permits = self.permits.acquire(&self.namespace).await;
            self.held = Some((permits, Instant::now() + LIMIT));
        }
        let chunk = match &self.held {
            None => self.chunks.next().await?,
            Some((_, end)) => match timeout_at(*end, self.chunks.next()).await {
                Ok(chunk) => chunk?,
                Err(_) => Err(axum::Error::new(SlowLine)),
            },
        };
        let read = chunk.as_deref().unwrap_or_default();
        let last_end = read.iter().rposition(|byte| *byte == b'\n');
        self.has_ended_line = last_end.is_some();
        self.unfinished = match last_end {
            Some(end) => read.len() - end - 1,
            None => self.unfinished + read.len(),
        };
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt;
    use futures::channel::mpsc::{UnboundedSender, unbounded};

    use super::*;
    use crate::runtime::kube_client::RemotePermits;

    type Sender = UnboundedSender<Result<Bytes, Infallible>>;

    fn watch(permits: &LargeResponses) -> (Sender, BodyDataStream) {
        let (sender, chunks) = unbounded();
        let body = limit_lines(ResponseBody::from_stream(chunks), permits.clone(), String::new());
        (sender, body.into_data_stream())
    }

    fn send(sender: &Sender, text: &str) {
        sender.unbounded_send(Ok(Bytes::from(text.to_owned()))).unwrap();
    }

    async fn read(watch: &mut BodyDataStream) -> usize {
        watch.next().await.unwrap().unwrap().len()
    }

    #[tokio::test(start_paused = true)]
    async fn one_long_line_of_an_api_server_is_read_at_a_time() {
        let permits = LargeResponses::remote(&RemotePermits::default(), "hostile:6443");
        let ((one, mut first), (other, mut second)) = (watch(&permits), watch(&permits));
        let long = "x".repeat(SMALL + 1);
        for sender in [&one, &other] {
            send(sender, &long);
            send(sender, "x");
        }
        assert_eq!(read(&mut first).await + read(&mut first).await, SMALL + 2);
        assert_eq!(read(&mut second).await, SMALL + 1);
        assert!(
            read(&mut second).now_or_never().is_none(),
            "the first line has the permit"
        );
        send(&one, "\n");
        send(&one, "y\n");
        assert_eq!(read(&mut first).await, 1);
        assert!(
            read(&mut second).now_or_never().is_none(),
            "the first line is being decoded"
        );
        assert_eq!(read(&mut first).await, 2);
        assert_eq!(read(&mut second).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_that_does_not_end_ends_its_watch() {
        let permits = LargeResponses::remote(&RemotePermits::default(), "hostile:6443");
        let (sender, mut watch) = watch(&permits);
        send(&sender, &"x".repeat(SMALL + 1));
        read(&mut watch).await;
        let start = Instant::now();
        let error = watch.next().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("not complete within 20s"), "{error}");
        assert!(start.elapsed() >= LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn short_lines_wait_for_nothing() {
        let permits = LargeResponses::remote(&RemotePermits::default(), "honest:6443");
        let _permits = permits.acquire("").await;
        let (sender, mut watch) = watch(&permits);
        for _ in 0..3 {
            send(&sender, &format!("{}\n", "x".repeat(SMALL)));
            assert_eq!(read(&mut watch).now_or_never(), Some(SMALL + 1));
        }
    }
}
