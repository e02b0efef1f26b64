//! Tests of the test support.

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
