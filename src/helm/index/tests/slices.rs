//! Generates slices with one chart version each, full of YAML pitfalls, and extracts them from indexes.

use super::generator::Random;

/// Keys, with the frequently used ones repeated.
const KEYS: [&str; 26] = [
    "name",
    "version",
    "appVersion",
    "description",
    "home",
    "icon",
    "created",
    "created",
    "digest",
    "deprecated",
    "keywords",
    "sources",
    "urls",
    "maintainers",
    "annotations",
    "category",
    "email",
    "url",
    "apiVersion",
    "type",
    "dependencies",
    "artifacthub.io/changes",
    "kubeVersion",
    "tillerVersion",
    "null",
    "1.5",
];

const ODD_KEYS: [&str; 22] = [
    "a b",
    "\"name\"",
    "'created'",
    "<<",
    "? a",
    "?",
    "-a",
    "a:b",
    "",
    "# c",
    "&a k",
    "é",
    "[a]",
    "{a}",
    "*a",
    "!x k",
    "!!str created",
    "created ",
    "- name",
    "---",
    "a#b",
    "a\u{a0}b",
];

/// Words that are plain in any style.
const WORDS: [&str; 16] = [
    "a",
    "b c",
    "1.10",
    "true",
    "null",
    "~",
    "2020-01-01T00:00:00Z",
    "https://e.io/x",
    "é",
    "\u{1f525}",
    "x-y",
    "a, b",
    "(a)",
    "v1.0.0+1",
    "yes",
    "category",
];

/// Fragments with a meaning in some style.
const TRAPS: [&str; 62] = [
    ": ",
    ":",
    " #",
    "#",
    "- ",
    "-",
    "\"",
    "'",
    "''",
    "\\",
    "\\n",
    "\\\"",
    "\\x41",
    "\\x00",
    "\\u00e9",
    "\\u0085",
    "\\U0001F525",
    "\\U00110000",
    "\\ud83d\\ude00",
    "\\ud800",
    "\\0",
    "\\ ",
    "\\N",
    "\\t",
    "\\r",
    "\\/",
    "\\u12",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{ffff}",
    "\u{a0}",
    "\t",
    "\r",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&a ",
    "*a",
    "!!str ",
    "!x ",
    "|",
    ">",
    "%",
    "@",
    "`",
    "?",
    "? ",
    "=",
    "<",
    "<<",
    "  ",
    " ",
    "...",
    "---",
    "\u{1}",
    "\u{7f}",
    "\u{9f}",
    "\n",
    "\\\n",
];

/// Generates one version, mostly in Helm's style, with pitfalls.
pub fn made(random: &mut Random) -> Vec<u8> {
    let mut maker = Maker {
        column: random.below(4),
        // From all valid to mostly invalid. Mostly valid slices with one pitfall find the most bugs.
        odds: random.pick(&[usize::MAX, 60, 20, 6]),
        random,
        text: String::new(),
    };
    maker.item();
    let mut bytes = maker.text.into_bytes();
    for _ in 0..random.pick(&[0, 0, 0, 0, 1, 1, 2]) {
        mutate(random, &mut bytes);
    }
    bytes
}

struct Maker<'r> {
    random: &'r mut Random,
    column: usize,
    /// One in `odds` choices is odd.
    odds: usize,
    text: String,
}

impl Maker<'_> {
    fn is_odd(&mut self) -> bool {
        self.odds != usize::MAX && self.random.below(self.odds) == 0
    }

    /// Picks from `odd` with the configured odds, otherwise from `usual`.
    fn pick<T: Copy>(&mut self, usual: &[T], odd: &[T]) -> T {
        let choices = if self.is_odd() { odd } else { usual };
        self.random.pick(choices)
    }

    fn spaces(&mut self, count: usize) {
        self.text.extend(std::iter::repeat_n(' ', count));
    }

    fn item(&mut self) {
        self.spaces(self.column);
        let dash = self.pick(&["- "], &["-  ", "-", "-\n", "- - ", "- # c\n"]);
        self.text.push_str(dash);
        self.map(self.column + 2, 0);
        if self.is_odd() {
            let end = self.random.pick(&[
                "\n\n",
                " \n",
                "    \n",
                "...\n",
                "---\n",
                "# c\n",
                "    # c\n",
                "- a: b\n",
                "x",
                "\t\n",
            ]);
            self.text.push_str(end);
        }
        if self.is_odd() {
            self.text.pop();
        }
    }

    /// Writes a map whose first key starts at the current position.
    fn map(&mut self, column: usize, level: usize) {
        for number in 0..1 + self.random.below(if level == 0 { 7 } else { 3 }) {
            if number > 0 {
                let indent = self.shifted(column);
                self.spaces(indent);
            }
            let key = self.pick(&KEYS, &ODD_KEYS);
            self.text.push_str(key);
            let colon = self.pick(&[":"], &["", " :", ": ", ":\t"]);
            self.text.push_str(colon);
            self.value(column, level);
        }
    }

    fn shifted(&mut self, column: usize) -> usize {
        if self.is_odd() {
            (column + self.random.below(5)).saturating_sub(2)
        } else {
            column
        }
    }

    fn value(&mut self, column: usize, level: usize) {
        const DEEPEST: usize = 3;
        if level == 0 && self.random.below(300) == 0 {
            return self.nested(column);
        }
        match self.random.below(10) {
            0 if level < DEEPEST => {
                self.text.push('\n');
                let shift = self.pick(&[2], &[0, 1, 3, 4]);
                let indent = self.shifted(column + shift);
                self.spaces(indent);
                self.map(column + shift, level + 1);
            }
            1 | 2 if level < DEEPEST => {
                self.text.push('\n');
                let shift = self.pick(&[0, 0, 2], &[1, 3]);
                self.list(column + shift, level + 1);
            }
            3 => {
                let nothing = self.pick(
                    &["\n", " []\n", " {}\n", " \"\"\n", " ''\n", " ~\n"],
                    &[
                        " \n",
                        "\n\n",
                        " [a]\n",
                        " {a: b}\n",
                        " []]\n",
                        " [ ]\n",
                        " [] # c\n",
                        "[]\n",
                        " [\n",
                        " # c\n",
                        " [],\n",
                    ],
                );
                self.text.push_str(nothing);
            }
            _ => {
                let space = self.pick(&[" "], &["", "  ", "\t", " &a ", " !!str ", " ! "]);
                self.text.push_str(space);
                self.scalar(column);
            }
        }
    }

    /// Nests about as deep as the limit.
    fn nested(&mut self, column: usize) {
        let mut column = column;
        for _ in 0..20 + self.random.below(15) {
            column += 1;
            self.text.push('\n');
            self.spaces(column);
            if self.random.below(6) == 0 {
                self.text.push_str("- ");
                column += 2;
            }
            self.text.push_str("a:");
        }
        self.text.push_str(" b\n");
    }

    fn list(&mut self, column: usize, level: usize) {
        for _ in 0..1 + self.random.below(3) {
            let indent = self.shifted(column);
            self.spaces(indent);
            let dash = self.pick(&["- "], &["-", "-  ", "- - ", "-\n", "-\t"]);
            self.text.push_str(dash);
            match self.random.below(6) {
                0 | 1 => self.map(column + 2, level + 1),
                2 => {
                    let nothing = self.pick(&["[]\n", "{}\n", "\"\"\n"], &["\n", "[a]\n", "[]: a\n", "\"a\": b\n"]);
                    self.text.push_str(nothing);
                }
                _ => self.scalar(column),
            }
        }
    }

    /// Writes words with line breaks, mostly deeper than `column`.
    fn words(&mut self, column: usize) {
        for number in 0..self.random.below(5) {
            match self.random.below(4) {
                0 if number > 0 => {
                    let breaks = self.pick(
                        &["\n", "\n", "\n\n", "\n\n\n"],
                        &[" \n", "\n  \n", "\\\n", "\r\n", "\n\t\n"],
                    );
                    self.text.push_str(breaks);
                    let deeper = 1 + self.random.below(4);
                    let indent = self.shifted(column + deeper);
                    self.spaces(indent);
                }
                _ if number > 0 => self.text.push(' '),
                _ => {}
            }
            let word = self.pick(&WORDS, &TRAPS);
            self.text.push_str(word);
        }
    }

    fn scalar(&mut self, column: usize) {
        match self.random.below(8) {
            0..=1 => self.quoted(column, '"'),
            2..=3 => self.quoted(column, '\''),
            4 => self.block(column),
            5 => {
                let time = self.pick(
                    &[
                        "2020-01-01T00:00:00Z",
                        "\"2021-02-03T04:05:06.789Z\"",
                        "'2022-01-01T00:00:00+02:00'",
                    ],
                    &[
                        "2022-01-01T00:00:00Z:",
                        "2022-01-01T00:00:00Z # c",
                        "\"2022-01-01T00:00:00Z",
                        "2022-01-01T00:00:00Z\n        x",
                    ],
                );
                self.text.push_str(time);
                self.text.push('\n');
            }
            _ => {
                let word = self.pick(&WORDS, &TRAPS);
                self.text.push_str(word);
                self.words(column);
                self.text.push('\n');
            }
        }
    }

    fn quoted(&mut self, column: usize, quote: char) {
        self.text.push(quote);
        if self.random.below(3) == 0 {
            let inner = match quote {
                '"' => self.random.pick(&[
                    "\\\"",
                    "\\n",
                    "\\\\",
                    "\\U0001F525 ",
                    "'",
                    ": ",
                    " #",
                    "\\ a",
                    "- ",
                    "\\t",
                    "\\e",
                ]),
                _ => self.random.pick(&["''", "'' ", "\\", "\"", ": ", " # ", "\\n", "- "]),
            };
            self.text.push_str(inner);
        }
        self.words(column);
        if !self.is_odd() {
            self.text.push(quote);
        }
        let end = self.pick(
            &["\n"],
            &[" \n", " x\n", ": a\n", " # c\n", "'\n", "\"\n", "\n        x\n"],
        );
        self.text.push_str(end);
    }

    fn block(&mut self, column: usize) {
        let header = self.pick(
            &["|\n", "|-\n", "|+\n"],
            &[
                ">\n", ">-\n", "|2\n", "|-2\n", "| \n", "| # c\n", "|\n\n", "|x\n", "|\n   \n",
            ],
        );
        self.text.push_str(header);
        let indent = column + 1 + self.random.below(3);
        for _ in 0..self.random.below(4) {
            let odd = self.random.below(6);
            let shift = match odd {
                0 => self.random.below(3),
                _ => 0,
            };
            let line = self.shifted(indent + shift);
            self.spaces(line);
            let content = self.pick(
                &[
                    "a",
                    "- kind: b",
                    "  c: d",
                    "# e",
                    "",
                    "\"",
                    "x: |",
                    "created: 2020-01-01T00:00:00Z",
                ],
                &TRAPS,
            );
            self.text.push_str(content);
            let end = self.random.pick(&["\n", "\n", "\n", "\n\n", " \n", "\n\n\n"]);
            self.text.push_str(end);
        }
    }
}

pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let place = random.below(bytes.len());
    let line_start = bytes[..place]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let line_end = bytes[place..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |at| place + at + 1);
    match random.below(9) {
        0 => bytes[place] = (random.next() & 0xff) as u8,
        1 => drop(bytes.remove(place)),
        2 => drop(bytes.splice(place..place, random.pick(&TRAPS).bytes())),
        3 => drop(bytes.drain(line_start..line_end)),
        4 => {
            let line = bytes[line_start..line_end].to_vec();
            let elsewhere = random.below(bytes.len());
            let at = bytes[..elsewhere]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            drop(bytes.splice(at..at, line));
        }
        5 => drop(bytes.splice(line_start..line_start, std::iter::repeat_n(b' ', 1 + random.below(3)))),
        6 if bytes[line_start] == b' ' => drop(bytes.remove(line_start)),
        7 => drop(bytes.splice(line_end..line_end, *b"\n")),
        _ => {
            let end = (place + random.below(12)).min(bytes.len());
            let piece = random.pick(&TRAPS).bytes();
            drop(bytes.splice(place..end, piece));
        }
    }
}

/// Extracts the versions of all charts of an index in block style, each with the column of its dash.
pub fn extract(index: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let Some(entries) = index.find("entries:\n").map(|at| &index[at + "entries:\n".len()..]) else {
        return found;
    };
    let (mut at, mut charts, mut begun) = (0, None, None::<(usize, usize)>);
    let mut dash = None;
    for line in entries.split_inclusive('\n') {
        let text = line.trim_start_matches(' ');
        let (start, indent) = (at, line.len() - text.len());
        at += line.len();
        if text.trim_end().is_empty() || begun.is_some_and(|(column, _)| indent > column) {
            continue;
        }
        let charts = *charts.get_or_insert(indent);
        if let Some((column, from)) = begun.take() {
            found.push((column, &entries[from..start]));
        }
        if indent < charts || charts == 0 {
            return found;
        }
        if !text.starts_with("- ") {
            dash = None;
        } else if *dash.get_or_insert(indent) == indent {
            begun = Some((indent, start));
        }
    }
    if let Some((column, from)) = begun {
        found.push((column, &entries[from..]));
    }
    found
}
