//! A chart server that answers byte by byte as it is told, so that it can do what no proper server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use url::Url;

/// A piece of an answer.
pub enum Part {
    Bytes(Vec<u8>),
    /// Goes on when it is told to.
    Until(Arc<Notify>),
    /// Sends nothing any more and keeps the connection.
    Hang,
    /// Ends the connection.
    Close,
}

pub type Answer = Vec<Part>;

/// One on loopback, gone with the runtime of its test.
pub struct Server {
    pub url: Url,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers each request, given by its head.
    pub async fn start(handler: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_with(None, handler).await
    }

    /// The same over TLS.
    pub async fn start_with(
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let server = Self {
            url,
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let (requests, connections) = (Arc::clone(&server.requests), Arc::clone(&server.connections));
        let handler = Arc::new(handler);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, handler, tls) = (Arc::clone(&requests), Arc::clone(&handler), tls.clone());
                tokio::spawn(async move { connection(stream, tls, &requests, &*handler).await });
            }
        });
        server
    }

    /// A proxy that lets every tunnel end at one server, which speaks TLS and is itself. Its URL is the proxy's.
    pub async fn tunnel(tls: TlsAcceptor, handler: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let server = Self {
            url,
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let requests = Arc::clone(&server.requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                requests.lock().push(String::from_utf8(head).unwrap());
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                connection(stream, Some(tls.clone()), &requests, &handler).await;
            }
        });
        server
    }

    /// One that always gives the same answer.
    pub async fn always(head: &str, body: &[u8]) -> Self {
        let bytes = [head.replace('\n', "\r\n").as_bytes(), b"\r\n\r\n", body].concat();
        Self::start(move |_| vec![Part::Bytes(bytes.clone()), Part::Close]).await
    }

    pub fn at(&self, path: &str) -> Url {
        self.url.join(path).unwrap()
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    requests: &Mutex<Vec<String>>,
    handler: &(dyn Fn(&str) -> Answer + Send + Sync),
) {
    match tls {
        None => converse(stream, requests, handler).await,
        // A client that does not trust us hangs up: that is not our error.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                converse(stream, requests, handler).await;
            }
        }
    }
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: &Mutex<Vec<String>>,
    handler: &(dyn Fn(&str) -> Answer + Send + Sync),
) {
    let mut head = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let request = String::from_utf8(std::mem::take(&mut head)).unwrap();
        requests.lock().push(request.clone());
        for part in handler(&request) {
            match part {
                // A client that has seen enough hangs up.
                Part::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Part::Until(notify) => notify.notified().await,
                Part::Hang => std::future::pending().await,
                Part::Close => {
                    let _ = stream.shutdown().await;
                    return;
                }
            }
        }
    }
}

/// A whole answer that leaves the connection open.
pub fn answer(status: &str, headers: &str, body: &[u8]) -> Answer {
    let headers = headers.replace('\n', "\r\n");
    let separator = if headers.is_empty() { "" } else { "\r\n" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}{separator}\r\n",
        body.len()
    );
    vec![Part::Bytes([head.as_bytes(), body].concat())]
}
