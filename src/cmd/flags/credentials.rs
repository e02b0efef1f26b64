//! Credentials and filters in the form in which Kubeapps' controller passes them to its sync jobs.

use std::{collections::BTreeMap, env::VarError, fmt::Display, fs, io, path::Path};

use serde::Deserialize;

use crate::cmd::Error;
use crate::controllers::apprepository::secrets::RepositoryCredentials;
use crate::http::credentials::{from_docker_config, from_header};
use crate::jq::JqRule;

const HEADER_VARIABLE: &str = "AUTHORIZATION_HEADER";
const DOCKER_CONFIG_VARIABLE: &str = "DOCKER_CONFIG_JSON";
/// The path at which Kubeapps' controller mounts the CA certificate of a repository.
const KUBEAPPS_CA: &str = "/usr/local/share/ca-certificates/ca.crt";
const MAX_CA_BYTES: u64 = 1 << 20;

/// Reads the credentials of a repository. Errors contain no part of them.
pub fn credentials(ca_file: Option<&Path>) -> Result<RepositoryCredentials, Error> {
    let authorization = match (variable(DOCKER_CONFIG_VARIABLE)?, variable(HEADER_VARIABLE)?) {
        (Some(config), _) => Some(from_docker_config(config.as_bytes()).map_err(invalid(DOCKER_CONFIG_VARIABLE))?),
        (None, Some(header)) => Some(from_header(header.as_bytes()).map_err(invalid(HEADER_VARIABLE))?),
        (None, None) => None,
    };
    // The previous credentials are unknown, so stored validators are used only without credentials.
    let versions = authorization.as_ref().map(|_| jiff::Timestamp::now().to_string());
    Ok(RepositoryCredentials {
        authorization,
        ca: certificates(ca_file)?,
        versions: versions.unwrap_or_default(),
    })
}

fn invalid<E: Display>(name: &str) -> impl FnOnce(E) -> Error {
    move |error| Error::Usage(format!("invalid value for {name}: {error}"))
}

fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(invalid(name)("not UTF-8")),
    }
}

fn certificates(ca_file: Option<&Path>) -> Result<Option<Vec<u8>>, Error> {
    let file = ca_file.unwrap_or_else(|| Path::new(KUBEAPPS_CA));
    let invalid = |error: &dyn Display| invalid("--ca-file")(format!("{}: {error}", file.display()));
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() > MAX_CA_BYTES => Err(invalid(&"larger than 1 MiB")),
        Ok(_) => fs::read(file).map(Some).map_err(|error| invalid(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && ca_file.is_none() => Ok(None),
        Err(error) => Err(invalid(&error)),
    }
}

/// Parses a filter as Kubeapps' controller passes it: `{"jq": "…", "variables": {"$var0": "…"}}`.
pub fn filter(text: &str) -> Result<Option<JqRule>, Error> {
    #[derive(Deserialize)]
    struct FilterFields {
        jq: Option<String>,
        variables: Option<BTreeMap<String, String>>,
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    let filter: Option<FilterFields> = serde_json::from_str(text).map_err(|error| {
        let form = r#"{"jq": "…", "variables": {"$name": "…"}}"#;
        invalid("--filter-rules")(format!("{error}; use the form {form}"))
    })?;
    let rule = filter.map(|filter| JqRule {
        jq: filter.jq.unwrap_or_default(),
        variables: filter.variables.unwrap_or_default(),
    });
    Ok(rule.filter(|rule| !rule.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_the_form_of_kubeapps() {
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
