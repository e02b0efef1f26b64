//! What people are told of an application. None of it decides anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient;

/// What an application is, who cares for it, and where to read more.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Descriptor {
    /// The type of the application, such as `WordPress` or `MySQL`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The version of the application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The application in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its icons.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
    /// Who maintains its source, images and packages.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<Contact>,
    /// Who runs it, and is to be called when it is disrupted.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Contact>,
    /// Words to find it by.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Where to read more: documentation, dashboards.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// How to begin with it, in Markdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// An image that stands for the application.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["src"]))]
#[serde(default)]
pub struct Icon {
    /// Where the image is: a URL, or a data URL that holds it.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub src: String,
    /// Its size in pixels, as `25x25`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Its MIME type, as `image/png`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// A person or an organization.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Contact {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its address in the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its email address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// A place in the web.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// What is found there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
