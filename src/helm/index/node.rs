//! The parsed form of a chart version, common to both notations.

/// The reason to skip a version beyond [`super::DecodeLimits::depth`].
pub(super) const TOO_DEEP: &str = "its lists and maps are nested too deeply";

/// A value as written, without a type. `version: 1.10` is a scalar with the text `1.10`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Scalar(Scalar),
    List(Vec<Node>),
    /// Contains only keys accepted by [`is_used_nested_key`], each once.
    Map(Vec<(String, Node)>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) plain: bool,
}

impl Scalar {
    pub(super) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        if !self.plain {
            return None;
        }
        match self.text.as_str() {
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => Some(true),
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => Some(false),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Version,
    AppVersion,
    Description,
    Home,
    Icon,
    Created,
    Digest,
    Deprecated,
    Keywords,
    Sources,
    Urls,
    Maintainers,
    Annotations,
}

impl Field {
    const COUNT: usize = Self::Annotations as usize + 1;

    pub(super) fn of(key: &str) -> Option<Self> {
        Some(match key {
            "name" => Self::Name,
            "version" => Self::Version,
            "appVersion" => Self::AppVersion,
            "description" => Self::Description,
            "home" => Self::Home,
            "icon" => Self::Icon,
            "created" => Self::Created,
            "digest" => Self::Digest,
            "deprecated" => Self::Deprecated,
            "keywords" => Self::Keywords,
            "sources" => Self::Sources,
            "urls" => Self::Urls,
            "maintainers" => Self::Maintainers,
            "annotations" => Self::Annotations,
            _ => return None,
        })
    }
}

pub(super) fn is_used_nested_key(key: &str) -> bool {
    matches!(key, "name" | "email" | "url" | "category")
}

/// As in Go, the last of two equal keys wins. A merged value (`<<`) only fills gaps, and the first merge wins.
pub(super) const fn overrides_existing(merged: bool) -> bool {
    !merged
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields([Option<Node>; Field::COUNT]);

impl Fields {
    pub(super) fn put(&mut self, field: Field, node: Node, merged: bool) {
        let slot = &mut self.0[field as usize];
        if slot.is_none() || overrides_existing(merged) {
            *slot = Some(node);
        }
    }

    pub(super) const fn has(&self, field: Field) -> bool {
        self.0[field as usize].is_some()
    }

    pub(super) fn take(&mut self, field: Field) -> Option<Node> {
        self.0[field as usize].take()
    }
}

pub(super) fn put(map: &mut Vec<(String, Node)>, key: &str, node: Node, merged: bool) {
    match map.iter_mut().find(|(present, _)| present == key) {
        None => map.push((key.to_owned(), node)),
        Some((_, present)) if overrides_existing(merged) => *present = node,
        Some(_) => {}
    }
}
