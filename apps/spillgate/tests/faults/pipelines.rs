//! What the processes serve: emulated devices that take 40 ms for a request.

/// What each worker of each module serves in a second.
pub(super) const WORKER_RATE: f64 = 25.0;
/// The modules of [`Pipeline::Branches`], by name.
pub(super) const MODULES: [&str; 3] = ["a", "b", "join"];

/// Most workers of the first module of [`Pipeline::Scaled`].
pub(super) const WORKERS_MAX: usize = 3;

/// A pipeline of the tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pipeline {
    /// Two branches that are joined: a module that ran twice, or not at all, shows in the result.
    #[default]
    Branches,
    /// The same, with one to [`WORKERS_MAX`] workers of the first module.
    Scaled,
    /// One module over pictures.
    Pictures,
}

impl Pipeline {
    /// Its file.
    pub(super) fn text(self, slo: &str) -> String {
        match self {
            Pipeline::Branches => branches(slo, ""),
            Pipeline::Scaled => branches(
                slo,
                &format!(", workers: {{ min: 1, max: {WORKERS_MAX} }}"),
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
            Pipeline::Branches | Pipeline::Scaled => (&MODULES[..], "-"),
            Pipeline::Pictures => (&["light"][..], MODEL),
        };
        let module =
            |m: &&str| format!("  {m}: {{ \"{model}\": {{ alpha: 39ms, beta: 1ms, max: 1 }} }}\n");
        let modules: String = modules.iter().map(module).collect();
        format!("emulated:\n{modules}")
    }
}

/// Two branches that are joined. `more`: further fields of the first module.
fn branches(slo: &str, more: &str) -> String {
    format!(
        "name: branches
slo: {slo}
source: {{ payload: bytes }}
modules:
  a: {{ op: noop, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }}{more} }}
  b: {{ op: noop, inputs: {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }} }}
  join:
    {{ op: noop, inputs: {{ payload: $a.payload, also: $b.payload }}, device: emulated, batch: {{ max: 1 }} }}
outputs: {{ payload: $join.payload }}
"
    )
}

/// A small model that is shipped. Nothing is computed with it.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../modules/models/light.pt");
