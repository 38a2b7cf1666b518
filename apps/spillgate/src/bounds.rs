//! The page of all bounds, made from their constants.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::CommandFactory;
use expect_test::expect_file;
use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::{Bound, Subject, Value};

/// The bounds of this crate, and of libraries that know no pipelines.
const BOUNDS: &[Bound] = &[
    bound!(
        Clients,
        "connections",
        count(crate::commands::serve::descriptors::CONNECTIONS),
        "an idle one gives way, else the new one is turned away",
        "serve --connections"
    ),
    bound!(
        Clients,
        "connections of one address",
        words("half of `--connections`", crate::commands::serve),
        "turned away",
        "serve --connections-per-address"
    ),
    bound!(
        Clients,
        "calls on one connection",
        words("the flag", crate::commands::serve),
        "refused by HTTP/2",
        "serve --calls-per-connection"
    ),
    bound!(
        Clients,
        "time of an idle connection",
        words("the flag", crate::commands::serve),
        "the connection is closed",
        "serve --idle-timeout"
    ),
    bound!(
        Clients,
        "age of a connection",
        words("the flag", crate::commands::serve),
        "it takes no new calls",
        "serve --connection-age"
    ),
    bound!(
        Clients,
        "bytes held for all clients; one of them holds no more than is still free",
        words("the flag", crate::commands::serve),
        "the newest frame or request is refused; before a call its connection is closed",
        "serve --memory"
    ),
    bound!(
        Clients,
        "time of a message, from its first byte to its last",
        time(crate::server::MESSAGE_LIMIT),
        "its call ends"
    ),
    bound!(
        Clients,
        "time for which an answer is left unread",
        time(crate::server::UNREAD_LIMIT),
        "the connection is closed"
    ),
    bound!(
        Clients,
        "scans of a JPEG",
        count(spillgate_picture::SCANS_MAX),
        "refused by its header"
    ),
    bound!(
        Clients,
        "time of a handshake of TLS, of clients and of processes",
        time(spillgate_tls::HANDSHAKE_LIMIT),
        "the connection is closed"
    ),
    bound!(
        Clients,
        "bytes that wait for the network behind TLS",
        bytes(spillgate_tls::WAITING_BYTES_MAX),
        "the connection waits"
    ),
    bound!(
        Models,
        "members of a family that are checked before the server starts, until one is good",
        count(crate::model_check::family::FIRST_MAX),
        "an error"
    ),
    bound!(
        Models,
        "members of a form that fail their check",
        count(crate::model_check::family::FAILURES_MAX),
        "the others of the form are refused"
    ),
    bound!(
        Models,
        "refused members that the log names",
        count(crate::model_check::family::NAMED_MAX),
        "the others are counted"
    ),
    bound!(
        Models,
        "members that are asked for before they are checked",
        words("each once", crate::model_check::family),
        "they wait for the check"
    ),
    bound!(
        Models,
        "members of a family in memory, where no memory is given",
        words("all", crate::devices::fleets),
        "none is unloaded"
    ),
    bound!(
        Models,
        "memory of a check of models, beside four times the size of their files",
        bytes(crate::model_check::MEMORY_DEFAULT),
        "the model is refused",
        "serve --model-memory"
    ),
    bound!(
        Models,
        "processor time of a check of models",
        time(crate::model_check::TIME_DEFAULT),
        "the model is refused",
        "serve --model-time"
    ),
    bound!(
        Models,
        "stack of the thread that a check runs on",
        bytes(crate::model_check::child::STACK_BYTES),
        "the model is refused"
    ),
    bound!(
        Models,
        "descriptors of a check of models",
        count(crate::model_check::sandbox::DESCRIPTORS_MAX),
        "the model is refused"
    ),
    bound!(
        Models,
        "bytes of model files that are compared with others",
        bytes(crate::devices::fleets::contents::COMPARED_BYTES_MAX),
        "a model of its own, and a warning with their number"
    ),
    bound!(
        Models,
        "contents of one end that a model file is compared with",
        count(crate::devices::fleets::contents::SAME_END_MAX),
        "a model of its own"
    ),
    bound!(
        Models,
        "architectures that are measured when a server starts",
        count(crate::devices::fleets::expected::MEASURED_MAX),
        "the profile of the module holds until they ran"
    ),
    bound!(
        Models,
        "time in which architectures are measured",
        time(crate::devices::fleets::expected::MEASURED_WITHIN),
        "the profile of the module holds until they ran"
    ),
    bound!(
        Models,
        "weights of an architecture that are tried, while none can be measured",
        count(crate::devices::fleets::expected::FAILURES_MAX),
        "the profile of the module holds until they ran"
    ),
    bound!(
        Processes,
        "bytes that a process holds for gateways; for one of them no more than is free",
        words("the flag", crate::process_context),
        "kept values are given up, then the newest request is dropped, `memory`",
        "worker --memory"
    ),
    bound!(
        Processes,
        "part of that for values that are kept, one in",
        count(crate::values::KEPT_PART),
        "of the gateway with the most, the request admitted last loses its values"
    ),
    bound!(
        Processes,
        "requests of a gateway for which values are kept",
        count(crate::values::KEPT_REQUESTS_MAX),
        "the request admitted first is forgotten"
    ),
    bound!(
        Processes,
        "what a gateway knows of values that processes keep",
        words(
            "requests in flight, by the processes that they went to",
            crate::values
        ),
        "forgotten with its request"
    ),
    bound!(
        Processes,
        "processes of a kind that `up` starts",
        count(crate::commands::up::PROCESSES_MAX),
        "a usage error"
    ),
    bound!(
        Processes,
        "time between starts of a child of `up` that dies",
        time(crate::commands::up::child::BACKOFF_LONGEST),
        "it is started again"
    ),
    bound!(
        Processes,
        "time in which a child of `up` ends",
        time(crate::commands::up::END_LIMIT),
        "it is killed"
    ),
    bound!(
        Operation,
        "events of revisions that wait for the rollout",
        count(crate::renewer::EVENTS_MAX),
        "who tells one waits"
    ),
    bound!(
        Operation,
        "revisions that live beside the newest one",
        count(crate::serving::ENDING_MAX),
        "a further reload waits"
    ),
    bound!(
        Operation,
        "time for device threads and telemetry to end",
        time(crate::embedded::STOP_LIMIT),
        "the process ends without them"
    ),
    bound!(
        Operation,
        "admin connections",
        count(crate::admin::CONNECTIONS_MAX),
        "the longest silent one gives way"
    ),
    bound!(
        Operation,
        "connections of KEDA",
        count(crate::external_scaler::CONNECTIONS_MAX),
        "the longest silent one gives way"
    ),
    bound!(
        Operation,
        "calls on a connection of KEDA",
        count(crate::external_scaler::CALLS_MAX),
        "refused by HTTP/2"
    ),
    bound!(
        Operation,
        "bytes of a call of KEDA",
        bytes(crate::external_scaler::MESSAGE_MAX),
        "refused"
    ),
    bound!(
        Operation,
        "time to the end of a request's headers at the admin port",
        time(crate::admin::HEADERS_LIMIT),
        "its connection is closed"
    ),
    bound!(
        Operation,
        "time of an answer of the admin port",
        time(crate::admin::ANSWER_LIMIT),
        "its connection is closed"
    ),
    bound!(
        Operation,
        "headers of a request to the admin port",
        count(crate::admin::HEADERS_MAX),
        "its connection is closed"
    ),
    bound!(
        Operation,
        "bytes of the headers of a request to the admin port",
        bytes(crate::admin::HEADER_BYTES_MAX),
        "its connection is closed"
    ),
    bound!(
        Operation,
        "time between warnings of one certificate",
        time(crate::certificates::WARNED_EVERY),
        "not warned of"
    ),
    bound!(
        Operation,
        "a pipeline or profile file that is read",
        bytes(crate::files::FILE_BYTES_MAX),
        "an error with its path"
    ),
    bound!(
        Operation,
        "a process's answer to `status`",
        bytes(crate::commands::status::BYTES_MAX),
        "an error"
    ),
    bound!(
        Operation,
        "time for a process's answer to `status`",
        time(crate::commands::status::LIMIT),
        "an error"
    ),
    bound!(
        Operation,
        "a file of a scenario, unpacked",
        bytes(crate::commands::simulate::scenario::BYTES_MAX),
        "refused"
    ),
    bound!(
        Operation,
        "frames on which accuracy is measured",
        count(crate::commands::profile::FRAMES_MAX),
        "a usage error"
    ),
    bound!(
        Operation,
        "errors of labels that are shown",
        count(crate::accuracy::labelled::boxes::ERRORS_SHOWN),
        "the number of the others is told"
    ),
];

/// The lists, each with the folder of its crate. The laboratory is no part of the product.
fn lists() -> Vec<(&'static str, &'static [Bound])> {
    vec![
        ("pipeline", spillgate_pipeline::bounds::BOUNDS),
        ("protocol", spillgate_protocol::bounds::BOUNDS),
        ("camera", spillgate_camera::bounds::BOUNDS),
        ("process", spillgate_process::bounds::BOUNDS),
        (
            "controller/policy",
            spillgate_controller_policy::bounds::BOUNDS,
        ),
        ("controller/runtime", spillgate_controller::bounds::BOUNDS),
        ("worker/policy", spillgate_worker_policy::bounds::BOUNDS),
        ("worker/backend", spillgate_backend::bounds::BOUNDS),
        ("worker/backend", spillgate_backend::bounds::ONNX_BOUNDS),
        ("worker/runtime", spillgate_worker::bounds::BOUNDS),
        ("link", spillgate_link::bounds::BOUNDS),
        ("apps/modules/library", spillgate_modules::bounds::BOUNDS),
        ("apps/telemetry", spillgate_telemetry::bounds::BOUNDS),
        ("apps/client", spillgate_client::bounds::BOUNDS),
        ("sim", spillgate_sim::bounds::BOUNDS),
        ("apps/spillgate", BOUNDS),
    ]
}

/// The page is made of the constants of this version. `UPDATE_EXPECT=1` writes it anew.
#[test]
fn the_page_of_bounds_is_up_to_date() {
    expect_file!["../../../docs/bounds.md"].assert_eq(&page());
}

/// Two rows for one constant would say different things of it sooner or later.
#[test]
fn each_constant_has_one_row() {
    let mut seen = BTreeSet::new();
    for (folder, list) in lists() {
        let constants = list
            .iter()
            .filter(|bound| !matches!(bound.value, Value::Words(_)));
        for bound in constants {
            assert!(
                seen.insert((folder, bound.path)),
                "two rows for {} of {folder}",
                bound.path
            );
        }
    }
}

fn page() -> String {
    let mut text = String::from(
        "# Bounds\n\nEvery queue, cache, table, retry and waiting time has a bound. This page is made from the constants (`UPDATE_EXPECT=1 \
         cargo test -p spillgate --lib\nbounds`). A value in the last column sets the bound, and stands there with its default. Bounds of what \
         a message may hold are in\n`proto/build.rs`. [SECURITY.md](SECURITY.md) says against what the bounds on clients and peers \
         protect.\n",
    );
    for (subject, heading) in Subject::ALL {
        let _ = write!(
            text,
            "\n## {heading}\n\n| what | bound | when it is reached | where | set by |\n|---|---|---|---|---|\n"
        );
        for (folder, list) in lists() {
            for bound in list.iter().filter(|bound| bound.subject == subject) {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {} |",
                    bound.what,
                    value(bound.value),
                    bound.when_full,
                    place(folder, bound.path),
                    set_by(bound.set_by)
                );
            }
        }
    }
    text
}

fn value(value: Value) -> String {
    match value {
        Value::Count(n) => count(n),
        Value::Range(least, most) => format!("{} to {}", count(least), count(most)),
        Value::Bytes(n) => bytes(n),
        Value::Time(span) => time(span),
        Value::Times(least, most) => format!("{} to {}", time(least), time(most)),
        Value::Fraction(part) => format!("{:.4}%", part * 100.0).replace(".0000", ""),
        Value::Words(words) => words.to_owned(),
    }
}

/// With commas between thousands.
fn count(n: f64) -> String {
    let text = n.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        let _ = write!(out, ".{fraction}");
    }
    out
}

fn bytes(n: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let exact = units
        .iter()
        .find(|(bits, _)| n != 0 && n.trailing_zeros() >= *bits);
    match exact {
        Some((bits, unit)) => format!("{} {unit}", count((n >> bits) as f64)),
        None => format!("{} bytes", count(n as f64)),
    }
}

fn time(span: Duration) -> String {
    let ns = span.as_nanos();
    let units = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
    ];
    let exact = units.iter().find(|(unit, _)| ns.is_multiple_of(*unit));
    exact.map_or_else(
        || format!("{ns} ns"),
        |(unit, name)| format!("{} {name}", count((ns / unit) as f64)),
    )
}

/// The constant and its file, or the file of the module that computes the bound.
fn place(folder: &str, path: &str) -> String {
    let path = path.replace(' ', "");
    let mut parts: Vec<&str> = path.split("::").collect();
    let folder = match parts.remove(0) {
        "crate" => folder,
        "spillgate_picture" => "picture",
        "spillgate_tls" => "tls",
        other => panic!("{path}: the folder of {other} is not known"),
    };
    let is_constant = |part: &&str| part.chars().all(|c| !c.is_lowercase());
    let constant = parts
        .last()
        .and_then(|last| last.split('.').next())
        .filter(is_constant);
    let modules = if constant.is_some() {
        &parts[..parts.len() - 1]
    } else {
        &parts[..]
    };
    let sources = root().join(folder).join("src");
    let own = match modules {
        [] => sources.join("lib.rs"),
        modules => sources.join(format!("{}.rs", modules.join("/"))),
    };
    let Some(constant) = constant else {
        assert!(own.is_file(), "{path}: there is no {}", own.display());
        return format!("`{}`", below_root(&own));
    };
    let declared = |file: &Path| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.contains(&format!("const {constant}:"))
    };
    // A constant that its crate exports by another path stands elsewhere.
    let file = if declared(&own) {
        own
    } else {
        let mut found = rust_files(&sources);
        found.retain(|file| declared(file));
        assert_eq!(found.len(), 1, "{path}: {found:?} declare it");
        found.remove(0)
    };
    format!("`{constant}` of `{}`", below_root(&file))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn below_root(file: &Path) -> String {
    let below = file
        .strip_prefix(root())
        .expect("a file of this repository");
    below.display().to_string()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources").flatten();
    let each = entries
        .map(|entry| entry.path())
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        });
    each.filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

/// A field of pipeline files, or a flag with its default.
fn set_by(name: &str) -> String {
    let Some((command, flag)) = name.split_once(" --") else {
        let fields = crate::reference::page();
        assert!(
            name.is_empty() || fields.contains(&format!("| `{name}` |")),
            "no field {name}"
        );
        return if name.is_empty() {
            String::new()
        } else {
            format!("`{name}`")
        };
    };
    let mut cli = crate::command_line::Cli::command();
    cli.build();
    let command = cli.find_subcommand(command).expect("a command");
    let arg = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(flag));
    let arg = arg.unwrap_or_else(|| panic!("no flag {name}"));
    let default = arg.get_default_values().first();
    let default = default.map(|value| format!(" ({})", value.to_string_lossy()));
    format!("`{name}`{}", default.unwrap_or_default())
}
