//! A forward proxy on loopback, as `HTTPS_PROXY` and `HTTP_PROXY` name one: it records what it is asked for, and knows
//! hosts that no name server knows.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Far more than the head of any request of these tests.
const MAX_HEAD: usize = 64 << 10;

/// A request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `CONNECT` for a tunnel (https), `GET` and others for a request that the proxy makes itself (http).
    pub method: String,
    /// `host:port` for a tunnel, a whole URL otherwise.
    pub target: String,
    /// The headers that the proxy saw, with lower-case names. What runs through a tunnel it does not see.
    pub headers: Vec<(String, String)>,
}

impl Asked {
    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name)?;
        Some(&found.1)
    }
}

#[derive(Default)]
struct Shared {
    hosts: Mutex<HashMap<String, String>>,
    login: Mutex<Option<String>>,
    asked: Mutex<Vec<Asked>>,
}

/// A running proxy; it ends with the test's runtime.
pub struct Proxy {
    /// `127.0.0.1:port`
    pub host: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy for everybody.
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
                // An error here is a connection that ended, which both sides see.
                tokio::spawn(async move { serving.serve(client).await });
            }
        });
        Self {
            host: address.to_string(),
            shared,
        }
    }

    /// Its address as settings have it.
    pub fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// Takes connections for `name` (`charts.example.com:443`) to `address` (`127.0.0.1:port`).
    pub fn know(&self, name: &str, address: &str) {
        let mut hosts = self.shared.hosts.lock().expect("no panic while it is held");
        hosts.insert(name.to_owned(), address.to_owned());
    }

    /// Wants a user and a password from now on, and answers 407 to whoever lacks them.
    pub fn demand(&self, user: &str, password: &str) {
        let header = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        *self.shared.login.lock().expect("no panic while it is held") = Some(header);
    }

    /// All requests so far, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("no panic while it is held").clone()
    }
}

impl Shared {
    /// Serves one request of a connection: its answer, or the tunnel, lasts as long as the connection does.
    async fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let Some((asked, body)) = read_head(&mut client).await? else {
            return Ok(());
        };
        self.asked
            .lock()
            .expect("no panic while it is held")
            .push(asked.clone());
        let login = self.login.lock().expect("no panic while it is held").clone();
        if login.is_some() && asked.header("proxy-authorization") != login.as_deref() {
            return refuse(
                client,
                "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"a test\"",
            )
            .await;
        }
        let (host, head) = if asked.method == "CONNECT" {
            (asked.target.clone(), None)
        } else {
            let Some((host, head)) = request_to_origin(&asked) else {
                return refuse(client, "400 Bad Request").await;
            };
            (host, Some(head))
        };
        let address = {
            let hosts = self.hosts.lock().expect("no panic while it is held");
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

/// The head of a request, and what came behind it already. `None`: the connection ended, or what it sent is no request.
async fn read_head(client: &mut TcpStream) -> std::io::Result<Option<(Asked, Vec<u8>)>> {
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
    let asked = Asked {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: headers.collect(),
    };
    Ok(Some((asked, body)))
}

/// `host:port` and the head of the request for it, as the server itself is asked. The connection serves that one request, so
/// that the next one comes to the proxy anew.
fn request_to_origin(asked: &Asked) -> Option<(String, String)> {
    let url = Url::parse(&asked.target).ok()?;
    let host = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut head = format!("{} {path} HTTP/1.1\r\n", asked.method);
    for (name, value) in &asked.headers {
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
