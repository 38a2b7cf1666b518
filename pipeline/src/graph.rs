//! Pictures of a pipeline: Graphviz, Mermaid, and SVG drawn here (`svg`). Solid lines carry data and are labelled
//! with the names of the outputs. Dashed lines lead to a module whose `when:` looks at these outputs.

mod layout;
mod svg;

use std::fmt::Write;

use crate::id::ModuleId;
use crate::pipeline::{Module, Pipeline, PortRef};

/// The format of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Graphviz.
    Dot,
    /// Mermaid, for Markdown.
    Mermaid,
    /// A finished picture.
    Svg,
}

impl Format {
    /// All, in the order of the documentation.
    pub const ALL: [Format; 3] = [Format::Dot, Format::Mermaid, Format::Svg];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Dot => "dot",
            Format::Mermaid => "mermaid",
            Format::Svg => "svg",
        }
    }
}

/// Draws a pipeline.
pub fn render(pipeline: &Pipeline, format: Format) -> String {
    let drawing = Drawing::new(pipeline);
    match format {
        Format::Dot => dot(&drawing),
        Format::Mermaid => mermaid(&drawing),
        Format::Svg => svg::render(&drawing),
    }
}

/// The content of all formats: boxes and arrows. The box after the last module is the result.
struct Drawing {
    title: String,
    boxes: Vec<Box>,
    arrows: Vec<Arrow>,
}

/// A box with its lines of text.
struct Box {
    kind: Kind,
    name: String,
    /// Below the name.
    lines: Vec<String>,
}

/// The meaning of a box.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Source,
    Module,
    Result,
}

/// An arrow between two boxes.
struct Arrow {
    from: usize,
    to: usize,
    /// The outputs that flow along it; for a condition, the outputs that it looks at.
    label: String,
    /// The module below runs only when the label is not empty.
    condition: bool,
}

impl Drawing {
    fn new(pipeline: &Pipeline) -> Self {
        let mut boxes = Vec::new();
        let mut arrows: Vec<Arrow> = Vec::new();
        for module in &pipeline.modules {
            boxes.push(box_of(pipeline, module));
            let data = module.inputs.iter().flatten().map(|from| (*from, false));
            let to = module.id.idx();
            for (from, condition) in data.chain(module.when.map(|from| (from, true))) {
                connect(
                    &mut arrows,
                    pipeline,
                    from,
                    to,
                    port_name(pipeline, from),
                    condition,
                );
            }
        }
        let result = boxes.len();
        boxes.push(Box {
            kind: Kind::Result,
            name: "result".to_owned(),
            lines: Vec::new(),
        });
        for output in &pipeline.outputs {
            let port = port_name(pipeline, output.from);
            let label = if port == output.name {
                port
            } else {
                format!("{port} as {}", output.name)
            };
            connect(&mut arrows, pipeline, output.from, result, label, false);
        }
        let slo = crate::time::format_duration(pipeline.slo);
        Drawing {
            title: format!("{}, within {slo}", pipeline.name),
            boxes,
            arrows,
        }
    }
}

/// Adds a label to the arrow between two boxes, or the arrow.
fn connect(
    arrows: &mut Vec<Arrow>,
    pipeline: &Pipeline,
    from: PortRef,
    to: usize,
    label: String,
    condition: bool,
) {
    debug_assert!(from.module.idx() < pipeline.modules.len());
    let from = from.module.idx();
    let same = |a: &&mut Arrow| a.from == from && a.to == to && a.condition == condition;
    match arrows.iter_mut().find(same) {
        Some(arrow) if arrow.label.split(", ").any(|l| l == label) => {}
        Some(arrow) => {
            arrow.label.push_str(", ");
            arrow.label.push_str(&label);
        }
        None => arrows.push(Arrow {
            from,
            to,
            label,
            condition,
        }),
    }
}

fn port_name(pipeline: &Pipeline, from: PortRef) -> String {
    let ports = &pipeline.modules[from.module.idx()].outputs;
    ports
        .get(usize::from(from.port))
        .map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
}

fn box_of(pipeline: &Pipeline, module: &Module) -> Box {
    if module.id == ModuleId::SOURCE {
        let line = format!("{}: {}", pipeline.source.field, pipeline.source.ty);
        return Box {
            kind: Kind::Source,
            name: module.name.clone(),
            lines: vec![line],
        };
    }
    let mut lines = vec![module.op.clone()];
    match module.variants.as_slice() {
        [] => {}
        [only] => lines.push(match only.input {
            Some(input) => format!("input {input}"),
            None => file_name(&only.model).to_owned(),
        }),
        all => {
            let inputs: Vec<String> = all
                .iter()
                .map(|v| v.input.map_or("?".to_owned(), |i| i.to_string()))
                .collect();
            lines.push(format!("inputs {}", inputs.join(", ")));
        }
    }
    let workers = match (module.workers.min, module.workers.max) {
        (1, 1) => "1 worker".to_owned(),
        (min, max) if min == max => format!("{min} workers"),
        (min, max) => format!("{min}-{max} workers"),
    };
    lines.push(format!("batch {}, {workers}", module.batch.max));
    // More would make the box wider than is useful.
    const DEVICES_SHOWN: usize = 3;
    let mut devices = module
        .devices
        .iter()
        .take(DEVICES_SHOWN)
        .cloned()
        .collect::<Vec<_>>();
    if module.devices.len() > DEVICES_SHOWN {
        devices.push(format!("and {} more", module.devices.len() - DEVICES_SHOWN));
    }
    lines.push(format!("on {}", devices.join(", ")));
    Box {
        kind: Kind::Module,
        name: module.name.clone(),
        lines,
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn dot(drawing: &Drawing) -> String {
    let mut out = String::from("digraph pipeline {\n    rankdir = TB;\n");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "    label = \"{}\";", dot_text(&drawing.title));
    out.push_str("    node [shape = box, style = rounded, fontname = \"sans-serif\"];\n");
    out.push_str("    edge [fontname = \"sans-serif\", fontsize = 10];\n");
    for (i, b) in drawing.boxes.iter().enumerate() {
        let text: Vec<String> = std::iter::once(&b.name)
            .chain(&b.lines)
            .map(|line| dot_text(line))
            .collect();
        let shape = if b.kind == Kind::Module {
            ""
        } else {
            ", shape = ellipse"
        };
        let _ = writeln!(out, "    m{i} [label = \"{}\"{shape}];", text.join("\\n"));
    }
    for a in &drawing.arrows {
        let style = if a.condition { ", style = dashed" } else { "" };
        let label = dot_text(&label_of(a));
        let _ = writeln!(
            out,
            "    m{} -> m{} [label = \"{label}\"{style}];",
            a.from, a.to
        );
    }
    out.push_str("}\n");
    out
}

/// Inside a string of Graphviz, on one line.
fn dot_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' | '"' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn mermaid(drawing: &Drawing) -> String {
    let mut out = String::from("flowchart TD\n");
    for (i, b) in drawing.boxes.iter().enumerate() {
        let text: Vec<String> = std::iter::once(&b.name)
            .chain(&b.lines)
            .map(|l| mermaid_text(l))
            .collect();
        let (open, close) = if b.kind == Kind::Module {
            ("(", ")")
        } else {
            ("([", "])")
        };
        let _ = writeln!(out, "    m{i}{open}\"{}\"{close}", text.join("<br/>"));
    }
    for a in &drawing.arrows {
        let line = if a.condition { "-.->" } else { "-->" };
        let label = mermaid_text(&label_of(a));
        let _ = writeln!(out, "    m{} {line}|\"{label}\"| m{}", a.from, a.to);
    }
    out
}

fn label_of(arrow: &Arrow) -> String {
    if arrow.condition {
        format!("when {}", arrow.label)
    } else {
        arrow.label.clone()
    }
}

/// Mermaid knows entities by number: `#35;` is `#`.
fn mermaid_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if c.is_control() => out.push(' '),
            c if c.is_alphanumeric() || " .,:-_/@()?".contains(c) => out.push(c),
            c => out.push_str(&format!("#{};", u32::from(c))),
        }
    }
    out
}
