//! The page of all settings, made from what reads them: commands and flags from the command line, fields of pipeline files
//! from their schema.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command, CommandFactory};
use expect_test::expect_file;
use serde_json::Value;

/// The page is made of what this version reads. `UPDATE_EXPECT=1` writes it anew.
#[test]
fn the_reference_is_up_to_date() {
    expect_file!["../../../docs/reference.md"].assert_eq(&page());
}

pub(crate) fn page() -> String {
    let mut text = String::from(
        "# Reference\n\nMade from the program: each field of a pipeline file, and each command with its flags. Where a flag has an \
         environment\nvariable, the flag counts.\n\n## Pipeline files\n\nValues may be variables of the environment: `${NAME}`, or \
         `${NAME:-default}`. Types of modules with their inputs, outputs and\noptions are in [modules.md](modules.md).\n\n| field | \
         value | default | meaning |\n|---|---|---|---|\n",
    );
    let catalog = spillgate_modules::library().catalog();
    let schema = spillgate_pipeline::schema::json_schema(&catalog);
    let schema: Value = serde_json::from_str(&schema.to_string()).expect("a schema is JSON");
    fields(&mut text, &schema, &schema, "");
    text.push_str("\n## Commands\n");
    let mut cli = crate::command_line::Cli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
        if command.get_name() != "help" {
            self::command(&mut text, command, "spillgate");
        }
    }
    text
}

/// A row for each field of a map, and below it those of its own maps.
fn fields(text: &mut String, all: &Value, map: &Value, above: &str) {
    let own = map["properties"].as_object().into_iter().flatten();
    for (name, field) in own {
        row(text, all, field, &format!("{above}{name}"));
    }
    if map["additionalProperties"].is_object() {
        row(
            text,
            all,
            &map["additionalProperties"],
            &format!("{above}NAME"),
        );
    }
}

fn row(text: &mut String, all: &Value, field: &Value, path: &str) {
    let referred = field["$ref"]
        .as_str()
        .and_then(|r| r.strip_prefix("#/$defs/"));
    let shape = referred.map_or(field, |name| &all["$defs"][name]);
    let described = [field, shape]
        .into_iter()
        .find_map(|f| f["description"].as_str());
    let default = match &field["default"] {
        Value::Null => String::new(),
        Value::String(value) => format!("`{value}`"),
        value => format!("`{value}`"),
    };
    // Types of modules have a page of their own.
    let has_fields = path != "modules.NAME.options";
    let of = described.unwrap_or_default();
    let _ = writeln!(
        text,
        "| `{path}` | {} | {default} | {} |",
        value(shape),
        cell(of)
    );
    if has_fields {
        fields(text, all, shape, &format!("{path}."));
    }
}

/// What a field takes, in words.
fn value(shape: &Value) -> String {
    let alternatives = shape["anyOf"].as_array().or(shape["oneOf"].as_array());
    if let Some(alternatives) = alternatives {
        // Each may be a variable, too.
        let is_variable = |a: &&Value| a["pattern"].as_str().is_some_and(|p| p.starts_with("\\$"));
        let each = alternatives.iter().filter(|a| !is_variable(a)).map(value);
        let mut each: Vec<String> = each.filter(|words| !words.is_empty()).collect();
        each.dedup();
        return each.join(", or ");
    }
    if let Some(choices) = shape["enum"].as_array() {
        let each = choices
            .iter()
            .filter_map(|c| Some(format!("`{}`", c.as_str()?)));
        return each.collect::<Vec<_>>().join(", ");
    }
    let bound = |name: &str| (!shape[name].is_null()).then(|| shape[name].to_string());
    let whole = if shape["type"] == "integer" {
        "whole number"
    } else {
        "number"
    };
    match (shape["type"].as_str(), bound("minimum"), bound("maximum")) {
        (Some("integer" | "number"), Some(least), Some(most)) => {
            format!("{whole}, {least} to {most}")
        }
        (Some("integer" | "number"), ..) => whole.to_owned(),
        (Some("string"), ..)
            if shape["pattern"]
                .as_str()
                .is_some_and(|p| p.contains("ms|s")) =>
        {
            "duration, like 400ms".to_owned()
        }
        (Some("string"), ..) => "text".to_owned(),
        (Some("boolean"), ..) => "`true`, `false`".to_owned(),
        (Some("array"), ..) => "list".to_owned(),
        (Some("object"), ..) => "map".to_owned(),
        _ => String::new(),
    }
}

fn command(text: &mut String, command: &Command, above: &str) {
    let name = format!("{above} {}", command.get_name());
    let subcommands = || {
        command
            .get_subcommands()
            .filter(|c| !c.is_hide_set() && c.get_name() != "help")
    };
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let _ = write!(text, "\n### {name}\n\n{about}.\n");
    let global = |arg: &&Arg| arg.is_global_set() || arg.is_hide_set() || arg.get_id() == "help";
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| !global(arg)).collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | environment | default | meaning |\n|---|---|---|---|\n");
    }
    for arg in arguments {
        argument(text, arg);
    }
    for sub in subcommands() {
        self::command(text, sub, &name);
    }
}

fn argument(text: &mut String, arg: &Arg) {
    let values = arg.get_value_names().unwrap_or_default();
    let values = values
        .iter()
        .map(|v| v.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let written = match arg.get_long() {
        Some(long) if takes => format!("--{long} {values}"),
        Some(long) => format!("--{long}"),
        None => values,
    };
    let env = arg.get_env().map(|e| format!("`{}`", e.to_string_lossy()));
    let defaults = arg.get_default_values().iter().map(|v| v.to_string_lossy());
    let default = defaults.collect::<Vec<_>>().join(",");
    let default = match (takes, default.as_str()) {
        (false, _) | (_, "") => String::new(),
        (true, value) => format!("`{value}`"),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let env = env.unwrap_or_default();
    let _ = writeln!(
        text,
        "| `{written}` | {env} | {default} | {} |",
        cell(&help)
    );
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}
