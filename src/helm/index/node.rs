//! One chart version as it stands in the index, before its rules are applied: what both notations are read into.

/// A value of which no more is known than how it is written. `version: 1.10` is a scalar whose text is `1.10`; that it
/// might be a number is nobody's business here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Scalar(Scalar),
    List(Vec<Node>),
    /// Only the keys of [`is_wanted_below_a_field`], each once.
    Map(Vec<(String, Node)>),
}

/// The text of a scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Written without quotes, so that it may be null or a boolean.
    pub(super) plain: bool,
}

impl Scalar {
    pub(super) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// The words that YAML readers in Go take for booleans.
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

/// The fields of a chart version that the catalogue is made from. All others are passed over unread.
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

/// The keys that are read of a map in a field: those of a maintainer, and the one annotation.
pub(super) fn is_wanted_below_a_field(key: &str) -> bool {
    matches!(key, "name" | "email" | "url" | "category")
}

/// Whether a value takes the place of one that its key already has. As in Go, the last of two wins; what is merged in
/// (`<<`) only fills gaps, wherever it stands, and the first of two merged maps wins.
pub(super) const fn takes_over(merged: bool) -> bool {
    !merged
}

/// The fields that one chart version has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields([Option<Node>; Field::COUNT]);

impl Fields {
    pub(super) fn put(&mut self, field: Field, node: Node, merged: bool) {
        let slot = &mut self.0[field as usize];
        if slot.is_none() || takes_over(merged) {
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

/// Puts a value into a map of [`Node::Map`]'s form.
pub(super) fn put(map: &mut Vec<(String, Node)>, key: &str, node: Node, merged: bool) {
    match map.iter_mut().find(|(present, _)| present == key) {
        None => map.push((key.to_owned(), node)),
        Some((_, present)) if takes_over(merged) => *present = node,
        Some(_) => {}
    }
}
