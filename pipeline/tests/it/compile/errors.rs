//! What every error says, in one golden file: `errors.txt` shows each wrong text and the lines that
//! users get for it. `UPDATE_EXPECT=1 cargo test` rewrites it, a person reads the difference.

mod options;
mod profiles;

use std::collections::BTreeSet;

use expect_test::expect_file;
use spillgate_pipeline::compile;
use spillgate_pipeline::diagnostic::Diagnostic;
use spillgate_pipeline::profile_file::parse_profiles;

use crate::compile::{TRAFFIC, catalog};

#[test]
fn every_error_says_what_is_wrong_and_what_would_be_right() {
    let mut golden = Golden::default();
    let groups: &[Group] = &[
        ("text that is no yaml", text_that_is_no_yaml),
        ("text without a pipeline", text_without_a_pipeline),
        ("text that grows", text_that_grows),
        ("variables", crate::compile::variables::errors),
        ("keys", keys),
        ("fields of the file", fields_of_the_file),
        ("objective", objective),
        ("source", source),
        ("policies", policies),
        ("adaptation", crate::compile::adaptation::errors),
        ("limits", limits),
        ("clients", crate::compile::clients::errors),
        ("module names", module_names),
        ("module fields", module_fields),
        ("ops", ops),
        ("models", models),
        ("families", crate::compile::families::errors),
        ("batches workers and queues", batches_workers_and_queues),
        ("devices", devices),
        ("options", options::options),
        ("inputs", inputs),
        ("references", references),
        (
            "an unknown op causes no errors elsewhere",
            an_unknown_op_causes_no_errors_elsewhere,
        ),
        ("conditions", conditions),
        ("results", results),
        ("cycles", cycles),
        ("unused modules are warnings", unused_modules_are_warnings),
        (
            "all errors of a file come in one pass by line",
            all_errors_of_a_file_come_in_one_pass_by_line,
        ),
        (
            "an objective below the longest path",
            an_objective_below_the_longest_path,
        ),
        ("profiles", profiles::profiles),
        ("tokens", crate::compile::tokens::errors),
    ];
    for (name, group) in groups {
        golden.out.push_str(&format!("==== {name} ====\n\n"));
        group(&mut golden);
    }
    expect_file!["errors.txt"].assert_eq(&golden.out);

    let source = include_str!("../../../src/problem.rs");
    let declared = source.split("pub enum Problem {").nth(1).expect("the enum");
    let declared = declared.split("\n}\n").next().expect("its end");
    let names = declared.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.split([' ', ',', '{']).next()?;
        name.starts_with(|c: char| c.is_ascii_uppercase())
            .then_some(name)
    });
    let is_missing = |name: &&str| !golden.seen.contains(*name) && !OF_OTHER_FILES.contains(name);
    let missing: Vec<&str> = names.filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "problems without a case here: {missing:?}"
    );
}

/// Problems of topologies and of the simulator's clusters. The crates that read those files have tests of what they say.
const OF_OTHER_FILES: [&str; 4] = ["Repeated", "TakenName", "NothingBetween", "Overlaps"];

/// A name and the cases under it.
type Group = (&'static str, fn(&mut Golden));
/// Gathers wrong texts and what is said of them.
#[derive(Default)]
pub(crate) struct Golden {
    out: String,
    /// Names of the problems that came up.
    seen: BTreeSet<String>,
}

impl Golden {
    pub(crate) fn case(&mut self, shown: &str, diagnostics: &[Diagnostic]) {
        // Whole files are long; what makes them long is no news.
        const SHOWN_LEN_MAX: usize = 400;
        let start = shown.trim_matches('\n').chars().take(SHOWN_LEN_MAX);
        for line in start.collect::<String>().lines() {
            self.out.push_str(&format!("    | {line}\n"));
        }
        for diagnostic in diagnostics {
            let problem = format!("{:?}", diagnostic.problem);
            let name = problem.split(' ').next().unwrap_or_default().to_owned();
            self.seen.insert(name);
            self.out.push_str(&format!("{diagnostic}\n"));
        }
        if diagnostics.is_empty() {
            self.out.push_str("accepted\n");
        }
        self.out.push('\n');
    }

    pub(crate) fn compiled(&mut self, shown: &str, text: &str) {
        let text = text.trim_start_matches('\n');
        let diagnostics = match compile(text, "traffic.yaml", &catalog(), None) {
            Err(errors) => errors.list,
            Ok(compiled) => compiled.warnings,
        };
        self.case(shown, &diagnostics);
    }

    /// A whole file.
    pub(crate) fn file(&mut self, text: &str) {
        self.compiled(text, text);
    }

    /// A file that is right but for a field of the file, on line 5.
    pub(crate) fn root(&mut self, field: &str) {
        let text = format!(
            "
name: traffic
slo: 400ms
outputs: {{ vehicles: $detect.vehicles }}
modules: {{ detect: {{ op: detector, model: road.pt, inputs: {{ image: $source.frame }} }} }}
{field}
"
        );
        self.compiled(field, &text);
    }

    /// A file that is right but for one module, which begins on line 5.
    fn module(&mut self, module: &str) {
        let module = module.trim_start_matches('\n');
        let text = format!(
            "
name: traffic
slo: 400ms
modules:
  detect: {{ op: detector, model: road.pt, inputs: {{ image: $source.frame }} }}
{module}
outputs: {{ vehicles: $detect.vehicles }}
"
        );
        self.compiled(module, &text);
    }

    /// A file that is right but for the fields of its only module, which begin on line 7.
    fn fields(&mut self, fields: &str) {
        let text = format!(
            "
name: traffic
slo: 400ms
outputs: {{ vehicles: $detect.vehicles }}
modules:
  detect:
    op: detector
{fields}
"
        );
        self.compiled(fields, &text);
    }

    /// The same with a model and its input, so that one more field is wrong: line 9.
    pub(crate) fn field(&mut self, field: &str) {
        const GOOD: &str = "    model: road.pt\n    inputs: { image: $source.frame }\n";
        let text = format!(
            "
name: traffic
slo: 400ms
outputs: {{ vehicles: $detect.vehicles }}
modules:
  detect:
    op: detector
{GOOD}    {field}
"
        );
        self.compiled(field, &text);
    }

    /// [`TRAFFIC`] with another objective, against a profile.
    fn objective(&mut self, slo: &str, profile: &str) {
        let text = TRAFFIC.replace("400ms", slo);
        let profiles = parse_profiles(profile, "traffic.profile.yaml").expect("a good profile");
        let diagnostics = match compile(&text, "traffic.yaml", &catalog(), Some(&profiles)) {
            Err(errors) => errors.list,
            Ok(compiled) => compiled.warnings,
        };
        self.case(
            &format!("slo: {slo}\n{}", profile.trim_matches('\n')),
            &diagnostics,
        );
    }

    /// A profile file.
    fn profile(&mut self, text: &str) {
        let text = text.trim_start_matches('\n');
        let diagnostics = parse_profiles(text, "traffic.profile.yaml").map_err(|e| e.list);
        self.case(text, &diagnostics.err().unwrap_or_default());
    }
}

// The text itself.

fn text_that_is_no_yaml(golden: &mut Golden) {
    golden.file("name: traffic\nslo: [400ms\nmodules: }\n");
    golden.file("name: traffic\n\tslo: 400ms\n");
    golden.file("name: traffic\nslo:\u{a0}400ms\nmodules: {}\n");
    golden.file("name: traffic\nslo: 400ms\nmodules:\n\u{a0} detect: { op: noop }\n");
    golden.file("name: traffic\nslo: 400ms\u{200b}\n");
    golden.file("name: \"traffic\nslo: 400ms\n");
    golden.file("name: *nobody\n");
    golden.file("a: &a [*a]\n");
    golden.file("name: !thing traffic\n");
    golden.file("modules: !!omap {}\n");
    golden.file("%\n");
}

fn text_without_a_pipeline(golden: &mut Golden) {
    golden.file("");
    golden.file("# only a comment\n");
    golden.file("---\n~\n");
    golden.file("- name: traffic\n");
    golden.file("traffic\n");
    golden.file("name: a\n---\nname: b\n");
}

fn text_that_grows(golden: &mut Golden) {
    let nested = "[".repeat(40);
    golden.file(&nested);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let alias = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{alias}]\n"));
    }
    golden.file(&bomb);
    golden.file(&"#".repeat((4 << 20) + 1)); // one byte too many
    let mut deep = "a0: &a0 [x]\n".to_owned();
    for i in 1..40 {
        deep.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
    }
    golden.file(&deep);
    let modules: String = (0..1025)
        .map(|i| format!(" m{i}: {{ op: noop }}\n"))
        .collect();
    golden.file(&format!(
        "outputs: {{ a: $m0.payload }}\nname: many\nslo: 1s\nmodules:\n{modules}"
    ));
}

fn keys(golden: &mut Golden) {
    golden.root("policy: {}\npolicy: {}");
    golden.root("[a, b]: c");
    golden.root("{ a: b }: c");
    golden.module("  detect: { op: noop }");
    golden.module("  c: &c { op: noop }\n  e: { <<: *c, queue: 3 }");
}

// Fields of the file.

fn fields_of_the_file(golden: &mut Golden) {
    golden.file("nmae: traffic\n");
    golden.root("version: 2");
    golden.file("name: 7\nslo: 1s\nmodules: 3\noutputs: 4\n");
    golden.file("name: my traffic\nslo: 1s\nmodules: {}\noutputs: {}\n");
    golden.file("name: \"\"\nslo: ~\nmodules: ~\noutputs: [a]\n");
}

fn objective(golden: &mut Golden) {
    let with = |slo: &str| {
        format!(
            "name: traffic\nslo: {slo}\nmodules: {{ a: {{ op: noop }} }}\noutputs: {{ out: $a.payload }}\n"
        )
    };
    golden.file(&with("400"));
    golden.file(&with("400 parsecs"));
    golden.file(&with("fast"));
    golden.file(&with("0ms"));
    golden.file(&with("-3ms"));
    golden.file(&with("2000m"));
    golden.file(&with("1e400s"));
    golden.file(&with("[1s]"));
    golden.file(&with(""));
    golden.file(&with("99999999999999999999999999999999999s"));
}

fn source(golden: &mut Golden) {
    golden.root("source: image");
    golden.root("source: {}");
    golden.root("source: { frame: imgae }");
    golden.root("source: { frame: boxes }");
    golden.root("source: { frame: image, sound: bytes }");
    golden.root("source: { 1st: image }");
    golden.root("source: { picture: image }");
}

fn policies(golden: &mut Golden) {
    golden.root("policy: deadline");
    golden.root("policy: { drop: dedline }");
    golden.root("policy: { drop: pard-sf }");
    golden.root("policy: { drop: pard, dispatch: random }");
    golden.root("policy: { dispatch: least-outstanding-free }");
    golden.root("policy: { drop: [deadline], dispatch: }");
    golden.root("policy: { drop: pard, dispatch: pull }");
    golden.root("policy: { schedule: orloj }");
}

fn limits(golden: &mut Golden) {
    golden.root("limits: 3");
    golden.root("limits: { in_fligth: 3 }");
    golden.root("limits: { in_flight: 0, pixels: -1, objects: 70000 }");
    golden.root("limits: { in_flight: \"8\" }");
    golden.root("policy: { drop: pard, lambda: \"0.1\" }");
    golden.root("limits: { frame_bytes: 16MB, in_flight: 2.5 }");
    golden.root("limits: { in_flight: 10, in_flight_per_stream: 11 }");
    golden.root("limits: { frame_bytes: 99999999999999999999 }");
}

// Modules.

fn module_names(golden: &mut Golden) {
    golden.module("  1st: { op: detector }");
    golden.module("  source: { op: noop }");
    golden.module("  \"two words\": { op: noop }");
    golden.module("  \"a\\nb\": { op: noop }");
    golden.module(&format!("  {}: {{ op: noop }}", "x".repeat(90)));
}

fn module_fields(golden: &mut Golden) {
    golden.module("  more: noop");
    golden.module("  more:");
    golden.module("  more: {}");
    golden.field("inptus: {}");
    golden.field("scheduler: orloj");
}

fn ops(golden: &mut Golden) {
    golden.module("  more: { op: detectr }");
    golden.module("  more: { op: teleporter }");
    golden.module("  more: { op: [detector] }");
    golden.module("  more: { op: 3 }");
}

fn models(golden: &mut Golden) {
    golden.fields("    inputs: { image: $source.frame }");
    golden.field("variants: [{ model: a.pt, input: 192 }]");
    golden.module("  c: { op: noop, model: a.pt, input: 3 }");
    golden.module("  c: { op: noop, variants: [{ model: a.pt }] }");
    let variants = |v: &str| format!("    inputs: {{ image: $source.frame }}\n    variants: {v}");
    golden.fields(&variants("[]"));
    golden.fields(&variants("a.pt"));
    golden.fields(&variants("[a.pt]"));
    golden.fields(&variants("[{ input: 320 }, { model: b.pt }]"));
    golden.fields(&variants(
        "[{ model: a.pt, input: 320 }, { model: b.pt, input: 320 }]",
    ));
    golden.fields(&variants("[{ model: a.pt }, { model: b.pt }]"));
    golden.fields(&variants("[{ model: a.pt, inptu: 320, size: 3 }]"));
    golden.fields(&variants("[{ model: 3, input: 0, accuracy: 81 }]"));
    golden.fields(&variants("[{ model: a.pt, input: big, accuracy: .nan }]"));
}

fn batches_workers_and_queues(golden: &mut Golden) {
    golden.field("batch: { max: 0 }");
    golden.field("batch: 8");
    golden.field("batch: { min: 1 }");
    golden.field("batch: { max: 1000000 }");
    golden.field("workers: 0");
    golden.field("workers: two");
    golden.field("workers: { min: 4, max: 2 }");
    golden.field("workers: { min: 0, mx: 2 }");
    golden.field("workers: [1, 2]");
    golden.field("queue: -1");
    golden.field("queue: 1.5");
    golden.field("schedule: orlog");
    golden.field("schedule: clipper");
    golden.field("schedule: [edf]");
    golden.field("schedule: { nam: edf }");
    golden.field("schedule: { name: edf, samples: 0 }");
    golden.field("schedule: { name: edf, age: 0s }");
    golden.field("queue: 99999999999");
    golden.field("batch: { max: 257 }\n    schedule: edf");
}

fn devices(golden: &mut Golden) {
    golden.field("device: gpu");
    golden.field("device: cuda:x");
    golden.field("device: cuda:-1");
    golden.field("device: auto:0");
    golden.field("device: []");
    golden.field("device: [cuda:0, cuda:0]");
    golden.field("device: [auto, cuda:0]");
    golden.field("device: [cuda:0, { cuda: 1 }, cuda:01]");
    golden.field("device: 0");
}

// References.

fn inputs(golden: &mut Golden) {
    golden.fields("    model: a.pt");
    golden.fields("    model: a.pt\n    inputs: $source.frame");
    golden.fields("    model: a.pt\n    inputs: { img: $source.frame }");
    golden.fields("    model: a.pt\n    inputs: { imgae: $source.frame }");
    golden.fields("    model: a.pt\n    inputs: { image: { from: source } }");
    golden.module("  p: { op: text_reader, model: a.pt }");
    golden.module("  n: { op: noop, inputs: { boxes: $detect.people } }");
}

fn references(golden: &mut Golden) {
    let input = |reference: &str| {
        format!(
            "  p: {{ op: text_reader, model: a.pt, inputs: {{ image: $source.frame, boxes: {reference} }} }}"
        )
    };
    golden.module(&input("detect"));
    golden.module(&input("detect.vehicles"));
    golden.module(&input("$detect"));
    golden.module(&input("$detect.vehicles.0"));
    golden.module(&input("\"$ detect.vehicles\""));
    golden.module(&input("$detct.vehicles"));
    golden.module(&input("$tracker.boxes"));
    golden.module(&input("$detect.vehicle"));
    golden.module(&input("$detect.cats"));
    golden.module(&input("$source.frame"));
    golden.module(&input("$source.image"));
    golden.module("  n: { op: noop, inputs: { payload: $detect.people } }");
}

fn an_unknown_op_causes_no_errors_elsewhere(golden: &mut Golden) {
    golden.module(
        "
  d: { op: detectr, model: a.pt, inputs: { image: $source.frame }, options: { x: 1 } }
  p: { op: text_reader, model: a.pt, inputs: { image: $source.frame, boxes: $d.anything } }",
    );
}

fn conditions(golden: &mut Golden) {
    golden.field("when: vehicles");
    golden.field("when: true");
    golden.field("when: $source.frame");
    golden.field("when: $faces.id");
    golden.field("when: $detect.vehicles");
    golden.module("  n: { op: noop, when: $detect.cars }");
    golden.module("  n: { op: noop, when: [$detect.people, $detect.vehicles] }");
}

fn results(golden: &mut Golden) {
    let outputs = |outputs: &str| {
        format!(
            "
name: traffic
slo: 400ms
modules:
  detect: {{ op: detector, model: road.pt, inputs: {{ image: $source.frame }} }}
outputs: {outputs}
"
        )
    };
    golden.file(&outputs("$detect.vehicles"));
    golden.file(&outputs(
        "{ a: $detect.cars, b: $detcet.vehicles, c: vehicles }",
    ));
    golden.file(&outputs("{ \"a b\": $detect.vehicles, a: 3 }"));
    golden.file(&outputs("{ a: $detect.vehicles, a: $detect.people }"));
}

fn cycles(golden: &mut Golden) {
    let modules = |modules: &str| {
        format!(
            "
name: traffic
slo: 400ms
source: {{ data: bytes }}
outputs: {{ out: $source.data }}
modules:
{modules}
"
        )
    };
    golden.file(&modules(
        "  a: { op: noop, inputs: { payload: $a.payload } }",
    ));
    golden.file(&modules(
        "
  a: { op: noop, inputs: { payload: $source.data } }
  crop: { op: noop, inputs: { payload: $detect.payload, more: $a.payload } }
  detect: { op: noop, inputs: { payload: $crop.payload } }",
    ));
    golden.file(&modules(
        "
  a: { op: noop, inputs: { payload: $c.payload } }
  b: { op: noop, inputs: { payload: $a.payload } }
  c: { op: noop, inputs: { payload: $b.payload }, when: $y.payload }
  x: { op: noop, when: $y.payload }
  y: { op: noop, inputs: { payload: $x.wrong } }",
    ));
}

fn unused_modules_are_warnings(golden: &mut Golden) {
    golden.module(
        "
  n: { op: noop }
  c: { op: crop, inputs: { boxes: $detect.people }, options: { margin: 0.1 } }
  p: { op: text_reader, model: a.pt, inputs: { image: $source.frame, boxes: $c.boxes } }",
    );
}

fn all_errors_of_a_file_come_in_one_pass_by_line(golden: &mut Golden) {
    golden.file(
        "
name: traffic
slo: 400
modules:
  detect:
    op: detector
    inputs: { image: $source.fram }
    batch: { max: 0 }
  plates:
    op: text_reader
    model: models/plate.pt
    inputs: { image: $source.frame, boxes: $detct.vehicles }
    wehn: $detect.vehicles
outputs: { plates: $plates.txt }
policy: { drop: pardon }
",
    );
}

// The objective against profiles.

const PROFILE: &str = "
cpu:
  detect:
    models/road.pt@192: [{ batch: 1, mean: 60ms }, { batch: 8, mean: 300ms }]
    models/road.pt@320: [{ batch: 1, mean: 130ms }]
  plates: { models/plate.pt: [{ batch: 1, mean: 88ms }] }
  faces: { models/face.pt: [{ batch: 1, mean: 40ms }] }
";

fn an_objective_below_the_longest_path(golden: &mut Golden) {
    golden.objective("120ms", PROFILE);
    golden.objective("50ms", &PROFILE[..PROFILE.find("  plates").unwrap()]);
    // What may be faster elsewhere, or has no profile, is no error.
    golden.objective("148ms", PROFILE);
    let detect_on_cuda = "
cuda:
  detect:
    models/road.pt@192: [{ batch: 1, mean: 2ms }]
    models/road.pt@320: [{ batch: 1, mean: 3ms }]
";
    golden.objective("100ms", &format!("{PROFILE}{detect_on_cuda}"));
    golden.objective("80ms", &format!("{PROFILE}{detect_on_cuda}"));
    golden.objective("5ms", &PROFILE.replace("road.pt@320", "other.pt"));
    golden.objective("5ms", "cpu: {}");
}
