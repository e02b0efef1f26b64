//! The tab of the values: keys with a filter, or a file with numbers of lines.

use askama::Template;

use super::text::{CutText, cut_lines, default, line};
use super::{Query, Shown, text_of};
use crate::serve::api::files::{FileName, FileText, Opened};
use crate::serve::api::keys;
use crate::serve::pages::links::with_query;
use crate::serve::pages::shown::{Choice, choices, count};
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::serve::values::{Keys, MAX_TEXT_BYTES, ValueKey, parse};

const FILE_VIEW: &str = "file";

#[derive(Template)]
#[template(path = "chart/values.html", config = "src/serve/pages/askama.toml")]
pub(super) struct ValuesTab {
    /// The path of the page, to which the filter is sent.
    address: String,
    /// Empty if there is only one file.
    files: Vec<Choice>,
    file_name: String,
    words: String,
    content: Content,
    keys_link: String,
    lines_link: String,
    /// The path of the whole file.
    file_link: String,
    compare: Option<Compare>,
}

/// The form that leads to the differences from another version.
struct Compare {
    action: String,
    to: String,
    versions: Vec<Choice>,
    /// `None` for values.yaml.
    file: Option<String>,
}

enum Content {
    Keys(KeyList),
    File {
        lines: Vec<String>,
        is_cut: bool,
        /// Says why there are no keys.
        problem: Option<String>,
    },
    /// The archive has no such file.
    Absent,
    /// The header says why.
    NotImported,
}

struct KeyList {
    rows: Vec<KeyRow>,
    total: String,
    is_incomplete: bool,
}

struct KeyRow {
    path: String,
    /// `None` for a map or a list whose parts have rows.
    default: Option<String>,
    kind: &'static str,
    comment: String,
    line: usize,
}

impl KeyRow {
    fn new(key: &ValueKey) -> Self {
        Self {
            path: line(&key.path, MAX_TEXT_BYTES),
            default: default(key),
            kind: key.kind.name(),
            comment: line(&key.comment, MAX_TEXT_BYTES),
            line: key.line,
        }
    }
}

impl KeyList {
    fn new(keys: &Keys, words: &str) -> Self {
        let found = keys.items.iter().filter(|key| keys::matches(key, words));
        let rows: Vec<KeyRow> = found.map(KeyRow::new).collect();
        Self {
            total: count(rows.len(), "key"),
            rows,
            is_incomplete: keys.is_incomplete,
        }
    }
}

impl Content {
    fn of_file(text: &str, problem: Option<String>) -> Self {
        let CutText { text, is_cut } = cut_lines(text);
        Self::File {
            lines: text.split('\n').map(str::to_owned).collect(),
            is_cut,
            problem,
        }
    }

    /// A text without readable keys is shown as a file.
    fn of_keys(text: &str, words: &str) -> Self {
        match parse(text) {
            Ok(keys) => Self::Keys(KeyList::new(&keys, words)),
            Err(error) => Self::of_file(text, Some(line(&error.to_string(), MAX_TEXT_BYTES))),
        }
    }
}

/// Returns the file that the parameters name.
pub(super) fn file(query: &Query) -> FileName {
    match query.file.as_deref().and_then(FileName::parse) {
        Some(file @ FileName::OtherValues(_)) => file,
        _ => FileName::Values,
    }
}

impl ValuesTab {
    pub(super) async fn load(site: &Site, shown: &Shown, query: &Query, opened: Opened) -> Result<Self, Problem> {
        let Opened { file: found, view } = opened;
        let file = file(query);
        let words = text_of(query.q.as_deref()).unwrap_or_default().to_owned();
        let is_file_view = query.view.as_deref() == Some(FILE_VIEW);
        let content = match found {
            Some(found) => {
                let folded = words.to_lowercase();
                let work = move || {
                    let FileText { text, memory } = found;
                    let content = if is_file_view {
                        Content::of_file(&text, None)
                    } else {
                        Content::of_keys(&text, &folded)
                    };
                    drop(memory);
                    content
                };
                site.rows().compute(&shown.namespace, work).await?
            }
            None if view.is_complete() => Content::Absent,
            None => Content::NotImported,
        };
        let address = shown.address(site.prefix());
        // The first is the default.
        let file_parameter = (file != FileName::Values).then(|| ("file", file.name()));
        let keys_link = with_query(&address, [("tab", "values")].into_iter().chain(file_parameter));
        Ok(Self {
            content,
            files: file_choices(&view.names, file.name()),
            file_name: line(file.name(), MAX_TEXT_BYTES),
            words,
            lines_link: format!("{keys_link}&view={FILE_VIEW}"),
            keys_link,
            file_link: shown.file_address(site, &file),
            compare: compare(shown, site.prefix(), &file),
            address,
        })
    }
}

/// Offers the files of values. Returns none if there is only the selected one.
pub(super) fn file_choices(names: &[String], selected: &str) -> Vec<Choice> {
    let is_values = |name: &&String| *name == "values" || name.starts_with("values-");
    let files = choices(names.iter().filter(is_values).cloned(), Some(selected));
    if files.len() < 2 { Vec::new() } else { files }
}

/// Offers the other versions; the one before the shown one is selected.
fn compare(shown: &Shown, prefix: &str, file: &FileName) -> Option<Compare> {
    let versions: Vec<&str> = shown.versions.iter().map(|line| line.version.as_str()).collect();
    let at = versions.iter().position(|version| *version == shown.version);
    let others: Vec<&str> = versions
        .into_iter()
        .filter(|version| *version != shown.version)
        .collect();
    let before = at.and_then(|at| others.get(at));
    let selected = before.or(others.last()).copied()?;
    Some(Compare {
        action: format!("{}/diff", shown.chart_address(prefix)),
        to: shown.version.clone(),
        versions: choices(others.iter().map(|version| (*version).to_owned()), Some(selected)),
        file: (*file != FileName::Values).then(|| file.name().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str, words: &str) -> KeyList {
        match Content::of_keys(text, words) {
            Content::Keys(keys) => keys,
            _ => panic!("no keys: {text}"),
        }
    }

    fn tab(content: Content, words: &str) -> String {
        let tab = ValuesTab {
            address: "/charts/a/b/c/1.0.0".to_owned(),
            files: Vec::new(),
            file_name: "values".to_owned(),
            words: words.to_owned(),
            content,
            keys_link: "/charts/a/b/c/1.0.0?tab=values".to_owned(),
            lines_link: "/charts/a/b/c/1.0.0?tab=values&view=file".to_owned(),
            file_link: "/api/v1/charts/a/b/c/versions/1.0.0/values".to_owned(),
            compare: None,
        };
        tab.render().unwrap()
    }

    #[test]
    fn keys_are_filtered_and_lead_to_their_lines() {
        const TEXT: &str = "# Number of pods\nreplicas: 2\nimage:\n  tag: \"\"\n  note: |\n    a\n    b\n";
        let all = keys(TEXT, "");
        assert_eq!((all.total.as_str(), all.is_incomplete), ("3 keys", false));
        let defaults: Vec<_> = all.rows.iter().map(|row| row.default.as_deref().unwrap()).collect();
        assert_eq!(defaults, ["2", "\"\"", "a\nb\n"]);
        let found = keys(TEXT, "pods");
        assert_eq!(
            (found.total.as_str(), found.rows[0].path.as_str()),
            ("1 key", "replicas")
        );
        let html = tab(Content::Keys(found), "pods");
        assert!(html.contains("?tab=values&#38;view=file#L2\""), "{html}");
        assert!(html.contains("value=\"pods\""), "{html}");
    }

    #[test]
    fn a_file_has_numbered_lines_that_links_reach() {
        let html = tab(Content::of_file("a: 1\n\nb: 2\n", None), "");
        for number in 1..=3 {
            assert!(
                html.contains(&format!("<span id=\"L{number}\"><a href=\"#L{number}\"")),
                "{html}"
            );
        }
        assert!(!html.contains("id=\"L4\""), "{html}");
    }

    #[test]
    fn a_text_without_readable_keys_is_shown_as_a_file_with_the_reason() {
        for text in ["a: [1\n", "a: *unknown\n", &" ".repeat(2 * 1024 * 1024)] {
            let Content::File { problem, is_cut, .. } = Content::of_keys(text, "") else {
                panic!("keys of {}", text.len());
            };
            assert!(problem.is_some_and(|problem| !problem.is_empty()));
            assert_eq!(is_cut, text.len() > 1024);
        }
    }

    #[test]
    fn hostile_values_are_text() {
        let hostile = [
            "</pre><script>alert(1)</script>: '</code><img src=x onerror=alert(1)>' # <svg onload=alert(1)>\n",
            "\"><script>: \"\\\" autofocus onfocus=alert(1) x=\\\"\" # --><!--\n",
            "a: \"b\u{202e}c\u{200b}\" # \u{202e}\n",
        ];
        for text in hostile {
            for content in [
                Content::of_keys(text, ""),
                Content::of_file(text, Some(text.to_owned())),
            ] {
                let html = tab(content, "\"><script>alert(1)</script>");
                for markup in [
                    "<script",
                    "<img",
                    "<svg",
                    "<!--",
                    " onfocus=alert(1) x=\"",
                    "value=\"\">",
                ] {
                    assert!(!html.contains(markup), "{markup} in {html}");
                }
                assert_eq!(html.matches("</pre>").count(), html.matches("<pre").count(), "{html}");
            }
        }
        let shown = tab(Content::of_keys(hostile[2], ""), "");
        assert!(
            shown.contains("bc") && !shown.contains(['\u{202e}', '\u{200b}']),
            "{shown}"
        );
    }

    #[test]
    fn other_values_files_are_selected_by_name() {
        let file = |name: &str| {
            file(&Query {
                file: Some(name.to_owned()),
                ..Query::default()
            })
        };
        assert_eq!(file("values-production").name(), "values-production");
        for name in ["values", "readme", "schema", "../x", ""] {
            assert_eq!(file(name), FileName::Values, "{name}");
        }
        let names = ["readme", "values", "values-a"].map(str::to_owned);
        let offered = file_choices(&names, "values-a");
        assert_eq!(
            offered.iter().map(|choice| &*choice.value).collect::<Vec<_>>(),
            ["values", "values-a"]
        );
        assert!(file_choices(&names[..2], "values").is_empty());
    }
}
