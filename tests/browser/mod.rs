//! Pages in a real browser: Chromium with a profile of its own for each test.
//!
//! All waits are for conditions with a deadline. Screenshots of the pages are written to `target/screenshots`.

mod accessibility;
mod applications;
mod catalog;
mod chart;
mod driver;
mod events;
mod hostile;
mod keyboard;
mod layout;
mod outdated;
mod search;
mod sign_in;
mod webdriver;
mod weight;
