use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fmt, io, str::FromStr};

use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Connections that wait to be accepted, as many as Linux allows by default. The kernel drops what exceeds them, and the
/// client sends it again after a second: too late for a probe.
const BACKLOG: u32 = 4096;

/// An address in Go's format: `host:port`, `[::1]:port`, or `:port` for all interfaces. Port 0 selects a free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Empty for all interfaces. Without brackets.
    host: String,
    port: u16,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListenAddressError {
    #[error("missing port: use host:port, or :port for all interfaces")]
    NoPort,
    #[error("`{0}` is not a valid port: use a number from 0 to 65535")]
    Port(String),
    #[error("IPv6 address without brackets: use [::1]:8080")]
    Brackets,
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.trim().rsplit_once(':').ok_or(ListenAddressError::NoPort)?;
        if port.is_empty() {
            return Err(ListenAddressError::NoPort);
        }
        let port = port.parse().map_err(|_| ListenAddressError::Port(port.to_owned()))?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(':') => return Err(ListenAddressError::Brackets),
            None => host,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl ListenAddress {
    /// Returns true if only this host, or pod, can connect.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        address.map_or_else(|_| self.host == "localhost", |address| address.is_loopback())
    }

    /// # Errors
    /// The address can't be bound.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        if self.host.is_empty() {
            return match listen((Ipv6Addr::UNSPECIFIED, self.port).into()) {
                // Falls back to IPv4 on hosts without IPv6.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    listen((Ipv4Addr::UNSPECIFIED, self.port).into())
                }
                bound => bound,
            };
        }
        let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
        for address in lookup_host((self.host.as_str(), self.port)).await? {
            result = listen(address);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // A restart can bind the port while connections of the former process are closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_go() {
        for text in ["127.0.0.1:8080", ":8080", "localhost:0", "[::1]:9090"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_addresses_are_errors() {
        assert_eq!("localhost".parse::<ListenAddress>(), Err(ListenAddressError::NoPort));
        assert_eq!("localhost:".parse::<ListenAddress>(), Err(ListenAddressError::NoPort));
        assert_eq!(
            ":http".parse::<ListenAddress>(),
            Err(ListenAddressError::Port("http".into()))
        );
        assert_eq!(
            ":65536".parse::<ListenAddress>(),
            Err(ListenAddressError::Port("65536".into()))
        );
        assert_eq!("::1:80".parse::<ListenAddress>(), Err(ListenAddressError::Brackets));
    }

    #[test]
    fn only_loopback_addresses_are_loopback() {
        let is_loopback = |text: &str| text.parse::<ListenAddress>().unwrap().is_loopback();
        assert!(["127.0.0.1:1", "[::1]:1", "localhost:1"].into_iter().all(is_loopback));
        assert!(
            ![":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example:1"]
                .into_iter()
                .any(is_loopback)
        );
    }

    #[tokio::test]
    async fn a_burst_of_connections_waits_to_be_accepted() {
        let listener = "127.0.0.1:0".parse::<ListenAddress>().unwrap().bind().await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(900)).unwrap();
        let waiting: Vec<_> = (0..400).map(|_| connect()).collect();
        assert_eq!(waiting.len(), 400);
    }

    #[tokio::test]
    async fn a_port_alone_listens_on_all_interfaces() {
        let listener = ":0".parse::<ListenAddress>().unwrap().bind().await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
    }
}
