use std::collections::HashSet;

use super::error::OciError;
use super::pages::Listed;
use super::{Registry, decode};
use crate::http::Validators;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    NotModified,
    Listed {
        /// Distinct tags in the registry's order, including tags that are not versions.
        tags: Vec<String>,
        /// Empty if the list has several pages.
        validators: Validators,
    },
}

impl Registry {
    /// Lists the tags of a repository by its full name, conditionally if there are validators.
    pub async fn tags(&self, repository: &str, validators: Option<&Validators>) -> Result<Tags, OciError> {
        let scope = Self::scope(repository)?;
        let path = format!("/v2/{repository}/tags/list");
        let (mut tags, mut seen) = (Vec::new(), HashSet::new());
        let limit = self.limits.tags;
        let listed = self.pages(&scope, &path, validators, |url, bytes| {
            let page = decode::tag_list(bytes).map_err(OciError::invalid(url))?;
            if let Some(memory) = &self.tag_memory {
                memory.charge_listed(&page);
            }
            tags.extend(page.into_iter().filter(|tag| seen.insert(tag.clone())));
            if tags.len() > limit {
                return Err(OciError::too_many(url, limit as u64, "tags"));
            }
            Ok(())
        });
        Ok(match listed.await? {
            Listed::NotModified => Tags::NotModified,
            Listed::Complete(validators) => Tags::Listed { tags, validators },
        })
    }
}
