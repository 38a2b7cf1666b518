//! The sources of a run and their clients: which client reads which source, and what it is called.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::StreamArgs;
use crate::source::SourceSpec;

/// Most clients of a run: each has threads, and where ffmpeg reads its source a process.
pub(crate) const CLIENTS_MAX: usize = 1000;
/// What is streamed where no source is named.
const DEFAULT: &str = "scene:";

/// The sources of a run. Each has equally many clients, those of the first one first.
pub(super) struct Sources {
    specs: Vec<SourceSpec>,
    /// As the user named them, without secrets.
    shown: Vec<String>,
    names: Vec<Arc<str>>,
    clients_of_each: usize,
}

impl Sources {
    /// # Errors
    /// Where a source is none, or the options do not fit the sources.
    pub(super) fn of(args: &StreamArgs) -> Result<Self> {
        let mut texts = args.sources.clone();
        if let Some(file) = &args.source_file {
            texts.extend(read_lines(file)?);
        }
        if texts.is_empty() {
            texts.push(DEFAULT.to_owned());
        }
        let specs = texts.iter().map(|text| SourceSpec::parse(&expanded(text)?));
        let mut specs: Vec<SourceSpec> = specs.collect::<Result<_>>()?;
        let n_stdin = specs
            .iter()
            .filter(|spec| matches!(spec, SourceSpec::Stdin(_)))
            .count();
        if n_stdin > 1 || n_stdin == 1 && (args.clients > 1 || args.repeat) {
            bail!("standard input can be read once, by one client: leave --clients and --loop out");
        }
        match (&mut specs[..], args.raw_video) {
            ([SourceSpec::Stdin(raw)], Some(video)) => *raw = Some(video),
            (_, Some(_)) => {
                bail!("--raw-video is for standard input: spillgate stream - --raw-video ...")
            }
            (_, None) => {}
        }
        let clients_of_each = usize::from(args.clients);
        let clients = specs.len() * clients_of_each;
        ensure!(
            clients <= CLIENTS_MAX,
            "{clients} clients: a run has at most {CLIENTS_MAX}"
        );
        let shown = specs
            .iter()
            .zip(texts)
            .map(|(spec, text)| spec.shown().unwrap_or(text));
        let shown = shown.collect();
        let names = names(&args.names, specs.len(), clients_of_each)?;
        Ok(Sources {
            specs,
            shown,
            names,
            clients_of_each,
        })
    }

    pub(super) fn clients(&self) -> usize {
        self.names.len()
    }

    pub(super) fn count(&self) -> usize {
        self.specs.len()
    }

    pub(super) fn name(&self, client: usize) -> Arc<str> {
        self.names[client].clone()
    }

    pub(super) fn of_client(&self, client: usize) -> &SourceSpec {
        &self.specs[client / self.clients_of_each]
    }

    pub(super) fn shown(&self) -> String {
        self.shown.join(", ")
    }
}

/// A name for each client: those that would have the same get numbers.
fn names(given: &[String], sources: usize, clients_of_each: usize) -> Result<Vec<Arc<str>>> {
    ensure!(
        given.len() == 1 || given.len() == sources,
        "{} names for {sources} sources: give --name once, or once for each source",
        given.len()
    );
    let numbered = |name: &str, n: usize, of: usize| match of {
        1 => name.into(),
        _ => format!("{name}-{n}").into(),
    };
    let clients = 0..sources * clients_of_each;
    let names: Vec<Arc<str>> = clients
        .map(|client| match given {
            [name] => numbered(name, client, sources * clients_of_each),
            _ => numbered(
                &given[client / clients_of_each],
                client % clients_of_each,
                clients_of_each,
            ),
        })
        .collect();
    for (at, name) in names.iter().enumerate() {
        ensure!(
            !names[..at].contains(name),
            "two streams would be called {name}: give each source a --name of its own"
        );
    }
    Ok(names)
}

fn read_lines(path: &Path) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    ensure!(
        !lines.is_empty(),
        "{} names no source: one a line",
        path.display()
    );
    Ok(lines)
}

/// An address with the environment's variables in the place of `${NAME}`.
fn expanded(text: &str) -> Result<String> {
    if !text.contains("://") {
        return Ok(text.to_owned());
    }
    let mut pieces = text.split("${");
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece
            .split_once('}')
            .ok_or_else(|| anyhow!("an address has ${{ without }}: ${{NAME}} is a variable"))?;
        let value = std::env::var(name).map_err(|_| {
            anyhow!(
                "the environment has no variable {name:?}, which an address names as ${{{name}}}"
            )
        })?;
        whole.push_str(&value);
        whole.push_str(rest);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(given: &[&str], sources: usize, clients: usize) -> Result<Vec<String>> {
        let given: Vec<String> = given.iter().map(|name| (*name).to_owned()).collect();
        Ok(names(&given, sources, clients)?
            .iter()
            .map(|name| name.to_string())
            .collect())
    }

    #[test]
    fn each_client_has_a_name_of_its_own() {
        assert_eq!(named(&["cam"], 1, 1).unwrap(), ["cam"]);
        assert_eq!(named(&["cam"], 2, 1).unwrap(), ["cam-0", "cam-1"]);
        assert_eq!(named(&["gate", "yard"], 2, 1).unwrap(), ["gate", "yard"]);
        assert_eq!(
            named(&["gate", "yard"], 2, 2).unwrap(),
            ["gate-0", "gate-1", "yard-0", "yard-1"]
        );
        let error = named(&["gate", "yard"], 3, 1).unwrap_err().to_string();
        assert!(error.contains("2 names for 3 sources"), "{error}");
        assert!(named(&["gate", "gate"], 2, 1).is_err());
    }

    #[test]
    fn variables_stand_in_addresses_and_nowhere_else() {
        let home = std::env::var("PATH").unwrap();
        assert_eq!(
            expanded("rtsp://me:${PATH}@a.b/c").unwrap(),
            format!("rtsp://me:{home}@a.b/c")
        );
        assert_eq!(expanded("a${b.mp4").unwrap(), "a${b.mp4");
        for (text, says) in [
            (
                "rtsp://${NO_SUCH_VARIABLE}@a/b",
                "no variable \"NO_SUCH_VARIABLE\"",
            ),
            ("rtsp://${A@b/c", "${ without }"),
        ] {
            let error = expanded(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
