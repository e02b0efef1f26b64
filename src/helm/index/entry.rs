use super::node::{Field, Fields, Node};
use super::{Chart, IndexMaintainer, Version, created};
use crate::helm::semver::Rank;

/// Longer versions do not fit the columns of Kubeapps.
const MAX_VERSION_BYTES: usize = 128;
const MAX_NAME_BYTES: usize = 250;

#[derive(Debug)]
pub(super) struct IndexEntry {
    pub(super) rank: Rank,
    pub(super) version: Version,
    pub(super) deprecated: bool,
    /// Without versions.
    pub(super) chart: Chart,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidEntry {
    pub(super) version: Option<String>,
    pub(super) reason: String,
}

/// A wrong type in any field that is read makes the version invalid, even if it is not the newest.
pub(super) fn read(mut fields: Fields) -> Result<IndexEntry, InvalidEntry> {
    let version =
        text(&mut fields, Field::Version, "version").map_err(|reason| InvalidEntry { version: None, reason })?;
    let entry = check_version(&version).and_then(|()| read_rest(&mut fields, &version));
    entry.map_err(|reason| InvalidEntry {
        version: Some(version),
        reason,
    })
}

pub(super) fn check_version(version: &str) -> Result<(), String> {
    if version.is_empty() {
        return Err("it has no version".to_owned());
    }
    if version.len() > MAX_VERSION_BYTES {
        return Err(format!(
            "its version has {} bytes, more than {MAX_VERSION_BYTES}",
            version.len()
        ));
    }
    if version.chars().any(char::is_control) {
        return Err("its version contains control characters".to_owned());
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if matches!(name, "." | "..") {
        return Err(format!("{name} is not a valid chart name"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("its name has {} bytes, more than {MAX_NAME_BYTES}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("its name contains control characters".to_owned());
    }
    Ok(())
}

fn read_rest(fields: &mut Fields, version: &str) -> Result<IndexEntry, String> {
    let name = text(fields, Field::Name, "name")?;
    check_name(&name)?;
    Ok(IndexEntry {
        rank: Rank::of(version),
        version: Version {
            version: version.to_owned(),
            app_version: without_nul(text(fields, Field::AppVersion, "appVersion")?),
            created: created_of(value(fields, Field::Created)),
            digest: without_nul(text(fields, Field::Digest, "digest")?),
            urls: urls(list(fields, Field::Urls, "urls")?.unwrap_or_default()),
        },
        deprecated: deprecated(value(fields, Field::Deprecated))?,
        chart: Chart {
            name,
            description: without_nul(text(fields, Field::Description, "description")?),
            home: without_nul(text(fields, Field::Home, "home")?),
            icon: without_nul(text(fields, Field::Icon, "icon")?),
            category: category(value(fields, Field::Annotations))?,
            keywords: list(fields, Field::Keywords, "keywords")?,
            maintainers: maintainers(value(fields, Field::Maintainers))?,
            sources: list(fields, Field::Sources, "sources")?,
            versions: Vec::new(),
        },
    })
}

/// Drops empty URLs. Returns None for an empty list, because Kubeapps reads the first element.
pub(super) fn urls(urls: Vec<String>) -> Option<Vec<String>> {
    let urls: Vec<String> = urls.into_iter().filter(|url| !url.is_empty()).collect();
    (!urls.is_empty()).then_some(urls)
}

/// Takes a value. Null counts as missing.
fn value(fields: &mut Fields, field: Field) -> Option<Node> {
    let node = fields.take(field);
    node.filter(|node| !matches!(node, Node::Scalar(scalar) if scalar.is_null()))
}

/// Returns the text as written: `1.10` stays `1.10`. Missing and null become an empty text.
fn text(fields: &mut Fields, field: Field, name: &str) -> Result<String, String> {
    match value(fields, field) {
        None => Ok(String::new()),
        Some(node) => scalar_text(node, name),
    }
}

fn scalar_text(node: Node, name: &str) -> Result<String, String> {
    match node {
        Node::Scalar(scalar) if scalar.is_null() => Ok(String::new()),
        Node::Scalar(scalar) => Ok(scalar.text),
        Node::List(_) => Err(format!("its {name} is a list, expected a text")),
        Node::Map(_) => Err(format!("its {name} is a map, expected a text")),
    }
}

/// Removes NUL, which Postgres rejects in jsonb.
pub(super) fn without_nul(mut text: String) -> String {
    if text.contains('\0') {
        text.retain(|character| character != '\0');
    }
    text
}

fn list(fields: &mut Fields, field: Field, name: &str) -> Result<Option<Vec<String>>, String> {
    match value(fields, field) {
        None => Ok(None),
        Some(Node::List(nodes)) => {
            let texts = nodes
                .into_iter()
                .map(|node| scalar_text(node, &format!("entry in {name}")).map(without_nul));
            texts.collect::<Result<_, _>>().map(Some)
        }
        Some(Node::Scalar(_)) => Err(format!("its {name} is a text, expected a list")),
        Some(Node::Map(_)) => Err(format!("its {name} is a map, expected a list")),
    }
}

/// An invalid timestamp does not invalidate the version.
fn created_of(node: Option<Node>) -> String {
    match node {
        Some(Node::Scalar(scalar)) => created::normalize(&scalar.text),
        _ => created::ZERO.to_owned(),
    }
}

fn deprecated(node: Option<Node>) -> Result<bool, String> {
    let value = match node {
        None => Some(false),
        Some(Node::Scalar(scalar)) => scalar.as_bool(),
        Some(Node::List(_) | Node::Map(_)) => None,
    };
    value.ok_or_else(|| "its deprecated is neither true nor false".to_owned())
}

/// Returns `annotations.category`, or an empty text, because Kubeapps groups by it.
fn category(annotations: Option<Node>) -> Result<String, String> {
    match annotations {
        None => Ok(String::new()),
        Some(Node::Map(pairs)) => match pairs.into_iter().find(|(key, _)| key == "category") {
            None => Ok(String::new()),
            Some((_, node)) => scalar_text(node, "category").map(without_nul),
        },
        Some(Node::Scalar(_) | Node::List(_)) => Err("its annotations are not a map".to_owned()),
    }
}

/// Drops maintainers without a name, which would break Kubeapps' listings.
fn maintainers(node: Option<Node>) -> Result<Vec<IndexMaintainer>, String> {
    let nodes = match node {
        None => return Ok(Vec::new()),
        Some(Node::List(nodes)) => nodes,
        Some(Node::Scalar(_) | Node::Map(_)) => return Err("its maintainers are not a list".to_owned()),
    };
    let mut maintainers = Vec::with_capacity(nodes.len());
    for node in nodes {
        let pairs = match node {
            Node::Map(pairs) => pairs,
            Node::Scalar(scalar) if scalar.is_null() => continue,
            Node::Scalar(_) | Node::List(_) => return Err("one of its maintainers is not a map".to_owned()),
        };
        maintainers.extend(maintainer(pairs)?);
    }
    Ok(maintainers)
}

fn maintainer(pairs: Vec<(String, Node)>) -> Result<Option<IndexMaintainer>, String> {
    let mut maintainer = IndexMaintainer {
        name: String::new(),
        email: None,
        url: None,
    };
    for (key, node) in pairs {
        let text = match key.as_str() {
            "name" | "email" | "url" => without_nul(scalar_text(node, &format!("maintainer's {key}"))?),
            _ => continue,
        };
        match key.as_str() {
            "name" => maintainer.name = text,
            "email" => maintainer.email = Some(text).filter(|text| !text.is_empty()),
            _ => maintainer.url = Some(text).filter(|text| !text.is_empty()),
        }
    }
    Ok((!maintainer.name.is_empty()).then_some(maintainer))
}
