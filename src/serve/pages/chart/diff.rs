//! The differences of a file of values between two versions: the keys, then the text.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::text::{self, cut_lines, line};
use super::{QueryResult, Shown, parse, text_of, values};
use crate::serve::api::address::{Names, address};
use crate::serve::api::diff::Pair;
use crate::serve::api::files::{self, FileName};
use crate::serve::pages::error::sentence;
use crate::serve::pages::shown::{Choice, choices, count, name};
use crate::serve::pages::{Frame, PageError, large_page};
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::serve::values::{Keys, MAX_TEXT_BYTES, ValueKey, compare};
use crate::text::printable;

/// Of the keys that were added, removed or changed, each.
const MAX_ROWS: usize = 1_000;

/// The keys that differ.
#[derive(Template)]
#[template(path = "chart/keys.html", config = "src/serve/pages/askama.toml")]
pub(super) struct ChangedKeys {
    /// Such as `2 keys added, 1 key changed`.
    pub(super) summary: String,
    groups: Vec<Group>,
    /// Keys are left out, by a limit here or of the file.
    is_cut: bool,
}

struct Group {
    title: &'static str,
    class: &'static str,
    rows: Vec<KeyChange>,
}

struct KeyChange {
    path: String,
    from: Option<String>,
    to: Option<String>,
    comment: String,
}

impl KeyChange {
    fn new(from: Option<&ValueKey>, to: Option<&ValueKey>) -> Self {
        let shown = to.or(from);
        // Such as `1` and `"1"`, which look the same.
        let differs_in_type = from.zip(to).is_some_and(|(from, to)| from.kind != to.kind);
        let default = |key: Option<&ValueKey>| {
            let key = key?;
            let default = text::default(key)?;
            Some(if differs_in_type {
                format!("{default} ({})", key.kind.name())
            } else {
                default
            })
        };
        Self {
            path: shown.map(|key| line(&key.path, MAX_TEXT_BYTES)).unwrap_or_default(),
            from: default(from),
            to: default(to),
            comment: shown.map(|key| line(&key.comment, MAX_TEXT_BYTES)).unwrap_or_default(),
        }
    }
}

impl ChangedKeys {
    pub(super) fn new([old, new]: &[Keys; 2]) -> Self {
        let found = compare(old, new);
        let counts = [
            (found.added.len(), "added"),
            (found.removed.len(), "removed"),
            (found.changed.len(), "changed"),
        ];
        let total: usize = counts.iter().map(|(count, _)| count).sum();
        let parts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(amount, what)| format!("{} {what}", count(*amount, "key")))
            .collect();
        let group = |title, class, rows: Vec<KeyChange>| Group { title, class, rows };
        let added = found.added.into_iter().take(MAX_ROWS);
        let removed = found.removed.into_iter().take(MAX_ROWS);
        let changed = found.changed.into_iter().take(MAX_ROWS);
        let groups = [
            group(
                "Added",
                "added",
                added.map(|key| KeyChange::new(None, Some(key))).collect(),
            ),
            group(
                "Removed",
                "removed",
                removed.map(|key| KeyChange::new(Some(key), None)).collect(),
            ),
            group(
                "Changed",
                "changed",
                changed.map(|(from, to)| KeyChange::new(Some(from), Some(to))).collect(),
            ),
        ];
        let shown: usize = groups.iter().map(|group| group.rows.len()).sum();
        Self {
            summary: if parts.is_empty() {
                "No key differs".to_owned()
            } else {
                parts.join(", ")
            },
            is_cut: shown < total || old.is_incomplete || new.is_incomplete,
            groups: groups.into_iter().filter(|group| !group.rows.is_empty()).collect(),
        }
    }
}

/// The form that chooses two versions.
#[derive(Template)]
#[template(path = "chart/compare.html", config = "src/serve/pages/askama.toml")]
pub(super) struct CompareForm {
    action: String,
    from: Vec<Choice>,
    to: Vec<Choice>,
    /// Empty if there is only one file, or in the page of the tab.
    files: Vec<Choice>,
    /// Set in the page of the tab, which stays there.
    tab: Option<&'static str>,
}

impl CompareForm {
    pub(super) fn new(shown: &Shown, action: String, [from, to]: [&str; 2], tab: Option<&'static str>) -> Self {
        let all = || shown.versions.iter().map(|line| line.version.clone());
        Self {
            action,
            from: choices(all(), Some(from)),
            to: choices(all(), Some(to)),
            files: Vec::new(),
            tab,
        }
    }
}

#[derive(Template)]
#[template(path = "chart/diff.html", config = "src/serve/pages/askama.toml")]
struct DiffPage {
    frame: Frame,
    name: String,
    chart_link: String,
    from: VersionLink,
    to: VersionLink,
    form: CompareForm,
    file_name: String,
    keys: Result<ChangedKeys, String>,
    text: Result<DiffText, String>,
}

struct VersionLink {
    version: String,
    link: String,
    file_link: String,
}

impl VersionLink {
    fn new(site: &Site, shown: &Shown, file: &FileName) -> Self {
        Self {
            version: printable(&shown.version),
            link: shown.address(site.prefix()),
            file_link: shown.file_address(site, file),
        }
    }
}

struct DiffText {
    lines: Vec<DiffLine>,
    is_cut: bool,
}

struct DiffLine {
    class: &'static str,
    text: String,
}

impl DiffText {
    /// Colors the lines of a unified diff, whose first two name the files.
    fn new(diff: &str) -> Self {
        let cut = cut_lines(diff);
        let class = |number: usize, text: &str| match text.chars().next() {
            _ if number < 2 => "muted",
            Some('+') => "added",
            Some('-') => "removed",
            Some('@') => "muted",
            _ => "",
        };
        let lines = cut.text.split('\n').filter(|_| !diff.is_empty()).enumerate();
        Self {
            lines: lines
                .map(|(number, text)| DiffLine {
                    class: class(number, text),
                    text: text.to_owned(),
                })
                .collect(),
            is_cut: cut.is_cut,
        }
    }
}

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: Names,
    query: QueryResult,
) -> Result<Response, PageError> {
    let (names, query) = (address(names)?, parse(query)?);
    let visit = site.enter(&headers, Some(&names.repository.namespace)).await?;
    let to = text_of(query.to.as_deref()).ok_or_else(|| missing("to"))?;
    let from = text_of(query.from.as_deref()).ok_or_else(|| missing("from"))?;
    // An unknown version is a problem, also if it is the older one.
    let older = Shown::read(&site, &visit, names.clone(), Some(from)).await?;
    let shown = Shown::read(&site, &visit, names, Some(to)).await?;
    let file = values::file(&query);
    let pair = Pair {
        address: &shown.names,
        file: &file,
        versions: [from, to],
    };
    let (keys, text) = match pair.read(&site, &headers).await {
        Ok(texts) => {
            let keys = pair.keys(&site, Arc::clone(&texts)).await;
            let text = pair.text(&site, texts).await;
            (
                of_files(keys.map(|keys| ChangedKeys::new(&keys)))?,
                of_files(text.map(|text| DiffText::new(&text)))?,
            )
        }
        Err(problem) => {
            let reason = of_files::<()>(Err(problem))?.err().unwrap_or_default();
            (Err(reason.clone()), Err(reason))
        }
    };
    let stored = files::open(&site, &shown.names, &shown.row, None).await?.view.names;
    let chart_link = shown.chart_address(site.prefix());
    let page = DiffPage {
        frame: Frame::new(&site, &visit, "catalog"),
        name: name(&shown.info.summary.name),
        from: VersionLink::new(&site, &older, &file),
        to: VersionLink::new(&site, &shown, &file),
        form: CompareForm {
            files: values::file_choices(&stored, file.name()),
            ..CompareForm::new(&shown, format!("{chart_link}/diff"), [from, to], None)
        },
        file_name: line(file.name(), MAX_TEXT_BYTES),
        chart_link,
        keys,
        text,
    };
    large_page(&site, &headers, &shown.namespace, page).await
}

fn missing(parameter: &'static str) -> Problem {
    Problem::parameter(parameter, format!("the parameter {parameter} must name a version"))
}

/// Returns a sentence for files that can't be compared, which the page shows in their place. Other problems are pages.
pub(super) fn of_files<T>(result: Result<T, Problem>) -> Result<Result<T, String>, Problem> {
    match result {
        Ok(found) => Ok(Ok(found)),
        Err(problem) if problem.is_of_files() => Ok(Err(sentence(&problem.detail))),
        Err(problem) => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::values;

    fn changed(from: &str, to: &str) -> ChangedKeys {
        ChangedKeys::new(&[from, to].map(|text| values::parse(text).unwrap()))
    }

    #[test]
    fn keys_are_counted_and_shown_with_both_defaults() {
        let changed = changed("a: 1\nb: \"\"\nc: x\n", "a: 2\nb: \"\"\nd: <b>\n");
        assert_eq!(changed.summary, "1 key added, 1 key removed, 1 key changed");
        let html = changed.render().unwrap();
        assert!(html.contains("&#60;b&#62;") && !html.contains("<b>"), "{html}");
        assert!(!changed.is_cut);
        assert!(!html.contains("(integer)"), "{html}");
    }

    #[test]
    fn types_are_named_where_they_differ() {
        let html = changed("a: 1\n", "a: \"1\"\n").render().unwrap();
        assert!(
            html.contains(">1 (integer)<") && html.contains(">1 (string)<"),
            "{html}"
        );
    }

    #[test]
    fn equal_files_have_no_changed_keys() {
        let changed = changed("a: 1\n", "# other\na: 1\n");
        assert_eq!((changed.summary.as_str(), changed.groups.len()), ("No key differs", 0));
    }

    #[test]
    fn many_keys_are_cut() {
        let many: String = (0..2 * MAX_ROWS).map(|number| format!("k{number}: 1\n")).collect();
        let changed = changed("", &many);
        assert_eq!(changed.summary, "2,000 keys added");
        assert_eq!((changed.groups[0].rows.len(), changed.is_cut), (MAX_ROWS, true));
    }

    #[test]
    fn lines_of_the_text_are_marked() {
        let diff = values::unified_diff("a: 1\nb: 2\n", "a: 1\n--- x\n", ["old", "new"]).unwrap();
        let text = DiffText::new(&diff);
        let marked = |class: &str| {
            let lines = text.lines.iter().filter(|line| line.class == class);
            lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(marked("added"), ["+--- x"]);
        assert_eq!(marked("removed"), ["-b: 2"]);
        assert_eq!(marked("muted")[..2], ["--- old", "+++ new"]);
        assert!(DiffText::new("").lines.is_empty());
    }
}
