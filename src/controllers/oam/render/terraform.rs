//! Components that terraform-controller makes: each has a Configuration as its workload. Facts: `pkg/appfile` of KubeVela.

use serde_json::{Map, Value, json};

use super::health::Health;
use super::limits::MAX_CONFIGURATION_BYTES;
use crate::api::oam::{ComponentDefinition, labels};
use crate::text::sanitize;

const API_VERSION: &str = "terraform.core.oam.dev/v1beta2";
const CONNECTION_SECRET: &str = "writeConnectionSecretToRef";
const PROVIDER: &str = "providerRef";
const GIT_SECRET: &str = "gitCredentialsSecretReference";

/// Properties that set a field of the Configuration.
const FIELDS: [(&str, TerraformType); 15] = [
    ("hcl", TerraformType::Text),
    ("remote", TerraformType::Text),
    ("path", TerraformType::Text),
    ("customRegion", TerraformType::Text),
    ("backend", TerraformType::Object),
    ("jobEnv", TerraformType::Object),
    (CONNECTION_SECRET, TerraformType::Object),
    (PROVIDER, TerraformType::Object),
    (GIT_SECRET, TerraformType::Object),
    ("terraformCredentialsSecretReference", TerraformType::Object),
    ("terraformRCConfigMapReference", TerraformType::Object),
    ("terraformCredentialsHelperConfigMapReference", TerraformType::Object),
    ("inlineCredentials", TerraformType::Boolean),
    ("deleteResource", TerraformType::Boolean),
    ("forceDelete", TerraformType::Boolean),
];
/// Properties that are no variables. KubeVela passes the other fields on as variables too.
const NO_VARIABLES: [&str; 5] = [CONNECTION_SECRET, "customRegion", PROVIDER, "forceDelete", GIT_SECRET];

/// A Terraform module with the values of its variables.
#[derive(Clone, Copy, Debug)]
pub struct Terraform<'a> {
    /// The type that an Application names.
    pub name: &'a str,
    pub definition: &'a ComponentDefinition,
    pub properties: Option<&'a Value>,
    /// The namespace of the Application.
    pub namespace: &'a str,
}

/// The first two are in KubeVela's words. Values, which inputs may take from Secrets, are not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerraformError {
    #[error("terraform configuration is not set")]
    NotSet,
    #[error("failed to convert Terraform component properties: {field} must be {expected}")]
    InvalidProperty {
        field: &'static str,
        expected: &'static str,
    },
    #[error("a terraform configuration of type {0:?} is not supported; use hcl or remote")]
    UnsupportedType(String),
    #[error("the terraform configuration takes {0} bytes, more than {MAX_CONFIGURATION_BYTES}; use a remote module")]
    TooLarge(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TerraformType {
    Text,
    Object,
    Boolean,
}

impl TerraformType {
    fn check(self, field: &'static str, value: &Value) -> Result<(), TerraformError> {
        let (is_valid, expected) = match self {
            Self::Text => (value.is_string(), "a string"),
            Self::Object => (value.is_object(), "an object"),
            Self::Boolean => (value.is_boolean(), "a boolean"),
        };
        if is_valid {
            Ok(())
        } else {
            Err(TerraformError::InvalidProperty { field, expected })
        }
    }
}

impl Terraform<'_> {
    /// Returns the Configuration, without name and namespace.
    ///
    /// # Errors
    ///
    /// Modules and properties that terraform-controller would not take.
    pub fn configuration(&self) -> Result<Map<String, Value>, TerraformError> {
        let module = self.definition.terraform_module().unwrap_or(&Value::Null);
        let none = json!({});
        let properties = self
            .properties
            .filter(|properties| !properties.is_null())
            .unwrap_or(&none);
        TerraformType::Object.check("properties", properties)?;
        let mut spec = fields(properties)?;
        self.add_references(&mut spec, module);
        set_source(&mut spec, module)?;
        let mut variables = properties.as_object().cloned().unwrap_or_default();
        variables.retain(|name, _| !NO_VARIABLES.contains(&name.as_str()));
        spec.insert("variable".to_owned(), variables.into());
        let annotations = &self.definition.metadata.annotations;
        Ok(Map::from_iter([
            ("apiVersion".to_owned(), API_VERSION.into()),
            ("kind".to_owned(), "Configuration".into()),
            (
                "metadata".to_owned(),
                json!({ "annotations": annotations.clone().unwrap_or_default() }),
            ),
            ("spec".to_owned(), spec.into()),
        ]))
    }

    /// Adds the references of the module that the component does not override.
    fn add_references(&self, spec: &mut Map<String, Value>, module: &Value) {
        for field in [CONNECTION_SECRET, PROVIDER, GIT_SECRET] {
            if let Some(default) = field_of(module, field).filter(|_| !spec.contains_key(field)) {
                spec.insert(field.to_owned(), default.clone());
            }
        }
        if let Some(Value::Object(secret)) = spec.get_mut(CONNECTION_SECRET) {
            let namespace = secret.get("namespace").and_then(Value::as_str);
            if namespace.is_none_or(str::is_empty) {
                secret.insert("namespace".to_owned(), self.namespace.into());
            }
        }
    }
}

fn fields(properties: &Value) -> Result<Map<String, Value>, TerraformError> {
    let mut spec = Map::new();
    for (field, type_) in FIELDS {
        if let Some(value) = field_of(properties, field) {
            type_.check(field, value)?;
            spec.insert(field.to_owned(), value.clone());
        }
    }
    Ok(spec)
}

/// Sets the text of the module, or its repository.
fn set_source(spec: &mut Map<String, Value>, module: &Value) -> Result<(), TerraformError> {
    let text = |field: &str| module[field].as_str().unwrap_or_default();
    let configuration = text("configuration");
    match configuration.len() {
        0 => return Err(TerraformError::NotSet),
        bytes if bytes > MAX_CONFIGURATION_BYTES => return Err(TerraformError::TooLarge(bytes)),
        _ => {}
    }
    match text("type") {
        // The default of KubeVela's CRD.
        "" | "hcl" => drop(spec.insert("hcl".to_owned(), configuration.into())),
        "remote" => {
            spec.insert("remote".to_owned(), configuration.into());
            spec.insert("path".to_owned(), text("path").into());
        }
        other => return Err(TerraformError::UnsupportedType(sanitize(other))),
    }
    Ok(())
}

/// Returns a field that is not null.
fn field_of<'v>(value: &'v Value, field: &str) -> Option<&'v Value> {
    value.get(field).filter(|value| !value.is_null())
}

/// Returns the health of a Configuration. A status of an older generation or revision does not count.
#[must_use]
pub fn configuration_health(declared: &Value, live: &Value) -> Health {
    let number = |path: &str| live.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let observed = number("/status/observedGeneration");
    let is_observed = observed == 0 || observed == number("/metadata/generation");
    let revision = |object: &Value| object["metadata"]["labels"][labels::APP_REVISION].clone();
    let is_applied = revision(live).is_null() || revision(live) == revision(declared);
    let apply = &live["status"]["apply"];
    Health {
        is_healthy: is_observed && is_applied && apply["state"] == "Available",
        message: sanitize(apply["message"].as_str().unwrap_or_default()),
        ..Health::default()
    }
}
