//! Chart.yaml and its annotations for Artifact Hub. All of it is the authors' text.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::MAX_ENTRIES;
use super::text::{line, visible_lines};
use crate::helm::archive::annotation_list;
use crate::serve::api::chart::public;
use crate::text::truncate;

const PREFIX: &str = "artifacthub.io/";
/// Annotations of Artifact Hub that have a place of their own in pages.
const SHOWN: [&str; 8] = [
    "changes",
    "containsSecurityUpdates",
    "images",
    "license",
    "links",
    "prerelease",
    "recommendations",
    "signKey",
];
const MAX_TEXT: usize = 512;

/// Chart.yaml as JSON, whose values are texts, lists and objects.
#[derive(Default)]
pub(super) struct Annotations {
    chart: Map<String, Value>,
    annotations: BTreeMap<String, String>,
}

/// The entries of an annotation, or its text if it can't be read.
pub(super) enum Listed {
    Entries(Vec<Entry>),
    Text(String),
}

pub(super) struct Entry {
    /// Such as `added`; empty if there is none.
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) link: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Item {
    Text(String),
    Object(Fields),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    kind: String,
    name: String,
    description: String,
    image: String,
    url: String,
    fingerprint: String,
}

impl From<Item> for Entry {
    fn from(item: Item) -> Self {
        let fields = match item {
            Item::Text(description) => Fields {
                description,
                ..Fields::default()
            },
            Item::Object(fields) => fields,
        };
        let texts = [&fields.name, &fields.description, &fields.image, &fields.fingerprint];
        let texts: Vec<&str> = texts
            .into_iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
            .collect();
        let link = link(&fields.url);
        let text = if texts.is_empty() {
            link.clone().unwrap_or_default()
        } else {
            texts.join(": ")
        };
        Self {
            kind: line(&fields.kind, MAX_TEXT),
            text: line(&text, MAX_TEXT),
            link,
        }
    }
}

impl Annotations {
    /// Reads what is there; nothing of an invalid text.
    pub(super) fn of(json: Option<&str>) -> Self {
        let chart: Map<String, Value> = json
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default();
        let annotations = chart.get("annotations").and_then(Value::as_object);
        let annotations = annotations.into_iter().flatten();
        Self {
            annotations: annotations
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            chart,
        }
    }

    /// Returns a field of Chart.yaml; `None` if it is empty.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let text = line(self.chart.get(name)?.as_str()?, MAX_TEXT);
        (!text.trim().is_empty()).then_some(text)
    }

    pub(super) fn objects(&self, name: &str) -> impl Iterator<Item = &Map<String, Value>> {
        let list = self.chart.get(name).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .take(MAX_ENTRIES)
    }

    /// Returns an annotation for Artifact Hub of one word or line.
    pub(super) fn hub(&self, name: &str) -> Option<String> {
        let text = line(self.annotations.get(&format!("{PREFIX}{name}"))?, MAX_TEXT);
        (!text.trim().is_empty()).then_some(text)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.hub(name).is_some_and(|text| text == "true")
    }

    pub(super) fn changes(&self) -> Option<Listed> {
        self.list("changes")
    }

    /// Returns an annotation that is a list in YAML.
    pub(super) fn list(&self, name: &str) -> Option<Listed> {
        let text = self.annotations.get(&format!("{PREFIX}{name}"))?;
        // A list would pass for the fields of an object, in their order.
        let list = annotation_list(text).filter(|list| !list.iter().any(Value::is_array));
        let items = list.and_then(|list| {
            let items = list.into_iter().take(MAX_ENTRIES).map(serde_json::from_value::<Item>);
            items.collect::<Result<Vec<_>, _>>().ok()
        });
        Some(match items {
            Some(items) => {
                let entries = items.into_iter().map(Entry::from);
                Listed::Entries(entries.filter(|entry| !entry.text.is_empty()).collect())
            }
            None => Listed::Text(visible_lines(&truncate(text, 4 * MAX_TEXT))),
        })
    }

    /// Returns the annotations that have no place of their own, by name.
    pub(super) fn others(&self) -> Vec<(String, String)> {
        let is_shown = |name: &str| name.strip_prefix(PREFIX).is_some_and(|name| SHOWN.contains(&name));
        let others = self.annotations.iter().filter(|(name, _)| !is_shown(name));
        others
            .take(MAX_ENTRIES)
            .map(|(name, value)| (line(name, MAX_TEXT), line(value, MAX_TEXT)))
            .collect()
    }
}

/// Returns a text of an object in a list.
pub(super) fn text(object: &Map<String, Value>, name: &str) -> String {
    let text = object.get(name).and_then(Value::as_str);
    line(text.unwrap_or_default(), MAX_TEXT)
}

/// Returns the URL if a page may link to it, without what may be secret.
pub(super) fn link(url: &str) -> Option<String> {
    let url = url.trim();
    if let Ok(parsed) = Url::parse(url)
        && parsed.scheme() == "mailto"
    {
        return Some(parsed.into());
    }
    let parsed = Url::parse(&public(url)).ok()?;
    matches!(parsed.scheme(), "http" | "https").then(|| parsed.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotations(name: &str, value: &str) -> Annotations {
        let chart = json!({ "annotations": { (format!("{PREFIX}{name}")): value } });
        Annotations::of(Some(&chart.to_string()))
    }

    fn entries(listed: Option<Listed>) -> Vec<(String, String, Option<String>)> {
        match listed {
            Some(Listed::Entries(entries)) => entries
                .into_iter()
                .map(|entry| (entry.kind, entry.text, entry.link))
                .collect(),
            _ => panic!("no entries"),
        }
    }

    #[test]
    fn changes_are_texts_or_objects_with_a_kind() {
        let listed = annotations(
            "changes",
            "- Fixed it\n- kind: added\n  description: New\n  links: [{name: x}]\n",
        );
        assert_eq!(
            entries(listed.changes()),
            [
                (String::new(), "Fixed it".to_owned(), None),
                ("added".to_owned(), "New".to_owned(), None)
            ]
        );
        let images = annotations("images", "- name: web\n  image: registry.example/web:1\n");
        assert_eq!(entries(images.list("images"))[0].1, "web: registry.example/web:1");
    }

    #[test]
    fn lists_that_can_not_be_read_are_texts() {
        for text in [
            "[",
            "a: b",
            "- [1]",
            "&a [*a]",
            "- !!binary x\n- {",
            &"- x\n".repeat(32 * 1024),
            &format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)),
        ] {
            assert!(
                matches!(annotations("changes", text).changes(), Some(Listed::Text(_))),
                "{text:.20}"
            );
        }
        // The expansion of all aliases would take gigabytes.
        let list = |alias: &str| vec![alias; 1_000].join(", ");
        let bomb = format!(
            "- &a \"{}\\n\"\n- &b [{}]\n- &c [{}]\n- {{x: [{}]}}\n",
            "x".repeat(8_000),
            list("*a"),
            list("*b"),
            list("*c")
        );
        assert!(matches!(annotations("changes", &bomb).changes(), Some(Listed::Text(_))));
        assert!(Annotations::of(Some("[")).changes().is_none());
        assert!(Annotations::of(None).changes().is_none());
    }

    #[test]
    fn lists_are_cut() {
        let listed = annotations("links", &"- {name: a, url: 'https://a.example'}\n".repeat(100));
        assert_eq!(entries(listed.list("links")).len(), MAX_ENTRIES);
    }

    #[test]
    fn annotations_without_a_place_of_their_own_are_shown_as_they_are() {
        let others = |name: &str| annotations(name, "x").others();
        assert_eq!(
            others("operator"),
            [("artifacthub.io/operator".to_owned(), "x".to_owned())]
        );
        assert!(others("license").is_empty());
    }

    #[test]
    fn only_safe_links_are_kept() {
        for (url, shown) in [
            ("https://a.example/b", Some("https://a.example/b")),
            ("mailto:a@b.example", Some("mailto:a@b.example")),
            ("javascript:alert(1)", None),
            ("data:text/html,x", None),
            ("//evil.example", None),
            ("/path", None),
            ("", None),
        ] {
            assert_eq!(link(url).as_deref(), shown, "{url}");
        }
        assert!(!link("https://user:secret@a.example/").unwrap().contains("secret"));
    }
}
