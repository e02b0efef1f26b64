//! An HTTP server scripted byte by byte, for invalid and slow responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use url::Url;

/// A step of a response.
pub enum Part {
    Bytes(Vec<u8>),
    /// Waits for a notification.
    Until(Arc<Notify>),
    /// Keeps the connection open without sending.
    Hang,
    Close,
}

pub type Parts = Vec<Part>;

/// A server on loopback. It stops with the runtime of its test.
pub struct Server {
    pub url: Url,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server. The handler gets the head and the body of each request.
    pub async fn start(handler: impl Fn(&str) -> Parts + Send + Sync + 'static) -> Self {
        Self::start_with(None, handler).await
    }

    pub async fn start_with(tls: Option<TlsAcceptor>, handler: impl Fn(&str) -> Parts + Send + Sync + 'static) -> Self {
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

    /// Starts a proxy that terminates TLS of each tunnel itself.
    pub async fn tunnel(tls: TlsAcceptor, handler: impl Fn(&str) -> Parts + Send + Sync + 'static) -> Self {
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

    /// Starts a server with a constant response.
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
    handler: &(dyn Fn(&str) -> Parts + Send + Sync),
) {
    match tls {
        None => serve(stream, requests, handler).await,
        // A client that does not trust the certificate disconnects.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, requests, handler).await;
            }
        }
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: &Mutex<Vec<String>>,
    handler: &(dyn Fn(&str) -> Parts + Send + Sync),
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
        let mut request = String::from_utf8(std::mem::take(&mut head)).unwrap();
        let Ok(body) = body(&mut stream, &request).await else {
            return;
        };
        request.push_str(&body);
        requests.lock().push(request.clone());
        for part in handler(&request) {
            match part {
                // A client may disconnect before the end.
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

async fn body(stream: &mut (impl AsyncRead + Unpin), head: &str) -> std::io::Result<String> {
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await?;
    Ok(String::from_utf8(body).unwrap())
}

/// Builds a complete response that keeps the connection open.
pub fn response(status: &str, headers: &str, body: &[u8]) -> Parts {
    let headers = headers.replace('\n', "\r\n");
    let separator = if headers.is_empty() { "" } else { "\r\n" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}{separator}\r\n",
        body.len()
    );
    vec![Part::Bytes([head.as_bytes(), body].concat())]
}
