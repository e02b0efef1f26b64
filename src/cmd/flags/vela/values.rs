//! Types and parsers of values.

use std::str::FromStr;

use crate::cmd::flags::parse;
use crate::controllers::oam::ApplyOnceMode;

const NOT_A_NUMBER: &str = "expected a number";

pub(super) fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| NOT_A_NUMBER.to_owned())
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| NOT_A_NUMBER.to_owned())
}

/// A number of bytes: `512Mi` or `512MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse::bytes(text.strip_suffix('B').unwrap_or(text)).map(Self)
    }
}

/// Names separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(pub Vec<String>);

impl NameList {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let names = text.trim_matches(['[', ']']).split(',').map(str::trim);
        Ok(Self(names.filter(|name| !name.is_empty()).map(str::to_owned).collect()))
    }
}

/// Controllers that `--disable-caps` can name. KubeVela removed them.
const CAPABILITIES: [&str; 3] = ["rollout", "healthscope", "envbinding"];

pub(super) fn capabilities(text: &str) -> Result<NameList, String> {
    match text {
        "" => return Ok(NameList::default()),
        "all" => return Ok(NameList(CAPABILITIES.map(str::to_owned).to_vec())),
        _ => {}
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().find(|name| !CAPABILITIES.contains(&name.as_str())) {
        Some(unknown) => Err(format!("{unknown} in disable caps list is not built-in")),
        None => Ok(NameList(names)),
    }
}

pub(super) fn apply_once(text: &str) -> Result<ApplyOnceMode, String> {
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
