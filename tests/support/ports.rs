//! Free TCP ports for servers that can't choose one themselves.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral port range: outgoing connections of the tests can't take a port between this search and the
/// server's start.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Returns a free port of the loopback interface, different for each call in this process.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes begin at different ports.
    let start = u16::try_from(std::process::id() * 61 % u32::from(COUNT)).expect("below COUNT");
    (0..COUNT)
        .map(|_| FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a port between 20000 and 31999 is free")
}
