//! The table of module types. The application hands it to [`crate::compile()`], so that types are checked without this
//! crate knowing any operator.

use std::fmt;

use indexmap::IndexMap;

/// Most outputs of a module: messages have one bit for each.
pub const OUTPUTS_MAX: usize = u64::BITS as usize;

/// Most outputs that one option of groups adds to a module.
pub const GROUPS_MAX: usize = 32;

/// Most texts of a group.
pub const GROUP_TEXTS_MAX: usize = 1000;

/// The type of a value that flows along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A decoded picture, RGB, 8 bits a channel.
    Image,
    /// Opaque bytes.
    Bytes,
    /// A list of boxes in pixels of the source picture, each with a class and a score.
    Boxes,
    /// A list of texts, one a box.
    Texts,
    /// A list of labels with scores, one a box or one a frame.
    Labels,
    /// A dense array of 32-bit floats with a shape.
    Tensor,
    /// A list of outlines in pixels of the source picture, one mask a box.
    Masks,
    /// A list of key points in pixels of the source picture, one set a box.
    Keypoints,
    /// A list of vectors of length 1, one a box or one a frame.
    Embeddings,
}

impl ValueType {
    /// All of them.
    pub const ALL: [ValueType; 9] = [
        ValueType::Image,
        ValueType::Bytes,
        ValueType::Boxes,
        ValueType::Texts,
        ValueType::Labels,
        ValueType::Tensor,
        ValueType::Masks,
        ValueType::Keypoints,
        ValueType::Embeddings,
    ];

    /// Its name in error texts and in YAML.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::Image => "image",
            ValueType::Bytes => "bytes",
            ValueType::Boxes => "boxes",
            ValueType::Texts => "texts",
            ValueType::Labels => "labels",
            ValueType::Tensor => "tensor",
            ValueType::Masks => "masks",
            ValueType::Keypoints => "keypoints",
            ValueType::Embeddings => "embeddings",
        }
    }

    /// One line for people.
    pub fn doc(self) -> &'static str {
        match self {
            ValueType::Image => "a picture: RGB, 8 bits a channel",
            ValueType::Bytes => "any bytes",
            ValueType::Boxes => "objects: corners in pixels of the source picture, class, score",
            ValueType::Texts => "texts with scores, one a box",
            ValueType::Labels => "labels with scores, one or several a box or a frame",
            ValueType::Tensor => {
                "32-bit floats with a shape; of boxes a row a box along the first dimension"
            }
            ValueType::Masks => {
                "outlines in pixels of the source picture, one mask a box: closed polygons, without holes"
            }
            ValueType::Keypoints => {
                "points with scores in pixels of the source picture, one set a box"
            }
            ValueType::Embeddings => "vectors of length 1, one a box or one a frame",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An input or output of a module type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it carries.
    pub ty: ValueType,
    /// For inputs: the module also runs without it.
    pub optional: bool,
    /// One line for people.
    pub doc: String,
}

/// The type of an option's value in YAML.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionType {
    /// `true` or `false`.
    Bool,
    /// A whole number in a range (both ends included).
    Integer(i64, i64),
    /// A number in a range (both ends included).
    Number(f64, f64),
    /// Any text.
    Text,
    /// A path to a file, relative to the pipeline file.
    File,
    /// One of these words.
    Choice(Vec<String>),
    /// A list of numbers of exactly this length; 0: any length.
    Numbers(usize),
    /// A list of texts.
    Texts,
    /// A mapping of texts to numbers in a range (both ends included).
    NumberByText(f64, f64),
    /// A mapping of at most [`GROUPS_MAX`] names to lists of texts. Each name is a further output of the module, of this type: they
    /// follow the outputs of its type, in the order of the file.
    Groups(ValueType),
}

/// An option of a module type.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionSpec {
    /// Its name in YAML.
    pub name: String,
    /// What it takes.
    pub ty: OptionType,
    /// It must be given.
    pub required: bool,
    /// One line for people, with the default.
    pub doc: String,
}

/// Whether a module type runs a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelNeed {
    /// It has none; naming one is an error.
    None,
    /// It needs `model:` or `variants:`.
    Required,
}

/// How the execution time of a request depends on its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionTime {
    /// It does not depend on it.
    Fixed,
    /// It depends on it: early exits, lengths of sequences.
    Varies,
    /// It depends on it where this input is wired: objects are processed one by one.
    VariesWith(String),
}

/// A module type: what the YAML key `op:` names.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleType {
    /// Its name in YAML.
    pub name: String,
    /// One line for people.
    pub doc: String,
    /// Inputs, in order.
    pub inputs: Vec<Port>,
    /// Outputs, in order: the position is the output's ordinal everywhere.
    pub outputs: Vec<Port>,
    /// Options.
    pub options: Vec<OptionSpec>,
    /// Whether it runs a model file.
    pub model: ModelNeed,
    /// Whether its time depends on the input. Where it does, `goodput` forms its batches unless the file names another
    /// scheduler, or a drop policy that is not ours.
    pub time: ExecutionTime,
}

impl ModuleType {
    /// A type without ports and options yet.
    pub fn new(name: &str, doc: &str, model: ModelNeed) -> Self {
        ModuleType {
            name: name.to_owned(),
            doc: doc.to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            options: Vec::new(),
            model,
            time: ExecutionTime::Fixed,
        }
    }

    /// States how its execution time depends on the content of a request.
    #[must_use]
    pub fn time(mut self, time: ExecutionTime) -> Self {
        self.time = time;
        self
    }

    /// Adds a required input.
    #[must_use]
    pub fn input(mut self, name: &str, ty: ValueType, doc: &str) -> Self {
        self.inputs.push(port(name, ty, false, doc));
        self
    }

    /// Adds an optional input.
    #[must_use]
    pub fn optional_input(mut self, name: &str, ty: ValueType, doc: &str) -> Self {
        self.inputs.push(port(name, ty, true, doc));
        self
    }

    /// Adds an output.
    ///
    /// # Panics
    /// When modules of the type could have more than [`OUTPUTS_MAX`] of them.
    #[must_use]
    pub fn output(mut self, name: &str, ty: ValueType, doc: &str) -> Self {
        self.outputs.push(port(name, ty, false, doc));
        self.with_few_outputs()
    }

    /// Adds an option with a default.
    ///
    /// # Panics
    /// When modules of the type could have more than [`OUTPUTS_MAX`] outputs.
    #[must_use]
    pub fn option(self, name: &str, ty: OptionType, doc: &str) -> Self {
        self.with_option(name, ty, false, doc)
    }

    /// Adds an option that must be given.
    ///
    /// # Panics
    /// When modules of the type could have more than [`OUTPUTS_MAX`] outputs.
    #[must_use]
    pub fn required_option(self, name: &str, ty: OptionType, doc: &str) -> Self {
        self.with_option(name, ty, true, doc)
    }

    fn with_option(mut self, name: &str, ty: OptionType, required: bool, doc: &str) -> Self {
        self.options.push(OptionSpec {
            name: name.to_owned(),
            ty,
            required,
            doc: doc.to_owned(),
        });
        self.with_few_outputs()
    }

    fn with_few_outputs(self) -> Self {
        let options = self.options.iter();
        let groups = options.filter(|o| matches!(o.ty, OptionType::Groups(_)));
        let n = self.outputs.len() + groups.count() * GROUPS_MAX;
        assert!(n <= OUTPUTS_MAX, "{} has too many outputs", self.name);
        self
    }
}

fn port(name: &str, ty: ValueType, optional: bool, doc: &str) -> Port {
    Port {
        name: name.to_owned(),
        ty,
        optional,
        doc: doc.to_owned(),
    }
}

/// All module types by name, in order of registration.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    types: IndexMap<String, ModuleType>,
}

impl Catalog {
    /// An empty catalogue.
    pub fn new() -> Self {
        Catalog::default()
    }

    /// Adds a type; a type of the same name is replaced.
    pub fn register(&mut self, ty: ModuleType) {
        self.types.insert(ty.name.clone(), ty);
    }

    /// The type of that name.
    pub fn get(&self, name: &str) -> Option<&ModuleType> {
        self.types.get(name)
    }

    /// All types in order of registration.
    pub fn types(&self) -> impl Iterator<Item = &ModuleType> {
        self.types.values()
    }
}
