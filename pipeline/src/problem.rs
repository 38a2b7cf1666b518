//! The problems of a pipeline file, a profile file or a file of tokens: one variant each, so that callers can match
//! them. The text of a problem says what is wrong and what would be right; [`crate::diagnostic::Diagnostic`] says
//! where.

use std::fmt;
use std::time::Duration;

use crate::catalog::ValueType;
use crate::near::KNOWN_MAX;
use crate::time::format_duration;

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(
    missing_docs,
    reason = "the fields are what the text beside them shows"
)]
pub enum Problem {
    /// The text is no YAML.
    #[error("not valid YAML: {}", Plain(.message))]
    Syntax { message: String },
    /// The file has more bytes or values than are read.
    #[error("the file has more than {limit} {unit}; split or shorten it")]
    TooLarge { limit: usize, unit: &'static str },
    /// The nesting is deeper than is read.
    #[error("nested deeper than {limit} levels; no field needs that")]
    TooDeep { limit: usize },
    /// Nothing is in the file.
    #[error("the file is empty; write {fields}")]
    Empty { fields: &'static str },
    /// A second YAML document begins.
    #[error("a second document begins here; write one a file")]
    SecondDocument,
    /// A variable that is not set and has no default.
    #[error("the environment has no {name}; set it, or write a default: ${{{name}:-VALUE}}")]
    UnsetVariable { name: String },
    /// Text that looks like a variable and is not one.
    #[error(
        "{} is no variable; write ${{NAME}} or ${{NAME:-default}} (a default holds no variable), and $$ for a $ by itself",
        Quoted(.text)
    )]
    BadVariable { text: String },
    /// A value that variables made too long.
    #[error("its variables make it longer than {limit} bytes")]
    LongVariable { limit: usize },
    /// An alias that names no finished anchor.
    #[error("this alias names no value above it")]
    Alias,
    /// A line indented with a tab.
    #[error("a tab indents this line; YAML takes spaces only")]
    TabIndent,
    /// A space that is none to YAML, as word processors and web pages write them.
    #[error("a space that YAML does not know stands here (U+{code:04X}); write a plain one")]
    OddSpace { code: u32 },
    /// A YAML tag.
    #[error("the tag {} has no meaning here; remove it", Plain(.tag))]
    Tag { tag: String },
    /// Another kind of value is needed.
    #[error("expected {expected}, found {found}")]
    WrongKind { expected: String, found: String },
    /// A key that is a list or a map.
    #[error("a key must be a word, found {found}")]
    BadKey { found: &'static str },
    /// A merge key of YAML 1.1.
    #[error("<< merges nothing here; write the fields out, or repeat a whole value with *NAME")]
    MergeKey,
    /// A key appears twice in a map.
    #[error("{} stands on line {first} already; remove one of the two", Quoted(.key))]
    DuplicateKey { key: String, first: usize },
    /// A field that does not exist.
    #[error("no field named {}{}", Quoted(.field), hint(.near, "fields", .known))]
    UnknownField {
        field: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// A required field is absent.
    #[error("{field} is missing; write {example}")]
    MissingField { field: String, example: String },
    /// A list or map that needs an entry has none.
    #[error("there are none; write at least one, like {example}")]
    NoEntries { example: &'static str },
    /// The file says that it has another number of entries: a part of it is missing.
    #[error(
        "the file has {found} entries, and says {said}: {}",
        missing(*.said, *.found)
    )]
    OtherEntries { said: u32, found: u32 },
    /// More entries than are possible.
    #[error("{count} {what} are more than the {limit} possible; use fewer")]
    TooMany {
        what: &'static str,
        count: usize,
        limit: usize,
    },
    /// A duration that cannot be read.
    #[error("{}", Plain(.message))]
    BadDuration { message: String },
    /// A name with other characters than names have.
    #[error(
        "{} is no name; use letters, digits, _ and -, a letter first, 64 characters at most",
        Quoted(.name)
    )]
    BadName { name: String },
    /// A module is called like the source.
    #[error("\"source\" stands for what a request carries; give the module another name")]
    ReservedName,
    /// A number or duration outside its range.
    #[error("{value} is out of range; use {low} to {high}")]
    OutOfRange {
        value: String,
        low: String,
        high: String,
    },
    /// An `op:` that is not in the catalogue.
    #[error("no op named {}{}", Quoted(.op), long_hint(.near, "ops", .known))]
    UnknownOp {
        op: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// A required input is not wired.
    #[error("input {input} is missing; write {input}: {}", alternatives(.candidates, .ty))]
    MissingInput {
        input: String,
        ty: ValueType,
        candidates: Vec<String>,
    },
    /// An input that the op does not have.
    #[error("{op} has no input named {}{}", Quoted(.input), hint(.near, "inputs", .known))]
    UnknownInput {
        op: String,
        input: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// A text where a reference is needed.
    #[error("{} is no reference; write {}", Quoted(.text), .example.as_deref().unwrap_or("$module.output"))]
    BadReference {
        text: String,
        example: Option<String>,
    },
    /// A reference to a module that does not exist.
    #[error("no module named {}{}", Quoted(.module), hint(.near, "modules", .known))]
    UnknownModule {
        module: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// A reference to an output that the module does not have.
    #[error("{module} has no output named {}{}", Quoted(.output), hint(.near, "outputs", .known))]
    UnknownOutput {
        module: String,
        output: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// An output of one type wired to an input of another.
    #[error(
        "{from} carries {found}, but input {input} takes {expected}; use {}",
        alternatives(.candidates, .expected)
    )]
    TypeMismatch {
        from: String,
        found: ValueType,
        input: String,
        expected: ValueType,
        candidates: Vec<String>,
    },
    /// Modules that wait for each other: the chain begins and ends with the same one.
    #[error("cycle {}", .chain.join(" -> "))]
    Cycle { chain: Vec<String> },
    /// A condition on something that always holds.
    #[error(
        "{from} carries {found}, which is never empty; a condition looks at boxes, texts, labels, \
         bytes or a tensor"
    )]
    NeverEmpty { from: String, found: ValueType },
    /// Both ways to name a model.
    #[error("{field} and variants exclude each other; write {field} inside each variant")]
    ModelAndVariants { field: &'static str },
    /// One model, or variants of one, beside a family of many.
    #[error("{field} and models exclude each other; remove one of the two")]
    ModelAndFamily { field: &'static str },
    /// The default of a family that is not there.
    #[error(
        "default_model is one of a family; write models: FOLDER/*.pt beside it, or model: FILE in place of it"
    )]
    DefaultWithoutFamily,
    /// A text that is no pattern of files.
    #[error("{} is no pattern of model files: {why}; write FOLDER/*.pt", Quoted(.pattern))]
    BadPattern { pattern: String, why: &'static str },
    /// The folder of a family cannot be read.
    #[error(
        "the folder {} cannot be read: {}; paths are relative to the pipeline file",
        Plain(.folder),
        Plain(.why)
    )]
    NoFolder { folder: String, why: String },
    /// A family without files.
    #[error(
        "no file matches {}; paths are relative to the pipeline file, and hidden files do not count",
        Quoted(.pattern)
    )]
    NoMatch { pattern: String },
    /// Two files of a family with one name.
    #[error(
        "{} and {} both are the model {}: a model is named by its file without the last ending; rename one of them",
        Plain(.first),
        Plain(.second),
        Quoted(.name)
    )]
    EqualNames {
        name: String,
        first: String,
        second: String,
    },
    /// A default that is not in the family.
    #[error("the family has no model named {}{}", Quoted(.name), hint(.near, "models", .known))]
    UnknownMember {
        name: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// A model is needed.
    #[error(
        "{op} runs a model; write model: FILE, models: FOLDER/*.pt or variants: [{{ model: FILE, input: 320 }}]"
    )]
    ModelMissing { op: String },
    /// A model for a module type that runs none.
    #[error("{op} runs no model; remove {field}")]
    ModelNotAllowed { op: String, field: &'static str },
    /// Two variants that a client's frame size cannot tell apart.
    #[error("{} as variant {first} has; give each variant its own input size", input_text(.input))]
    EqualVariants { input: Option<u32>, first: usize },
    /// An option that the op does not have.
    #[error("{op} has no option named {}{}", Quoted(.option), hint(.near, "options", .known))]
    UnknownOption {
        op: String,
        option: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// An option adds an output that the module has already.
    #[error("{op} has an output named {name} already; give the group another name")]
    OutputTaken { op: String, name: String },
    /// A required option is absent.
    #[error("option {option} of {op} is missing; write {option}: {example}")]
    MissingOption {
        op: String,
        option: String,
        example: String,
    },
    /// A word that is none of the choices.
    #[error("no {what} named {}{}", Quoted(.value), hint(.near, "choices", .known))]
    UnknownChoice {
        what: String,
        value: String,
        near: Option<String>,
        known: Vec<String>,
    },
    /// A word that only the laboratory knows.
    #[error("{value} is a {what} of the laboratory, which no file names (docs/laboratory.md); {}", listed("choices", .known))]
    OfTheLaboratory {
        what: String,
        value: String,
        known: Vec<String>,
    },
    /// Dispatch `pull` under a policy that binds ahead.
    #[error(
        "{drop} binds requests to a batch ahead, so no worker asks for them; leave dispatch out, or take one of {}",
        .others.join(", ")
    )]
    PulledAhead { drop: String, others: Vec<String> },
    /// Variants are to be chosen, and no module has several.
    #[error("no module has several variants; list them under variants:, or leave adapt out")]
    NothingAdapts,
    /// A variant is named where one is chosen for each request.
    #[error("{name} chooses the variant of each request; remove variant, or name fixed")]
    VariantIsChosen { name: &'static str },
    /// The ordinal of no variant.
    #[error(
        "{module} has {count} variants, and there is no {ordinal}, counted from 0; give at most {}",
        .count - 1
    )]
    NoSuchVariant {
        module: String,
        ordinal: u32,
        count: usize,
    },
    /// Variants are to be chosen by their accuracy, which is not known.
    #[error(
        "a variant of {module} has no accuracy, and variants are chosen by it; state accuracy: for each of them, or \
         name fixed"
    )]
    VariantWithoutAccuracy { module: String },
    /// A batch scheduler knows the times of one variant.
    #[error(
        "the scheduler {schedule} of {module} knows the execution times of one variant; write schedule: static there, or name \
         fixed"
    )]
    ScheduledVariants {
        module: String,
        schedule: &'static str,
    },
    /// A variant that is less accurate than a smaller one.
    #[error(
        "the variant of input {input} is less accurate than the smaller one of input {better}; remove it"
    )]
    DominatedVariant { input: u32, better: u32 },
    /// A name that no device can have.
    #[error(
        "{} is no device; use auto, cpu, cpu:N, cuda, cuda:N, emulated or emulated:N",
        Quoted(.device)
    )]
    UnknownDevice { device: String },
    /// A device twice in one list.
    #[error("{device} is in the list already; remove one")]
    RepeatedDevice { device: String },
    /// `auto` beside named devices.
    #[error("auto stands alone; remove it or the other devices")]
    AutoWithOthers,
    /// A lower bound above its upper one.
    #[error("min {min} is above max {max}; use a min of at most {max}")]
    MinAboveMax { min: u64, max: u64 },
    /// A stream may have more requests in flight than the pipeline.
    #[error("{value} is above the {limit} of limits.in_flight; use at most {limit}")]
    StreamAboveTotal { value: u64, limit: u64 },
    /// The name of a header that no call can carry.
    #[error("{name:?} is no header; use up to 64 small letters, digits, - _ and .")]
    BadHeader { name: String },
    /// A header that nothing is told apart by.
    #[error(
        "nothing is told apart by this header; write by: metadata or streams: metadata, or remove it"
    )]
    UnusedHeader,
    /// A `batch: max` larger than the batches that its scheduler forms.
    #[error("{max} is more than the {limit} that schedule: {schedule} forms; use 1 to {limit}")]
    ScheduledBatch {
        max: u32,
        limit: u32,
        schedule: &'static str,
    },
    /// An objective that not even an idle system meets.
    #[error(
        "{} is below the {} that {} needs on {} with its fastest variants (profile {profile})",
        format_duration(*.slo),
        format_duration(*.needed),
        .chain.join(" -> "),
        .devices.join(", ")
    )]
    SloTooLow {
        slo: Duration,
        needed: Duration,
        chain: Vec<String>,
        devices: Vec<String>,
        profile: String,
    },
    /// Points of a profile that do not rise.
    #[error("batch {batch} does not come after batch {before}; list batches in rising order")]
    BatchNotRising { batch: u64, before: u64 },
    /// A percentile below the median.
    #[error("p99 {} is below p50 {}; p99 is the larger one", format_duration(*.p99), format_duration(*.p50))]
    PercentilesCrossed { p50: Duration, p99: Duration },
    /// A value that is not the hash of a token. It may be the token itself, so it is not repeated.
    #[error("it is no SHA-256; write the 64 hex digits that `spillgate token` prints")]
    BadHash,
    /// Something that is there once is written twice.
    #[error("{} is written already; write it once", Plain(.what))]
    Repeated { what: String },
    /// A name that stands for something else.
    #[error("{} stands for {}, which no node has; use another name", Plain(.name), .what)]
    TakenName { name: String, what: String },
    /// Two nodes between which nothing can go wrong.
    #[error(
        "{a} and {b} exchange no messages; name a gateway and a device, or a controller and another node"
    )]
    NothingBetween { a: String, b: String },
    /// A fault while the same one goes on.
    #[error("{what} of line {first} goes on at that time; let one begin when the other is over")]
    Overlaps { what: String, first: usize },
    /// Two entries for one token.
    #[error("the token of line {first} again; each has one entry")]
    RepeatedToken { first: usize },
    /// Warning: no result depends on the module.
    #[error("no result depends on it; name one of its outputs under outputs, or remove it")]
    UnusedModule,
}

/// A text from the file inside quotes: one line, of bounded length.
struct Quoted<'a>(&'a str);

/// The same without quotes.
struct Plain<'a>(&'a str);

/// Longest text from the file that a message repeats.
const SHOWN_LEN_MAX: usize = 80;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", one_line(self.0))
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages hold sentences; texts from the file in them are short.
        f.write_str(&one_line_of(self.0, 3 * SHOWN_LEN_MAX))
    }
}

/// Text from a file as part of one line of output: control characters escaped, the length bounded.
pub fn one_line(text: &str) -> String {
    one_line_of(text, SHOWN_LEN_MAX)
}

pub(crate) fn one_line_of(text: &str, len_max: usize) -> String {
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == len_max {
            out.push_str("...");
            break;
        }
        match c {
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                out.extend(c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}

/// `; did you mean "x"?`, or the list of known names.
fn hint(near: &Option<String>, what: &str, known: &[String]) -> String {
    match near {
        Some(near) => format!("; did you mean {}?", Quoted(near)),
        None => format!("; {}", listed(what, known)),
    }
}

/// What would be right where a file says another number of entries than it has.
fn missing(said: u32, found: u32) -> &'static str {
    match found < said {
        true => "it was cut off; measure again with `spillgate profile`",
        false => "write the number that it has",
    }
}

/// Both: for names that a writer cannot look up in the file.
fn long_hint(near: &Option<String>, what: &str, known: &[String]) -> String {
    match near {
        Some(near) => format!("; did you mean {}? ({})", Quoted(near), listed(what, known)),
        None => format!("; {}", listed(what, known)),
    }
}

fn listed(what: &str, known: &[String]) -> String {
    const LISTED_MAX: usize = KNOWN_MAX - 1;
    if known.is_empty() {
        return format!("there are no {what}");
    }
    if let [only] = known {
        return format!(
            "the only {} is {}",
            what.trim_end_matches('s'),
            one_line(only)
        );
    }
    let more = if known.len() > LISTED_MAX {
        ", ..."
    } else {
        ""
    };
    let list: Vec<String> = known.iter().take(LISTED_MAX).map(|k| one_line(k)).collect();
    format!("{what} are {}{more}", list.join(", "))
}

/// `$detect.vehicles or $detect.people`.
fn alternatives(candidates: &[String], ty: &ValueType) -> String {
    // Enough to choose from.
    const LISTED_MAX: usize = 6;
    if candidates.is_empty() {
        return format!("an output that carries {ty} (no module here has one)");
    }
    let list: Vec<&str> = candidates
        .iter()
        .take(LISTED_MAX)
        .map(String::as_str)
        .collect();
    list.join(" or ")
}

fn input_text(input: &Option<u32>) -> String {
    match input {
        Some(input) => format!("the same input {input}"),
        None => "no input size,".to_owned(),
    }
}
