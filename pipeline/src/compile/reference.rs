//! Resolves references: `$module.output` of inputs, conditions and results. Compares their types.

use std::collections::BTreeMap;

use crate::catalog::{ModuleType, ValueType};
use crate::diagnostic::Sink;
use crate::near::{known, nearest};
use crate::problem::Problem;
use crate::reader::is_name;
use crate::spec::{Located, ModuleSpec, Spec};

/// Most outputs that a message offers; a longer list would hide the message.
const OFFERS_MAX: usize = 6;

/// The target of a reference. Modules are named by their position in the file.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// `None`: the source.
    pub(super) module: Option<usize>,
    pub(super) port: u16,
    pub(super) ty: ValueType,
}

/// Where the data of a module comes from.
#[derive(Clone, Debug, Default)]
pub(super) struct Wires {
    /// One for each input of the type.
    pub(super) inputs: Vec<Option<Target>>,
    pub(super) when: Option<Target>,
    /// Modules that it waits for, also where the output is wrong, so that a cycle is still found.
    pub(super) after: Vec<usize>,
}

/// All resolved references.
#[derive(Clone, Debug)]
pub(super) struct Wiring {
    pub(super) modules: Vec<Wires>,
    pub(super) outputs: Vec<(String, Target)>,
}

/// The kind of value that the place of a reference takes.
#[derive(Clone, Copy)]
enum Wanted {
    Any,
    Type(ValueType),
    /// A value that can be empty.
    Condition,
}

impl Wanted {
    fn fits(self, ty: ValueType) -> bool {
        match self {
            Wanted::Any => true,
            Wanted::Type(wanted) => wanted == ty,
            Wanted::Condition => ty != ValueType::Image,
        }
    }
}

/// The result of resolving a reference.
enum Found {
    Output(Target),
    /// The module exists; its output does not exist or is not known.
    OnlyModule(Option<usize>),
    Nothing,
}

/// Resolves all references and notes the problems. `types` and `outputs` are those of each module.
pub(super) fn resolve(
    sink: &mut Sink,
    spec: &Spec<'_>,
    types: &[Option<&ModuleType>],
    outputs: &[Vec<(String, ValueType)>],
) -> Wiring {
    let resolver = Resolver::new(spec, types, outputs);
    let modules = (0..spec.modules.len())
        .map(|at| resolver.wire(sink, at))
        .collect();
    let mut outputs = Vec::new();
    for (name, reference) in &spec.outputs {
        if let Found::Output(target) = resolver.find(sink, reference, None, Wanted::Any) {
            outputs.push((name.clone(), target));
        }
    }
    Wiring { modules, outputs }
}

struct Resolver<'a> {
    spec: &'a Spec<'a>,
    types: &'a [Option<&'a ModuleType>],
    outputs: &'a [Vec<(String, ValueType)>],
    by_name: BTreeMap<&'a str, usize>,
}

impl<'a> Resolver<'a> {
    fn new(
        spec: &'a Spec<'a>,
        types: &'a [Option<&'a ModuleType>],
        outputs: &'a [Vec<(String, ValueType)>],
    ) -> Self {
        let by_name = spec
            .modules
            .iter()
            .enumerate()
            .map(|(i, m)| (m.name.as_str(), i))
            .collect();
        Resolver {
            spec,
            types,
            outputs,
            by_name,
        }
    }

    /// Resolves the inputs and the condition of a module.
    fn wire(&self, sink: &mut Sink, at: usize) -> Wires {
        let module = &self.spec.modules[at];
        let mut wires = Wires::default();
        let mut found_by_input: BTreeMap<&str, Target> = BTreeMap::new();
        for (input, reference) in &module.inputs {
            if sink.is_full() {
                break;
            }
            let port = self.types[at].and_then(|ty| ty.inputs.iter().find(|p| p.name == *input));
            if let (Some(ty), None) = (self.types[at], port) {
                sink.error(&reference.place, unknown_input(ty, input));
            }
            let wanted = port.map_or(Wanted::Any, |p| Wanted::Type(p.ty));
            match self.find(sink, reference, Some(at), wanted) {
                Found::Output(target) => {
                    wires.after.extend(target.module);
                    if let Some(expected) = port.map(|p| p.ty).filter(|ty| *ty != target.ty) {
                        let problem = Problem::TypeMismatch {
                            from: reference.value.clone(),
                            found: target.ty,
                            input: input.clone(),
                            expected,
                            candidates: self.offers(expected, at),
                        };
                        sink.error(&reference.place, problem);
                    }
                    found_by_input.insert(input, target);
                }
                Found::OnlyModule(module) => wires.after.extend(module),
                Found::Nothing => {}
            }
        }
        if let Some(ty) = self.types[at] {
            self.check_required(sink, at, module, ty);
            wires.inputs = ty
                .inputs
                .iter()
                .map(|p| found_by_input.remove(p.name.as_str()))
                .collect();
        }
        if let Some(when) = &module.when {
            match self.find(sink, when, Some(at), Wanted::Condition) {
                Found::Output(target) => {
                    if !Wanted::Condition.fits(target.ty) {
                        let (from, found) = (when.value.clone(), target.ty);
                        sink.error(&when.place, Problem::NeverEmpty { from, found });
                    }
                    wires.after.extend(target.module);
                    wires.when = Some(target);
                }
                Found::OnlyModule(module) => wires.after.extend(module),
                Found::Nothing => {}
            }
        }
        wires
    }

    /// Notes required inputs that are missing, unless an input with a wrong name was meant for them.
    fn check_required(&self, sink: &mut Sink, at: usize, module: &ModuleSpec<'_>, ty: &ModuleType) {
        if module.has_unread_inputs {
            return;
        }
        let names = || ty.inputs.iter().map(|p| p.name.as_str());
        let is_meant = |input: &str, name: &str| {
            input == name
                || !names().any(|n| n == input) && nearest(input, names()).as_deref() == Some(name)
        };
        for port in ty.inputs.iter().filter(|p| !p.optional) {
            if !module
                .inputs
                .iter()
                .any(|(input, _)| is_meant(input, &port.name))
            {
                sink.error(
                    &module.inputs_place,
                    Problem::MissingInput {
                        input: port.name.clone(),
                        ty: port.ty,
                        candidates: self.offers(port.ty, at),
                    },
                );
            }
        }
    }

    /// The target of a reference. `reader` is the module that holds it, `wanted` the type that it needs.
    fn find(
        &self,
        sink: &mut Sink,
        reference: &Located<String>,
        reader: Option<usize>,
        wanted: Wanted,
    ) -> Found {
        let Some((module, output)) = parse(&reference.value) else {
            let example = self.example(&reference.value, reader, wanted);
            let text = reference.value.clone();
            sink.error(&reference.place, Problem::BadReference { text, example });
            return Found::Nothing;
        };
        let (module, ports): (Option<usize>, Vec<(&str, ValueType)>) = if module == "source" {
            (
                None,
                vec![(self.spec.source.field.as_str(), self.spec.source.ty)],
            )
        } else if let Some(&at) = self.by_name.get(module) {
            if self.types[at].is_none() {
                return Found::OnlyModule(Some(at));
            }
            let outputs = self.outputs[at].iter();
            (
                Some(at),
                outputs.map(|(name, ty)| (name.as_str(), *ty)).collect(),
            )
        } else {
            sink.error(&reference.place, self.unknown_module(module, reader));
            return Found::Nothing;
        };
        match ports.iter().position(|(name, _)| *name == output) {
            Some(i) => Found::Output(Target {
                module,
                port: i as u16,
                ty: ports[i].1,
            }),
            None => {
                let names = || ports.iter().map(|(name, _)| *name);
                sink.error(
                    &reference.place,
                    Problem::UnknownOutput {
                        module: module
                            .map_or("source", |at| self.spec.modules[at].name.as_str())
                            .to_owned(),
                        output: output.to_owned(),
                        near: nearest(output, names()),
                        known: known(names()),
                    },
                );
                Found::OnlyModule(module)
            }
        }
    }

    /// A right reference to suggest: to the module that was named, else to any.
    fn example(&self, text: &str, reader: Option<usize>, wanted: Wanted) -> Option<String> {
        let bare = text.trim_start_matches('$');
        let is_of_module = |candidate: &String| {
            let rest = candidate
                .strip_prefix('$')
                .and_then(|c| c.strip_prefix(bare));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut all = self.candidates(wanted, reader);
        let first = all.next()?;
        if is_of_module(&first) {
            Some(first)
        } else {
            all.find(is_of_module).or(Some(first))
        }
    }

    /// The suggestion of a message for an input of this type.
    fn offers(&self, ty: ValueType, reader: usize) -> Vec<String> {
        self.candidates(Wanted::Type(ty), Some(reader))
            .take(OFFERS_MAX)
            .collect()
    }

    /// Outputs of the right type, the source's first; none of the reader itself.
    fn candidates(&self, wanted: Wanted, reader: Option<usize>) -> impl Iterator<Item = String> {
        let source = &self.spec.source;
        let of_source = wanted
            .fits(source.ty)
            .then(|| format!("$source.{}", source.field));
        let others = (0..self.spec.modules.len()).filter(move |at| reader != Some(*at));
        let of_modules = others.flat_map(move |at| {
            let outputs = self.outputs[at].iter();
            let fitting = outputs.filter(move |(_, ty)| wanted.fits(*ty));
            fitting.map(move |(name, _)| format!("${}.{name}", self.spec.modules[at].name))
        });
        of_source.into_iter().chain(of_modules)
    }

    fn unknown_module(&self, module: &str, reader: Option<usize>) -> Problem {
        let names = || {
            let others = self
                .spec
                .modules
                .iter()
                .enumerate()
                .filter(|(at, _)| reader != Some(*at));
            ["source"]
                .into_iter()
                .chain(others.map(|(_, m)| m.name.as_str()))
        };
        Problem::UnknownModule {
            module: module.to_owned(),
            near: nearest(module, names()),
            known: known(names()),
        }
    }
}

/// `$module.output`.
fn parse(text: &str) -> Option<(&str, &str)> {
    let (module, output) = text.strip_prefix('$')?.split_once('.')?;
    (is_name(module) && is_name(output)).then_some((module, output))
}

fn unknown_input(ty: &ModuleType, input: &str) -> Problem {
    let names = || ty.inputs.iter().map(|p| p.name.as_str());
    Problem::UnknownInput {
        op: ty.name.clone(),
        input: input.to_owned(),
        near: nearest(input, names()),
        known: known(names()),
    }
}
