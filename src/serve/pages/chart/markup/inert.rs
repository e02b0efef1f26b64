use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use pulldown_cmark::{CowStr, Event, LinkType, Parser, Tag, TagEnd};

use super::check::{ID_PREFIX, REL, is_absolute, is_web};
use super::tags::{RawTag, Token, Tokens};

/// Of open elements.
const MAX_DEPTH: usize = 64;
/// A README of 512 KiB has about 50,000.
const MAX_EVENTS: usize = 200_000;

enum Open {
    Markdown,
    CodeBlock,
    Link,
    /// A link that is shown as text.
    Hidden,
    Html(&'static str),
}

/// The events of a README: well nested, with links instead of images, and raw HTML reduced to known tags.
pub(super) struct Inert<'a> {
    parser: Parser<'a>,
    /// The content of a heading, which is read twice: for its ID first.
    replayed: VecDeque<Event<'a>>,
    ready: VecDeque<Event<'a>>,
    open: Vec<Open>,
    /// Raw HTML of a block, which comes line by line.
    block: String,
    /// Number of headings by ID.
    ids: HashMap<String, usize>,
    last_heading: usize,
    events: usize,
    deadline: Instant,
    is_over_limit: bool,
    is_at_end: bool,
}

impl<'a> Iterator for Inert<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.is_over_limit && !self.is_at_end {
            if let Some(event) = self.pull() {
                self.take(event);
            } else {
                self.close_to(0);
                self.is_at_end = true;
            }
        }
        self.ready.pop_front()
    }
}

impl<'a> Inert<'a> {
    pub(super) fn new(parser: Parser<'a>, deadline: Instant) -> Self {
        Self {
            parser,
            replayed: VecDeque::new(),
            ready: VecDeque::new(),
            open: Vec::new(),
            block: String::new(),
            ids: HashMap::new(),
            last_heading: 1,
            events: 0,
            deadline,
            is_over_limit: false,
            is_at_end: false,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_at_end && !self.is_over_limit
    }

    fn pull(&mut self) -> Option<Event<'a>> {
        if let Some(event) = self.replayed.pop_front() {
            return Some(event);
        }
        self.events += 1;
        if self.events > MAX_EVENTS || (self.events.is_multiple_of(64) && Instant::now() > self.deadline) {
            self.is_over_limit = true;
            return None;
        }
        self.parser.next()
    }

    fn take(&mut self, event: Event<'a>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(TagEnd::HtmlBlock) => {
                let block = std::mem::take(&mut self.block);
                self.raw(&block);
            }
            Event::End(end) => self.end(end),
            Event::Html(html) => self.block.push_str(&html),
            Event::InlineHtml(html) => self.raw(&html),
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "☑ " } else { "☐ " };
                self.ready.push_back(Event::Text(mark.into()));
            }
            Event::Rule => self.push("<hr>\n"),
            Event::HardBreak => self.push("<br>\n"),
            other => self.ready.push_back(other),
        }
    }

    fn start(&mut self, tag: Tag<'a>) {
        match tag {
            Tag::HtmlBlock => return,
            Tag::Heading { level, .. } => return self.heading(level as usize),
            Tag::Image { dest_url, .. } => return self.image(&dest_url),
            Tag::Link {
                link_type, dest_url, ..
            } => {
                let url = match link_type {
                    LinkType::Email => format!("mailto:{dest_url}"),
                    _ => dest_url.into_string(),
                };
                match destination(&url).filter(|_| !self.is_in_link()) {
                    Some(url) => {
                        self.push(["<a", &link_attributes(&escape(&url)), ">"].concat());
                        self.open.push(Open::Link);
                    }
                    None => self.open.push(Open::Hidden),
                }
            }
            Tag::CodeBlock(_) => {
                self.push("<pre tabindex=\"0\"><code>");
                self.open.push(Open::CodeBlock);
            }
            tag => {
                // Alignments are styles of cells.
                let tag = if matches!(tag, Tag::Table(_)) {
                    Tag::Table(Vec::new())
                } else {
                    tag
                };
                self.ready.push_back(Event::Start(tag));
                self.open.push(Open::Markdown);
            }
        }
        if self.open.len() > MAX_DEPTH {
            self.is_over_limit = true;
        }
    }

    fn end(&mut self, end: TagEnd) {
        // Raw tags that are open inside this element end with it.
        while matches!(self.open.last(), Some(Open::Html(_))) {
            self.close_last();
        }
        match self.open.pop() {
            Some(Open::Markdown) => self.ready.push_back(Event::End(end)),
            Some(Open::CodeBlock) => self.push("</code></pre>\n"),
            Some(Open::Link) => self.push("</a>"),
            Some(Open::Hidden | Open::Html(_)) | None => {}
        }
    }

    /// A heading gets an ID, as on GitHub, and a level below the title of the page that skips none.
    fn heading(&mut self, level: usize) {
        let mut content = Vec::new();
        while let Some(event) = self.pull()
            && !matches!(event, Event::End(TagEnd::Heading(_)))
        {
            content.push(event);
        }
        let name = self.heading_name(level);
        let id = self.id(&text_of(&content));
        let depth = self.open.len();
        self.push_html(name, &id_attribute(&escape(&id)));
        self.replayed = content.into();
        while let Some(event) = self.replayed.pop_front() {
            self.take(event);
        }
        self.close_to(depth);
    }

    fn heading_name(&mut self, level: usize) -> &'static str {
        const NAMES: [&str; 5] = ["h2", "h3", "h4", "h5", "h6"];
        let level = (level + 1).min(self.last_heading + 1).clamp(2, 6);
        self.last_heading = level;
        NAMES.get(level - 2).copied().unwrap_or("h6")
    }

    fn id(&mut self, text: &str) -> String {
        let words = text.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c),
            _ => None,
        });
        let id = words.collect::<String>().to_lowercase();
        let count = self.ids.entry(id.clone()).or_default();
        *count += 1;
        match *count {
            1 => id,
            count => format!("{id}-{}", count - 1),
        }
    }

    /// An image becomes a link, so that no visitor's address reaches the server of the image.
    fn image(&mut self, url: &str) {
        let (mut content, mut depth) = (Vec::new(), 1);
        while let Some(event) = self.pull() {
            match event {
                Event::Start(Tag::Image { .. }) => depth += 1,
                Event::End(TagEnd::Image) => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            content.push(event);
        }
        self.push_image(&escape(url), escape(&text_of(&content)));
    }

    /// Both are HTML.
    fn push_image(&mut self, url: &str, alt: String) {
        let alt = if alt.trim().is_empty() { "image".to_owned() } else { alt };
        let html = if is_web(url) && !self.is_in_link() {
            format!("<a{}>{alt}</a>", link_attributes(url))
        } else {
            alt
        };
        self.push(html);
    }

    fn raw(&mut self, html: &str) {
        for token in Tokens(html) {
            if Instant::now() > self.deadline {
                self.is_over_limit = true;
                return;
            }
            match token {
                Token::Text(text) => self.push(escape_markup(text)),
                Token::Close(name) => self.close_raw(name),
                Token::Open(tag) => self.open_raw(&tag),
            }
        }
    }

    fn open_raw(&mut self, tag: &RawTag<'_>) {
        let id = tag.id.map(|id| id_attribute(&escape_markup(id))).unwrap_or_default();
        match tag.name {
            "br" | "hr" => self.push(format!("<{}>", tag.name)),
            "img" => {
                let [url, alt] = [tag.src, tag.alt].map(|text| escape_markup(text.unwrap_or_default()));
                self.push_image(&url, alt);
            }
            _ if self.open.len() >= MAX_DEPTH / 2 => {}
            "a" => {
                let url = tag.href.and_then(destination).filter(|_| !self.is_in_link());
                match url {
                    Some(url) => self.push_html("a", &format!("{id}{}", link_attributes(&escape_markup(&url)))),
                    None => self.push_html("span", &id),
                }
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = tag.name.trim_start_matches('h').parse().unwrap_or(6);
                let name = self.heading_name(level);
                self.push_html(name, &id);
            }
            // Long lines scroll, also by keyboard.
            "pre" => self.push_html("pre", &format!("{id} tabindex=\"0\"")),
            name => {
                // Authors leave out the end tags of these.
                let may_be_open = ["dd", "dt", "li", "p", "td", "th", "tr"].contains(&name);
                if may_be_open && matches!(self.open.last(), Some(Open::Html(last)) if *last == name) {
                    self.close_last();
                }
                self.push_html(name, &id);
            }
        }
    }

    fn close_raw(&mut self, name: &str) {
        let is_same = |open: &str| match name {
            "a" => matches!(open, "a" | "span"),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => matches!(open, "h2" | "h3" | "h4" | "h5" | "h6"),
            _ => open == name,
        };
        let raw = self.open.iter().rev().map_while(|open| match open {
            Open::Html(name) => Some(*name),
            _ => None,
        });
        if let Some(above) = raw.take(MAX_DEPTH).position(is_same) {
            self.close_to(self.open.len() - above - 1);
        }
    }

    fn is_in_link(&self) -> bool {
        self.open
            .iter()
            .any(|open| matches!(open, Open::Link | Open::Html("a")))
    }

    fn push_html(&mut self, name: &'static str, attributes: &str) {
        self.push(["<", name, attributes, ">"].concat());
        self.open.push(Open::Html(name));
    }

    fn push(&mut self, html: impl Into<CowStr<'a>>) {
        self.ready.push_back(Event::InlineHtml(html.into()));
    }

    fn close_last(&mut self) {
        if let Some(Open::Html(name)) = self.open.pop() {
            self.push(["</", name, ">"].concat());
        }
    }

    /// Closes elements until `depth` of them are open.
    fn close_to(&mut self, depth: usize) {
        while self.open.len() > depth {
            self.close_last();
        }
    }
}

/// Returns the URL of a link that a page may show; `None` for relative ones, and for other schemes.
fn destination(url: &str) -> Option<String> {
    let url = url.trim();
    match url.strip_prefix('#') {
        Some(id) if !id.is_empty() => Some(format!("#{ID_PREFIX}{id}")),
        _ => is_absolute(url).then(|| url.to_owned()),
    }
}

/// `url` is HTML.
fn link_attributes(url: &str) -> String {
    [" href=\"", url, "\" rel=\"", REL, "\""].concat()
}

/// `id` is HTML.
fn id_attribute(id: &str) -> String {
    [" id=\"", ID_PREFIX, id, "\""].concat()
}

fn text_of(events: &[Event<'_>]) -> String {
    let texts = events.iter().map(|event| match event {
        Event::Text(text) | Event::Code(text) => &**text,
        Event::SoftBreak | Event::HardBreak => " ",
        _ => "",
    });
    texts.collect()
}

fn escape(text: &str) -> String {
    escape_markup(&text.replace('&', "&amp;"))
}

/// Keeps entities.
fn escape_markup(text: &str) -> String {
    text.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
