//! Built-in policies that decide how objects are applied, kept and collected.
//!
//! Policies of one type are merged in order: lists are concatenated, booleans are or-ed, and of other values the first
//! wins. The first rule that selects an object decides about it.

mod merge;
mod rules;
mod selector;
mod strict;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::oam::AppPolicy;

pub use rules::{
    ApplyOnce, ApplyOnceStage, ApplyOnceStrategy, GarbageCollect, GarbageCollectStrategy, ResourceUpdate,
    ResourceUpdateStrategy, SelectedResources,
};
pub use selector::{PolicyTarget, Selector};
pub use strict::unknown_keys;

pub const APPLY_ONCE: &str = "apply-once";
pub const GARBAGE_COLLECT: &str = "garbage-collect";
pub const READ_ONLY: &str = "read-only";
pub const RESOURCE_UPDATE: &str = "resource-update";
pub const SHARED_RESOURCE: &str = "shared-resource";
pub const TAKE_OVER: &str = "take-over";
pub const TOPOLOGY: &str = "topology";
pub const OVERRIDE: &str = "override";
pub const REPLICATION: &str = "replication";
pub const ENV_BINDING: &str = "env-binding";
pub const DEBUG: &str = "debug";

/// Types that need no PolicyDefinition.
pub const BUILT_IN: [&str; 11] = [
    APPLY_ONCE,
    GARBAGE_COLLECT,
    READ_ONLY,
    RESOURCE_UPDATE,
    SHARED_RESOURCE,
    TAKE_OVER,
    TOPOLOGY,
    OVERRIDE,
    REPLICATION,
    ENV_BINDING,
    DEBUG,
];

#[must_use]
pub fn is_built_in(type_: &str) -> bool {
    BUILT_IN.contains(&type_)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    pub garbage_collect: GarbageCollect,
    pub apply_once: ApplyOnce,
    pub shared_resource: SelectedResources,
    pub take_over: SelectedResources,
    pub read_only: SelectedResources,
    pub resource_update: ResourceUpdate,
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("policy {type_} named {name} must not have empty properties")]
    Empty { type_: String, name: String },
    #[error("failed to parse {type_} policy: {cause}")]
    Invalid {
        type_: &'static str,
        cause: serde_path_to_error::Error<serde_json::Error>,
    },
}

impl Policies {
    /// An addon without an apply-once policy is applied once.
    pub fn parse(policies: &[AppPolicy], is_addon: bool) -> Result<Self, PolicyError> {
        for policy in policies {
            if policy.properties.is_none() && policy.type_ != DEBUG {
                return Err(PolicyError::Empty {
                    type_: policy.type_.clone(),
                    name: policy.name.clone(),
                });
            }
        }
        let apply_once = decode_merged(policies, APPLY_ONCE)?.unwrap_or(ApplyOnce {
            enable: is_addon,
            rules: None,
        });
        Ok(Self {
            garbage_collect: decode_merged(policies, GARBAGE_COLLECT)?.unwrap_or_default(),
            apply_once,
            shared_resource: decode_merged(policies, SHARED_RESOURCE)?.unwrap_or_default(),
            take_over: decode_merged(policies, TAKE_OVER)?.unwrap_or_default(),
            read_only: decode_merged(policies, READ_ONLY)?.unwrap_or_default(),
            resource_update: decode_merged(policies, RESOURCE_UPDATE)?.unwrap_or_default(),
        })
    }
}

fn decode_merged<T: DeserializeOwned>(policies: &[AppPolicy], type_: &'static str) -> Result<Option<T>, PolicyError> {
    let properties = policies.iter().filter(|policy| policy.type_ == type_);
    let properties = properties.filter_map(|policy| policy.properties.as_ref()).cloned();
    let Some(properties) = properties.reduce(merge::merge) else {
        return Ok(None);
    };
    let properties = match properties {
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other,
    };
    let decoded = serde_path_to_error::deserialize(properties);
    decoded.map(Some).map_err(|cause| PolicyError::Invalid { type_, cause })
}
