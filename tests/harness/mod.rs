//! The tests of what the tests stand on: each part of `support` does what it says.

mod archives;
mod chart_server;
mod control_plane;
mod fault_proxy;
mod portolan;
mod postgres;
mod process;
mod proxy;
mod registry;
mod token_server;
