//! Typed reading of the tree. Each function returns the value, or notes the problem and returns nothing, so that one
//! pass finds all problems.

use std::time::Duration;

use serde_yaml::Value;

use crate::diagnostic::{Place, Sink};
use crate::document::{self, Content, Node, Stop};
use crate::near::{self, nearest};
use crate::problem::{Problem, one_line};
use crate::time::{format_duration, parse_duration};

/// Longest name: it becomes a label in metrics and a line in a terminal.
const NAME_LEN_MAX: usize = 64;

/// One entry of a map.
pub struct Field<'n> {
    /// Its name.
    pub key: &'n str,
    /// Where it stands.
    pub place: Place,
    /// Its value.
    pub node: &'n Node,
}

/// The entries of a map by key, in the order of the file.
#[derive(Default)]
pub struct Fields<'n> {
    list: Vec<Field<'n>>,
}

impl<'n> Fields<'n> {
    /// The field of that name.
    pub fn get(&self, key: &str) -> Option<&Field<'n>> {
        self.list.iter().find(|f| f.key == key)
    }

    /// All, as written.
    pub fn iter(&self) -> impl Iterator<Item = &Field<'n>> {
        self.list.iter()
    }
}

/// The content of a file that must have these fields. `None` where there is nothing to read, which is reported.
pub fn root(sink: &mut Sink, text: &str, fields: &'static str) -> Option<Node> {
    match document::read(text, None) {
        Ok(Some(root)) => return Some(root),
        Ok(None) => sink.error(&Place::root(), Problem::Empty { fields }),
        Err(stops) => broken(sink, stops),
    }
    None
}

/// Reports what is wrong with the syntax of a file, by line.
pub fn broken(sink: &mut Sink, stops: Vec<Stop>) {
    for (line, problem) in stops {
        let path = String::new();
        sink.error(&Place { line, path }, problem);
    }
}

/// The map in `node`; empty, with the problem noted, when it is not a map. Of a key that appears twice the first
/// entry counts.
pub fn map<'n>(sink: &mut Sink, node: &'n Node, place: &Place, expected: &str) -> Fields<'n> {
    let Content::Mapping(entries) = &node.content else {
        wrong_kind::<()>(sink, node, place, expected);
        return Fields { list: Vec::new() };
    };
    let mut first_lines: std::collections::BTreeMap<&str, usize> = Default::default();
    let mut list = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let Content::Scalar(text, _) = &key.content else {
            let place = Place {
                line: key.line,
                ..place.clone()
            };
            sink.error(
                &place,
                Problem::BadKey {
                    found: key.describe(),
                },
            );
            continue;
        };
        let place = place.field(text, key.line);
        if let Some(first) = first_lines.get(text.as_str()) {
            sink.error(
                &place,
                Problem::DuplicateKey {
                    key: text.clone(),
                    first: *first,
                },
            );
            continue;
        }
        first_lines.insert(text, key.line);
        list.push(Field {
            key: text,
            place,
            node: value,
        });
    }
    Fields { list }
}

/// The map in `node`, which has no other fields than `known`.
pub fn record<'n>(
    sink: &mut Sink,
    node: &'n Node,
    place: &Place,
    expected: &str,
    known: &[&str],
) -> Fields<'n> {
    let mut fields = map(sink, node, place, expected);
    fields.list.retain(|field| {
        let is_known = known.contains(&field.key);
        if field.key == "<<" {
            sink.error(&field.place, Problem::MergeKey);
        } else if !is_known && !sink.is_full() {
            sink.error(
                &field.place,
                Problem::UnknownField {
                    field: field.key.to_owned(),
                    near: nearest(field.key, known.iter().copied()),
                    known: near::known(known.iter().copied()),
                },
            );
        }
        is_known
    });
    fields
}

/// The list in `node`.
pub fn list<'n>(
    sink: &mut Sink,
    node: &'n Node,
    place: &Place,
    expected: &str,
) -> Option<&'n [Node]> {
    match &node.content {
        Content::Sequence(list) => Some(list),
        _ => wrong_kind(sink, node, place, expected),
    }
}

/// A text; numbers and truth values must be in quotes.
pub fn text<'n>(sink: &mut Sink, node: &'n Node, place: &Place, expected: &str) -> Option<&'n str> {
    match &node.content {
        Content::Scalar(text, Value::String(_)) if !text.is_empty() => Some(text),
        Content::Scalar(text, _) if node.has_variables && !text.is_empty() => Some(text),
        Content::Scalar(_, Value::String(_)) => {
            wrong(sink, place, expected, "an empty text".to_owned())
        }
        Content::Scalar(text, Value::Bool(_) | Value::Number(_)) => {
            let found = format!("{text}; quotes make it a text: \"{text}\"");
            wrong(sink, place, expected, found)
        }
        _ => wrong_kind(sink, node, place, expected),
    }
}

/// `true` or `false`.
pub fn truth(sink: &mut Sink, node: &Node, place: &Place) -> Option<bool> {
    match &node.content {
        Content::Scalar(_, Value::Bool(value)) => Some(*value),
        _ => wrong_value(sink, node, place, "true or false"),
    }
}

/// A whole number from `low` to `high`.
pub fn integer(sink: &mut Sink, node: &Node, place: &Place, low: i64, high: i64) -> Option<i64> {
    if let Content::Scalar(text, Value::Number(number)) = &node.content {
        if let Some(value) = number.as_i64().filter(|v| (low..=high).contains(v)) {
            return Some(value);
        }
        if !number.is_f64() {
            return out_of_range(sink, place, text.clone(), low.to_string(), high.to_string());
        }
    }
    let expected = format!("a whole number from {low} to {high}");
    // YAML reads more digits than any number type has as a text.
    if let Content::Scalar(text, Value::String(_)) = &node.content {
        if text
            .parse()
            .is_ok_and(|value| (low..=high).contains(&value))
        {
            return wrong(sink, place, &expected, quoted(text));
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            return out_of_range(sink, place, text.clone(), low.to_string(), high.to_string());
        }
    }
    wrong_value(sink, node, place, &expected)
}

/// A number that quotes made a text.
fn quoted(text: &str) -> String {
    format!("the text \"{text}\"; without quotes it is a number")
}

/// A count from `low` to `high`, for fields whose ranges are small.
pub fn count(sink: &mut Sink, node: &Node, place: &Place, low: u32, high: u32) -> Option<u32> {
    let value = integer(sink, node, place, i64::from(low), i64::from(high))?;
    u32::try_from(value).ok()
}

/// A finite number from `low` to `high`.
pub fn number(sink: &mut Sink, node: &Node, place: &Place, low: f64, high: f64) -> Option<f64> {
    if let Content::Scalar(text, Value::Number(number)) = &node.content
        && let Some(value) = number.as_f64()
    {
        // Written so that NaN is out of range.
        if value >= low && value <= high && value.is_finite() {
            return Some(value);
        }
        return out_of_range(sink, place, text.clone(), low.to_string(), high.to_string());
    }
    let expected = match (low, high) {
        (f64::MIN, f64::MAX) => "a number".to_owned(),
        (low, high) => format!("a number from {low} to {high}"),
    };
    if let Content::Scalar(text, Value::String(_)) = &node.content
        && text
            .parse()
            .is_ok_and(|value: f64| (low..=high).contains(&value))
    {
        return wrong(sink, place, &expected, quoted(text));
    }
    wrong_value(sink, node, place, &expected)
}

/// A duration with its unit, from `low` to `high`.
pub fn duration(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    low: Duration,
    high: Duration,
) -> Option<Duration> {
    let Content::Scalar(text, _) = &node.content else {
        return wrong_kind(sink, node, place, "a duration, like 400ms");
    };
    let value = match parse_duration(&one_line(text)) {
        Ok(value) => value,
        Err(message) => {
            sink.error(place, Problem::BadDuration { message });
            return None;
        }
    };
    if (low..=high).contains(&value) {
        return Some(value);
    }
    out_of_range(
        sink,
        place,
        text.clone(),
        format_duration(low),
        format_duration(high),
    )
}

/// Notes a text that cannot be a name.
pub fn check_name(sink: &mut Sink, name: &str, place: &Place) {
    if !is_name(name) {
        sink.error(
            place,
            Problem::BadName {
                name: name.to_owned(),
            },
        );
    }
}

/// Letters, digits, `_` and `-`, beginning with a letter.
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// One of `known`; `what` is singular, for "no WHAT named".
pub fn choice(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    what: &str,
    known: &[&str],
) -> Option<usize> {
    let Content::Scalar(text, value) = &node.content else {
        return wrong_kind(sink, node, place, &format!("one of {}", known.join(", ")));
    };
    if value.is_null() {
        return wrong_kind(sink, node, place, &format!("one of {}", known.join(", ")));
    }
    let found = known.iter().position(|k| k == text);
    if found.is_none() {
        sink.error(
            place,
            Problem::UnknownChoice {
                what: what.to_owned(),
                value: text.clone(),
                near: nearest(text, known.iter().copied()),
                known: near::known(known.iter().copied()),
            },
        );
    }
    found
}

/// The same, where the laboratory has others beside them, which no file can name.
pub fn offered(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    what: &str,
    (known, laboratory): (&[&str], &[&str]),
) -> Option<usize> {
    match &node.content {
        Content::Scalar(text, _) if laboratory.contains(&text.as_str()) => {
            sink.error(
                place,
                Problem::OfTheLaboratory {
                    what: what.to_owned(),
                    value: text.clone(),
                    known: near::known(known.iter().copied()),
                },
            );
            None
        }
        _ => choice(sink, node, place, what, known),
    }
}

/// Notes another kind of value than expected.
pub fn wrong_kind<T>(sink: &mut Sink, node: &Node, place: &Place, expected: &str) -> Option<T> {
    wrong(sink, place, expected, node.describe().to_owned())
}

/// Notes another value than expected, and shows it where it is short.
pub fn wrong_value<T>(sink: &mut Sink, node: &Node, place: &Place, expected: &str) -> Option<T> {
    match &node.content {
        Content::Scalar(text, value) if !value.is_null() => {
            let found = format!("\"{}\"", one_line(text));
            wrong(sink, place, expected, found)
        }
        _ => wrong_kind(sink, node, place, expected),
    }
}

fn wrong<T>(sink: &mut Sink, place: &Place, expected: &str, found: String) -> Option<T> {
    sink.error(
        place,
        Problem::WrongKind {
            expected: expected.to_owned(),
            found,
        },
    );
    None
}

fn out_of_range<T>(
    sink: &mut Sink,
    place: &Place,
    value: String,
    low: String,
    high: String,
) -> Option<T> {
    let value = one_line(&value);
    sink.error(place, Problem::OutOfRange { value, low, high });
    None
}
