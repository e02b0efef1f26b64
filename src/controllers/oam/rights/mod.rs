//! The rights of an Application: the user that its annotations name, requests as this user, and reviews of what the user may
//! read from a shared cache.

mod client;
mod identity;
mod reviews;

pub use client::impersonating;
pub use identity::{Identity, IdentityError, IdentityOptions, identity};
pub use reviews::{AccessReviews, ResourceAccess, Review};
