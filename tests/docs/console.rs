//! Runs the blocks of a page as a reader does, and compares the output of commands with the page.
//!
//! Blocks of the language `sh` are run, `yaml FILE` are written to the file, `sh background` are handed to the test, and the
//! commands of `console` blocks, which begin with `$`, have to print what stands below them, but for times and durations.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use regex::Regex;

use crate::support::eventually::eventually;
use crate::support::portolan;
use crate::support::process::ScratchDir;

/// For an output that needs a controller's work, on a machine that also runs the other tests.
const DEADLINE: Duration = Duration::from_secs(120);

/// Commands that only read, which are repeated until they print what the page shows.
const READING: [&str; 11] = [
    "portolan status",
    "portolan search",
    "portolan show",
    "portolan history",
    "portolan vela list",
    "portolan vela status",
    "kubectl get",
    "kubectl wait",
    "kubectl exec",
    "grep ",
    "tail ",
];

/// A fenced block of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The words behind the fence.
    pub info: String,
    pub text: String,
}

/// Returns the fenced blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let (info, text) = (info.to_owned(), String::new());
                open = Some(Block { info, text });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Returns the commands of a block with what they print.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => {
                output.push_str(line);
                output.push('\n');
            }
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    commands
}

/// Returns lines of words, without times, durations and the width of columns.
fn normalized(text: &str) -> String {
    let time = Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap();
    let duration = Regex::new(r"\b(\d+(\.\d+)?(ms|s|m|h|d))+\b").unwrap();
    let text = time.replace_all(text, "TIME");
    let text = duration.replace_all(&text, "DURATION");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// A reader with a directory and a shell.
pub struct Reader {
    pub directory: ScratchDir,
    /// Texts of the page, each with its replacement in the test.
    pub substitutes: Vec<(String, String)>,
    pub environment: Vec<(String, String)>,
}

impl Reader {
    pub fn new() -> Self {
        let reader = Self::without_programs();
        std::os::unix::fs::symlink(portolan::BINARY, reader.directory.join("portolan")).unwrap();
        reader
    }

    pub fn without_programs() -> Self {
        Self {
            directory: ScratchDir::new("tutorial"),
            substitutes: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds a file or directory of the project.
    pub fn link(&self, name: &str) {
        std::os::unix::fs::symlink(crate::support::project(name), self.directory.join(name)).unwrap();
    }

    /// Returns a shell that runs the text in the directory, in which programs are looked for first.
    pub fn shell(&self, text: &str) -> Command {
        let text = self
            .substitutes
            .iter()
            .fold(text.to_owned(), |text, (shown, real)| text.replace(shown, real));
        let mut shell = portolan::command_as(Path::new("sh"), ["-euc", &text]);
        let directory = self.directory.path();
        shell
            .current_dir(directory)
            .env(
                "PATH",
                format!("{}:{}", directory.display(), std::env::var("PATH").unwrap()),
            )
            // The tutorials import chart files, as users do.
            .env_remove("PORTOLAN_CHART_FILES")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        shell
    }

    /// Returns what a command prints, in the words of the page.
    async fn output(&self, command: &str) -> String {
        let output = portolan::run(self.shell(command)).await;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        self.substitutes
            .iter()
            .fold(printed, |text, (shown, real)| text.replace(real, shown))
    }

    /// Runs a command, and asserts that it prints what the page shows.
    async fn compare(&self, command: &str, shown: &str) {
        let shown = normalized(shown);
        if READING.iter().any(|reading| command.starts_with(reading)) {
            eventually(DEADLINE, &format!("the output of {command}:\n{shown}\n"), async || {
                let printed = self.output(command).await;
                if normalized(&printed) == shown {
                    Ok(())
                } else {
                    Err(printed)
                }
            })
            .await;
        } else {
            let printed = self.output(command).await;
            assert_eq!(normalized(&printed), shown, "{command}:\n{printed}");
        }
    }

    /// Runs a block; those in the background are left to the test.
    pub async fn follow(&self, block: &Block) {
        match block.info.split_once(' ').unwrap_or((&block.info, "")) {
            ("console", "") => {
                for (command, shown) in commands(&block.text) {
                    self.compare(&command, &shown).await;
                }
            }
            ("sh", "") => {
                let output = portolan::run(self.shell(&block.text)).await;
                assert!(output.status.success(), "{}\n{output:#?}", block.text);
            }
            ("yaml", file) if !file.is_empty() => {
                let path = self.directory.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let text = self
                    .substitutes
                    .iter()
                    .fold(block.text.clone(), |text, (shown, real)| text.replace(shown, real));
                std::fs::write(path, text).unwrap();
            }
            other => panic!("a block of another kind: {other:?}"),
        }
    }
}

#[test]
fn blocks_and_commands_are_read_with_their_output() {
    let page = "a\n```console\n$ one two\nNAME  AGE\nx     5s\n$ three\n```\n```sh background\nserve\n```\n";
    let read = blocks(page);
    assert_eq!(
        (read[0].info.as_str(), read[1].info.as_str()),
        ("console", "sh background")
    );
    assert_eq!(read[1].text, "serve\n");
    let expected = [("one two", "NAME  AGE\nx     5s\n"), ("three", "")];
    let expected = expected.map(|(command, output)| (command.to_owned(), output.to_owned()));
    assert_eq!(commands(&read[0].text), expected);
}

#[test]
fn times_durations_and_widths_do_not_count() {
    let one = "NAME   AGE     LAST SYNC\nweb    1m30s   2026-11-27T07:08:58Z  0.0s\n";
    let two = "NAME  AGE  LAST SYNC\nweb  5s  2026-01-01T00:00:00.123Z  12.5s\n";
    assert_eq!(normalized(one), normalized(two));
    assert_ne!(normalized("web 4"), normalized("web 5"));
}
