//! YAML text to a tree that knows its lines. Structure and lines come from `saphyr-parser`. The meaning of a plain
//! scalar (number, truth value, text) comes from `serde_yaml`.
//!
//! Anchors and aliases work, but an alias counts in full against the bounds below, so that a small file cannot grow
//! into a huge tree. Tags other than `!!str` do not exist here. Variables ([`crate::variables`]) are replaced once the
//! structure is known, so a variable's value can change neither the structure nor a line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_yaml::Value;

use crate::problem::Problem;
use crate::variables::{Variables, expand};

/// Largest file read. Real pipelines have a few kilobytes, real profiles a few hundred.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Most values in a file, aliases expanded: a profile of 100 modules with 200 points each fits.
pub const DOCUMENT_NODES_MAX: usize = 200_000;
/// Deepest nesting. The schemas need 6.
pub const DOCUMENT_DEPTH_MAX: usize = 32;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// Line of its first character, from 1.
    pub line: usize,
    /// What it is.
    pub content: Content,
    /// Its text was written with variables: it counts as number or text, whichever the field needs.
    pub has_variables: bool,
    /// Values in it, itself included.
    size: usize,
    /// Levels in it, itself included.
    depth: usize,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// The text as written, and its meaning: null, truth value, number or text.
    Scalar(String, Value),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in the order of the file, duplicates included.
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    fn new(line: usize, content: Content) -> Self {
        let (size, depth) = match &content {
            Content::Scalar(..) => (0, 0),
            Content::Sequence(list) => measure(list.iter()),
            Content::Mapping(list) => measure(list.iter().flat_map(|(k, v)| [k, v])),
        };
        Node {
            line,
            content,
            has_variables: false,
            size: size + 1,
            depth: depth + 1,
        }
    }

    /// Its kind in words, for "expected ..., found ...".
    pub fn describe(&self) -> &'static str {
        match &self.content {
            Content::Sequence(_) => "a list",
            Content::Mapping(_) => "a map",
            Content::Scalar(_, Value::Null) => "nothing",
            Content::Scalar(_, Value::Bool(_)) => "a truth value",
            Content::Scalar(_, Value::Number(_)) => "a number",
            Content::Scalar(..) => "a text",
        }
    }
}

fn measure<'n>(nodes: impl Iterator<Item = &'n Node>) -> (usize, usize) {
    nodes.fold((0, 0), |(size, depth), n| {
        (size + n.size, depth.max(n.depth))
    })
}

/// A collection that is still open.
struct Open {
    line: usize,
    anchor: usize,
    items: Vec<Node>,
    mapping: bool,
}

impl Open {
    fn close(self) -> Node {
        let content = if self.mapping {
            let mut entries = Vec::with_capacity(self.items.len() / 2);
            let mut items = self.items.into_iter();
            // The parser sends keys and values in turn, an absent value as an empty scalar.
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                entries.push((key, value));
            }
            Content::Mapping(entries)
        } else {
            Content::Sequence(self.items)
        };
        Node::new(self.line, content)
    }
}

/// Why reading stopped: the line and what is wrong there.
pub type Stop = (usize, Problem);

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    /// Finished values by anchor. An alias inside its own anchor finds nothing here.
    anchors: BTreeMap<usize, Node>,
    n_nodes: usize,
    /// Bytes that variables brought.
    n_expanded: usize,
    /// Problems with variables; all of them are reported.
    stops: Vec<Stop>,
}

impl Builder {
    fn begin(&mut self, line: usize, anchor: usize, mapping: bool) -> Result<(), Stop> {
        if self.open.len() >= DOCUMENT_DEPTH_MAX {
            return Err((
                line,
                Problem::TooDeep {
                    limit: DOCUMENT_DEPTH_MAX,
                },
            ));
        }
        self.open.push(Open {
            line,
            anchor,
            items: Vec::new(),
            mapping,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        // The parser sends as many ends as beginnings.
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let anchor = open.anchor;
        self.count(open.line, 1)?;
        self.place(open.close(), anchor)
    }

    fn alias(&mut self, line: usize, anchor: usize) -> Result<(), Stop> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err((line, Problem::Alias));
        };
        let (size, depth) = (node.size, node.depth);
        self.count(line, size)?;
        if self.open.len() + depth > DOCUMENT_DEPTH_MAX {
            return Err((
                line,
                Problem::TooDeep {
                    limit: DOCUMENT_DEPTH_MAX,
                },
            ));
        }
        let node = Node {
            line,
            ..self.anchors[&anchor].clone()
        };
        self.place(node, 0)
    }

    /// Puts a finished value where it belongs.
    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Stop> {
        if anchor != 0 {
            // The copy kept for aliases takes memory, too.
            self.count(node.line, node.size)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(parent) => parent.items.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }

    /// Whether the next value is a key of a map.
    fn at_key(&self) -> bool {
        let open = self.open.last();
        open.is_some_and(|open| open.mapping && open.items.len().is_multiple_of(2))
    }

    /// A scalar, with its variables replaced.
    fn scalar(
        &mut self,
        line: usize,
        text: String,
        is_text: bool,
        variables: Option<Variables<'_>>,
    ) -> Result<Node, Stop> {
        let given = variables.filter(|_| !self.at_key());
        let expanded = match given.map(|variables| expand(&text, variables)) {
            None | Some(Ok(None)) => None,
            Some(Ok(expanded)) => expanded,
            Some(Err(problem)) => {
                self.stops.push((line, problem));
                None
            }
        };
        let Some(text) = expanded else {
            let value = if is_text {
                Value::String(text.clone())
            } else {
                meaning(&text)
            };
            return Ok(Node::new(line, Content::Scalar(text, value)));
        };
        self.n_expanded += text.len();
        if self.n_expanded > DOCUMENT_BYTES_MAX {
            let (limit, unit) = (DOCUMENT_BYTES_MAX, "bytes, variables counted in full");
            return Err((line, Problem::TooLarge { limit, unit }));
        }
        // Quotes do not make it a text: inside `{ }` a variable needs quotes.
        let value = meaning(&text);
        let mut node = Node::new(line, Content::Scalar(text, value));
        node.has_variables = true;
        Ok(node)
    }

    fn count(&mut self, line: usize, n: usize) -> Result<(), Stop> {
        self.n_nodes += n;
        if self.n_nodes > DOCUMENT_NODES_MAX {
            return Err((
                line,
                Problem::TooLarge {
                    limit: DOCUMENT_NODES_MAX,
                    unit: "values, aliases counted in full",
                },
            ));
        }
        Ok(())
    }
}

/// Reads one document. `None`: the text holds none. Without `variables`, values are taken literally.
///
/// # Errors
/// Lines and what is wrong there.
pub fn read(text: &str, variables: Option<Variables<'_>>) -> Result<Option<Node>, Vec<Stop>> {
    let mut builder = Builder::default();
    if let Err(stop) = build(&mut builder, text, variables) {
        builder.stops.push(stop);
    }
    if builder.stops.is_empty() {
        Ok(builder.root)
    } else {
        Err(builder.stops)
    }
}

fn build(builder: &mut Builder, text: &str, variables: Option<Variables<'_>>) -> Result<(), Stop> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err((
            1,
            Problem::TooLarge {
                limit: DOCUMENT_BYTES_MAX,
                unit: "bytes",
            },
        ));
    }
    let mut n_documents = 0usize;
    // At the end of the text the parser may stand on a line that no editor shows.
    let last_line = text.lines().count().max(1);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let line = error.marker().line().clamp(1, last_line);
            syntax_error(text, line, error.info())
        })?;
        let line = span.start.line().clamp(1, last_line);
        let untagged = |tag: Option<Cow<'_, Tag>>| match tag {
            Some(tag) if tag.is_yaml_core_schema() => {
                let tag = format!("!!{}", tag.suffix.trim_start_matches('!'));
                Err((line, Problem::Tag { tag }))
            }
            Some(tag) => Err((
                line,
                Problem::Tag {
                    tag: tag.to_string(),
                },
            )),
            None => Ok(()),
        };
        match event {
            Event::DocumentStart(_) => {
                n_documents += 1;
                if n_documents > 1 {
                    return Err((line, Problem::SecondDocument));
                }
            }
            Event::SequenceStart(anchor, tag) => {
                untagged(tag)?;
                builder.begin(line, anchor, false)?;
            }
            Event::MappingStart(anchor, tag) => {
                untagged(tag)?;
                builder.begin(line, anchor, true)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.end()?,
            Event::Scalar(text, style, anchor, tag) => {
                let tagged_text = tag
                    .as_ref()
                    .is_some_and(|t| t.is_yaml_core_schema() && t.suffix == "str");
                if !tagged_text {
                    untagged(tag)?;
                }
                builder.count(line, 1)?;
                let ends = [text.chars().next(), text.chars().next_back()];
                let odd = ends.into_iter().flatten().find(|c| is_odd_space(*c));
                if let (Some(space), ScalarStyle::Plain) = (odd, style) {
                    return Err((line, odd_space(space)));
                }
                let is_text = tagged_text || style != ScalarStyle::Plain;
                let node = builder.scalar(line, text.into_owned(), is_text, variables)?;
                builder.place(node, anchor)?;
            }
            Event::Alias(anchor) => builder.alias(line, anchor)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(())
}

/// A space, or a mark without width, that is a letter to YAML.
fn is_odd_space(c: char) -> bool {
    !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{200b}' | '\u{feff}'))
}

fn odd_space(space: char) -> Problem {
    Problem::OddSpace {
        code: u32::from(space),
    }
}

/// The parser's message, or the tab or space that confused it.
fn syntax_error(text: &str, line: usize, message: &str) -> Stop {
    let is_tabbed = |text: &str| {
        text.trim_start_matches([' ', '\t']).len() < text.trim_start_matches(' ').len()
    };
    // The parser may notice a tab where the value of the line before ends.
    for (i, text) in text.lines().enumerate().skip(line - 1).take(2) {
        if is_tabbed(text) {
            return (i + 1, Problem::TabIndent);
        }
    }
    // A space that is none joins a key and its value, which is noticed on the next line.
    for (i, text) in text
        .lines()
        .enumerate()
        .skip(line.saturating_sub(2))
        .take(3)
    {
        if let Some(space) = text.chars().find(|c| is_odd_space(*c)) {
            return (i + 1, odd_space(space));
        }
    }
    (
        line,
        Problem::Syntax {
            message: message.to_owned(),
        },
    )
}

/// The meaning of a plain scalar.
fn meaning(text: &str) -> Value {
    // Longer than any number or truth value.
    const WORD_LEN_MAX: usize = 64;
    if text.is_empty() {
        return Value::Null;
    }
    // Most scalars are texts, and can be told by their first letter.
    let may_be_else = |c: char| c.is_ascii_digit() || "+-.~nNtTfF".contains(c);
    if text.len() <= WORD_LEN_MAX
        && text.starts_with(may_be_else)
        && let Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) =
            serde_yaml::from_str::<Value>(text)
    {
        return value;
    }
    Value::String(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scalar(text: &str) -> Option<Value> {
        match read(text, None).ok()??.content {
            Content::Scalar(_, value) => Some(value),
            _ => None,
        }
    }

    #[test]
    fn scalars_mean_what_yaml_says() {
        for text in [
            "~", "null", "true", "False", "-1", "+3", "0x1F", "0o17", "1e3", ".5", ".inf",
        ] {
            let expected = serde_yaml::from_str::<Value>(text).expect("YAML");
            assert!(!expected.is_string(), "{text}");
            assert_eq!(scalar(text), Some(expected), "{text}");
        }
        for text in [
            "yes", "on", "400ms", "1.2.3", "cuda:0", "'1'", "\"true\"", "!!str 5",
        ] {
            assert!(
                scalar(text).is_some_and(|value| value.is_string()),
                "{text}"
            );
        }
    }

    proptest! {
        /// Both parsers read the same words the same way.
        #[test]
        fn words_mean_what_serde_yaml_says(word in "[-+.~0-9a-zA-Z_$]{1,8}") {
            if let (Some(ours), Ok(theirs)) = (scalar(&word), serde_yaml::from_str::<Value>(&word)) {
                // Here NaN equals itself.
                prop_assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{}", word);
            }
        }
    }
}
