//! Where the server listens, as a user writes it.

use std::{fmt, io, net::Ipv6Addr, str::FromStr};

use tokio::net::TcpListener;

/// An address to listen on: `host:port`, `[::1]:port`, or `:port` for all interfaces of both address families, as Go programs read it.
/// Port 0 takes a free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Empty for all interfaces. Without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

/// What is wrong with an address to listen on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListenAddressError {
    /// There is no colon between host and port, or nothing after it.
    #[error("no port is named: write host:port, or :port for all interfaces")]
    NoPort,
    /// The port is no number that a port can have.
    #[error("`{0}` is no port: write a number from 0 to 65535")]
    Port(String),
    /// An IPv6 address stands without brackets, so that its last group would be taken for the port.
    #[error("write an IPv6 address in brackets, as in [::1]:8080")]
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
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
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
    pub(super) async fn bind(&self) -> io::Result<TcpListener> {
        if !self.host.is_empty() {
            return TcpListener::bind((self.host.as_str(), self.port)).await;
        }
        match TcpListener::bind((Ipv6Addr::UNSPECIFIED, self.port)).await {
            // A host without IPv6 has no such address; a port that is taken is taken.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(("0.0.0.0", self.port)).await,
            bound => bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_go_programs_read_it() {
        for text in ["127.0.0.1:8080", ":8080", "localhost:0", "[::1]:9090"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_address_says_what_to_write() {
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

    #[tokio::test]
    async fn a_port_alone_listens_on_all_interfaces() {
        let listener = ":0".parse::<ListenAddress>().unwrap().bind().await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
    }
}
