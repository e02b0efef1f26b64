use clap::{Arg, Command};

use super::GENERATED;
use super::markdown::{code, escape, table};
use crate::cmd::groups::GROUPS;

const HEADER: [&str; 4] = ["argument", "variable", "default", "meaning"];

#[must_use]
pub fn command_line() -> String {
    let mut root = crate::cmd::command();
    root.build();
    let mut text = format!(
        "# Command line\n\nFor operators who look up a command, a flag or its environment variable. {GENERATED}\n\n{}\
         ## Flags of all commands\n\n{}",
        about(&root),
        table(
            HEADER,
            root.get_arguments()
                .filter(|argument| argument.is_global_set())
                .map(row)
        )
    );
    for group in &GROUPS {
        text.push_str(&format!("## {}\n\n", group.heading));
        let commands = group.commands.iter().filter_map(|name| root.find_subcommand(name));
        text.extend(commands.map(section));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn section(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let mut text = format!("### {name}\n\n{}```text\n{usage}\n```\n\n", about(command));
    let is_own = |argument: &&Arg| {
        let is_common = argument.is_global_set() || argument.get_id() == "help";
        !is_common && !argument.is_hide_set()
    };
    let arguments: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for argument in &arguments {
        let heading = argument.get_help_heading();
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    // As in the help: arguments without a heading come first.
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        let arguments = arguments
            .iter()
            .filter(|argument| argument.get_help_heading() == heading);
        if let Some(heading) = heading {
            text.push_str(&format!("{heading}:\n\n"));
        }
        text.push_str(&table(HEADER, arguments.copied().map(row)));
    }
    let commands = command.get_subcommands();
    text.extend(commands.filter(|command| command.get_name() != "help").map(section));
    text
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    about
        .split("\n\n")
        .map(|paragraph| escape(paragraph) + "\n\n")
        .collect()
}

fn row(argument: &Arg) -> [String; 4] {
    let variable = argument.get_env().map(|variable| variable.to_string_lossy());
    let defaults = argument.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|default| default.to_string_lossy()).collect();
    [
        name(argument),
        code(&variable.unwrap_or_default()),
        code(&defaults.join(",")),
        meaning(argument),
    ]
}

fn name(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values = values.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let Some(long) = argument.get_long() else {
        return code(&values);
    };
    let short = argument
        .get_short()
        .map(|short| format!("`-{short}`, "))
        .unwrap_or_default();
    let value = match values {
        values if values.is_empty() => values,
        values if argument.is_require_equals_set() => format!("[={values}]"),
        values => format!(" {values}"),
    };
    format!("{short}{}", code(&format!("--{long}{value}")))
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = escape(&help.map(ToString::to_string).unwrap_or_default());
    let values = argument.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set()).map(|value| {
        let help = value.get_help().map(|help| format!(": {}", escape(&help.to_string())));
        format!("{}{}", code(value.get_name()), help.unwrap_or_default())
    });
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        return help;
    }
    format!("{help}. Values: {}", values.join("; "))
}
