//! A tree as lines for a template: it ends, whatever its parts say about each other.

use crate::serve::pages::shown::Badge;

/// Levels of nested lists.
const MAX_DEPTH: usize = 8;
const MAX_LINES: usize = 1000;
/// The ends of all levels.
const ENDS: &str = "</ul></li></ul></li></ul></li></ul></li></ul></li></ul></li></ul></li></ul></li>";
const END: usize = ENDS.len() / MAX_DEPTH;

/// A component, a step of a workflow, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    /// Its kind or type.
    pub(super) detail: String,
    pub(super) badge: Badge,
    /// Its namespace and its cluster.
    pub(super) place: String,
    pub(super) message: String,
    pub(super) link: Option<String>,
}

pub(super) struct Line {
    pub(super) item: Item,
    pub(super) has_children: bool,
    /// The markup that ends the lists of which this is the last line.
    pub(super) ends: &'static str,
}

#[derive(Default)]
pub(super) struct Tree {
    pub(super) lines: Vec<Line>,
    /// Items beyond the limits.
    pub(super) left_out: usize,
}

impl Tree {
    /// Each item has the index of its parent. Items of a cycle stand below the first of them.
    pub(super) fn new(entries: Vec<(Item, Option<usize>)>) -> Self {
        let parents: Vec<Option<usize>> = entries.iter().map(|(_, parent)| *parent).collect();
        let order = depth_first(&parents);
        let mut items: Vec<Option<Item>> = entries.into_iter().map(|(item, _)| Some(item)).collect();
        let mut lines = Vec::with_capacity(order.len());
        for (at, (index, depth)) in order.iter().enumerate() {
            let next = order.get(at + 1).map_or(0, |(_, depth)| *depth);
            let Some(item) = items.get_mut(*index).and_then(Option::take) else {
                continue;
            };
            lines.push(Line {
                item,
                has_children: next > *depth,
                ends: ENDS.get(..depth.saturating_sub(next) * END).unwrap_or(ENDS),
            });
        }
        Self {
            left_out: items.iter().flatten().count(),
            lines,
        }
    }
}

/// Returns indexes and depths within the limits, each index at most once.
fn depth_first(parents: &[Option<usize>]) -> Vec<(usize, usize)> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut roots = Vec::new();
    for (index, parent) in parents.iter().enumerate() {
        match parent.and_then(|parent| children.get_mut(parent)) {
            Some(siblings) => siblings.push(index),
            None => roots.push(index),
        }
    }
    add_roots_of_cycles(&children, &mut roots);
    let mut is_seen = vec![false; parents.len()];
    let mut order = Vec::new();
    let mut waiting: Vec<(usize, usize)> = roots.into_iter().rev().map(|root| (root, 0)).collect();
    while let Some((index, depth)) = waiting.pop() {
        if order.len() == MAX_LINES {
            break;
        }
        if depth == MAX_DEPTH || !mark(&mut is_seen, index) {
            continue;
        }
        order.push((index, depth));
        let below = children.get(index).into_iter().flatten();
        waiting.extend(below.rev().map(|child| (*child, depth + 1)));
    }
    order
}

/// No root leads to the items of a cycle.
fn add_roots_of_cycles(children: &[Vec<usize>], roots: &mut Vec<usize>) {
    let mut is_reached = vec![false; children.len()];
    for root in roots.iter() {
        reach(*root, children, &mut is_reached);
    }
    for index in 0..children.len() {
        if is_reached.get(index) == Some(&false) {
            roots.push(index);
            reach(index, children, &mut is_reached);
        }
    }
}

fn reach(root: usize, children: &[Vec<usize>], is_reached: &mut [bool]) {
    let mut waiting = vec![root];
    while let Some(index) = waiting.pop() {
        if mark(is_reached, index) {
            waiting.extend(children.get(index).into_iter().flatten());
        }
    }
}

/// Returns false if it was marked before.
fn mark(marks: &mut [bool], index: usize) -> bool {
    marks.get_mut(index).is_some_and(|mark| !std::mem::replace(mark, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(parents: &[Option<usize>]) -> Tree {
        let item = |index: usize| Item {
            name: index.to_string(),
            detail: String::new(),
            badge: Badge {
                class: "ok",
                label: "Healthy",
            },
            place: String::new(),
            message: String::new(),
            link: None,
        };
        let entries = parents.iter().enumerate().map(|(index, parent)| (item(index), *parent));
        Tree::new(entries.collect())
    }

    /// Returns the markup of the template, with names only.
    fn markup(tree: &Tree) -> String {
        let lines = tree.lines.iter().map(|line| {
            let end = if line.has_children { "<ul>" } else { "</li>" };
            format!("<li>{}{end}{}", line.item.name, line.ends)
        });
        lines.collect()
    }

    #[test]
    fn items_stand_below_their_parents() {
        let nested = tree(&[None, Some(0), Some(1), Some(0), None]);
        assert_eq!(
            markup(&nested),
            "<li>0<ul><li>1<ul><li>2</li></ul></li><li>3</li></ul></li><li>4</li>"
        );
        assert_eq!(nested.left_out, 0);
        assert_eq!(markup(&tree(&[])), "");
    }

    #[test]
    fn a_cycle_ends() {
        let cycle = tree(&[None, Some(3), Some(1), Some(2), Some(4)]);
        assert_eq!(
            markup(&cycle),
            "<li>0</li><li>1<ul><li>2<ul><li>3</li></ul></li></ul></li><li>4</li>"
        );
        assert_eq!(cycle.left_out, 0);
    }

    #[test]
    fn a_parent_that_does_not_exist_is_none() {
        assert_eq!(markup(&tree(&[Some(7), Some(usize::MAX)])), "<li>0</li><li>1</li>");
    }

    #[test]
    fn a_deep_tree_ends_with_balanced_markup() {
        let parents: Vec<Option<usize>> = (0_usize..5000).map(|index| index.checked_sub(1)).collect();
        let deep = tree(&parents);
        assert_eq!((deep.lines.len(), deep.left_out), (MAX_DEPTH, 5000 - MAX_DEPTH));
        let markup = markup(&deep);
        for (start, end) in [("<ul>", "</ul>"), ("<li>", "</li>")] {
            assert_eq!(markup.matches(start).count(), markup.matches(end).count());
        }
    }

    #[test]
    fn a_wide_tree_ends() {
        let wide = tree(&vec![None; 5000]);
        assert_eq!((wide.lines.len(), wide.left_out), (MAX_LINES, 4000));
        let cut = tree(&[&[None][..], &vec![Some(0); 5000]].concat());
        assert_eq!(cut.lines.len(), MAX_LINES);
        assert!(markup(&cut).ends_with("<li>999</li></ul></li>"));
    }
}
