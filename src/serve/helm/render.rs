//! Renders the index of a repository, one row at a time. The bytes depend on the rows, the origin of archives and
//! [`FORMAT`] only. It is JSON, which Helm and Flux parse several times faster than YAML.

use std::collections::HashSet;
use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;
use url::Url;

use super::ArchiveMode;
use super::row::{Maintainer, Row, VersionRow, base_name, stored_path, unescaped};
use crate::helm::location::is_reference;
use crate::helm::semver::is_version;
use crate::serve::links::segment;
use crate::serve::summary::known_time;
use crate::text::public_url;

/// Part of the ETag. Raise it whenever equal rows give other bytes.
pub(super) const FORMAT: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    api_version: &'static str,
    name: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    app_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    digest: &'a str,
    urls: [String; 1],
    #[serde(flatten)]
    newest: Option<Newest>,
}

/// Fields of the newest version, since rows have one value of each.
#[derive(Serialize)]
struct Newest {
    #[serde(skip_serializing_if = "Option::is_none")]
    home: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keywords: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    maintainers: Vec<Maintainer>,
}

impl Newest {
    fn new(row: &Row) -> Self {
        let url = |text: &Option<String>| text.as_deref().and_then(public);
        let maintainer = |maintainer: &Maintainer| Maintainer {
            url: url(&maintainer.url),
            ..maintainer.clone()
        };
        Self {
            home: url(&row.home),
            icon: url(&row.icon),
            keywords: row.keywords.iter().flatten().flatten().cloned().collect(),
            sources: row.sources.iter().flatten().filter_map(url).collect(),
            maintainers: row.maintainers.iter().flatten().flatten().map(maintainer).collect(),
        }
    }
}

/// Returns a web URL without what may be secret.
fn public(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| public_url(&url))
}

pub(super) struct IndexRenderer<W> {
    out: W,
    mode: ArchiveMode,
    /// Names of several charts, in a registry.
    shared_names: HashSet<String>,
    is_first: bool,
}

impl<W: Write> IndexRenderer<W> {
    pub(super) fn begin(mut out: W, mode: ArchiveMode, shared_names: HashSet<String>) -> io::Result<Self> {
        out.write_all(br#"{"apiVersion":"v1","entries":{"#)?;
        Ok(Self {
            out,
            mode,
            shared_names,
            is_first: true,
        })
    }

    /// Renders a row. Rows that are not readable and charts without usable versions are left out.
    pub(super) fn chart(&mut self, chart_id: &str, info: &str) -> io::Result<()> {
        let path = stored_path(chart_id);
        let Some(row) = Row::decode(info) else {
            return Ok(());
        };
        let name = row.name(path);
        let base = base_name(&name);
        // Clients resolve them as parts of the path of an archive.
        if [base, path].iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut versions = row
            .versions()
            .iter()
            .filter(|version| {
                is_version(version.version()) && version.url().is_some() && seen.insert(version.version())
            })
            .peekable();
        if versions.peek().is_none() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.write_all(b",")?;
        }
        let key = if self.shared_names.contains(&name) {
            unescaped(path)
        } else {
            name.clone()
        };
        serde_json::to_writer(&mut self.out, &key)?;
        let mut newest = Some(Newest::new(&row));
        let mut separator: &[u8] = b":[";
        for version in versions {
            self.out.write_all(separator)?;
            separator = b",";
            let entry = Entry {
                newest: newest.take(),
                ..self.entry(path, base, &row, version)
            };
            serde_json::to_writer(&mut self.out, &entry)?;
        }
        self.out.write_all(b"]")
    }

    fn entry<'a>(&self, path: &str, base: &'a str, row: &'a Row, version: &'a VersionRow) -> Entry<'a> {
        let stored = version.url().unwrap_or_default().trim();
        let is_in_registry = is_reference(stored);
        let url = if is_in_registry && self.mode == ArchiveMode::Redirect && !has_user_info(stored) {
            stored.to_owned()
        } else {
            archive_path(path, base, version.version())
        };
        Entry {
            api_version: "v2",
            name: base,
            version: version.version(),
            app_version: version.app_version.as_deref().unwrap_or_default(),
            description: row.description.as_deref().unwrap_or_default(),
            created: version.created.as_deref().and_then(time),
            // In a registry, it is that of the manifest.
            digest: if is_in_registry { "" } else { version.digest() },
            urls: [url],
            newest: None,
        }
    }

    pub(super) fn end(mut self, generated: Option<Timestamp>) -> io::Result<W> {
        self.out.write_all(b"}")?;
        if let Some(generated) = generated {
            write!(self.out, r#","generated":"{generated}""#)?;
        }
        self.out.write_all(b"}\n")?;
        Ok(self.out)
    }
}

/// Returns true for `oci://user:password@host/`. A digest follows the host.
fn has_user_info(reference: &str) -> bool {
    reference.split('/').nth(2).is_some_and(|host| host.contains('@'))
}

/// Go reads years of four digits only, and refuses the whole index for another time.
fn time(created: &str) -> Option<String> {
    let time = known_time(created)?.to_string();
    time.starts_with(|c: char| c.is_ascii_digit()).then_some(time)
}

/// Returns the path of an archive relative to the index. Helm names the file by the last part.
fn archive_path(stored_path: &str, base: &str, version: &str) -> String {
    let chart = segment(&unescaped(stored_path));
    format!(
        "archives/{chart}/{}/{}",
        segment(version),
        segment(&file_name(base, version))
    )
}

/// Returns the last part of the path of an archive.
pub(super) fn file_name(base: &str, version: &str) -> String {
    format!("{base}-{version}.tgz")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn render_with(mode: ArchiveMode, shared: &[&str], rows: &[(&str, Value)]) -> Value {
        let shared = shared.iter().map(|name| (*name).to_owned()).collect();
        let mut renderer = IndexRenderer::begin(Vec::new(), mode, shared).unwrap();
        for (chart_id, info) in rows {
            renderer.chart(chart_id, &info.to_string()).unwrap();
        }
        let index = renderer.end("2026-01-02T03:04:05Z".parse().ok()).unwrap();
        serde_json::from_slice(&index).unwrap()
    }

    fn render(rows: &[(&str, Value)]) -> Value {
        render_with(ArchiveMode::Redirect, &[], rows)["entries"].take()
    }

    fn version(version: &str) -> Value {
        json!({
            "version": version, "app_version": "2", "created": "2026-01-01T00:00:00Z", "digest": "ab",
            "urls": [format!("https://charts.example/web-{version}.tgz"), "https://second.example/web.tgz"],
        })
    }

    #[test]
    fn the_newest_version_has_the_fields_of_the_chart() {
        let info = json!({
            "name": "web", "description": "A web", "home": "https://me:hush@web.example/?hush", "icon": "data:hush",
            "keywords": ["sea", null], "maintainers": [{"name": "Keeper", "url": null}],
            "sources": ["https://git.example/web"], "chartVersions": [version("1.1.0"), version("1.0.0")],
        });
        assert_eq!(
            render_with(ArchiveMode::Redirect, &[], &[("stable/web", info)]),
            json!({
                "apiVersion": "v1", "generated": "2026-01-02T03:04:05Z",
                "entries": { "web": [
                    {
                        "apiVersion": "v2", "name": "web", "version": "1.1.0", "appVersion": "2", "description": "A web",
                        "created": "2026-01-01T00:00:00Z", "digest": "ab",
                        "urls": ["archives/web/1.1.0/web-1.1.0.tgz"],
                        "home": "https://web.example/", "keywords": ["sea"], "maintainers": [{"name": "Keeper"}],
                        "sources": ["https://git.example/web"],
                    },
                    {
                        "apiVersion": "v2", "name": "web", "version": "1.0.0", "appVersion": "2", "description": "A web",
                        "created": "2026-01-01T00:00:00Z", "digest": "ab",
                        "urls": ["archives/web/1.0.0/web-1.0.0.tgz"],
                    },
                ]},
            })
        );
    }

    #[test]
    fn versions_and_charts_that_helm_refuses_are_left_out() {
        let mut without_url = version("3.0.0");
        without_url["urls"] = json!(null);
        let info = json!({
            "name": "web", "chartVersions": [without_url, version("latest"), version("v1.0"), version("v1.0")],
        });
        let entries = render(&[
            ("stable/web", info),
            (
                "stable/odd",
                json!({"name": "odd", "chartVersions": [version("latest")]}),
            ),
            ("stable/..", json!({"name": "..", "chartVersions": [version("1.0.0")]})),
            ("stable/.", json!({"name": "dot", "chartVersions": [version("1.0.0")]})),
            ("stable/broken", json!({"name": 1})),
        ]);
        assert_eq!(entries.as_object().unwrap().keys().collect::<Vec<_>>(), ["web"]);
        assert_eq!(entries["web"].as_array().unwrap().len(), 1);
        assert_eq!(entries["web"][0]["version"], "v1.0");
    }

    #[test]
    fn a_time_that_go_refuses_is_left_out() {
        let created = |created: &str| {
            let mut version = version("1.0.0");
            version["created"] = json!(created);
            let entries = render(&[("stable/web", json!({"name": "web", "chartVersions": [version]}))]);
            entries["web"][0].get("created").cloned()
        };
        assert_eq!(
            created("2026-01-01 00:00:00+02:00"),
            Some(json!("2025-12-31T22:00:00Z"))
        );
        for unknown in ["0001-01-01T00:00:00Z", "-009999-01-02T00:00:00Z", "yesterday"] {
            assert_eq!(created(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_chart_whose_name_has_a_slash_is_named_by_its_last_part() {
        let info = json!({"name": "team%2Fweb", "chartVersions": [version("1.0.0+b")]});
        let entries = render(&[("stable/team%2Fweb", info)]);
        let entry = &entries["team/web"][0];
        assert_eq!(
            (&entry["name"], &entry["urls"][0]),
            (&json!("web"), &json!("archives/team%2Fweb/1.0.0%2Bb/web-1.0.0%2Bb.tgz"))
        );
    }

    #[test]
    fn charts_of_a_registry_that_share_a_name_are_listed_by_path() {
        let info = |path: &str| {
            let urls = [format!("oci://registry.example/{path}:1.0.0")];
            json!({"name": "web", "chartVersions": [{"version": "1.0.0", "digest": "sha256:ab", "urls": urls}]})
        };
        let rows = [("r/a%2Fweb", info("a/web")), ("r/b%2Fweb", info("b/web"))];
        let linked = render_with(ArchiveMode::Redirect, &["web"], &rows)["entries"].take();
        assert_eq!(linked["a/web"][0]["urls"][0], "oci://registry.example/a/web:1.0.0");
        assert_eq!(linked["b/web"][0].get("digest"), None);
        let mut secret = info("b/web");
        secret["chartVersions"][0]["urls"] = json!(["oci://me:hush@registry.example/b/web:1.0.0"]);
        let hidden = render(&[("r/b%2Fweb", secret)]);
        assert_eq!(hidden["web"][0]["urls"][0], "archives/b%2Fweb/1.0.0/web-1.0.0.tgz");
        let proxied = render_with(ArchiveMode::Proxy, &[], &rows[..1])["entries"].take();
        assert_eq!(proxied["web"][0]["urls"][0], "archives/a%2Fweb/1.0.0/web-1.0.0.tgz");
    }

    #[test]
    fn an_empty_repository_has_an_index() {
        assert_eq!(render(&[]), json!({}));
    }
}
