//! What the style sheets in an SVG say that makes drawing dearer.

use std::collections::HashMap;

use resvg::usvg::roxmltree::{Document, Node};

/// The properties that make a layer.
pub(super) const LAYERING: [&str; 6] = ["opacity", "mask", "clip-path", "filter", "mix-blend-mode", "isolation"];

/// The property that makes dashes of a line.
pub(super) const DASHING: &str = "stroke-dasharray";

/// The declarations that refer to something, make layers or dashes, by what they are for. Whatever is not plain is taken to be for
/// every element: then the weight is too high rather than too low.
#[derive(Debug, Default)]
pub(super) struct Styles<'s> {
    /// By the simple selector that the last part of a selector begins with: `.class`, `#id`, `tag`.
    selected: HashMap<&'s str, Vec<&'s str>>,
    of_all: Vec<&'s str>,
    count: usize,
}

/// The texts of all style sheets, without comments.
pub(super) fn sheets(document: &Document) -> Vec<String> {
    let styles = document.descendants().filter(|node| node.tag_name().name() == "style");
    let texts = styles.flat_map(|node| node.children().filter_map(|text| text.text()));
    texts.map(without_comments).collect()
}

impl<'s> Styles<'s> {
    pub(super) fn of(sheets: &'s [String]) -> Self {
        let mut styles = Self::default();
        for sheet in sheets {
            if styles.read(sheet).is_none() && is_dear(sheet) {
                styles.of_all.push(sheet);
            }
        }
        styles
    }

    /// How many rules there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// What may be said about this element.
    pub(super) fn of_element(&self, node: Node) -> Vec<&'s str> {
        let classes = node.attribute("class").unwrap_or_default().split_ascii_whitespace();
        let mut selectors: Vec<String> = classes.map(|class| format!(".{class}")).collect();
        selectors.extend(node.attribute("id").map(|id| format!("#{id}")));
        selectors.push(node.tag_name().name().to_owned());
        let selected = selectors
            .iter()
            .filter_map(|selector| self.selected.get(selector.as_str()))
            .flatten();
        selected.chain(&self.of_all).copied().collect()
    }

    /// None if the sheet is not as plain as all that drawing programs write.
    fn read(&mut self, sheet: &'s str) -> Option<()> {
        if sheet.contains('\\') || sheet.contains("/*") || has_quoted_braces(sheet) {
            return None;
        }
        for rule in sheet.split_inclusive('}') {
            let Some((selectors, declarations)) = rule.split_once('{') else {
                // What follows the last rule, or a brace that closed none.
                (!is_dear(rule)).then_some(())?;
                continue;
            };
            self.count += selectors.split(',').count();
            if !is_dear(declarations) {
                continue;
            }
            (!declarations.contains('{')).then_some(())?;
            for selector in selectors.split(',') {
                match last_part(selector) {
                    Some(part) => self.selected.entry(part).or_default().push(declarations),
                    None => self.of_all.push(declarations),
                }
            }
        }
        Some(())
    }
}

fn is_dear(declarations: &str) -> bool {
    declarations.contains('#')
        || declarations.contains(DASHING)
        || LAYERING.into_iter().any(|property| declarations.contains(property))
}

fn has_quoted_braces(sheet: &str) -> bool {
    let mut quote = None;
    for c in sheet.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (Some(_), '{' | '}') => return true,
            _ => {}
        }
    }
    false
}

/// `.b` of `g.a > .b:hover`: an element that the selector selects is selected by that too.
fn last_part(selector: &str) -> Option<&str> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let last = selector
        .split(|c: char| c.is_whitespace() || matches!(c, '>' | '+' | '~'))
        .rfind(|part| !part.is_empty())?;
    let mark = usize::from(last.starts_with(['.', '#']));
    let length = last[mark..].find(|c| !is_name(c)).unwrap_or(last.len() - mark);
    (length > 0).then(|| &last[..mark + length])
}

/// Without comments, unless quotes make it doubtful what is one.
fn without_comments(sheet: &str) -> String {
    if sheet.contains(['"', '\'']) {
        return sheet.to_owned();
    }
    let mut text = String::with_capacity(sheet.len());
    let mut rest = sheet;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        text.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn of(sheet: &str, element: &str) -> usize {
        let document = Document::parse(element).unwrap();
        let text = Document::parse("<style/>").unwrap();
        assert!(sheets(&text).is_empty());
        Styles::of(&[without_comments(sheet)])
            .of_element(document.root_element())
            .len()
    }

    #[rstest]
    #[case(".a{fill:url(#g)}", 1)]
    #[case(".a,.b{fill:url(#g)} .a{mask:url(#m)}", 2)]
    #[case(".b{fill:url(#g)}", 0)]
    #[case(".a{fill:red}", 0)]
    #[case("rect{stroke-dasharray:1}", 1)]
    #[case("#i{clip-path:url(#c)}", 1)]
    #[case("g > .a:hover {fill:url(#g)}", 1)]
    #[case(".a.b{fill:url(#g)}", 1)]
    #[case("[x]{fill:url(#g)}", 1)]
    #[case("*{fill:url(#g)}", 1)]
    #[case("@media x { .b{fill:url(#g)} }", 1)]
    #[case("/* } */ .b{fill:url(#g)} /* { */", 0)]
    #[case(".b{mask:url(#m);x:\"{\"}", 1)]
    #[case(".b{x:\"}\";mask:url(#m)}", 1)]
    #[case(".b{x:\"/*\";mask:url(#m);y:\"*/\"}", 1)]
    #[case(".a{x:\"} .z{\";mask:url(#m)}", 1)]
    #[case(".b{font-family:'A B';fill:url('#g')}", 0)]
    #[case(".\\61{mask:url(#m)}", 1)]
    fn a_rule_counts_for_what_it_may_select(#[case] sheet: &str, #[case] count: usize) {
        assert_eq!(of(sheet, "<rect class='a c' id='i'/>"), count);
    }
}
