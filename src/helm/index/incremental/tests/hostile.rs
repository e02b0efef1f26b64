//! Small documents that are made to deceive, one after another.

use super::*;
use generator::Random;

const HEADS: [&str; 20] = [
    "apiVersion: v1\nentries:\n",
    "apiVersion: v1\nentries:\n",
    "apiVersion: v1\nentries:\n",
    "entries:\n",
    "---\nentries:\n",
    "x: |\nentries:\n",
    "\"entries\":\nfoo: |\nentries:\n",
    "--- |\nentries:\n",
    "x: \"a\nentries:\n",
    "x: [\nentries:\n",
    "%YAML 1.2\n---\nentries:\n",
    "%TAG ! tag:x,2000:\n---\nentries:\n",
    "entries:\n  a:\n  - name: z\n    version: 1\nentries:\n",
    "<<: {entries: {}}\nentries:\n",
    "x: &a 1\nentries:\n",
    "\u{feff}entries:\n",
    "#\r%TAG !! tag:x,2000:\r---\nentries:\n",
    "\u{feff}\u{feff}%TAG !! tag:x,2000:\n---\nentries:\n",
    "# x\n\u{feff}%TAG !! tag:x,2000:\n---\nentries:\n",
    "<x: 1\napiVersion: v1\nentries:\n",
];

const FEET: [&str; 20] = [
    "",
    "",
    "",
    "generated: \"2020-01-01T00:00:00Z\"\n",
    "generated: 2021-01-01T00:00:00Z\n",
    "generated: x",
    "\t\n",
    "\r  b:\n",
    "]\n",
    "z\"\n",
    "x: y\n---\na: b\n",
    "...\n",
    "x: 1\n...\n",
    "- x\n",
    "entries:\n  z:\n  - name: z\n    version: 1\n",
    "x: *a\n",
    "<<: {entries: {}}\n",
    "x: \"\n",
    "x: 1\r...\n",
    "x: 1\r---\ny: 2\n",
];

const KEYS: [&str; 12] = [
    "a",
    "a",
    "b",
    "b",
    "c",
    "d",
    "null",
    "1.5",
    "? e",
    "\"f\"",
    "g: []",
    "h: # comment",
];

const FIELDS: [&str; 63] = [
    "name: a",
    "name: b",
    "name: c",
    "name: a",
    "version: 1.0.0",
    "version: 1.1.0",
    "version: 1.1.0",
    "version: 2",
    "version: [1]",
    "created: 2020-01-01T00:00:00Z",
    "created: 2021-01-01T00:00:00Z",
    "created: \"2020-01-01T00:00:00Z\"",
    "created: \"2020-01-01T00:00:00.123Z\"",
    "created: '2020-01-01T00:00:00Z'",
    "created: 2020-01-01T00:00:00Z:",
    "created: 2020-01-01T00:00:00Z\n      more",
    "created: 2020-01-01T00:00:00Z\n      more: 1",
    "created: \"2020-01-01T00:00:00Z\"\n      more",
    "created: \"2020-01-01T00:00:00Z",
    "created: \"\u{85}\"",
    "created: [",
    "\"created\": 2020-01-01T00:00:00Z",
    "home: 'foo\n    created: 2020-01-01T00:00:00Z\n    bar'",
    "home: 'foo\n      created: 2020-01-01T00:00:00Z\n      bar'",
    "home: 'foo\n     created: 2020-01-01T00:00:00Z",
    "home: |\n      created: 2020-01-01T00:00:00Z",
    "home: |2\n      created: 2020-01-01T00:00:00Z",
    "home: >\n    created: 2021-01-01T00:00:00Z",
    "home: foo\n    created: 2020-01-01T00:00:00Z",
    "home: {\n    created: 2020-01-01T00:00:00Z\n    }",
    "home: \"x\n  - name: evil\n    version: 9\"",
    "home: \"x\n  evil:\n  - name: evil\n    version: 9\"",
    "home: \"x",
    "x\"",
    "home: 'x",
    "x'",
    "home: [x",
    "]",
    "home: |",
    "home: |+\n\n",
    "home: a\r  - name: e",
    "home: a\r...",
    "home: a\r---\r",
    "home: a\r%x",
    "deprecated: !!str true",
    "deprecated: !!bool true",
    "home: a\u{85}  - name: e",
    "home: a\u{2028}  - name: e",
    "home: &x y",
    "icon: *x",
    "<<: {name: a}",
    "annotations: {category: &x z}",
    "annotations:\n      category: z",
    "deprecated: true",
    "urls:\n    - u",
    "urls: [u,",
    "keywords:\n  - u",
    "? x\n    : y",
    "!!str x: y",
    "# comment",
    "---",
    "- x",
    "\tx: y",
];

const LINES: [&str; 22] = [
    "\n",
    "   \n",
    "  b: 2\n",
    "   - x\n",
    "  - name: a\n    version: 3\n",
    "  -\n",
    "  -foo\n",
    "- a\n",
    "  # comment\n",
    "# comment\n",
    "<<<<<<< HEAD\n",
    "  <<: {}\n",
    "\t\n",
    "    \t- x\n",
    "     x\n",
    "  a:\n",
    "   a:\n",
    " a:\n",
    "      - deep: [\n",
    "    created: 2022-02-02T02:02:02Z\n",
    "    created: \"2022-02-02T02:02:02+01:00\"\n",
    "  - - name: a\n",
];

/// A document: head, charts, foot, in lines that can be moved about.
#[derive(Clone)]
struct Document {
    head: String,
    lines: Vec<String>,
    foot: String,
}

impl Document {
    fn new(random: &mut Random) -> Self {
        // Most are sound but for one thing or two: others are refused anyway.
        let mut lines = Vec::new();
        let deep = random.below(8) == 0;
        let sound = random.below(3) > 0;
        for _ in 0..=random.below(3) {
            let key = if sound || random.below(6) > 0 {
                KEYS[random.below(6)]
            } else {
                random.pick(&KEYS)
            };
            lines.push(if key.contains([' ', '#', '[']) && !key.ends_with(':') {
                format!("  {key}\n")
            } else {
                format!("  {key}:\n")
            });
            if random.below(6) == 0 {
                // Here a line may go on with a text where else only a key could stand.
                lines.push("  - {name: a, version: 1, home: 'x\n".to_owned());
                lines.push(format!("    {}\n", FIELDS[9 + random.below(3)]));
                lines.push("    '}\n".to_owned());
            }
            for _ in 0..=random.below(2) {
                let (item, rest) = if deep { ("    - ", "      ") } else { ("  - ", "    ") };
                let name = random.pick(&["name: a", "name: b", "name: c"]);
                lines.push(format!("{item}{name}\n"));
                let version = random.pick(&["version: 1.0.0", "version: 1.1.0", "version: 2.0.0"]);
                lines.push(format!("{rest}{version}\n"));
                for _ in 0..random.below(3) {
                    let field = if random.below(if sound { 10 } else { 3 }) > 0 && (sound || random.below(3) == 0) {
                        FIELDS[9 + random.below(3)]
                    } else {
                        random.pick(&FIELDS)
                    };
                    lines.push(format!("{rest}{field}\n"));
                }
            }
        }
        let mut document = Self {
            head: HEADS[random.below(if sound { 4 } else { HEADS.len() })].to_owned(),
            lines,
            foot: FEET[random.below(if sound { 6 } else { FEET.len() })].to_owned(),
        };
        if !sound {
            document.disturb(random);
        }
        document
    }

    fn disturb(&mut self, random: &mut Random) {
        let at = random.below(self.lines.len() + 1);
        self.lines.insert(at, random.pick(&LINES).to_owned());
    }

    /// Another document, as the next to be published.
    fn edit(&mut self, random: &mut Random) {
        let at = random.below(self.lines.len().max(1));
        match random.below(10) {
            0 => self.head = random.pick(&HEADS).to_owned(),
            1 => self.foot = random.pick(&FEET).to_owned(),
            2 => self.disturb(random),
            3 if !self.lines.is_empty() => {
                self.lines.remove(at);
            }
            4 if !self.lines.is_empty() => {
                let line = self.lines[at].clone();
                self.lines.insert(at, line);
            }
            5 if !self.lines.is_empty() => {
                let to = random.below(self.lines.len());
                self.lines.swap(at, to);
            }
            6 => self
                .lines
                .push(format!("  {}:\n  - name: d\n    version: 1\n", random.pick(&KEYS))),
            // What is not to count as a change, wherever it stands.
            _ => {
                for line in &mut self.lines {
                    if random.below(2) == 0 {
                        let time = random.pick(&[
                            "2020-01-01T00:00:00Z",
                            "2024-05-05T05:05:05.5+05:00",
                            "2020-01-01T00:00:00Z:",
                        ]);
                        *line = line
                            .replace("2020-01-01T00:00:00Z", time)
                            .replace("2021-01-01T00:00:00Z", time);
                    }
                }
            }
        }
    }

    fn text(&self) -> String {
        format!("{}{}{}", self.head, self.lines.concat(), self.foot)
    }
}

#[test]
fn hostile_documents_give_what_the_whole_gives() {
    let mut random = Random(20_261_121);
    let (mut accepted, mut known) = (0, 0);
    for _ in 0..3_000 {
        let mut document = Document::new(&mut random);
        let mut memory = Memory::empty();
        for _ in 0..4 {
            let text = document.text();
            let at_once = random.pick(&[1, 5, usize::MAX]);
            match compare(&memory, text.as_bytes(), &DecodeLimits::default(), at_once) {
                Ok(Some(delta)) => {
                    accepted += 1;
                    known += delta.memory.charts.len() - delta.read.len();
                    memory = delta.memory;
                }
                Ok(None) => {}
                Err(difference) => panic!("{difference}\n{text}"),
            }
            document.edit(&mut random);
        }
    }
    // It proves something only where there is something to be proved.
    assert!(accepted > 1_000 && known > 500, "{accepted} {known}");
}

#[test]
fn a_mutated_index_gives_what_the_whole_gives() {
    let mut random = Random(6);
    for seed in 0..30 {
        let mut index = generator::generate(seed, 3, 3);
        let mut memory = Memory::empty();
        for _ in 0..8 {
            let limits = DecodeLimits::default();
            match compare(&memory, index.as_bytes(), &limits, random.pick(&[3, 100, usize::MAX])) {
                Ok(Some(delta)) => memory = delta.memory,
                Ok(None) => index = generator::generate(seed, 3, 3),
                Err(difference) => panic!("{difference}\n{index}"),
            }
            let mut lines: Vec<&str> = index.split_inclusive('\n').collect();
            let at = random.below(lines.len());
            match random.below(4) {
                0 => {
                    lines.remove(at);
                }
                1 => lines.insert(at, random.pick(&LINES)),
                2 => {
                    let to = random.below(lines.len());
                    lines.swap(at, to);
                }
                _ => {
                    let to = random.below(lines.len());
                    lines.insert(to, lines[at]);
                }
            }
            index = lines.concat();
        }
    }
}

#[test]
fn limits_are_the_same_both_ways() {
    let usual = DecodeLimits::default();
    let limits = [
        DecodeLimits { charts: 3, ..usual },
        DecodeLimits {
            versions_per_chart: 2,
            ..usual
        },
        DecodeLimits {
            chart_bytes: 600,
            ..usual
        },
        DecodeLimits { depth: 1, ..usual },
        DecodeLimits { depth: 2, ..usual },
        DecodeLimits { nodes: 150, ..usual },
        DecodeLimits { nodes: 400, ..usual },
        DecodeLimits {
            scalar_bytes: 60,
            ..usual
        },
    ];
    for seed in 0..4 {
        let index = generator::generate(seed, 4, 3);
        let memory = follow(&Memory::empty(), &index).memory;
        for limits in &limits {
            // A memory from under other limits is not to be used; that is for its stamp to tell.
            let compared = |memory: &Memory, index: &str| {
                compare(memory, index.as_bytes(), limits, usize::MAX)
                    .unwrap_or_else(|error| panic!("{limits:?}: {error}"))
            };
            let known = compared(&Memory::empty(), &index).map_or_else(Memory::empty, |delta| delta.memory);
            compared(&known, &index);
            compared(&known, &index.replace("created: \"20", "created: \"21"));
            compared(&known, &generator::generate(seed, 5, 3));
        }
        assert!(follow(&memory, &index).read.is_empty());
    }
}
