//! What a one-shot sync is given beside its flags: credentials by the environment and a certificate by a file, as Kubeapps'
//! controller hands them to the pods of its syncs; and a filter as JSON.

use std::{
    collections::BTreeMap,
    env::VarError,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::Failure;
use crate::controllers::apprepository::secrets::Credentials;
use crate::http::credentials::{self, CredentialsError};
use crate::jq::Rule;

/// The value of the `Authorization` header.
const HEADER: &str = "AUTHORIZATION_HEADER";
/// A Docker configuration with the credentials.
const DOCKER_CONFIG: &str = "DOCKER_CONFIG_JSON";
/// Where Kubeapps' controller mounts the certificate of a private authority.
const KUBEAPPS_CA: &str = "/usr/local/share/ca-certificates/ca.crt";
/// The largest file of certificates that is read, in bytes.
const CA_BYTES: u64 = 1 << 20;

/// What the environment and files give.
///
/// # Errors
/// It can't be used; the message never holds any of it.
pub fn credentials(ca_file: Option<&Path>) -> Result<Credentials, Failure> {
    let variable = |name: &str| match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} can't be used: it is no text"))),
    };
    let unusable = |name: &str, error: CredentialsError| Failure::usage(format!("{name} can't be used: {error}"));
    let authorization = match (variable(DOCKER_CONFIG)?, variable(HEADER)?) {
        (Some(config), _) => {
            Some(credentials::from_docker_config(config.as_bytes()).map_err(|error| unusable(DOCKER_CONFIG, error))?)
        }
        (None, Some(header)) => {
            Some(credentials::from_header(header.as_bytes()).map_err(|error| unusable(HEADER, error))?)
        }
        (None, None) => None,
    };
    // Nothing tells whether these are the ones that were given before, so that validators count only where none are.
    let versions = authorization
        .as_ref()
        .map(|_| format!("given at {}", jiff::Timestamp::now()));
    Ok(Credentials {
        authorization,
        ca: certificates(ca_file)?,
        versions: versions.unwrap_or_default(),
    })
}

fn certificates(named: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    let file = named.map_or_else(|| PathBuf::from(KUBEAPPS_CA), Path::to_owned);
    let unreadable = |error: &dyn std::fmt::Display| Failure::usage(format!("--ca-file {}: {error}", file.display()));
    match fs::metadata(&file) {
        Ok(metadata) if metadata.len() > CA_BYTES => Err(unreadable(&"it has more than 1 MiB, which no bundle needs")),
        Ok(_) => fs::read(&file).map(Some).map_err(|error| unreadable(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) => Err(unreadable(&error)),
    }
}

/// A filter as Kubeapps' controller passes it: `{"jq": "…", "variables": {"$var0": "…"}}`. An empty one is none.
///
/// # Errors
/// It is not of that form.
pub fn filter(text: &str) -> Result<Option<Rule>, Failure> {
    #[derive(Deserialize)]
    struct Given {
        #[serde(default)]
        jq: Option<String>,
        #[serde(default)]
        variables: Option<BTreeMap<String, String>>,
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    let given: Option<Given> = serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!(
            "--filter-rules is not of the form {{\"jq\": \"…\", \"variables\": {{\"$name\": \"…\"}}}}: {error}"
        ))
    })?;
    let rule = given.map(|given| Rule {
        jq: given.jq.unwrap_or_default(),
        variables: given.variables.unwrap_or_default(),
    });
    Ok(rule.filter(|rule| !rule.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_as_kubeapps_passes_it() {
        let rule = filter(r#"{"jq":".name == $var0","variables":{"$var0":"loki"}}"#)
            .unwrap()
            .unwrap();
        assert_eq!(rule.jq, ".name == $var0");
        assert_eq!(rule.variables["$var0"], "loki");
        for none in ["", " ", "null", "{}", r#"{"jq":"","variables":null}"#, r#"{"jq":null}"#] {
            assert_eq!(filter(none).unwrap(), None, "{none}");
        }
        for bad in ["[", "7", r#"{"jq":7}"#, r#"{"variables":["a"]}"#, ".name"] {
            assert_eq!(filter(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
