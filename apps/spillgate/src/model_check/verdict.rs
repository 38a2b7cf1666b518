//! From the end of a process that checked to a sentence for people.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;

use super::message::{Answer, Question};
use super::{Ended, MEMORY_TIMES};

/// Why a module's models must not be loaded.
pub(super) fn why(ended: &Ended, question: &Question) -> String {
    let files: Vec<String> = ended.answers.iter().filter_map(name).collect();
    // The file that was loaded last, or the module's models if none was.
    let of = match files.last() {
        Some(file) => format!("model file {file}: "),
        None => "its models: ".to_owned(),
    };
    let refused = ended.answers.iter().find_map(|answer| match answer {
        Answer::Refused { error }
        | Answer::Ran {
            error: Some(error), ..
        } => Some(error),
        _ => None,
    });
    if let Some(error) = refused {
        return match out_of_memory(error) {
            true => format!("{of}{}", memory(question)),
            false => error.clone(),
        };
    }
    format!("{of}{}", end(ended, question))
}

fn name(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Loads { path, .. } => Some(path.display().to_string()),
        _ => None,
    }
}

pub(super) fn out_of_memory(text: &str) -> bool {
    let words = [
        "not enough memory",
        "allocate memory",
        "bad_alloc",
        "memory allocation of",
    ];
    words.iter().any(|word| text.contains(word))
}

fn memory(question: &Question) -> String {
    let mib = question.memory >> 20;
    format!(
        "it needs more than the {mib} MiB that a check may use; --model-memory gives more ({MEMORY_TIMES} times the file's size \
         is added to it)"
    )
}

fn time(question: &Question) -> String {
    let seconds = question.seconds;
    format!("loading and running it took more than {seconds} s; --model-time gives more")
}

/// The meaning of the end of the process.
fn end(ended: &Ended, question: &Question) -> String {
    let Some(status) = ended.status else {
        return time(question);
    };
    let signal = status.signal().and_then(|n| Signal::try_from(n).ok());
    match signal {
        // The kernel's way to say that the time or the file size is over.
        Some(Signal::SIGXCPU) => time(question),
        Some(Signal::SIGKILL) => {
            "the system killed the process that checked it; most likely the machine is out of memory".to_owned()
        }
        Some(Signal::SIGXFSZ) => "it wants to write a file".to_owned(),
        _ if out_of_memory(&ended.said) => memory(question),
        Some(signal) => format!(
            "it crashed the process that checked it ({signal}); its code is nested too deeply, or damaged{}",
            last_words(&ended.said)
        ),
        None => format!(
            "the process that checked it ended without an answer ({status}){}",
            last_words(&ended.said)
        ),
    }
}

/// The last line that was said, if any.
fn last_words(said: &str) -> String {
    /// Longest part of it that is shown.
    const SHOWN: usize = 200;
    let line = said.lines().rev().map(str::trim).find(|l| !l.is_empty());
    let shown = |l: &str| {
        l.chars()
            .take(SHOWN)
            .flat_map(char::escape_debug)
            .collect::<String>()
    };
    line.map(|l| format!(": {}", shown(l))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::ExitStatus;

    use super::*;

    /// The message about such an end.
    fn said(answers: Vec<Answer>, said: &str, status: Option<i32>) -> String {
        let question = Question {
            file: "p.yaml".to_owned(),
            text: String::new(),
            variables: BTreeMap::new(),
            base_dir: "m".into(),
            module: "a".to_owned(),
            model: None,
            memory: 64 << 20,
            seconds: 7,
            folders: Vec::new(),
            onnx: false,
        };
        let said = said.to_owned();
        let status = status.map(ExitStatus::from_raw);
        let ended = Ended {
            answers,
            said,
            status,
        };
        why(&ended, &question)
    }

    #[test]
    fn each_end_is_told_with_its_file_and_the_cure() {
        let loads = || {
            vec![Answer::Loads {
                path: "m/a.pt".into(),
                hash: [0; 32],
                is_weights: false,
            }]
        };
        let refused = |error: &str| {
            let mut answers = loads();
            let error = error.to_owned();
            answers.push(Answer::Refused { error });
            answers
        };
        let cases = [
            (
                said(loads(), "", None),
                "m/a.pt: loading and running it took more than 7 s",
            ),
            (
                said(loads(), "", Some(Signal::SIGXCPU as i32)),
                "took more than 7 s",
            ),
            (
                said(loads(), "", Some(Signal::SIGKILL as i32)),
                "the machine is out of memory",
            ),
            (
                said(loads(), "", Some(Signal::SIGXFSZ as i32)),
                "m/a.pt: it wants to write a file",
            ),
            (
                said(loads(), "x\nbye\n", Some(Signal::SIGSEGV as i32)),
                "nested too deeply, or damaged: bye",
            ),
            (
                said(loads(), "std::bad_alloc", Some(Signal::SIGABRT as i32)),
                "more than the 64 MiB",
            ),
            (
                said(
                    refused("DefaultCPUAllocator: not enough memory"),
                    "",
                    Some(0),
                ),
                "more than the 64 MiB",
            ),
            (
                said(refused("a.pt: no TorchScript model"), "", Some(0)),
                "a.pt: no TorchScript model",
            ),
            (
                said(Vec::new(), "", Some(0x100)),
                "its models: the process that checked it ended",
            ),
        ];
        for (text, part) in cases {
            assert!(text.contains(part), "{text}");
        }
    }
}
