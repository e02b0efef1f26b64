//! Anchored nodes, kept so that aliases can stand for them, and what that may cost.
//!
//! Nothing is expanded that nobody reads, and what an alias stands for is known before it is expanded: sizes add up as
//! nodes are kept. So "a billion laughs" are refused at the first alias that goes over, in no time and memory.

use std::collections::HashMap;
use std::rc::Rc;

use super::source::Event;
use crate::helm::index::DecodeLimits;

/// A node that has an anchor.
#[derive(Debug)]
pub(super) struct Anchored {
    pub(super) events: Rc<[Event]>,
    pub(super) size: Size,
}

/// What a node amounts to with all its aliases expanded.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: u64,
    pub(super) bytes: u64,
    /// Levels of lists and maps.
    pub(super) height: usize,
}

/// An anchored node whose end has not come yet.
#[derive(Debug)]
struct Open {
    id: usize,
    events: Vec<Event>,
    size: Size,
    depth: usize,
}

/// All anchors of a document.
#[derive(Debug)]
pub(super) struct Anchors {
    kept: HashMap<usize, Anchored>,
    open: Vec<Open>,
    kept_bytes: u64,
    aliased: Size,
    limits: DecodeLimits,
}

impl Anchors {
    pub(super) fn new(limits: &DecodeLimits) -> Self {
        Self {
            kept: HashMap::new(),
            open: Vec::new(),
            kept_bytes: 0,
            aliased: Size::default(),
            limits: *limits,
        }
    }

    /// Whether there has been any.
    pub(super) const fn has_any(&self) -> bool {
        self.kept_bytes > 0
    }

    /// What an alias stands for. None: the node that holds it, which has no end.
    pub(super) fn get(&self, id: usize) -> Option<&Anchored> {
        self.kept.get(&id)
    }

    /// Counts an alias of the document's text. An error is the limit that it breaks.
    pub(super) fn refer(&mut self, size: Size) -> Result<(), String> {
        self.aliased.nodes = self.aliased.nodes.saturating_add(size.nodes);
        self.aliased.bytes = self.aliased.bytes.saturating_add(size.bytes);
        if self.aliased.nodes > self.limits.aliased_nodes {
            return Err(format!(
                "its aliases stand for more than {} nodes",
                self.limits.aliased_nodes
            ));
        }
        if self.aliased.bytes > self.limits.aliased_bytes {
            return Err(format!(
                "its aliases stand for more than {} bytes of text",
                self.limits.aliased_bytes
            ));
        }
        Ok(())
    }

    /// Counts what is kept until the end. An error is the limit that it breaks.
    pub(super) fn keep(&mut self, bytes: u64) -> Result<(), String> {
        self.kept_bytes += bytes;
        if self.kept_bytes > self.limits.anchored_bytes {
            return Err(format!(
                "its anchors hold more than {} bytes",
                self.limits.anchored_bytes
            ));
        }
        Ok(())
    }

    /// Keeps an event of the document's text if it belongs to anchored nodes; `id` is its own anchor, 0 for none, and `size`
    /// what it stands for. An error is the limit that is broken.
    pub(super) fn record(&mut self, event: &Event, id: usize, size: Size) -> Result<(), String> {
        if id != 0 {
            self.open.push(Open {
                id,
                events: Vec::new(),
                size: Size::default(),
                depth: 0,
            });
        }
        if self.open.is_empty() {
            return Ok(());
        }
        let bytes = event.text_bytes() + size_of::<Event>() as u64;
        self.keep(bytes * self.open.len() as u64)?;
        for open in &mut self.open {
            match event {
                Event::SequenceStart | Event::MappingStart => open.depth += 1,
                Event::SequenceEnd | Event::MappingEnd => open.depth -= 1,
                Event::Scalar(_) | Event::Alias(_) => {}
            }
            open.size.nodes = open.size.nodes.saturating_add(size.nodes);
            open.size.bytes = open.size.bytes.saturating_add(size.bytes);
            open.size.height = open.size.height.max(open.depth + size.height);
            open.events.push(event.clone());
        }
        // Only the innermost can end here, and those around it that end with it were opened before.
        while self.open.last().is_some_and(|open| open.depth == 0) {
            if let Some(open) = self.open.pop() {
                self.kept.insert(
                    open.id,
                    Anchored {
                        events: open.events.into(),
                        size: open.size,
                    },
                );
            }
        }
        Ok(())
    }
}
