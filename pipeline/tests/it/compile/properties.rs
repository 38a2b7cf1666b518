//! What holds for all texts: none makes the compiler panic, and every valid DAG gets a topological
//! order.

use proptest::prelude::*;
use spillgate_pipeline::compile::{Outside, compile, compile_with};
use spillgate_pipeline::graph::{Format, render};
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::profile_file::parse_profiles;

use crate::compile::accepted::EVERY_FIELD;
use crate::compile::{TRAFFIC, catalog};

/// Compiles and looks at everything that comes out; the messages stay on one line each.
fn exercise(text: &str) {
    // Short names are set, to themselves thrice.
    let variables = |name: &str| (name.len() < 3).then(|| name.repeat(3));
    // Each folder has these files, but long names are of none.
    let files = |folder: &str, is_asked_for: &dyn Fn(&str) -> bool| {
        let all = ["a.pt", "b.pt", "b.onnx", "c", ".d"].into_iter();
        let asked_for = all.filter(|name| is_asked_for(name)).map(str::to_owned);
        match folder.len() {
            0..9 => Ok(asked_for.collect()),
            _ => Err("no such folder".to_owned()),
        }
    };
    let outside = Outside {
        variables: &variables,
        files: Some(&files),
    };
    match compile_with(text, "p.yaml", &catalog(), None, outside) {
        Ok(compiled) => {
            for format in Format::ALL {
                assert!(!render(&compiled.pipeline, format).is_empty());
            }
        }
        Err(errors) => {
            assert!(!errors.list.is_empty());
            assert_eq!(
                errors.to_string().lines().count(),
                errors.list.len(),
                "{errors:?}"
            );
            let n_lines = text.split(['\n', '\r']).count();
            assert!(errors.list.iter().all(|d| d.line <= n_lines), "{errors}");
            assert!(errors.list.is_sorted_by_key(|d| d.line));
        }
    }
    if let Err(errors) = parse_profiles(text, "p.profile.yaml") {
        assert_eq!(
            errors.to_string().lines().count(),
            errors.list.len(),
            "{errors:?}"
        );
    }
}

/// A change of a text at one place.
#[derive(Clone, Debug)]
enum Change {
    Cut(prop::sample::Index, usize),
    Insert(prop::sample::Index, String),
    CopyLine(prop::sample::Index, prop::sample::Index),
    Word(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    let bits = "[-:{}\\[\\]&*!#|>%@`\"'?,~ \n\t$.0-9a-z\u{0}\u{85}é]{1,6}";
    prop_oneof![
        (at(), 1usize..12).prop_map(|(i, n)| Change::Cut(i, n)),
        (at(), bits).prop_map(|(i, text)| Change::Insert(i, text)),
        (at(), at()).prop_map(|(i, j)| Change::CopyLine(i, j)),
        (at(), at()).prop_map(|(i, j)| Change::Word(i, j)),
    ]
}

fn apply(text: &str, change: &Change) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    if chars.is_empty() {
        return String::new();
    }
    match change {
        Change::Cut(at, n) => {
            let at = at.index(chars.len());
            chars.drain(at..(at + n).min(chars.len()));
            chars.into_iter().collect()
        }
        Change::Insert(at, more) => {
            let at = at.index(chars.len());
            chars.splice(at..at, more.chars());
            chars.into_iter().collect()
        }
        Change::CopyLine(from, to) => {
            let mut lines: Vec<&str> = text.split('\n').collect();
            let line = lines[from.index(lines.len())];
            lines.insert(to.index(lines.len()), line);
            lines.join("\n")
        }
        // Another word of the file in the place of one: names that exist where they do not belong.
        Change::Word(from, to) => {
            let words: Vec<&str> = text.split(' ').collect();
            let word = words[from.index(words.len())];
            let place = to.index(words.len());
            let mut words = words.clone();
            words[place] = word;
            words.join(" ")
        }
    }
}

/// Which of the modules before it each module reads, which it looks at, and its place in the file.
fn dag() -> impl Strategy<Value = Vec<(Vec<usize>, Option<usize>, u32)>> {
    let module = |i: usize| {
        let reads = proptest::collection::vec(0..=i, 0..3);
        (reads, proptest::option::of(0..=i), any::<u32>())
    };
    (1usize..14).prop_flat_map(move |n| (0..n).map(module).collect::<Vec<_>>())
}

#[test]
fn a_key_without_text_at_the_end_is_on_the_last_line() {
    exercise("? ");
    exercise("name: p\n? ");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_panics(text in "\\PC{0,200}|[ -~\n\t]{0,200}|[-:{}\\[\\]&*!#|>%@`\"'?, \na-c$]{0,80}") {
        exercise(&text);
    }

    #[test]
    fn no_changed_file_panics(
        start in prop_oneof![Just(TRAFFIC), Just(EVERY_FIELD)],
        changes in proptest::collection::vec(change(), 1..6),
    ) {
        let text = changes.iter().fold(start.to_owned(), |text, change| apply(&text, change));
        exercise(&text);
    }

    /// Where we and serde_yaml both read a text, both read the same.
    #[test]
    fn serde_yaml_reads_the_same_name(
        changes in proptest::collection::vec(change(), 0..4),
    ) {
        let text = changes.iter().fold(TRAFFIC.to_owned(), |text, change| apply(&text, change));
        let Ok(compiled) = compile(&text, "p.yaml", &catalog(), None) else { return Ok(()) };
        let Ok(value) = serde_yaml::from_str::<serde_yaml::Value>(&text) else { return Ok(()) };
        prop_assert_eq!(value["name"].as_str(), Some(compiled.pipeline.name.as_str()));
        let modules = value["modules"].as_mapping().expect("a map");
        prop_assert_eq!(modules.len() + 1, compiled.pipeline.modules.len());
        for module in &compiled.pipeline.modules[1..] {
            let written = &value["modules"][module.name.as_str()];
            prop_assert_eq!(written["op"].as_str(), Some(module.op.as_str()));
            if let Some(max) = written["batch"]["max"].as_u64() {
                prop_assert_eq!(max, u64::from(module.batch.max));
            }
        }
    }

    #[test]
    fn every_dag_gets_a_topological_order(dag in dag()) {
        let name = |module: usize| match module {
            0 => "$source.data".to_owned(),
            module => format!("$m{module}.payload"),
        };
        let mut modules: Vec<(u32, String)> = dag
            .iter()
            .enumerate()
            .map(|(i, (reads, when, place))| {
                let inputs = ["payload", "more"].iter().zip(reads);
                let inputs: Vec<String> =
                    inputs.map(|(input, r)| format!("{input}: {}", name(*r))).collect();
                let when = when.map_or(String::new(), |w| format!(", when: {}", name(w)));
                let at = i + 1;
                (*place, format!("  m{at}: {{ op: noop, inputs: {{ {} }}{when} }}\n", inputs.join(", ")))
            })
            .collect();
        modules.sort_by_key(|(place, _)| *place);
        let modules: String = modules.into_iter().map(|(_, text)| text).collect();
        let text = format!(
            "name: dag\nslo: 1s\nsource: {{ data: bytes }}\noutputs: {{ out: $m1.payload }}\nmodules:\n{modules}"
        );
        let pipeline = match compile(&text, "dag.yaml", &catalog(), None) {
            Ok(compiled) => compiled.pipeline,
            Err(errors) => panic!("{errors}\n{text}"),
        };
        prop_assert_eq!(pipeline.modules.len(), dag.len() + 1);
        prop_assert_eq!(pipeline.graph.node_count(), dag.len() + 1);
        for (i, module) in pipeline.modules.iter().enumerate() {
            prop_assert_eq!(module.id.idx(), i);
            let refs = module.inputs.iter().flatten().chain(&module.when);
            for from in refs {
                prop_assert!(from.module < module.id, "{}", text);
                prop_assert!(pipeline.predecessors(module.id).contains(&from.module));
            }
            if module.id != ModuleId::SOURCE {
                let (reads, when, _) = &dag[module.name[1..].parse::<usize>().unwrap() - 1];
                let read: Vec<usize> = reads.iter().take(2).copied().collect();
                let wired = module.inputs.iter().flatten().map(|from| from.module);
                let wired: Vec<String> =
                    wired.map(|m| pipeline.modules[m.idx()].name.clone()).collect();
                let expected: Vec<String> = read
                    .iter()
                    .map(|r| if *r == 0 { "source".to_owned() } else { format!("m{r}") })
                    .collect();
                prop_assert_eq!(wired, expected);
                prop_assert_eq!(module.when.is_some(), when.is_some());
            }
        }
        // The same text gives the same order.
        let again = compile(&text, "dag.yaml", &catalog(), None).expect("compiled before").pipeline;
        let names = |p: &spillgate_pipeline::Pipeline| {
            p.modules.iter().map(|m| m.name.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(names(&again), names(&pipeline));
        for format in Format::ALL {
            prop_assert!(!render(&pipeline, format).is_empty());
        }
    }
}
