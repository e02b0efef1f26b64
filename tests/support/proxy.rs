//! A forward proxy on loopback for `HTTPS_PROXY` and `HTTP_PROXY`. It records requests and resolves host names without
//! DNS.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Far larger than the head of any request of these tests.
const MAX_HEAD: usize = 64 << 10;

/// A recorded request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRequest {
    /// `CONNECT` for a tunnel (https), `GET` and others for a request that the proxy forwards (http).
    pub method: String,
    /// `host:port` for a tunnel, otherwise a complete URL.
    pub target: String,
    /// Headers visible to the proxy, with lower-case names. Headers inside a tunnel are not.
    pub headers: Vec<(String, String)>,
}

impl ProxyRequest {
    /// Returns the value of a header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name)?;
        Some(&found.1)
    }
}

#[derive(Default)]
struct Shared {
    hosts: Mutex<HashMap<String, String>>,
    login: Mutex<Option<String>>,
    requests: Mutex<Vec<ProxyRequest>>,
}

/// A running proxy; it ends with the test's runtime.
pub struct Proxy {
    /// `127.0.0.1:port`
    pub host: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy without a password.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let serving = Arc::clone(&serving);
                // An error here is a closed connection, which both sides notice.
                tokio::spawn(async move { serving.serve(client).await });
            }
        });
        Self {
            host: address.to_string(),
            shared,
        }
    }

    /// Returns its URL for settings.
    pub fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// Connects requests for `name` (`charts.example.com:443`) to `address` (`127.0.0.1:port`).
    pub fn add_host(&self, name: &str, address: &str) {
        let mut hosts = self.shared.hosts.lock().expect("mutex is not poisoned");
        hosts.insert(name.to_owned(), address.to_owned());
    }

    /// Requires a user and a password from now on; responds with 407 otherwise.
    pub fn demand(&self, user: &str, password: &str) {
        let header = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        *self.shared.login.lock().expect("mutex is not poisoned") = Some(header);
    }

    /// Returns all recorded requests, oldest first.
    pub fn requests(&self) -> Vec<ProxyRequest> {
        self.shared.requests.lock().expect("mutex is not poisoned").clone()
    }
}

impl Shared {
    /// Serves one request of a connection; a tunnel lasts as long as the connection.
    async fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let Some((request, body)) = read_head(&mut client).await? else {
            return Ok(());
        };
        self.requests
            .lock()
            .expect("mutex is not poisoned")
            .push(request.clone());
        let login = self.login.lock().expect("mutex is not poisoned").clone();
        if login.is_some() && request.header("proxy-authorization") != login.as_deref() {
            return refuse(
                client,
                "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"a test\"",
            )
            .await;
        }
        let (host, head) = if request.method == "CONNECT" {
            (request.target.clone(), None)
        } else {
            let Some((host, head)) = request_to_origin(&request) else {
                return refuse(client, "400 Bad Request").await;
            };
            (host, Some(head))
        };
        let address = {
            let hosts = self.hosts.lock().expect("mutex is not poisoned");
            hosts.get(&host).cloned().unwrap_or(host)
        };
        let Ok(mut server) = TcpStream::connect(address).await else {
            return refuse(client, "502 Bad Gateway").await;
        };
        match head {
            None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
            Some(head) => server.write_all(head.as_bytes()).await?,
        }
        server.write_all(&body).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
    }
}

/// Reads the head of a request and the bytes after it. `None` if the connection ended or the request is invalid.
async fn read_head(client: &mut TcpStream) -> std::io::Result<Option<(ProxyRequest, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() > MAX_HEAD || client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes);
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else {
        return Ok(None);
    };
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let request = ProxyRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: headers.collect(),
    };
    Ok(Some((request, body)))
}

/// Returns `host:port` and the head of the forwarded request. The connection serves one request, so that the next one
/// comes through the proxy again.
fn request_to_origin(request: &ProxyRequest) -> Option<(String, String)> {
    let url = Url::parse(&request.target).ok()?;
    let host = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut head = format!("{} {path} HTTP/1.1\r\n", request.method);
    for (name, value) in &request.headers {
        if name != "connection" && !name.starts_with("proxy-") {
            head += &format!("{name}: {value}\r\n");
        }
    }
    Some((host, head + "connection: close\r\n\r\n"))
}

async fn refuse(mut client: TcpStream, status: &str) -> std::io::Result<()> {
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}
