//! Stores anchored nodes for aliases. Their expanded size is known before an alias is expanded: a "billion laughs"
//! document fails at the first alias above the limit.

use std::collections::HashMap;
use std::rc::Rc;

use super::source::YamlEvent;
use crate::helm::index::DecodeLimits;

#[derive(Debug)]
pub(super) struct Anchored {
    pub(super) events: Rc<[YamlEvent]>,
    pub(super) size: Size,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: u64,
    pub(super) bytes: u64,
    pub(super) height: usize,
}

#[derive(Debug)]
struct OpenNode {
    id: usize,
    events: Vec<YamlEvent>,
    size: Size,
    depth: usize,
}

#[derive(Debug)]
pub(super) struct Anchors {
    complete: HashMap<usize, Anchored>,
    open: Vec<OpenNode>,
    anchored_bytes: u64,
    aliased: Size,
    limits: DecodeLimits,
}

impl Anchors {
    pub(super) fn new(limits: &DecodeLimits) -> Self {
        Self {
            complete: HashMap::new(),
            open: Vec::new(),
            anchored_bytes: 0,
            aliased: Size::default(),
            limits: *limits,
        }
    }

    pub(super) const fn has_any(&self) -> bool {
        self.anchored_bytes > 0
    }

    /// Returns None for an alias inside its own node.
    pub(super) fn get(&self, id: usize) -> Option<&Anchored> {
        self.complete.get(&id)
    }

    pub(super) fn count_alias(&mut self, size: Size) -> Result<(), String> {
        self.aliased.nodes = self.aliased.nodes.saturating_add(size.nodes);
        self.aliased.bytes = self.aliased.bytes.saturating_add(size.bytes);
        if self.aliased.nodes > self.limits.aliased_nodes {
            return Err(format!(
                "its aliases expand to more than {} nodes",
                self.limits.aliased_nodes
            ));
        }
        if self.aliased.bytes > self.limits.aliased_bytes {
            return Err(format!(
                "its aliases expand to more than {} bytes of text",
                self.limits.aliased_bytes
            ));
        }
        Ok(())
    }

    /// Counts bytes that stay in memory to the end. The error is the exceeded limit.
    pub(super) fn count_bytes(&mut self, bytes: u64) -> Result<(), String> {
        self.anchored_bytes += bytes;
        if self.anchored_bytes > self.limits.anchored_bytes {
            return Err(format!(
                "its anchored nodes take more than {} bytes",
                self.limits.anchored_bytes
            ));
        }
        Ok(())
    }

    /// `id` is the event's own anchor or 0, `size` its expanded size. The error is the exceeded limit.
    pub(super) fn record(&mut self, event: &YamlEvent, id: usize, size: Size) -> Result<(), String> {
        if id != 0 {
            self.open.push(OpenNode {
                id,
                events: Vec::new(),
                size: Size::default(),
                depth: 0,
            });
        }
        if self.open.is_empty() {
            return Ok(());
        }
        let bytes = event.text_bytes() + size_of::<YamlEvent>() as u64;
        self.count_bytes(bytes * self.open.len() as u64)?;
        for open in &mut self.open {
            match event {
                YamlEvent::SequenceStart | YamlEvent::MappingStart => open.depth += 1,
                YamlEvent::SequenceEnd | YamlEvent::MappingEnd => open.depth -= 1,
                YamlEvent::Scalar(_) | YamlEvent::Alias(_) => {}
            }
            open.size.nodes = open.size.nodes.saturating_add(size.nodes);
            open.size.bytes = open.size.bytes.saturating_add(size.bytes);
            open.size.height = open.size.height.max(open.depth + size.height);
            open.events.push(event.clone());
        }
        // Nodes end from the innermost outwards.
        while self.open.last().is_some_and(|open| open.depth == 0) {
            if let Some(open) = self.open.pop() {
                self.complete.insert(
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
