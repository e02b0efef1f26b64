//! What drawing an SVG would cost, judged from its text: whoever draws can't be stopped any more.
//!
//! A few hundred bytes can ask for years of work or all memory there is: elements that are used by elements that are used
//! again, masks within masks, patterns of a million pixels, noise in a million octaves. So the elements are walked the
//! way the drawing would walk them, references included, with a budget; and means that cost by their parameters and not
//! by their number are refused outright. None of these is known in icons of charts, nor does Kubeapps draw them.

use std::collections::HashMap;

use resvg::usvg::roxmltree::{Document, Node};

use super::IconError;

/// Levels of elements, those that are referred to included: each may be a layer of some megabytes, and a call or two on
/// the stack.
const DEPTH: usize = 48;

/// Steps of one filter, each of which keeps a layer.
const FILTER_STEPS: usize = 24;

/// What costs by its parameters.
const REFUSED: [&str; 9] = [
    "pattern",
    "feTurbulence",
    "feMorphology",
    "feConvolveMatrix",
    "feDisplacementMap",
    "feDiffuseLighting",
    "feSpecularLighting",
    "feImage",
    "feTile",
];

/// Refuses what would cost more than this weight.
pub(super) fn check(document: &Document, budget: u64) -> Result<(), IconError> {
    let ids = document.descendants().filter_map(|node| Some((node.attribute("id")?, node)));
    let mut walk = Walk {
        // The first of two with the same id is the one that counts, if any.
        ids: ids.collect::<Vec<_>>().into_iter().rev().collect(),
        styles: Styles::of(document),
        left: budget,
        budget,
    };
    let elements = document.descendants().filter(Node::is_element).count();
    // Each rule is tried on each element.
    walk.take((elements.saturating_mul(walk.styles.rules) / 50) as u64)?;
    walk.visit(document.root_element(), 0)
}

struct Walk<'d, 'i> {
    ids: HashMap<&'d str, Node<'d, 'i>>,
    styles: Styles<'d>,
    left: u64,
    budget: u64,
}

impl<'d, 'i> Walk<'d, 'i> {
    fn visit(&mut self, node: Node<'d, 'i>, depth: usize) -> Result<(), IconError> {
        if depth > DEPTH {
            return Err(IconError::TooComplex(format!("it nests more than {DEPTH} levels deep")));
        }
        let name = node.tag_name().name();
        if REFUSED.contains(&name) {
            return Err(IconError::TooComplex(format!("it uses {name}, which may cost too much")));
        }
        if name == "filter" && node.children().filter(Node::is_element).count() > FILTER_STEPS {
            return Err(IconError::TooComplex(format!("a filter in it has more than {FILTER_STEPS} steps")));
        }
        self.take(1)?;
        for attribute in node.attributes() {
            self.declaration(attribute.name(), attribute.value(), depth)?;
        }
        for declarations in self.styles.of_element(node) {
            self.declaration("style", declarations, depth)?;
        }
        for child in node.children().filter(Node::is_element) {
            self.visit(child, depth + 1)?;
        }
        Ok(())
    }

    /// An attribute, or what a style sheet says: its weight, and that of all it refers to.
    fn declaration(&mut self, name: &str, value: &'d str, depth: usize) -> Result<(), IconError> {
        /// A path with so many bytes weighs as much as an element.
        const BYTES_OF_ONE: usize = 32;
        /// A line may have a million dashes.
        const DASHED: u64 = 2_000;
        self.take(1 + (value.len() / BYTES_OF_ONE) as u64)?;
        if name == "stroke-dasharray" || value.contains("stroke-dasharray") {
            self.take(DASHED)?;
        }
        for id in references(value) {
            if let Some(&target) = self.ids.get(id) {
                self.visit(target, depth + 1)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, weight: u64) -> Result<(), IconError> {
        self.left = self
            .left
            .checked_sub(weight)
            .ok_or_else(|| IconError::TooComplex(format!("drawing it takes more than {} steps", self.budget)))?;
        Ok(())
    }
}

/// The names behind each `#`, as in `url(#a)` and `#a`. A colour looks alike, and is the name of nothing.
fn references(value: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| matches!(c, ')' | '"' | '\'' | ';' | ',' | '#') || c.is_ascii_whitespace();
    value
        .split('#')
        .skip(1)
        .map(move |rest| rest.split(is_end).next().unwrap_or_default())
        .filter(|id| !id.is_empty())
}

/// What style sheets say that makes drawing dearer: the declarations that refer to something or make dashes.
#[derive(Default)]
struct Styles<'d> {
    of_classes: HashMap<&'d str, Vec<&'d str>>,
    /// Of all other selectors: taken to select every element.
    of_all: Vec<&'d str>,
    rules: usize,
}

impl<'d> Styles<'d> {
    fn of(document: &'d Document) -> Self {
        let mut styles = Self::default();
        let texts = document
            .descendants()
            .filter(|node| node.tag_name().name() == "style")
            .flat_map(|node| node.children().filter_map(|text| text.text()));
        for rule in texts.flat_map(|text| text.split_inclusive('}')) {
            let Some((selectors, declarations)) = rule.rsplit_once('{') else {
                continue;
            };
            styles.rules += selectors.split(',').count();
            if !declarations.contains(['#', '\\']) && !declarations.contains("stroke-dasharray") {
                continue;
            }
            for selector in selectors.split(',') {
                match simple_class(selector.trim()) {
                    Some(class) => styles.of_classes.entry(class).or_default().push(declarations),
                    None => styles.of_all.push(declarations),
                }
            }
        }
        styles
    }

    fn of_element(&self, node: Node<'d, '_>) -> Vec<&'d str> {
        let classes = node.attribute("class").unwrap_or_default().split_ascii_whitespace();
        let of_classes = classes.filter_map(|class| self.of_classes.get(class)).flatten();
        of_classes.chain(&self.of_all).copied().collect()
    }
}

/// The class that a selector selects, if that is all it says.
fn simple_class(selector: &str) -> Option<&str> {
    let class = selector.strip_prefix('.')?;
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    (!class.is_empty() && class.chars().all(is_plain)).then_some(class)
}
