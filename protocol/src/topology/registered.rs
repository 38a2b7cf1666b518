//! What a process holds that no file names: it says so when it registers.

use super::read::WORKERS_MAX;
use super::{devices, is_address, unknown, unknown_module};
use indexmap::IndexSet;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::problem::{Problem, one_line};

/// Which entries of a list of modules are for which pipeline: `PIPELINE/MODULE`, or the module alone where one pipeline has one of
/// that name, without what stands before the `/`. A pipeline of which nothing is named has no entry. An empty list: an empty one of each.
///
/// # Errors
/// The first entry that names nothing, or what several pipelines have.
pub fn entries_by_pipeline(
    entries: &[String],
    pipelines: &[&Pipeline],
) -> Result<Vec<Option<Vec<String>>>, Problem> {
    if entries.is_empty() {
        return Ok(vec![Some(Vec::new()); pipelines.len()]);
    }
    let mut all = vec![None; pipelines.len()];
    for entry in entries {
        let (of, entry) = pipeline_of(entry, pipelines)?;
        all[of].get_or_insert_with(Vec::new).push(entry.to_owned());
    }
    Ok(all)
}

/// Of an entry of a list of modules: the position of its pipeline, and the rest.
///
/// # Errors
/// It names nothing, or what several pipelines have.
pub fn pipeline_of<'a>(
    entry: &'a str,
    pipelines: &[&Pipeline],
) -> Result<(usize, &'a str), Problem> {
    let name = name_of(entry);
    if let Some((of, _)) = name.split_once('/') {
        let found = pipelines.iter().position(|pipeline| pipeline.name == of);
        let found = found.ok_or_else(|| {
            let known = || pipelines.iter().map(|pipeline| pipeline.name.as_str());
            unknown("pipeline", of, known)
        })?;
        return Ok((found, &entry[of.len() + 1..]));
    }
    // What is wrong with the name is said of the only pipeline.
    if pipelines.len() == 1 {
        return Ok((0, entry));
    }
    let name = name.strip_suffix('?').unwrap_or(name);
    let has = |pipeline: &&Pipeline| pipeline.modules.iter().any(|module| module.name == name);
    let mut having = (0..pipelines.len()).filter(|i| has(&pipelines[*i]));
    match (having.next(), having.next()) {
        (Some(of), None) => Ok((of, entry)),
        (Some(first), Some(second)) => {
            let [first, second] = [first, second].map(|of| &pipelines[of].name);
            Err(Problem::WrongKind {
                expected: format!(
                    "the pipeline, too, like {first}/{name}: {first} and {second} both have it"
                ),
                found: one_line(entry),
            })
        }
        (None, _) => {
            let modules = pipelines.iter().flat_map(|of| &of.modules);
            let known: IndexSet<&str> = modules.map(|module| module.name.as_str()).collect();
            Err(unknown("module", name, || known.iter().copied()))
        }
    }
}

/// The entries of a list of modules that count for a pipeline. `detect?=2` is `detect=2` where the pipeline has the module, and nothing
/// elsewhere: so is each entry `of_other_revision` than the list was written for.
pub fn entries_for(
    entries: &[String],
    pipeline: &Pipeline,
    of_other_revision: bool,
) -> Vec<String> {
    let counts = |entry: &String| {
        let name = name_of(entry);
        let (name, is_optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name, of_other_revision),
        };
        let is_there = pipeline.modules.iter().any(|module| module.name == name);
        let rest = &entry[name_of(entry).len()..];
        (is_there || !is_optional).then(|| format!("{name}{rest}"))
    };
    entries.iter().filter_map(counts).collect()
}

/// What stands before the number or device of an entry, which may have any character.
fn name_of(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

/// The workers of a process, as a list says them: `detect` for one on the first device that the pipeline file names, `detect=2` for
/// two on its devices in turn, `detect=cuda:1` for one on that device, each as often as wanted. An empty list: one of each module.
///
/// # Errors
/// The first entry that says something else.
pub fn workers_of(
    entries: &[String],
    pipeline: &Pipeline,
) -> Result<Vec<(ModuleId, Vec<String>)>, Problem> {
    let all = || {
        let all = pipeline.modules.iter();
        let all = all.filter(|module| needs_worker(module, pipeline));
        all.map(|module| (module.id, devices(module, 1))).collect()
    };
    if entries.is_empty() {
        return Ok(all());
    }
    let mut workers: Vec<(ModuleId, Vec<String>)> = Vec::new();
    for entry in entries {
        let (name, of) = entry.split_once('=').unwrap_or((entry, "1"));
        let module = module(name, pipeline)?;
        if !needs_worker(module, pipeline) {
            return Err(Problem::WrongKind {
                expected: "a module that runs; only pictures are decoded by source".to_owned(),
                found: one_line(entry),
            });
        }
        let more = match of.parse::<u32>() {
            Ok(n) if (1..=WORKERS_MAX).contains(&n) => devices(module, n),
            Ok(_) => return Err(expected(&format!("1 to {WORKERS_MAX} workers"), entry)),
            Err(_) if of.is_empty() => {
                return Err(expected("a number or a device, like detect=cuda:0", entry));
            }
            Err(_) => vec![of.to_owned()],
        };
        match workers.iter_mut().find(|(of, _)| *of == module.id) {
            Some((_, of)) => of.extend(more),
            None => workers.push((module.id, more)),
        }
    }
    match workers
        .iter()
        .find(|(_, of)| of.len() > WORKERS_MAX as usize)
    {
        Some((_, of)) => {
            let (what, count, limit) = ("workers of a module", of.len(), WORKERS_MAX as usize);
            Err(Problem::TooMany { what, count, limit })
        }
        None => Ok(workers),
    }
}

/// The modules whose controllers a process holds, as a list of names says. An empty list: all.
///
/// # Errors
/// The first name of no module.
pub fn controllers_of(entries: &[String], pipeline: &Pipeline) -> Result<Vec<ModuleId>, Problem> {
    if entries.is_empty() {
        return Ok(pipeline.modules.iter().map(|module| module.id).collect());
    }
    let mut modules = Vec::new();
    for entry in entries {
        let module = module(entry, pipeline)?.id;
        if modules.contains(&module) {
            let what = format!("the controller of {entry}");
            return Err(Problem::Repeated { what });
        }
        modules.push(module);
    }
    Ok(modules)
}

/// Checks that a text is a host and a port.
///
/// # Errors
/// What is wrong with it.
pub fn check_address(text: &str) -> Result<(), Problem> {
    match is_address(text) {
        true => Ok(()),
        false => Err(expected(
            "a host and a port, like control.example.org:7720",
            text,
        )),
    }
}

/// Whether a module has workers. Only pictures are decoded.
fn needs_worker(module: &Module, pipeline: &Pipeline) -> bool {
    module.id != ModuleId::SOURCE || pipeline.source.ty == ValueType::Image
}

fn module<'a>(name: &str, pipeline: &'a Pipeline) -> Result<&'a Module, Problem> {
    let found = pipeline.modules.iter().find(|m| m.name == name);
    found.ok_or_else(|| unknown_module(pipeline, name))
}

fn expected(what: &str, found: &str) -> Problem {
    Problem::WrongKind {
        expected: what.to_owned(),
        found: format!("\"{}\"", one_line(found)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    fn pipeline() -> Pipeline {
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
        pipeline.modules[2].devices = vec!["cpu:0".to_owned(), "cpu:1".to_owned()];
        pipeline
    }

    fn workers(text: &str) -> Result<Vec<(ModuleId, Vec<String>)>, String> {
        let entries = text.split(',').filter(|entry| !entry.is_empty());
        let entries: Vec<String> = entries.map(str::to_owned).collect();
        workers_of(&entries, &pipeline()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn workers_are_a_number_or_devices() {
        let of = |module, devices: &[&str]| {
            let devices = devices.iter().map(|&d| d.to_owned()).collect::<Vec<_>>();
            (ModuleId(module), devices)
        };
        let first = pipeline().modules[1].devices[0].clone();
        assert_eq!(workers("").unwrap(), [of(1, &[&first]), of(2, &["cpu:0"])]);
        assert_eq!(
            workers("m2=3").unwrap(),
            [of(2, &["cpu:0", "cpu:1", "cpu:0"])]
        );
        assert_eq!(
            workers("m2=cuda:1,m1,m2=cuda:2").unwrap(),
            [of(2, &["cuda:1", "cuda:2"]), of(1, &[&first])]
        );
    }

    #[test]
    fn modules_of_several_pipelines_are_told_apart() {
        let [mut one, mut two] = [pipeline(), pipeline()];
        (one.name, two.name) = ("one".to_owned(), "two".to_owned());
        two.modules[1].name = "other".to_owned();
        let all = [&one, &two];
        let of = |text: &str| {
            let entries = text.split(',').filter(|entry| !entry.is_empty());
            let entries: Vec<String> = entries.map(str::to_owned).collect();
            entries_by_pipeline(&entries, &all).map_err(|problem| problem.to_string())
        };
        let some = |entries: &[&str]| Some(entries.iter().map(|&of| of.to_owned()).collect());
        assert_eq!(of("").unwrap(), [some(&[]), some(&[])]);
        assert_eq!(of("m1=2").unwrap(), [some(&["m1=2"]), None]);
        assert_eq!(
            of("two/m2=a/b,other,one/m2").unwrap(),
            [some(&["m2"]), some(&["m2=a/b", "other"])]
        );
        let wrong = ["m2", "m2=3", "source", "three/m2", "m4", "/m1"];
        let said = wrong.map(|text| format!("{text}: {}", of(text).unwrap_err()));
        expect![[r#"
            m2: expected the pipeline, too, like one/m2: one and two both have it, found m2
            m2=3: expected the pipeline, too, like one/m2: one and two both have it, found m2=3
            source: expected the pipeline, too, like one/source: one and two both have it, found source
            three/m2: no pipeline named "three"; choices are one, two
            m4: no module named "m4"; did you mean "m1"?
            /m1: no pipeline named ""; choices are one, two"#]].assert_eq(&said.join("\n"));
        let alone = entries_by_pipeline(&["one/m1=2".to_owned()], &all[..1]);
        assert_eq!(alone.unwrap(), [some(&["m1=2"])]);
        assert_eq!(
            of("two/m9?,m1?=2").unwrap(),
            [some(&["m1?=2"]), some(&["m9?"])]
        );
    }

    #[test]
    fn entries_count_where_the_pipeline_has_their_module() {
        let pipeline = pipeline();
        let of = |text: &str, of_other_revision| {
            let entries: Vec<String> = text.split(',').map(str::to_owned).collect();
            entries_for(&entries, &pipeline, of_other_revision).join(",")
        };
        assert_eq!(of("m1,m2?=3,m9?,m9?=2", false), "m1,m2=3");
        // The devices of emulation and of users may have any name.
        assert_eq!(of("m1=a?=b,m2?=c?", false), "m1=a?=b,m2=c?");
        assert_eq!(of("m1,m9=2", false), "m1,m9=2");
        assert_eq!(of("m1,m9=2,m9?", true), "m1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = ["m3", "m1=0", "m1=65", "m1=", "source", "m1=64,m1", "=2"];
        let said = wrong.map(|text| format!("{text}: {}", workers(text).unwrap_err()));
        expect![[r#"
            m3: no module named "m3"; did you mean "m1"?
            m1=0: expected 1 to 64 workers, found "m1=0"
            m1=65: expected 1 to 64 workers, found "m1=65"
            m1=: expected a number or a device, like detect=cuda:0, found "m1="
            source: expected a module that runs; only pictures are decoded by source, found source
            m1=64,m1: 65 workers of a module are more than the 64 possible; use fewer
            =2: no module named ""; choices are source, m1, m2"#]]
        .assert_eq(&said.join("\n"));
        let controllers = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            controllers_of(&names, &pipeline())
        };
        assert_eq!(controllers(&[]).unwrap().len(), 3);
        assert_eq!(controllers(&["m2"]).unwrap(), [ModuleId(2)]);
        assert!(controllers(&["m2", "m2"]).is_err() && controllers(&["x"]).is_err());
        assert!(check_address("[::1]:7720").is_ok() && check_address("host").is_err());
    }
}
