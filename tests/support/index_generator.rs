//! Generates indexes in Helm's layout from a seed, with the features of real ones: entries of 500 to 9,000 bytes,
//! duplicates, versions with `+` and a leading `v`, URLs of all three kinds, times with zero to nine fraction digits,
//! block scalars, deprecated charts. The same seed gives the same bytes on every machine.

use std::fmt::Write as _;

/// Charts of [`big_index`].
pub const BIG_CHARTS: usize = 164;
/// Versions of [`big_index`].
pub const BIG_VERSIONS: usize = 14_364;

/// An index of `charts` charts with `versions_per_chart` versions each.
pub fn generate(seed: u64, charts: usize, versions_per_chart: usize) -> String {
    index(seed, (0..charts).map(|chart| (chart, versions_per_chart)))
}

/// A standard big index, similar to grafana's repeated four times: about 16 MB, 14,364 versions of 164 charts, most of
/// them of a few charts.
pub fn big_index(seed: u64) -> String {
    // Decreasing shares, the remainder to the first: the largest chart has about a twentieth of all versions.
    let mut counts: Vec<usize> = (0..BIG_CHARTS).map(|chart| 3_000 / (chart + 8) + 30).collect();
    let others: usize = counts[1..].iter().sum();
    counts[0] = BIG_VERSIONS - others;
    index(seed, counts.into_iter().enumerate())
}

fn index(seed: u64, charts: impl Iterator<Item = (usize, usize)>) -> String {
    let mut text = String::from("apiVersion: v1\nentries:\n");
    for (chart, versions) in charts {
        // A separate seed per chart, so that a change of one does not move the others.
        let mut random = Random(seed.wrapping_add((chart as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Chart::new(&mut random, chart).write(&mut random, versions, &mut text);
    }
    text.push_str("generated: \"2026-03-01T12:00:00.123456789Z\"\n");
    text
}

/// The fields shared by all versions of a chart.
struct Chart {
    name: String,
    keywords: usize,
    maintainers: usize,
    sources: usize,
    dependencies: usize,
    /// Number of lines of the changelog annotation.
    changes: usize,
    deprecated: bool,
    has_icon: bool,
    url_base: &'static str,
}

const WORDS: [&str; 16] = [
    "metrics",
    "logs",
    "traces",
    "agent",
    "operator",
    "gateway",
    "storage",
    "query",
    "cluster",
    "exporter",
    "alerts",
    "dashboards",
    "database",
    "cache",
    "proxy",
    "queue",
];

impl Chart {
    fn new(random: &mut Random, number: usize) -> Self {
        Self {
            name: format!("{}-{}-{number}", random.pick(&WORDS), random.pick(&WORDS)),
            keywords: random.below(6),
            maintainers: random.below(5),
            sources: random.below(3),
            dependencies: random.below(3),
            changes: if random.below(4) == 0 { random.below(24) } else { 0 },
            deprecated: random.below(5) == 0,
            has_icon: random.below(3) > 0,
            url_base: random.pick(&[
                "https://charts.example.com/",
                "charts/",
                "oci://registry.example.com/charts/",
            ]),
        }
    }

    fn write(&self, random: &mut Random, versions: usize, text: &mut String) {
        let _ = writeln!(text, "  {}:", self.name);
        let mut previous = String::new();
        for number in (0..versions).rev() {
            let version = if random.below(200) == 0 && !previous.is_empty() {
                previous.clone()
            } else {
                version(random, number)
            };
            self.write_version(random, &version, number + 1 == versions, text);
            previous = version;
        }
    }

    fn write_version(&self, random: &mut Random, version: &str, newest: bool, text: &mut String) {
        let name = &self.name;
        // Writing into a String cannot fail.
        let _ = (|| {
            if self.changes > 0 {
                writeln!(text, "  - annotations:\n      artifacthub.io/changes: |")?;
                for change in 0..random.below(self.changes + 1) {
                    writeln!(
                        text,
                        "        - kind: changed\n          description: \"Change {change}: `{}`\"",
                        random.sentence(6)
                    )?;
                }
                writeln!(text, "      category: {}\n    apiVersion: v2", random.pick(&WORDS))?;
            } else {
                writeln!(text, "  - apiVersion: v2")?;
            }
            writeln!(
                text,
                "    appVersion: {}.{}.{}",
                random.below(9),
                random.below(30),
                random.below(10)
            )?;
            writeln!(text, "    created: \"{}\"", created(random))?;
            if self.dependencies > 0 {
                writeln!(text, "    dependencies:")?;
                for _ in 0..self.dependencies {
                    let dependency = random.pick(&WORDS);
                    writeln!(text, "    - condition: {dependency}.enabled\n      name: {dependency}")?;
                    writeln!(
                        text,
                        "      repository: https://charts.example.com/{dependency}\n      version: ~1.2.3"
                    )?;
                }
            }
            if self.deprecated && newest {
                writeln!(text, "    deprecated: true")?;
            }
            writeln!(
                text,
                "    description: {}\n      {}",
                random.sentence(10),
                random.sentence(8)
            )?;
            writeln!(text, "    digest: {}", random.hex(64))?;
            writeln!(text, "    home: https://example.com/{name}")?;
            if self.has_icon {
                writeln!(text, "    icon: https://example.com/{name}/icon.png")?;
            }
            write_list(text, "keywords", self.keywords, || random.pick(&WORDS).to_owned())?;
            writeln!(text, "    kubeVersion: ^1.{}.0-0", 16 + random.below(10))?;
            if self.maintainers > 0 {
                writeln!(text, "    maintainers:")?;
                for maintainer in 0..self.maintainers {
                    writeln!(
                        text,
                        "    - email: someone-{maintainer}@example.com\n      name: someone-{maintainer}"
                    )?;
                }
            }
            writeln!(text, "    name: {name}")?;
            write_list(text, "sources", self.sources, || {
                format!("https://git.example.com/{name}/{name}")
            })?;
            writeln!(
                text,
                "    type: application\n    urls:\n    - {}{name}-{version}.tgz\n    version: {version}",
                self.url_base
            )
        })();
    }
}

fn write_list(text: &mut String, key: &str, count: usize, mut item: impl FnMut() -> String) -> std::fmt::Result {
    if count > 0 {
        writeln!(text, "    {key}:")?;
    }
    for _ in 0..count {
        writeln!(text, "    - {}", item())?;
    }
    Ok(())
}

fn version(random: &mut Random, number: usize) -> String {
    let (major, minor, patch) = (number / 100, number / 10 % 10, number % 10);
    match random.below(40) {
        0 => format!("v{major}.{minor}.{patch}"),
        1 => format!("{major}.{minor}.{patch}-rc.{}", random.below(3)),
        2 => format!("{major}.{minor}.{patch}+build.{}", random.below(100)),
        3 => format!("{major}.{minor}.{patch}-beta"),
        _ => format!("{major}.{minor}.{patch}"),
    }
}

fn created(random: &mut Random) -> String {
    let (year, month, day) = (2016 + random.below(10), 1 + random.below(12), 1 + random.below(28));
    let (hour, minute, second) = (random.below(24), random.below(60), random.below(60));
    let digits = random.below(10);
    let fraction = if digits == 0 {
        String::new()
    } else {
        format!(".{:0digits$}", random.below(10_usize.pow(digits as u32)))
    };
    let offset = random.pick(&["Z", "Z", "Z", "+02:00", "-07:00"]);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}")
}

/// SplitMix64: small and deterministic.
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns one of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn sentence(&mut self, words: usize) -> String {
        (0..words).map(|_| self.pick(&WORDS)).collect::<Vec<_>>().join(" ")
    }

    fn hex(&mut self, digits: usize) -> String {
        let mut text = String::new();
        while text.len() < digits {
            let _ = write!(text, "{:016x}", self.next());
        }
        text.truncate(digits);
        text
    }
}
