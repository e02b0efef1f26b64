//! Generated documents that try to mislead the splitter.

use super::*;
use generator::Random;

const HEADERS: [&str; 20] = [
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

const FOOTERS: [&str; 20] = [
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

/// A document as lines that can be moved.
#[derive(Clone)]
struct Document {
    header: String,
    lines: Vec<String>,
    footer: String,
}

impl Document {
    fn new(random: &mut Random) -> Self {
        // Most documents have only one or two flaws, because others are rejected anyway.
        let mut lines = Vec::new();
        let deep = random.below(8) == 0;
        let valid = random.below(3) > 0;
        for _ in 0..=random.below(3) {
            let key = if valid || random.below(6) > 0 {
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
                // Here a line can continue a scalar where otherwise only a key is possible.
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
                    let field = if random.below(if valid { 10 } else { 3 }) > 0 && (valid || random.below(3) == 0) {
                        FIELDS[9 + random.below(3)]
                    } else {
                        random.pick(&FIELDS)
                    };
                    lines.push(format!("{rest}{field}\n"));
                }
            }
        }
        let mut document = Self {
            header: HEADERS[random.below(if valid { 4 } else { HEADERS.len() })].to_owned(),
            lines,
            footer: FOOTERS[random.below(if valid { 6 } else { FOOTERS.len() })].to_owned(),
        };
        if !valid {
            document.insert_noise(random);
        }
        document
    }

    fn insert_noise(&mut self, random: &mut Random) {
        let at = random.below(self.lines.len() + 1);
        self.lines.insert(at, random.pick(&LINES).to_owned());
    }

    /// Returns an edited copy as the next published version.
    fn edit(&mut self, random: &mut Random) {
        let at = random.below(self.lines.len().max(1));
        match random.below(10) {
            0 => self.header = random.pick(&HEADERS).to_owned(),
            1 => self.footer = random.pick(&FOOTERS).to_owned(),
            2 => self.insert_noise(random),
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
            // Edits that do not change a chart.
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
        format!("{}{}{}", self.header, self.lines.concat(), self.footer)
    }
}

#[test]
fn hostile_documents_decode_as_in_the_full_decode() {
    let mut random = Random(20_261_121);
    let (mut accepted, mut cache) = (0, 0);
    for _ in 0..3_000 {
        let mut document = Document::new(&mut random);
        let mut state = CatalogState::empty();
        for _ in 0..4 {
            let text = document.text();
            let at_once = random.pick(&[1, 5, usize::MAX]);
            match compare(&state, text.as_bytes(), &DecodeLimits::default(), at_once) {
                Ok(Some(incremental)) => {
                    accepted += 1;
                    cache += incremental.state.charts.len() - incremental.parsed.len();
                    state = incremental.state;
                }
                Ok(None) => {}
                Err(difference) => panic!("{difference}\n{text}"),
            }
            document.edit(&mut random);
        }
    }
    // The test proves something only if enough documents are accepted and cached.
    assert!(accepted > 1_000 && cache > 500, "{accepted} {cache}");
}

#[test]
fn mutated_indexes_decode_as_in_the_full_decode() {
    let mut random = Random(6);
    for seed in 0..30 {
        let mut index = generator::generate(seed, 3, 3);
        let mut state = CatalogState::empty();
        for _ in 0..8 {
            let limits = DecodeLimits::default();
            match compare(&state, index.as_bytes(), &limits, random.pick(&[3, 100, usize::MAX])) {
                Ok(Some(incremental)) => state = incremental.state,
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
fn both_decodes_have_the_same_limits() {
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
        let state = decode_next(&CatalogState::empty(), &index).state;
        for limits in &limits {
            // The cache key separates different limits, so a cache from other limits is never used.
            let compared = |state: &CatalogState, index: &str| {
                compare(state, index.as_bytes(), limits, usize::MAX)
                    .unwrap_or_else(|error| panic!("{limits:?}: {error}"))
            };
            let cache = compared(&CatalogState::empty(), &index)
                .map_or_else(CatalogState::empty, |incremental| incremental.state);
            compared(&cache, &index);
            compared(&cache, &index.replace("created: \"20", "created: \"21"));
            compared(&cache, &generator::generate(seed, 5, 3));
        }
        assert!(decode_next(&state, &index).parsed.is_empty());
    }
}
