//! A load generator: clients that each keep one connection and send the next request after the response.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::{Sample, percentile};

/// Sent in turn.
pub type Requests = Arc<Vec<Vec<u8>>>;

pub struct Client(BufReader<TcpStream>);

/// The head of a response.
pub struct Head {
    pub status: u16,
    pub length: usize,
    pub etag: String,
}

impl Client {
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server accepts");
        stream.set_nodelay(true).expect("an option of TCP");
        Self(BufReader::with_capacity(64 * 1024, stream))
    }

    pub async fn send(&mut self, request: &[u8]) -> Head {
        self.0.write_all(request).await.expect("the server reads");
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            let read = self.0.read_line(&mut text).await.expect("a response");
            assert!(read > 0, "the server closed the connection");
        }
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let status: u16 = text[9..12].parse().expect("a status");
        let length = field("content-length: ").filter(|_| status != 304);
        assert_eq!(field("transfer-encoding: "), None, "bodies of known length only");
        Head {
            status,
            length: length.map_or(0, |length| length.parse().expect("a length")),
            etag: field("etag: ").unwrap_or_default().to_owned(),
        }
    }

    /// Sends a request and reads the whole response.
    pub async fn get(&mut self, request: &[u8]) -> Head {
        let head = self.send(request).await;
        self.read(head.length).await;
        head
    }

    pub async fn read(&mut self, bytes: usize) {
        let read = self.0.read_exact(&mut vec![0; bytes]).await;
        read.expect("the body is complete");
    }
}

/// Sends requests for some seconds, at `rate` a second or one after the other. Returns the 99th percentile of the times and the
/// responses per second, and the number of responses by status.
pub async fn load(
    address: &str,
    clients: usize,
    rate: Option<f64>,
    seconds: u64,
    requests: &Requests,
) -> (Sample, BTreeMap<u16, usize>) {
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let (address, requests) = (address.to_owned(), Arc::clone(requests));
        tasks.spawn(async move {
            let (mut client, mut responses) = (Client::connect(&address).await, Vec::new());
            for turn in (number..).step_by(clients) {
                if let Some(rate) = rate {
                    sleep_until((started + Duration::from_secs_f64(turn as f64 / rate)).into()).await;
                }
                let sent = Instant::now();
                if sent >= end {
                    break;
                }
                let head = client.get(&requests[turn % requests.len()]).await;
                responses.push((head.status, sent.elapsed().as_secs_f64()));
            }
            responses
        });
    }
    let responses = tasks.join_all().await.concat();
    let per_second = responses.len() as f64 / started.elapsed().as_secs_f64();
    let (mut times, mut statuses) = (Vec::new(), BTreeMap::new());
    for (status, time) in responses {
        times.push(time);
        *statuses.entry(status).or_default() += 1;
    }
    let sample = Sample::of_wall(percentile(&times, 99)).requests(per_second as usize);
    (sample, statuses)
}
