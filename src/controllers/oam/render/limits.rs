//! Limits on what tenants write: templates, their results and patches.

/// Nesting of a rendered object, the limit of `serde_json`.
pub const MAX_OBJECT_DEPTH: usize = 128;
/// Size of all objects of one component, as JSON.
pub const MAX_RENDERED_BYTES: usize = 4 * 1024 * 1024;
/// Text of a Terraform module. terraform-controller stores it in a ConfigMap, which holds no more.
pub const MAX_CONFIGURATION_BYTES: usize = 1024 * 1024;
/// Objects of one component besides its workload.
pub const MAX_OUTPUTS: usize = 1_000;
/// An error of a template, which ends up in a status.
pub const MAX_ERROR_BYTES: usize = 4096;
/// Operations of one RFC 6902 patch. Each is followed by a check of the size.
pub const MAX_PATCH_OPERATIONS: usize = 500;
/// Alternative keys of one list; built-in definitions use two.
pub const MAX_KEYS: usize = 16;
/// A value quoted in an error.
pub const MAX_QUOTED_BYTES: usize = 80;
