//! The process of the check: it loads one module's models and runs them on the module's example. It may end in any way;
//! its messages until then count.

use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use spillgate_backend::model_file;
use spillgate_backend::onnx;
use spillgate_backend::operator::Library;
use spillgate_backend::operator::{Inputs, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_pipeline::compile::{Outside, compile_with};
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::{MemberId, WorkerId};
use spillgate_worker::operators::{WorkerSpec, build_operator, serving_operator};

use super::look::look;
use super::message::{Answer, Question};
use super::sandbox;

/// Largest question: a pipeline file and its variables.
const QUESTION_BYTES_MAX: u64 = 16 << 20;
/// Stack of the thread that loads: less than a server's threads have (2 MiB), so that code nested too deeply for them
/// ends this process first.
pub(crate) const STACK_BYTES: usize = 1536 << 10;
/// libtorch compiles a graph during its first runs.
const RUNS: usize = 3;

/// Answers the question on standard input. Call it first of all: the process must have one thread. `library` has the types of its modules.
pub fn run(library: Arc<Library>) -> ExitCode {
    // The answers' own way out: TorchScript can print to standard output.
    let answers = std::io::stdout().as_fd().try_clone_to_owned();
    let silence = File::options().write(true).open("/dev/null");
    let (Ok(answers), Ok(silence)) = (answers, silence) else {
        return ExitCode::from(1);
    };
    if nix::unistd::dup2_stdout(silence).is_err() {
        return ExitCode::from(1);
    }
    let say = Arc::new(Say(Mutex::new(answers.into())));
    let mut text = String::new();
    let read = std::io::stdin()
        .take(QUESTION_BYTES_MAX)
        .read_to_string(&mut text);
    let question = match read.map(|_| serde_json::from_str::<Question>(&text)) {
        Ok(Ok(question)) => question,
        _ => return ExitCode::from(2),
    };
    if question.onnx
        && let Err(error) = onnx::ready()
    {
        // Models that need it are refused, with the reason; others are checked.
        eprintln!("{error}");
    }
    let held = sandbox::enter(question.memory, question.seconds, &question.folders);
    say.answer(&Answer::Held {
        by: held.by,
        lacking: held.lacking,
    });
    let theirs = say.clone();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let checked = thread.spawn(move || check(&question, &library, &theirs));
    let answer = match checked.map(|thread| thread.join()) {
        Ok(Ok(Ok(ran))) => ran,
        Ok(Ok(Err(error))) => Answer::Refused { error },
        // It said why on standard error.
        Ok(Err(_)) => return ExitCode::from(101),
        Err(error) => Answer::Refused {
            error: format!("no thread: {error}"),
        },
    };
    say.answer(&answer);
    ExitCode::SUCCESS
}

/// Where answers go.
struct Say(Mutex<File>);

impl Say {
    fn answer(&self, answer: &Answer) {
        let line = serde_json::to_string(answer).expect("answers are plain data");
        // Without a parent no process reads the answer.
        let _ = writeln!(self.0.lock(), "{line}");
    }
}

/// Loads and runs the module. An error on its own example is no refusal, because real requests may differ; but it is one if the model's outputs
/// do not fit the module, which no request changes.
fn check(question: &Question, library: &Library, say: &Arc<Say>) -> Result<Answer, String> {
    let known = |name: &str| question.variables.get(name).cloned();
    let (text, file) = (&question.text, &question.file);
    let outside = Outside {
        variables: &known,
        files: None,
    };
    let compiled = compile_with(text, file, &library.catalog(), None, outside);
    let mut pipeline = compiled.map_err(|e| e.to_string())?.pipeline;
    let mut modules = pipeline.modules.iter_mut();
    let named = modules.find(|m| m.name == question.module);
    let named = named.ok_or("no such module")?;
    if let Some(model) = &question.model {
        named.family = None;
        for variant in &mut named.variants {
            variant.model.clone_from(model);
        }
    }
    let module = named.clone();
    let pipeline = Arc::new(pipeline);
    let say = say.clone();
    model_file::approve_with(move |path, file| {
        let bytes = file.bytes();
        let (path, hash) = (path.to_owned(), Sha256::digest(bytes).into());
        let is_weights = file.is_weights();
        say.answer(&Answer::Loads {
            path,
            hash,
            is_weights,
        });
        // Further parts of a model are seen here for the first time.
        match is_weights {
            true => Ok(()),
            false => look(&mut Cursor::new(bytes)).map(|_| ()),
        }
    });
    // Models of other devices run here, too, only slower.
    let mut backend = TorchBackend::new("cpu:0").map_err(|e| e.to_string())?;
    let spec = WorkerSpec {
        worker: WorkerId(0),
        pipeline,
        base_dir: question.base_dir.clone(),
        module: module.id,
        execution: ModuleExecution::default(),
        from_start: false,
        members: None,
        load: None,
    };
    let member = MemberId::default();
    let built = build_operator(&spec, member, library, &mut backend);
    let mut operator = built.map_err(|e| e.to_string())?;
    for _ in 0..RUNS {
        let inputs: Inputs = operator.example(1);
        let results = operator.run(module.served(), &[inputs]);
        let failed = results.into_iter().find_map(Result::err);
        if let Some(OperatorError::Unfit(why)) = failed {
            return Err(why);
        }
        if let Some(error) = failed.as_ref().map(OperatorError::to_string) {
            return Ok(Answer::Ran {
                error: Some(error),
                load: None,
            });
        }
    }
    if module.batch.max >= 2 {
        let two = [operator.example(1), operator.example(1)];
        let results = operator.run(module.served(), &two);
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return Err(format!(
                "it runs with a batch of 1 and not of 2 ({error}); write batch: {{ max: 1 }}, or export it with a free batch"
            ));
        }
    }
    drop(operator);
    let mut load = None;
    if question.model.is_some() {
        // The first load of a process also makes libtorch ready.
        let begun = Instant::now();
        serving_operator(&spec, member, library, &mut backend).map_err(|e| e.to_string())?;
        load = Some(begun.elapsed());
    }
    Ok(Answer::Ran { error: None, load })
}
