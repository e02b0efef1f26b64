use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::client::Client;

/// Permits that one caller holds at most.
const PER_CALLER: usize = 16;
/// More, because several clients may have one address.
const PER_ADDRESS: usize = 32;

/// Returns the number of permits that all addresses together hold at most. The others are for tokens that were valid lately:
/// anyone may send guessed tokens from many addresses, and each waits for a review.
const fn limit_of_addresses(limit: usize) -> usize {
    limit - limit / 4
}

/// Permits of all callers, without a queue. A handle; clones share the permits.
#[derive(Clone)]
pub(super) struct Permits(Arc<Inner>);

struct Inner {
    limit: usize,
    used: Gauge,
    held: Mutex<Held>,
}

/// Has entries for clients that hold permits, so the limit bounds it.
#[derive(Default)]
struct Held {
    total: usize,
    by_addresses: usize,
    by_client: HashMap<Client, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exhausted {
    /// By all callers together, or all addresses.
    Total,
    ByCaller,
}

/// Returned when it is dropped.
pub(super) struct Permit {
    permits: Permits,
    client: Client,
}

impl Permits {
    pub(super) fn new(limit: usize, used: Gauge) -> Self {
        Self(Arc::new(Inner {
            limit,
            used,
            held: Mutex::default(),
        }))
    }

    pub(super) fn try_acquire(&self, client: Client) -> Result<Permit, Exhausted> {
        let (share, is_address) = match client {
            Client::Token(_) => (PER_CALLER, false),
            Client::Address(_) => (PER_ADDRESS, true),
        };
        let limit = self.0.limit;
        let mut held = self.0.held.lock();
        let by_client = held.by_client.get(&client).copied().unwrap_or_default();
        if by_client >= share {
            return Err(Exhausted::ByCaller);
        }
        if held.total >= limit || (is_address && held.by_addresses >= limit_of_addresses(limit)) {
            return Err(Exhausted::Total);
        }
        held.total += 1;
        held.by_addresses += usize::from(is_address);
        held.by_client.insert(client, by_client + 1);
        self.0.used.inc();
        Ok(Permit {
            permits: self.clone(),
            client,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Inner { used, held, .. } = &*self.permits.0;
        let mut held = held.lock();
        held.total = held.total.saturating_sub(1);
        let is_address = matches!(self.client, Client::Address(_));
        held.by_addresses = held.by_addresses.saturating_sub(usize::from(is_address));
        let left = held
            .by_client
            .get(&self.client)
            .map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            held.by_client.remove(&self.client);
        } else {
            held.by_client.insert(self.client, left);
        }
        used.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::server::tokens::TokenDigest;

    fn address(number: u8) -> Client {
        Client::Address(IpAddr::from([10, 0, 0, number]).into())
    }

    fn token(number: u8) -> Client {
        Client::Token(TokenDigest::of(&number.to_string()))
    }

    /// Acquires permits until none is left.
    fn all(permits: &Permits, client: Client) -> (Vec<Permit>, Exhausted) {
        let mut held = Vec::new();
        loop {
            match permits.try_acquire(client) {
                Ok(permit) => held.push(permit),
                Err(exhausted) => return (held, exhausted),
            }
        }
    }

    #[test]
    fn a_caller_leaves_permits_to_others() {
        let (permits, used) = (Permits::new(64, Gauge::default()), |permits: &Permits| {
            permits.0.used.get()
        });
        let (first, exhausted) = all(&permits, token(1));
        assert_eq!((first.len(), exhausted), (16, Exhausted::ByCaller));
        let (second, exhausted) = all(&permits, address(1));
        assert_eq!((second.len(), exhausted), (32, Exhausted::ByCaller));
        let (third, exhausted) = all(&permits, address(2));
        assert_eq!((third.len(), exhausted), (16, Exhausted::Total));
        assert_eq!(used(&permits), 64);
        drop(first);
        assert!(permits.try_acquire(token(2)).is_ok());
        drop((second, third));
        assert_eq!(used(&permits), 0);
        assert!(permits.0.held.lock().by_client.is_empty());
    }

    #[test]
    fn addresses_leave_permits_to_tokens() {
        let permits = Permits::new(64, Gauge::default());
        let of_addresses: Vec<_> = (0..9).map(|number| all(&permits, address(number))).collect();
        let held: usize = of_addresses.iter().map(|(held, _)| held.len()).sum();
        assert_eq!((held, of_addresses[8].1), (48, Exhausted::Total));
        let (of_token, exhausted) = all(&permits, token(1));
        assert_eq!((of_token.len(), exhausted), (16, Exhausted::ByCaller));
        drop(of_addresses);
        assert_eq!(all(&permits, address(1)).0.len(), 32);
    }
}
