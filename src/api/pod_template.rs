use std::sync::Arc;

use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::text::hex;

/// A free-form template as text, or only its proxies and its digest: parsed, it may take a hundred times its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTemplate {
    /// `None` if it is reduced.
    text: Option<Arc<str>>,
    bytes: usize,
    digest: String,
    /// The values of [`PROXIES`].
    proxies: [Option<String>; 3],
}

/// The variables that name proxies, in any case.
const PROXIES: [&str; 3] = ["http_proxy", "https_proxy", "no_proxy"];

impl PodTemplate {
    fn of(text: &str) -> Self {
        Self {
            text: Some(text.into()),
            bytes: text.len(),
            digest: hex(&Sha256::digest(text.as_bytes())),
            proxies: proxies(text).unwrap_or_default(),
        }
    }

    /// Returns the size of the text, also of one that is reduced.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let proxies = self.proxies.iter().flatten().map(String::len);
        self.text.as_ref().map_or(0, |text| text.len()) + proxies.sum::<usize>()
    }

    /// Drops the text.
    #[must_use]
    pub fn reduced(self) -> Self {
        Self { text: None, ..self }
    }

    /// Drops the text if it is larger than `limit`.
    #[must_use]
    pub fn within(self, limit: usize) -> Self {
        if self.bytes > limit { self.reduced() } else { self }
    }

    #[must_use]
    pub const fn is_reduced(&self) -> bool {
        self.text.is_none()
    }

    /// Returns the parsed template, unless it is reduced.
    #[must_use]
    pub fn parse(&self) -> Option<Value> {
        serde_json::from_str(self.text.as_ref()?).ok()
    }

    /// Returns the value of an environment variable of the first container that names a proxy, in upper or lower case.
    /// The last of several wins, as in a pod.
    #[must_use]
    pub fn proxy(&self, name: &str) -> Option<&str> {
        let value = self.proxies.get(position(name)?)?.as_ref()?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }
}

/// Returns the place of a variable in [`PROXIES`].
fn position(name: &str) -> Option<usize> {
    PROXIES.iter().position(|proxy| proxy.eq_ignore_ascii_case(name))
}

/// Returns the variables of the first container that name proxies, without parsing the rest.
fn proxies(template: &str) -> Option<[Option<String>; 3]> {
    #[derive(Deserialize)]
    struct RawTemplate<'a> {
        #[serde(borrow)]
        spec: &'a RawValue,
    }

    #[derive(Deserialize)]
    struct Spec<'a> {
        #[serde(borrow)]
        containers: Vec<&'a RawValue>,
    }

    #[derive(Deserialize)]
    struct Container<'a> {
        #[serde(borrow)]
        env: Vec<&'a RawValue>,
    }

    #[derive(Deserialize)]
    struct Variable<'a> {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow, default)]
        value: Option<&'a RawValue>,
    }

    let RawTemplate { spec } = serde_json::from_str(template).ok()?;
    let Spec { containers } = serde_json::from_str(spec.get()).ok()?;
    let Container { env } = serde_json::from_str(containers.first()?.get()).ok()?;
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    let proxy = |variable: &RawValue| {
        let Variable { name, value } = serde_json::from_str(variable.get()).ok()?;
        Some((position(&text(name)?)?, value.and_then(text).unwrap_or_default()))
    };
    let mut proxies = [const { None }; 3];
    for (at, value) in env.into_iter().filter_map(proxy) {
        if let Some(proxy) = proxies.get_mut(at) {
            *proxy = Some(value);
        }
    }
    Some(proxies)
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of(Box::<RawValue>::deserialize(deserializer)?.get()))
    }
}

impl Serialize for PodTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = &self.text {
            let text: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
            return text.serialize(serializer);
        }
        // Of two templates that are reduced, the text shows a difference.
        let mut digest = serializer.serialize_map(Some(1))?;
        digest.serialize_entry("sha256", &self.digest)?;
        digest.end()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn template(value: &Value) -> PodTemplate {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn a_large_template_is_reduced_to_its_digest_and_its_proxies() {
        let value = |filler: &str| {
            json!({ "metadata": { "labels": { "a": filler } }, "spec": { "containers": [{ "env": [
                { "name": "HTTPS_PROXY", "value": " http://proxy " }, { "name": "OTHER", "value": "x" },
            ] }] } })
        };
        let whole = template(&value("x"));
        assert_eq!(whole.clone().within(1000), whole);
        assert_eq!(whole.parse(), Some(value("x")));
        let reduced = whole.clone().within(10);
        assert!(reduced.is_reduced() && reduced.parse().is_none());
        assert_eq!(reduced.bytes(), whole.bytes());
        assert!(reduced.kept_bytes() < 30);
        for template in [&whole, &reduced] {
            assert_eq!(template.proxy("https_proxy"), Some("http://proxy"));
            assert_eq!(template.proxy("other"), None);
        }
        assert_ne!(reduced, template(&value("y")).within(10));
        let text = |template: &PodTemplate| serde_json::to_string(template).unwrap();
        assert_ne!(text(&reduced), text(&template(&value("y")).within(10)));
    }

    #[test]
    fn of_many_variables_that_name_one_proxy_the_last_is_kept() {
        let variable = |number: usize| {
            let name = if number.is_multiple_of(2) {
                "no_proxy"
            } else {
                "NO_PROXY"
            };
            json!({ "name": name, "value": number.to_string() })
        };
        let variables: Vec<_> = (0..65_000).map(variable).collect();
        let reduced = template(&json!({ "spec": { "containers": [{ "env": variables }] } })).reduced();
        assert_eq!(reduced.proxy("no_proxy"), Some("64999"));
        assert!(reduced.kept_bytes() < 1024, "{}", reduced.kept_bytes());
    }

    #[rstest]
    #[case(json!({}))]
    #[case(json!([]))]
    #[case(json!({ "spec": null }))]
    #[case(json!({ "spec": { "containers": null } }))]
    #[case(json!({ "spec": { "containers": [] } }))]
    #[case(json!({ "spec": { "containers": [{ "env": [7, { "name": 7 }, { "name": "no_proxy", "value": 7 }] }] } }))]
    fn a_template_of_any_form_is_accepted(#[case] value: Value) {
        let template = template(&value);
        assert_eq!(template.proxy("no_proxy"), None);
        assert_eq!(template.parse(), Some(value));
    }
}
