//! Options of a module, checked against its type.

use indexmap::IndexMap;

use crate::catalog::{ModuleType, OptionType};
use crate::diagnostic::Sink;
use crate::near::{known, nearest};
use crate::pipeline::OptionValue;
use crate::problem::Problem;
use crate::reader::{self, Field};
use crate::spec::ModuleSpec;

/// Most entries of an option that is a list.
const LIST_LEN_MAX: usize = 4096;

/// The options by name, in the order of the file.
pub(super) fn check(
    sink: &mut Sink,
    module: &ModuleSpec<'_>,
    ty: &ModuleType,
) -> IndexMap<String, OptionValue> {
    let mut values = IndexMap::new();
    for field in module.options.iter() {
        let Some(option) = ty.options.iter().find(|o| o.name == field.key) else {
            let names = || ty.options.iter().map(|o| o.name.as_str());
            sink.error(
                &field.place,
                Problem::UnknownOption {
                    op: ty.name.clone(),
                    option: field.key.to_owned(),
                    near: nearest(field.key, names()),
                    known: known(names()),
                },
            );
            continue;
        };
        if let Some(value) = read(sink, field, &option.ty) {
            values.insert(option.name.clone(), value);
        }
    }
    for option in ty.options.iter().filter(|o| o.required) {
        if module.options.get(&option.name).is_none() {
            sink.error(
                &module.options_place,
                Problem::MissingOption {
                    op: ty.name.clone(),
                    option: option.name.clone(),
                    example: example(&option.ty),
                },
            );
        }
    }
    values
}

fn read(sink: &mut Sink, field: &Field<'_>, ty: &OptionType) -> Option<OptionValue> {
    let (node, place) = (field.node, &field.place);
    match ty {
        OptionType::Bool => reader::truth(sink, node, place).map(OptionValue::Bool),
        OptionType::Integer(low, high) => {
            reader::integer(sink, node, place, *low, *high).map(OptionValue::Integer)
        }
        OptionType::Number(low, high) => {
            reader::number(sink, node, place, *low, *high).map(OptionValue::Number)
        }
        OptionType::Text => {
            reader::text(sink, node, place, "a text").map(|t| OptionValue::Text(t.to_owned()))
        }
        OptionType::File => reader::text(sink, node, place, "the path of a file")
            .map(|t| OptionValue::Text(t.to_owned())),
        OptionType::Choice(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let what = format!("choice of {}", field.key);
            reader::choice(sink, node, place, &what, &words)
                .map(|i| OptionValue::Text(words[i].to_owned()))
        }
        OptionType::Numbers(len) => read_numbers(sink, field, *len),
        OptionType::Texts => {
            let list = entries(sink, field, "a list of texts", 0)?;
            let mut texts = Vec::new();
            for (i, entry) in list.iter().enumerate() {
                let place = place.index(i, entry.line);
                texts.push(reader::text(sink, entry, &place, "a text")?.to_owned());
            }
            Some(OptionValue::Texts(texts))
        }
    }
}

fn read_numbers(sink: &mut Sink, field: &Field<'_>, len: usize) -> Option<OptionValue> {
    let expected = match len {
        0 => "a list of numbers".to_owned(),
        len => format!("a list of {len} numbers"),
    };
    let list = entries(sink, field, &expected, len)?;
    let mut numbers = Vec::new();
    for (i, entry) in list.iter().enumerate() {
        let place = field.place.index(i, entry.line);
        numbers.push(reader::number(sink, entry, &place, f64::MIN, f64::MAX)?);
    }
    Some(OptionValue::Numbers(numbers))
}

/// The entries of a list of `len` (0: of any length).
fn entries<'n>(
    sink: &mut Sink,
    field: &Field<'n>,
    expected: &str,
    len: usize,
) -> Option<&'n [crate::document::Node]> {
    let list = reader::list(sink, field.node, &field.place, expected)?;
    if len != 0 && list.len() != len {
        let (expected, found) = (expected.to_owned(), format!("a list of {}", list.len()));
        sink.error(&field.place, Problem::WrongKind { expected, found });
        return None;
    }
    if list.len() > LIST_LEN_MAX {
        let (what, count, limit) = ("entries", list.len(), LIST_LEN_MAX);
        sink.error(&field.place, Problem::TooMany { what, count, limit });
        return None;
    }
    Some(list)
}

/// An example of a right value.
pub(crate) fn example(ty: &OptionType) -> String {
    match ty {
        OptionType::Bool => "true or false".to_owned(),
        OptionType::Integer(low, high) => format!("a whole number from {low} to {high}"),
        OptionType::Number(low, high) => format!("a number from {low} to {high}"),
        OptionType::Text => "TEXT".to_owned(),
        OptionType::File => "FILE".to_owned(),
        OptionType::Choice(words) => words.join(" or "),
        OptionType::Numbers(0) => "[NUMBER, ...]".to_owned(),
        OptionType::Numbers(len) => format!("a list of {len} numbers"),
        OptionType::Texts => "[TEXT, ...]".to_owned(),
    }
}
