//! Values of flags that are words.

use crate::controllers::oam::ApplyOnceMode;

pub(super) fn parse_apply_once(text: &str) -> Result<ApplyOnceMode, String> {
    match text {
        "" | "false" | "off" => Ok(ApplyOnceMode::Off),
        "true" | "on" => Ok(ApplyOnceMode::On),
        "force" => Ok(ApplyOnceMode::Force),
        _ => Err("expected off, on or force".to_owned()),
    }
}

/// Checks `--oam-spec-ver`. All versions that are supported run the same controllers.
pub(super) fn check_spec_version(text: &str) -> Result<(), String> {
    match text {
        "all" | "v0.3" | "minimal" => Ok(()),
        "v0.2" => Err("ApplicationConfigurations are not supported; use v0.3 or minimal".to_owned()),
        _ => Err("expected all, minimal or v0.3".to_owned()),
    }
}

/// Controllers that `--disable-caps` can name. KubeVela removed them.
const CAPABILITIES: [&str; 3] = ["rollout", "healthscope", "envbinding"];

pub(super) fn parse_capabilities(text: &str) -> Result<Vec<String>, String> {
    if ["", "all"].contains(&text) {
        return Ok(if text.is_empty() {
            Vec::new()
        } else {
            CAPABILITIES.map(str::to_owned).to_vec()
        });
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().find(|name| !CAPABILITIES.contains(&name.as_str())) {
        Some(unknown) => Err(format!("{unknown} in disable caps list is not built-in")),
        None => Ok(names),
    }
}
