//! Commands for the installation of Portolan in a cluster.

pub mod crds;
pub mod doctor;
pub mod uninstall;
