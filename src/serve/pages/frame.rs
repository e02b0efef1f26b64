//! The parts that all pages have: navigation, the caller, and the age of the content.

use std::time::Duration;

use super::assets;
use super::shown::{count, seconds};
use crate::serve::access::Visible;
use crate::serve::site::{Site, Visit};
use crate::text::printable;

/// The fields of `base.html`.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// The path before all links.
    pub(super) prefix: String,
    /// `None`: anonymous.
    pub(super) user: Option<String>,
    pub(super) can_sign_in: bool,
    pub(super) can_sign_out: bool,
    /// There is a cluster with Applications.
    pub(super) has_applications: bool,
    /// This process watches releases.
    pub(super) has_releases: bool,
    /// Paths below the prefix.
    pub(super) css: &'static str,
    pub(super) script: &'static str,
    /// The words of the search.
    pub(super) query: String,
    /// Says how old the content is, while the database can't be read.
    pub(super) stale: Option<String>,
    /// The entry of the navigation: `catalog`, `repositories`, `applications`, `outdated`, `help` or `login`; empty for none.
    pub(super) current: &'static str,
}

impl Frame {
    pub(super) fn new(site: &Site, visit: &Visit, current: &'static str) -> Self {
        let caller = &visit.caller;
        Self {
            user: caller.user.as_deref().map(printable),
            // A caller who sees everything without credentials needs none.
            can_sign_in: caller.user.is_none() && !matches!(caller.namespaces, Visible::All),
            can_sign_out: visit.session.is_some(),
            stale: visit.stale().map(stale),
            ..Self::without_visit(site, current)
        }
    }

    /// For pages without content of the catalog.
    pub(super) fn without_visit(site: &Site, current: &'static str) -> Self {
        Self {
            prefix: site.prefix().to_owned(),
            user: None,
            can_sign_in: false,
            can_sign_out: false,
            has_applications: site.cluster().is_some(),
            has_releases: site.releases().is_some(),
            css: assets::STYLE.path(),
            script: assets::SCRIPT.path(),
            query: String::new(),
            stale: None,
            current,
        }
    }
}

fn stale(age: Duration) -> String {
    let (amount, unit) = seconds(age.as_secs());
    let age = count(usize::try_from(amount).unwrap_or(usize::MAX), unit);
    format!("The database can't be read. You see the catalog as it was {age} ago.")
}
