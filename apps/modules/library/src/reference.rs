//! The module types in words, for people: one type as text for a terminal, all of them as the page docs/modules.md.
//! Everything comes from the catalogue, against which pipelines are checked, too.

use std::fmt::Write;

use spillgate_pipeline::catalog::{
    Catalog, ExecutionTime, ModelNeed, ModuleType, OptionSpec, OptionType, Port, ValueType,
};

/// Columns of the text that explains; with the names before it a line fits most terminals.
const COLUMNS: usize = 78;

/// Above the table of the types of values.
const VALUES: &str = "\n## Values\n\n\
    Lists are joined by index: the i-th entry is of the i-th box that the module worked on; a mask or a set of key points of the i-th box \
    that the module found, where it finds boxes. The [API](../proto/proto/spillgate/v1/spillgate.proto) names the box of each entry.\n\n\
    A box that a module did not look at keeps its place. Its text, label or embedding says why (`left_out`): the box has no area, or it \
    is over `limits.objects`. Of a tensor the rows are named.\n\n\
    | type | is |\n| --- | --- |\n";

/// One line a type.
pub fn list(catalog: &Catalog) -> String {
    let width = catalog.types().map(|ty| ty.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for ty in catalog.types() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<width$}  {}", ty.name, ty.doc);
    }
    text
}

/// A type with its inputs, outputs and options.
pub fn describe(ty: &ModuleType) -> String {
    let mut text = wrapped(&format!("{}: {}", ty.name, ty.doc), "");
    for line in notes(ty) {
        text += &wrapped(&line, "");
    }
    for (title, items) in parts(ty) {
        let _ = writeln!(text, "\n{title}:");
        for item in items {
            text += &wrapped(&format!("{} ({})", item.name, item.kind), "  ");
            text += &wrapped(&item.doc, "      ");
        }
    }
    text
}

/// All types as a page of Markdown.
pub fn page(catalog: &Catalog) -> String {
    let mut text = String::from(
        "# Module types\n\n\
         What `op:` can name in a pipeline file. This page is what `spillgate modules --markdown` prints; \
         `spillgate modules NAME` prints one of them.\n\n\
         | `op:` | does |\n| --- | --- |\n",
    );
    for ty in catalog.types() {
        let _ = writeln!(text, "| [`{0}`](#{0}) | {1} |", ty.name, cell(&ty.doc));
    }
    text += VALUES;
    for ty in ValueType::ALL {
        let _ = writeln!(text, "| {} | {} |", ty.name(), cell(ty.doc()));
    }
    for ty in catalog.types() {
        let _ = writeln!(text, "\n## {}\n\n{}", ty.name, sentence(&ty.doc));
        for line in notes(ty) {
            let _ = writeln!(text, "{line}");
        }
        for (title, items) in parts(ty) {
            let second = if title == "options" { "takes" } else { "type" };
            let _ = writeln!(text, "\n| {title} | {second} | |\n| --- | --- | --- |");
            for item in items {
                let (kind, doc) = (cell(&item.kind), cell(&item.doc));
                let _ = writeln!(text, "| `{}` | {kind} | {doc} |", item.name);
            }
        }
    }
    text
}

struct Item<'a> {
    name: &'a str,
    kind: String,
    doc: String,
}

fn parts(ty: &ModuleType) -> Vec<(&'static str, Vec<Item<'_>>)> {
    let port = |port: &Port, optional| {
        let kind = port.ty.name().to_owned();
        if optional { kind + ", optional" } else { kind }
    };
    let item = |p, optional| port_item(p, port(p, optional));
    let inputs = ty.inputs.iter().map(|p| item(p, p.optional)).collect();
    let outputs = ty.outputs.iter().map(|p| item(p, false));
    let named = ty.options.iter().filter_map(|o| match o.ty {
        OptionType::Groups(of) => Some(Item {
            name: "NAME",
            kind: of.name().to_owned(),
            doc: format!("one for each name in the option `{}`", o.name),
        }),
        _ => None,
    });
    let outputs = outputs.chain(named).collect();
    let options = ty.options.iter().map(|o| Item {
        name: &o.name,
        kind: kind_of(o),
        doc: o.doc.clone(),
    });
    let parts = [
        ("inputs", inputs),
        ("outputs", outputs),
        ("options", options.collect()),
    ];
    let some = |(_, items): &(_, Vec<Item<'_>>)| !items.is_empty();
    parts.into_iter().filter(some).collect()
}

fn port_item(port: &Port, kind: String) -> Item<'_> {
    Item {
        name: &port.name,
        kind,
        doc: port.doc.clone(),
    }
}

/// The values that an option may have.
fn kind_of(option: &OptionSpec) -> String {
    let kind = match &option.ty {
        OptionType::Bool => "true or false".to_owned(),
        OptionType::Integer(low, high) => format!("whole number, {low} to {high}"),
        OptionType::Number(low, high) => format!("number, {low} to {high}"),
        OptionType::Text => "text".to_owned(),
        OptionType::File => "file".to_owned(),
        OptionType::Choice(words) => words.join(" or "),
        OptionType::Numbers(0) => "numbers".to_owned(),
        OptionType::Numbers(n) => format!("{n} numbers"),
        OptionType::Texts => "texts".to_owned(),
        OptionType::NumberByText(low, high) => {
            format!("texts, each with a number, {low} to {high}")
        }
        OptionType::Groups(_) => "names, each with texts".to_owned(),
    };
    if option.required {
        kind + ", required"
    } else {
        kind
    }
}

fn notes(ty: &ModuleType) -> Vec<String> {
    let mut notes = Vec::new();
    notes.push(match ty.model {
        ModelNeed::None => "It has no model.".to_owned(),
        ModelNeed::Required => {
            "It needs a model: `model:`, or `variants:` with several.".to_owned()
        }
    });
    match &ty.time {
        ExecutionTime::Fixed => {}
        ExecutionTime::Varies => {
            notes.push("Its time depends on what a request brings (docs/schedulers.md).".to_owned());
        }
        ExecutionTime::VariesWith(input) => notes.push(format!(
            "Its time depends on what a request brings where `{input}` is wired (docs/schedulers.md)."
        )),
    }
    notes
}

fn sentence(doc: &str) -> String {
    let mut letters = doc.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

/// A text that cannot end its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > COLUMNS {
            let _ = writeln!(lines, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.is_empty() {
        let _ = writeln!(lines, "{indent}{line}");
    }
    lines
}
