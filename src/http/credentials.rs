//! Credentials from Secrets: an `Authorization` header or a Docker configuration.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::HeaderValue;
use serde::Deserialize;

use super::encoded::BASE64;
use super::secret::Secret;

/// Tokens of large directories have several kilobytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// An invalid value of a Secret. Messages do not quote the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    #[error("the secret's value is not a valid Authorization header: {0}; use one line such as Bearer TOKEN")]
    InvalidHeader(&'static str),
    #[error(
        "the secret's value is not a valid Docker configuration: {0}; create it with kubectl create secret docker-registry"
    )]
    InvalidDockerConfig(&'static str),
    #[error(
        "the secret's Docker configuration has {0} entries in auths, expected one; keep only the entry of the repository's host"
    )]
    NotOneEntry(usize),
}

impl CredentialsError {
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidHeader(_) => "InvalidAuthorizationHeader",
            Self::InvalidDockerConfig(_) | Self::NotOneEntry(_) => "InvalidDockerConfig",
        }
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    auths: Option<BTreeMap<String, Option<DockerAuth>>>,
}

#[derive(Deserialize, Default)]
struct DockerAuth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// Reads the value of an `Authorization` header. Trims whitespace, such as the line break at the end of a file.
pub fn from_header(value: &[u8]) -> Result<Secret, CredentialsError> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Err(CredentialsError::InvalidHeader("empty value"));
    }
    if value.len() > MAX_HEADER_BYTES {
        return Err(CredentialsError::InvalidHeader("longer than 64 KiB"));
    }
    let text = std::str::from_utf8(value).map_err(|_| CredentialsError::InvalidHeader("not valid UTF-8"))?;
    if HeaderValue::from_str(text).is_err() {
        return Err(CredentialsError::InvalidHeader(
            "contains a line break or another control character",
        ));
    }
    Ok(Secret::new(text.to_owned()))
}

/// Reads `Basic` credentials from a `.dockerconfigjson`. Requires exactly one entry, as Kubeapps does; `auth` wins over
/// `username` and `password`, as in Kubernetes.
pub fn from_docker_config(json: &[u8]) -> Result<Secret, CredentialsError> {
    // The parser's message may quote the value.
    let config: DockerConfig = serde_json::from_slice(json)
        .map_err(|_| CredentialsError::InvalidDockerConfig("not a JSON object with auths"))?;
    let auths = config.auths.unwrap_or_default();
    let count = auths.len();
    let (1, Some(entry)) = (count, auths.into_values().next()) else {
        return Err(CredentialsError::NotOneEntry(count));
    };
    let pair = user_and_password(entry.unwrap_or_default())?;
    let header = format!("Basic {}", BASE64_STANDARD.encode(pair));
    if header.len() > MAX_HEADER_BYTES {
        return Err(CredentialsError::InvalidDockerConfig("credentials longer than 64 KiB"));
    }
    Ok(Secret::new(header))
}

fn user_and_password(entry: DockerAuth) -> Result<Vec<u8>, CredentialsError> {
    if let Some(auth) = entry.auth.filter(|auth| !auth.trim().is_empty()) {
        // Go's decoder ignores line breaks, which `base64` and `echo` insert.
        let auth: String = auth.split_ascii_whitespace().collect();
        let pair = BASE64
            .decode(auth)
            .map_err(|_| CredentialsError::InvalidDockerConfig("auth is not valid base64"))?;
        if !pair.contains(&b':') {
            return Err(CredentialsError::InvalidDockerConfig(
                "auth is not base64 of user:password",
            ));
        }
        return Ok(pair);
    }
    let (user, password) = (entry.username.unwrap_or_default(), entry.password.unwrap_or_default());
    if user.is_empty() && password.is_empty() {
        return Err(CredentialsError::InvalidDockerConfig(
            "the entry has neither auth nor username and password",
        ));
    }
    if user.contains(':') {
        return Err(CredentialsError::InvalidDockerConfig(
            "the username contains a colon, which Basic credentials do not allow",
        ));
    }
    Ok(format!("{user}:{password}").into_bytes())
}

/// Splits `Basic` credentials into user and password. Returns `None` for other schemes and invalid UTF-8.
#[must_use]
pub fn basic(authorization: &Secret) -> Option<(String, Secret)> {
    let (scheme, value) = authorization.expose().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64.decode(value.trim()).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some((user.to_owned(), Secret::new(password.to_owned())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"Bearer abc", "Bearer abc")]
    #[case(b" \tBasic dTpw\r\n", "Basic dTpw")]
    #[case(b"anything", "anything")]
    #[case("tökén".as_bytes(), "tökén")]
    fn a_header_is_trimmed_and_otherwise_unchanged(#[case] value: &[u8], #[case] header: &str) {
        assert_eq!(from_header(value).unwrap().expose(), header);
    }

    #[rstest]
    fn an_invalid_header_is_rejected_without_being_printed(
        #[values(
            b"".as_slice(),
            b" \n",
            b"Bearer secret\nX-Other: secret",
            b"secret\0",
            b"secret\xff",
            &[b's'; MAX_HEADER_BYTES + 1]
        )]
        value: &[u8],
    ) {
        let error = from_header(value).unwrap_err();
        assert_eq!(error.reason(), "InvalidAuthorizationHeader");
        assert!(
            !format!("{error} {error:?}")
                .replace("the secret's", "")
                .contains("secret"),
            "{error}"
        );
    }

    // dTpw = u:p
    #[rstest]
    #[case::auth(r#"{"auths":{"r.example.com":{"auth":"dTpw"}}}"#, "u", "p")]
    #[case::auth_wins(r#"{"auths":{"r":{"username":"x","password":"y","auth":"dTpw"}}}"#, "u", "p")]
    #[case::line_break(r#"{"auths":{"r":{"auth":"dTpw\n"}}}"#, "u", "p")]
    #[case::line_break_within(r#"{"auths":{"r":{"auth":"dT\r\npw"}}}"#, "u", "p")]
    #[case::padding(r#"{"auths":{"r":{"auth":"dTpwcA=="}}}"#, "u", "pp")]
    #[case::no_padding(r#"{"auths":{"r":{"auth":"dTpwcA"}}}"#, "u", "pp")]
    #[case::colons(r#"{"auths":{"r":{"auth":"dTpwOnE="}}}"#, "u", "p:q")]
    #[case::pair(
        r#"{"auths":{"r":{"username":"u","password":"p:q","email":"e"}},"credsStore":"x"}"#,
        "u",
        "p:q"
    )]
    #[case::empty_auth(r#"{"auths":{"r":{"auth":"","username":"u","password":"p"}}}"#, "u", "p")]
    #[case::no_user(r#"{"auths":{"r":{"password":"p"}}}"#, "", "p")]
    #[case::same_key_twice(r#"{"auths":{"r":{"auth":"eDp5"},"r":{"auth":"dTpw"}}}"#, "u", "p")]
    #[case::other_text(r#"{"auths":{"r":{"username":"ü","password":"é"}}}"#, "ü", "é")]
    fn basic_credentials_are_read_from_a_docker_configuration(
        #[case] config: &str,
        #[case] user: &str,
        #[case] password: &str,
    ) {
        let secret = from_docker_config(config.as_bytes()).unwrap();
        assert!(secret.expose().starts_with("Basic "));
        let (found_user, found_password) = basic(&secret).unwrap();
        assert_eq!((found_user.as_str(), found_password.expose()), (user, password));
    }

    #[rstest]
    #[case("", "is not a valid Docker configuration")]
    #[case("null", "is not a valid Docker configuration")]
    #[case("{", "is not a valid Docker configuration")]
    #[case(r#"{"auths":"secret"}"#, "is not a valid Docker configuration")]
    #[case(r#"{"auths":{"r":{"auth":{"secret":1}}}}"#, "is not a valid Docker configuration")]
    #[case("{}", "has 0 entries")]
    #[case(r#"{"auths":null}"#, "has 0 entries")]
    #[case(r#"{"auths":{}}"#, "has 0 entries")]
    #[case(r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#, "has 2 entries")]
    #[case(r#"{"auths":{"r":{}}}"#, "neither auth nor")]
    #[case(r#"{"auths":{"r":null}}"#, "neither auth nor")]
    #[case(r#"{"auths":{"r":{"identitytoken":"secret"}}}"#, "neither auth nor")]
    #[case(r#"{"auths":{"r":{"auth":"!secret!"}}}"#, "not valid base64")]
    #[case(r#"{"auths":{"r":{"auth":"c2VjcmV0"}}}"#, "user:password")]
    #[case(r#"{"auths":{"r":{"username":"secret:a","password":"b"}}}"#, "colon")]
    fn an_invalid_docker_configuration_is_rejected_without_being_printed(#[case] config: &str, #[case] why: &str) {
        let error = from_docker_config(config.as_bytes()).unwrap_err();
        assert_eq!(error.reason(), "InvalidDockerConfig");
        let message = error.to_string();
        assert!(message.contains(why) && message.contains("; "), "{message}");
        let printed = format!("{message} {error:?}")
            .replace("the secret's", "")
            .replace("create secret", "");
        assert!(!printed.contains("secret"), "{printed}");
    }

    #[rstest]
    fn only_basic_credentials_can_be_split(
        #[values("Bearer dTpw", "Basic", "Basic !", "Basic dQ==", "Basic /w==", "")] text: &str,
    ) {
        assert_eq!(basic(&Secret::new(text.to_owned())), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_yield_valid_headers(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,50}") {
            let _ = from_docker_config(&bytes);
            let _ = from_header(&bytes);
            let config = serde_json::json!({"auths": {"r": {"auth": text}}}).to_string();
            for secret in [from_docker_config(config.as_bytes()), from_header(&bytes)].into_iter().flatten() {
                prop_assert!(HeaderValue::from_str(secret.expose()).is_ok());
                let _ = basic(&secret);
            }
        }

        #[test]
        fn user_and_password_survive_a_round_trip(user in "[^:]{1,20}", password in ".{0,20}") {
            let config = serde_json::json!({"auths": {"r": {"username": user, "password": password}}}).to_string();
            let secret = from_docker_config(config.as_bytes()).unwrap();
            prop_assert_eq!(basic(&secret).unwrap(), (user, Secret::new(password)));
        }
    }
}
