//! KubeVela's flags and feature gates, by their effect.

use super::GENERATED;
use super::markdown::{code, escape, table};
use crate::cmd::flags::vela::{FlagEffect, FlagEntry, flag_entries, gate_entries};
use crate::cmd::output;

const INTRODUCTION: &str = "`portolan run --controllers=oam` accepts all flags and feature gates of KubeVela's vela-core. They \
    have no environment variables. Each one without effect that is not at its default is named by a warning, and so is one that \
    is unknown; an invalid value ends the start.";

struct Section {
    title: String,
    column: &'static str,
    entries: Vec<FlagEntry>,
}

fn sections() -> Vec<Section> {
    let (own, flags): (Vec<FlagEntry>, Vec<FlagEntry>) = flag_entries().into_iter().partition(|entry| entry.is_own);
    let kinds = [
        ("flags", "flag", flags),
        ("flags that only Portolan has", "flag", own),
        ("feature gates", "gate", gate_entries()),
    ];
    let mut sections = Vec::new();
    for effect in FlagEffect::ALL {
        for (kind, column, entries) in &kinds {
            let entries: Vec<FlagEntry> = entries.iter().filter(|entry| entry.effect == effect).cloned().collect();
            if !entries.is_empty() {
                let title = format!("{}: {kind}", effect.title());
                sections.push(Section { title, column, entries });
            }
        }
    }
    sections
}

/// Returns the help that a terminal shows.
pub fn kubevela_help() -> String {
    let mut text = format!("{INTRODUCTION}\n");
    for section in sections() {
        let column = section.column.to_uppercase();
        let rows = section.entries.iter().map(|entry| {
            let default = entry.default.as_deref().unwrap_or("(differs)");
            vec![entry.name.clone(), default.to_owned(), meaning(entry)]
        });
        let table = output::table(&[column.as_str(), "DEFAULT", "MEANING"], rows);
        text.push_str(&format!("\n{}\n\n{table}", section.title));
    }
    text
}

#[must_use]
pub fn kubevela_flags() -> String {
    let mut text = format!(
        "# Flags and feature gates of KubeVela\n\n\
         For operators who replace vela-core and keep its arguments. {GENERATED}\n\n{INTRODUCTION}\n\n"
    );
    for section in sections() {
        let rows = section.entries.iter().map(|entry| {
            let default = entry.default.as_deref().map_or_else(|| "differs".to_owned(), code);
            [code(&entry.name), default, escape(&meaning(entry))]
        });
        let table = table([section.column, "default", "meaning"], rows);
        text.push_str(&format!("## {}\n\n{table}", section.title));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn meaning(entry: &FlagEntry) -> String {
    if entry.older_names.is_empty() {
        return entry.help.clone();
    }
    format!("{} (older name: {})", entry.help, entry.older_names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_texts_have_each_flag_and_gate_once() {
        let texts = [kubevela_help(), kubevela_flags().replace(['`', '|'], "")];
        for entry in [flag_entries(), gate_entries()].concat() {
            for text in &texts {
                let lines = text
                    .lines()
                    .filter(|line| line.split_whitespace().next() == Some(&entry.name));
                assert_eq!(lines.count(), 1, "{} in {text}", entry.name);
            }
        }
    }
}
