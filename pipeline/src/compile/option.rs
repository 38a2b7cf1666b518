//! Options of a module, checked against its type.

use indexmap::IndexMap;

use crate::catalog::{GROUP_TEXTS_MAX, GROUPS_MAX, ModuleType, OptionType, ValueType};
use crate::diagnostic::{Place, Sink};
use crate::near::{known, nearest};
use crate::pipeline::OptionValue;
use crate::problem::Problem;
use crate::reader::{self, Field};
use crate::spec::ModuleSpec;

/// Most entries of an option that is a list, or a map of numbers.
pub(crate) const LIST_LEN_MAX: usize = 4096;

/// What the options of a module say.
#[derive(Default)]
pub(super) struct Checked {
    /// The options by name, in the order of the file.
    pub(super) values: IndexMap<String, OptionValue>,
    /// Outputs of the module: those of its type, then those that options add.
    pub(super) outputs: Vec<(String, ValueType)>,
}

/// Checks the options of a module.
pub(super) fn check(sink: &mut Sink, module: &ModuleSpec<'_>, ty: &ModuleType) -> Checked {
    let mut values = IndexMap::new();
    let mut outputs = Outputs::of(ty);
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
        if let Some(value) = read(sink, field, &option.ty, &mut outputs) {
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
    Checked {
        values,
        outputs: outputs.all,
    }
}

/// Outputs of a module of the type `op`.
struct Outputs<'a> {
    op: &'a str,
    all: Vec<(String, ValueType)>,
}

impl<'a> Outputs<'a> {
    /// Those that each module of the type has.
    fn of(ty: &'a ModuleType) -> Self {
        let all = ty.outputs.iter().map(|o| (o.name.clone(), o.ty));
        Outputs {
            op: &ty.name,
            all: all.collect(),
        }
    }

    /// Adds one that an option names; notes a name that is taken.
    fn add(&mut self, sink: &mut Sink, (name, ty): (&str, ValueType), place: &Place) {
        if self.all.iter().all(|(output, _)| output != name) {
            return self.all.push((name.to_owned(), ty));
        }
        let (op, name) = (self.op.to_owned(), name.to_owned());
        sink.error(place, Problem::OutputTaken { op, name });
    }
}

fn read(
    sink: &mut Sink,
    field: &Field<'_>,
    ty: &OptionType,
    outputs: &mut Outputs<'_>,
) -> Option<OptionValue> {
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
        OptionType::Texts => read_texts(sink, field, LIST_LEN_MAX).map(OptionValue::Texts),
        OptionType::NumberByText(low, high) => read_numbers_by_text(sink, field, *low, *high),
        OptionType::Groups(of) => Some(read_groups(sink, field, *of, outputs)),
    }
}

fn read_texts(sink: &mut Sink, field: &Field<'_>, most: usize) -> Option<Vec<String>> {
    let list = entries(sink, field, "a list of texts", 0, most)?;
    let mut texts = Vec::new();
    for (i, entry) in list.iter().enumerate() {
        let place = field.place.index(i, entry.line);
        texts.push(reader::text(sink, entry, &place, "a text")?.to_owned());
    }
    Some(texts)
}

fn read_numbers_by_text(
    sink: &mut Sink,
    field: &Field<'_>,
    low: f64,
    high: f64,
) -> Option<OptionValue> {
    let expected = "a map of numbers, like { TEXT: NUMBER }";
    let fields = reader::map(sink, field.node, &field.place, expected);
    let (what, count, limit) = ("entries", fields.iter().count(), LIST_LEN_MAX);
    if count > limit {
        sink.error(&field.place, Problem::TooMany { what, count, limit });
        return None;
    }
    let mut numbers = IndexMap::new();
    for entry in fields.iter() {
        let number = reader::number(sink, entry.node, &entry.place, low, high)?;
        numbers.insert(entry.key.to_owned(), number);
    }
    Some(OptionValue::NumberByText(numbers))
}

/// A group with a wrong list is an output all the same, so that references to it are no further errors.
fn read_groups(
    sink: &mut Sink,
    field: &Field<'_>,
    of: ValueType,
    outputs: &mut Outputs<'_>,
) -> OptionValue {
    let expected = "a map of groups, like { NAME: [TEXT, ...] }";
    let fields = reader::map(sink, field.node, &field.place, expected);
    let count = fields.iter().count();
    if count > GROUPS_MAX {
        let (what, limit) = ("groups", GROUPS_MAX);
        sink.error(&field.place, Problem::TooMany { what, count, limit });
    }
    let mut groups = IndexMap::new();
    for group in fields.iter().take(GROUPS_MAX) {
        reader::check_name(sink, group.key, &group.place);
        outputs.add(sink, (group.key, of), &group.place);
        let texts = read_texts(sink, group, GROUP_TEXTS_MAX);
        if texts.as_ref().is_some_and(Vec::is_empty) {
            let example = "[TEXT]";
            sink.error(&group.place, Problem::NoEntries { example });
        }
        groups.insert(group.key.to_owned(), texts.unwrap_or_default());
    }
    OptionValue::Groups(groups)
}

fn read_numbers(sink: &mut Sink, field: &Field<'_>, len: usize) -> Option<OptionValue> {
    let expected = match len {
        0 => "a list of numbers".to_owned(),
        len => format!("a list of {len} numbers"),
    };
    let list = entries(sink, field, &expected, len, LIST_LEN_MAX)?;
    let mut numbers = Vec::new();
    for (i, entry) in list.iter().enumerate() {
        let place = field.place.index(i, entry.line);
        numbers.push(reader::number(sink, entry, &place, f64::MIN, f64::MAX)?);
    }
    Some(OptionValue::Numbers(numbers))
}

/// The entries of a list of `len` (0: of any length), at most `most`.
fn entries<'n>(
    sink: &mut Sink,
    field: &Field<'n>,
    expected: &str,
    len: usize,
    most: usize,
) -> Option<&'n [crate::document::Node]> {
    let list = reader::list(sink, field.node, &field.place, expected)?;
    if len != 0 && list.len() != len {
        let (expected, found) = (expected.to_owned(), format!("a list of {}", list.len()));
        sink.error(&field.place, Problem::WrongKind { expected, found });
        return None;
    }
    if list.len() > most {
        let (what, count, limit) = ("entries", list.len(), most);
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
        OptionType::NumberByText(low, high) => format!("{{ TEXT: a number from {low} to {high} }}"),
        OptionType::Groups(_) => "{ NAME: [TEXT, ...] }".to_owned(),
    }
}
