//! The rights of an Application: the user that it names, requests as this user, and reviews of cached reads.

mod client;
mod identity;
mod reviews;

pub use client::Impersonation;
pub use identity::{Identity, IdentityError, IdentityOptions, identity};
pub use reviews::{AccessReviews, ResourceAccess, Review};
