//! The tags of a repository.

use std::collections::HashSet;

use super::error::OciError;
use super::pages::Listed;
use super::{Registry, decode};
use crate::http::Validators;
use crate::text::public_url;

/// The answer to a question for tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// They are as they were when the validators came.
    NotModified,
    /// All of them.
    Listed {
        /// Each once, in the registry's order; whether one means a version is another question.
        tags: Vec<String>,
        /// What to send next time. Empty where the registry gave nothing, or where the list has several pages.
        validators: Validators,
    },
}

impl Registry {
    /// Lists the tags of a repository, given by its whole name (OCI distribution specification, section "Listing Tags").
    /// With validators of an earlier list, an unchanged one is not sent again where the registry knows how.
    ///
    /// # Errors
    /// [`OciError`]: the list can't be had, is none, or is longer than the limits allow.
    pub async fn tags(&self, repository: &str, validators: Option<&Validators>) -> Result<Tags, OciError> {
        let scope = Self::scope(repository)?;
        let path = format!("/v2/{repository}/tags/list");
        let (mut tags, mut seen) = (Vec::new(), HashSet::new());
        let limit = self.limits.tags;
        let listed = self.pages(&scope, &path, validators, |url, bytes| {
            let page = decode::tag_list(bytes).map_err(|error| OciError::Invalid {
                url: public_url(url),
                error,
            })?;
            tags.extend(page.into_iter().filter(|tag| seen.insert(tag.clone())));
            if tags.len() > limit {
                return Err(OciError::TooMany {
                    url: public_url(url),
                    limit: limit as u64,
                    what: "tags",
                });
            }
            Ok(())
        });
        Ok(match listed.await? {
            Listed::NotModified => Tags::NotModified,
            Listed::Whole(validators) => Tags::Listed { tags, validators },
        })
    }
}
