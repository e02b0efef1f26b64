//! The client that a request counts for.

use std::net::{IpAddr, Ipv6Addr};

use crate::server::tokens::TokenDigest;

tokio::task_local! {
    // Handlers have the headers of their requests only.
    static ADDRESS: ClientAddress;
}

/// Clients without a token that was valid lately count by address: anyone may send other tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    Token(TokenDigest),
    Address(ClientAddress),
}

/// An IPv4 address, or a /64 network of IPv6, of which a client may use each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(IpAddr);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl ClientAddress {
    /// Returns the address of the request that the current task handles.
    pub(in crate::serve) fn current() -> Option<Self> {
        ADDRESS.try_with(|address| *address).ok()
    }

    pub(super) fn scope<F: Future>(self, handling: F) -> impl Future<Output = F::Output> {
        ADDRESS.scope(self, handling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ClientAddress {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
    }

    #[tokio::test]
    async fn the_address_is_known_while_a_request_is_handled() {
        let known = address("10.0.0.1").scope(async { ClientAddress::current() }).await;
        assert_eq!(known, Some(address("10.0.0.1")));
        assert_eq!(ClientAddress::current(), None);
    }
}
