//! What drawing an SVG would cost, judged from its text: whoever draws can't be stopped any more.
//!
//! A few hundred bytes can ask for years of work or all memory there is: elements that are used by elements that are used
//! again, masks within masks, patterns of a million pixels, noise in a million octaves. So the elements are walked the
//! way the drawing would walk them, references included, with a budget; and means that cost by their parameters and not
//! by their number are refused outright. None of these is known in icons of charts, nor does Kubeapps draw them.

use std::collections::HashMap;

use resvg::usvg::roxmltree::{Document, Node};

use super::IconError;
use super::styles::{self, Styles};

/// Levels of elements, those that are referred to included: each may be a layer of some megabytes, and a call or two on
/// the stack.
const DEPTH: usize = 48;

/// Steps of one filter, each of which keeps a layer.
const FILTER_STEPS: usize = 24;

/// What a step of a filter weighs: it goes over all pixels of a layer, several times.
const FILTER_STEP: u64 = 200;

/// What a layer weighs, which is emptied, drawn on and drawn.
const LAYER: u64 = 20;

/// What a dashed line weighs: it may have a million dashes.
const DASHES: u64 = 2_000;

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

/// The weight. What would cost more than `budget` is refused.
pub(super) fn check(document: &Document, budget: u64) -> Result<u64, IconError> {
    let sheets = styles::sheets(document);
    // Of two with the same id now the first is drawn and now the last, so each counts.
    let mut ids: HashMap<&str, Vec<Node>> = HashMap::new();
    for node in document.descendants() {
        if let Some(id) = node.attribute("id") {
            ids.entry(id).or_default().push(node);
        }
    }
    let mut walk = Walk {
        ids,
        styles: Styles::of(&sheets),
        left: budget,
        budget,
    };
    let elements = document.descendants().filter(Node::is_element).count();
    // Each rule is tried on each element.
    walk.take((elements.saturating_mul(walk.styles.count()) / 50) as u64)?;
    walk.visit(document.root_element(), 0)?;
    Ok(budget - walk.left)
}

struct Walk<'d, 'i, 's> {
    ids: HashMap<&'d str, Vec<Node<'d, 'i>>>,
    styles: Styles<'s>,
    left: u64,
    budget: u64,
}

impl<'d, 'i> Walk<'d, 'i, '_> {
    fn visit(&mut self, node: Node<'d, 'i>, depth: usize) -> Result<(), IconError> {
        if depth > DEPTH {
            return Err(IconError::TooComplex(format!("it nests more than {DEPTH} levels deep")));
        }
        let name = node.tag_name().name();
        if REFUSED.contains(&name) {
            return Err(IconError::TooComplex(format!(
                "it uses {name}, which may cost too much"
            )));
        }
        if name == "filter" && node.children().filter(Node::is_element).count() > FILTER_STEPS {
            return Err(IconError::TooComplex(format!(
                "a filter in it has more than {FILTER_STEPS} steps"
            )));
        }
        self.take(if name.starts_with("fe") { FILTER_STEP } else { 1 })?;
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
    fn declaration(&mut self, name: &str, value: &str, depth: usize) -> Result<(), IconError> {
        /// A path with so many bytes weighs as much as an element.
        const BYTES_OF_ONE: usize = 32;
        self.take(1 + (value.len() / BYTES_OF_ONE) as u64)?;
        let sets = |property: &str| name == property || value.contains(property);
        if styles::LAYERING.into_iter().any(sets) {
            self.take(LAYER)?;
        }
        if sets(styles::DASHING) {
            self.take(DASHES)?;
        }
        for id in references(value) {
            for target in self.ids.get(id).cloned().unwrap_or_default() {
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
