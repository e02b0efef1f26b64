use std::borrow::Cow;
use std::io::Read;
use std::rc::Rc;

use granit_parser::{BufferedInput, Event as Parsed, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag};

use super::anchors::{Anchors, Size};
use crate::helm::index::error::{ParserError, Position};
use crate::helm::index::limits::{DecodeLimits, LEVELS_ABOVE};
use crate::helm::index::metered_reader::{Characters, Meter, Metered, ReadFault};
use crate::helm::index::node::Scalar;

#[derive(Debug, Clone)]
pub(super) enum YamlEvent {
    Scalar(Scalar),
    SequenceStart,
    SequenceEnd,
    MappingStart,
    MappingEnd,
    Alias(usize),
}

impl YamlEvent {
    pub(super) const fn text_bytes(&self) -> u64 {
        match self {
            Self::Scalar(scalar) => scalar.text.len() as u64,
            _ => 0,
        }
    }
}

/// The notation of an event, as far as it is needed to find a timestamp in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    /// A scalar on a single line, without anchor or tag.
    Line {
        line: usize,
        plain: bool,
    },
    Block,
    Other,
}

impl Notation {
    fn of(event: &Parsed<'_>, span: &Span) -> Self {
        match event {
            Parsed::Scalar(_, style, 0, None)
                if !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
                    && span.start.line() == span.end.line()
                    && span.start.col() < span.end.col() =>
            {
                Self::Line {
                    line: span.start.line(),
                    plain: *style == ScalarStyle::Plain,
                }
            }
            Parsed::SequenceStart(StructureStyle::Block, ..) | Parsed::MappingStart(StructureStyle::Block, ..) => {
                Self::Block
            }
            _ => Self::Other,
        }
    }

    pub(super) fn line_of_pair(self, key: Self) -> Option<usize> {
        match (key, self) {
            (Self::Line { line, plain: true }, Self::Line { line: end, .. }) if line == end => Some(line),
            _ => None,
        }
    }
}

pub(super) struct EventSource<R: Read> {
    parser: Parser<'static, BufferedInput<Characters<R>>>,
    meter: Rc<Meter>,
    limits: DecodeLimits,
    anchors: Anchors,
    replays: Vec<Replay>,
    position: Position,
    notation: Notation,
    depth: usize,
    is_too_deep: bool,
    /// The rest of a node that is nested too deeply is read without an error for it.
    is_leaving: bool,
    nodes: u64,
}

struct Replay {
    events: Rc<[YamlEvent]>,
    next: usize,
}

impl<R: Read> EventSource<R> {
    pub(super) fn new(input: R, limits: &DecodeLimits) -> Self {
        Self::below(0, input, limits)
    }

    /// Creates a source for a text that is nested `levels` deep in the document that the limits apply to.
    pub(super) fn below(levels: usize, input: R, limits: &DecodeLimits) -> Self {
        // The parser keeps about 100 bytes for each level. `DecodeLimits::depth` is lower and costs only a version.
        const NESTING: usize = 10_000;
        let meter = Rc::new(Meter::default());
        let metered = Metered::new(input, limits.max_bytes_without_progress(), Rc::clone(&meter));
        let options = granit_parser::options! {
            emit_comments: false,
            emit_anchor_events: true,
            flow_nesting_limit: NESTING,
            block_nesting_limit: NESTING,
        };
        let parser = Parser::with_options(BufferedInput::new(Characters::new(metered)), options);
        Self {
            parser,
            meter,
            limits: *limits,
            anchors: Anchors::new(limits),
            replays: Vec::new(),
            position: Position { line: 1, column: 1 },
            notation: Notation::Other,
            depth: levels,
            is_too_deep: false,
            is_leaving: false,
            nodes: 0,
        }
    }

    pub(super) const fn position(&self) -> Position {
        self.position
    }

    pub(super) const fn notation(&self) -> Notation {
        self.notation
    }

    /// Returns the nesting of the text, without expanded aliases.
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }

    /// Returns true once if the last error was the nesting.
    pub(super) const fn take_too_deep(&mut self) -> bool {
        std::mem::replace(&mut self.is_too_deep, false)
    }

    /// Reads to the end of the list or map that has this depth.
    pub(super) fn leave(&mut self, depth: usize) -> Result<(), ParserError> {
        self.is_leaving = true;
        while self.depth >= depth {
            self.next_unexpanded()?;
        }
        self.is_leaving = false;
        Ok(())
    }

    pub(super) const fn nodes(&self) -> u64 {
        self.nodes
    }

    pub(super) const fn has_anchors(&self) -> bool {
        self.anchors.has_any()
    }

    /// Returns false if there is no document.
    pub(super) fn begin(&mut self) -> Result<bool, ParserError> {
        loop {
            match self.next_parsed()? {
                Parsed::DocumentStart(..) => return Ok(true),
                Parsed::StreamEnd => return Ok(false),
                _ => {}
            }
        }
    }

    pub(super) fn end(&mut self) -> Result<(), ParserError> {
        loop {
            match self.next_parsed()? {
                Parsed::StreamEnd => return Ok(()),
                Parsed::DocumentEnd => {}
                _ => return Err(self.invalid("a second document follows the first")),
            }
        }
    }

    pub(super) fn next(&mut self) -> Result<YamlEvent, ParserError> {
        loop {
            match self.next_unexpanded()? {
                YamlEvent::Alias(id) => {
                    // `count` has already rejected unknown aliases.
                    if let Some(anchored) = self.anchors.get(id) {
                        self.replays.push(Replay {
                            events: Rc::clone(&anchored.events),
                            next: 0,
                        });
                    }
                }
                event => return Ok(event),
            }
        }
    }

    pub(super) fn skip(&mut self) -> Result<(), ParserError> {
        match self.next_unexpanded()? {
            YamlEvent::SequenceStart | YamlEvent::MappingStart => self.skip_rest(),
            _ => Ok(()),
        }
    }

    pub(super) fn skip_rest(&mut self) -> Result<(), ParserError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next_unexpanded()? {
                YamlEvent::SequenceStart | YamlEvent::MappingStart => depth += 1,
                YamlEvent::SequenceEnd | YamlEvent::MappingEnd => depth -= 1,
                YamlEvent::Scalar(_) | YamlEvent::Alias(_) => {}
            }
        }
        Ok(())
    }

    fn next_unexpanded(&mut self) -> Result<YamlEvent, ParserError> {
        while let Some(replay) = self.replays.last_mut() {
            if let Some(event) = replay.events.get(replay.next) {
                replay.next += 1;
                return Ok(event.clone());
            }
            self.replays.pop();
        }
        let (event, anchor) = match self.next_parsed()? {
            Parsed::Scalar(text, style, anchor, tag) => {
                (YamlEvent::Scalar(scalar(text, style, tag.as_deref())), anchor)
            }
            Parsed::SequenceStart(_, anchor, _) => (YamlEvent::SequenceStart, anchor),
            Parsed::MappingStart(_, anchor, _) => (YamlEvent::MappingStart, anchor),
            Parsed::SequenceEnd => (YamlEvent::SequenceEnd, 0),
            Parsed::MappingEnd => (YamlEvent::MappingEnd, 0),
            Parsed::Alias(id) => (YamlEvent::Alias(id), 0),
            _ => return Err(self.invalid("unexpected end of the index")),
        };
        self.count(&event, anchor)?;
        Ok(event)
    }

    /// Checks an event against the limits and records it for its anchor.
    fn count(&mut self, event: &YamlEvent, anchor: usize) -> Result<(), ParserError> {
        let size = match event {
            YamlEvent::SequenceStart | YamlEvent::MappingStart => {
                self.depth += 1;
                Size {
                    nodes: 1,
                    bytes: 0,
                    height: 0,
                }
            }
            YamlEvent::SequenceEnd | YamlEvent::MappingEnd => {
                self.depth -= 1;
                Size::default()
            }
            YamlEvent::Scalar(scalar) => Size {
                nodes: 1,
                bytes: scalar.text.len() as u64,
                height: 0,
            },
            YamlEvent::Alias(id) => {
                let Some(anchored) = self.anchors.get(*id) else {
                    return Err(self.invalid("an alias refers to the node that contains it"));
                };
                let size = anchored.size;
                self.anchors
                    .count_alias(size)
                    .map_err(|limit| self.too_complex(limit))?;
                size
            }
        };
        self.nodes += u64::from(size.nodes > 0);
        if self.nodes > self.limits.nodes {
            return Err(self.too_complex(format!("it has more than {} nodes", self.limits.nodes)));
        }
        if event.text_bytes() > self.limits.scalar_bytes {
            return Err(self.too_complex(format!("a text has more than {} bytes", self.limits.scalar_bytes)));
        }
        self.anchors
            .record(event, anchor, size)
            .map_err(|limit| self.too_complex(limit))?;
        // Last, so that the event is counted and recorded if the error costs only a version.
        if self.depth + size.height > LEVELS_ABOVE + self.limits.depth && !self.is_leaving {
            self.is_too_deep = true;
            let limit = format!("lists and maps are nested more than {} levels deep", self.limits.depth);
            return Err(self.too_complex(limit));
        }
        Ok(())
    }

    fn next_parsed(&mut self) -> Result<Parsed<'static>, ParserError> {
        loop {
            match self.next_parsed_or_name()? {
                // The parser keeps all anchor names in memory.
                Parsed::Anchor(_, name) => {
                    self.anchors
                        .count_bytes(name.len() as u64)
                        .map_err(|limit| self.too_complex(limit))?;
                }
                event => return Ok(event),
            }
        }
    }

    fn next_parsed_or_name(&mut self) -> Result<Parsed<'static>, ParserError> {
        let next = self.parser.next_event();
        // The parser takes a fault for the end of the text, so the fault has precedence.
        if self.meter.has_failed() {
            self.note_parser_position(next.as_ref());
            return Err(self.fault());
        }
        match next {
            Some(Ok((event, span))) => {
                self.position = position(&span.start);
                self.notation = Notation::of(&event, &span);
                self.meter.reset();
                Ok(event)
            }
            Some(Err(error)) => {
                self.position = position(error.marker());
                Err(self.invalid(&error.info()))
            }
            None => Err(self.invalid("unexpected end of the index")),
        }
    }

    fn note_parser_position(&mut self, next: Option<&Result<(Parsed<'static>, Span), ScanError>>) {
        match next {
            Some(Ok((_, span))) => self.position = position(&span.end),
            Some(Err(error)) => self.position = position(error.marker()),
            None => {}
        }
    }

    fn fault(&self) -> ParserError {
        match self.meter.take_fault() {
            Some(ReadFault::Read(error)) => ParserError::Read(error),
            Some(ReadFault::NulByte) => self.invalid("the text contains a NUL byte"),
            Some(ReadFault::NoProgress) => self.too_complex(format!(
                "a single text or comment has more than {} bytes",
                self.limits.max_bytes_without_progress()
            )),
            Some(ReadFault::NotUtf8) | None => self.invalid("the bytes are not valid UTF-8"),
        }
    }

    pub(super) fn invalid(&self, message: &str) -> ParserError {
        ParserError::invalid(message, self.position)
    }

    pub(super) const fn too_complex(&self, limit: String) -> ParserError {
        ParserError::TooComplex {
            limit,
            position: self.position,
        }
    }
}

fn scalar(text: Cow<'static, str>, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    let plain = match tag.and_then(Tag::core_suffix) {
        Some("str") => false,
        Some("bool" | "null") => true,
        _ => style == ScalarStyle::Plain && tag.is_none_or(|tag| (tag.handle(), tag.suffix()) != ("", "!")),
    };
    Scalar {
        text: text.into_owned(),
        plain,
    }
}

/// The parser counts columns from 0.
fn position(marker: &granit_parser::Marker) -> Position {
    Position {
        line: marker.line(),
        column: marker.col() + 1,
    }
}
