//! What the processes serve: emulated devices that take 40 ms for a request.

/// What each worker of each module serves in a second.
pub(super) const WORKER_RATE: f64 = 25.0;
/// The modules of [`Pipeline::Branches`], by name.
pub(super) const MODULES: [&str; 3] = ["a", "b", "join"];

/// A pipeline of the tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pipeline {
    /// Two branches that are joined: a module that ran twice, or not at all, shows in the result.
    #[default]
    Branches,
    /// One module over pictures.
    Pictures,
}

impl Pipeline {
    /// Its file.
    pub(super) fn text(self, slo: &str) -> String {
        match self {
            Pipeline::Branches => format!(
                "name: branches
slo: {slo}
source: {{ payload: bytes }}
modules:
  a: {{ op: noop, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }} }}
  b: {{ op: noop, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }} }}
  join:
    {{ op: noop, inputs: {{ payload: $a.payload, also: $b.payload }}, device: emulated, batch: {{ max: 1 }} }}
outputs: {{ payload: $join.payload }}
"
            ),
            Pipeline::Pictures => format!(
                "name: pictures
slo: {slo}
modules:
  light: {{ op: classifier, model: {MODEL}, inputs: {{ image: $source.frame }}, device: emulated, batch: {{ max: 1 }} }}
outputs: {{ light: $light.labels }}
"
            ),
        }
    }

    /// The profiles of its modules.
    pub(super) fn profiles(self) -> String {
        let (modules, model) = match self {
            Pipeline::Branches => (&MODULES[..], "-"),
            Pipeline::Pictures => (&["light"][..], MODEL),
        };
        let module =
            |m: &&str| format!("  {m}: {{ \"{model}\": {{ alpha: 39ms, beta: 1ms, max: 1 }} }}\n");
        let modules: String = modules.iter().map(module).collect();
        format!("emulated:\n{modules}")
    }

    /// The modules of each worker process.
    pub(super) fn modules(self) -> &'static [&'static str] {
        match self {
            Pipeline::Branches => &MODULES,
            Pipeline::Pictures => &["source", "light"],
        }
    }
}

/// A small model that is shipped. Nothing is computed with it.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../modules/models/light.pt");
