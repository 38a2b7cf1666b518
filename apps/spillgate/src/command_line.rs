//! The command line: serving, streaming, checking and measuring pipelines, with the module types of one library.
//! Exit codes: 0 ok, 1 runtime, 2 usage, 78 bad pipeline file.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{FalseyValueParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand};
use spillgate_backend::operator::Library;
use spillgate_telemetry::logging;

use crate::model_check::{self, SUBCOMMAND};

use crate::commands;
use crate::commands::{
    graph, model_files, modules, plan, profile, roles, rollout, schema, serve, simulate, status,
    token, trace, up, validate,
};
use spillgate_protocol::session::rights::Kind;

/// The flag by environment.
const LOG_JSON: &str = "SPILLGATE_LOG_JSON";
/// How long the last lines of the log may take to be written.
const LOG_LIMIT: Duration = Duration::from_millis(300);

/// Serves a DAG of DNN modules, defined in YAML, under one end-to-end latency objective.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log as JSON lines.
    #[arg(long, global = true, env = LOG_JSON, value_parser = FalseyValueParser::new())]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve pipelines over gRPC.
    Serve(serve::ServeArgs),
    /// Run all processes of a pipeline on this machine: gateways, a controller, workers.
    Up(up::UpArgs),
    /// Be a gateway of a set: serve its clients over gRPC.
    Gateway(roles::GatewayArgs),
    /// Be a controller of a set.
    Controller(roles::InnerArgs),
    /// Be a worker of a set.
    Worker(roles::InnerArgs),
    /// Have a set serve another revision of a pipeline, beside the old one until it has shown itself.
    Rollout(rollout::RolloutArgs),
    /// Send a video, camera, folder of pictures or the built-in scene to a server.
    Stream(spillgate_client::stream::StreamArgs),
    /// Load a server and report goodput and latencies.
    Bench(spillgate_client::bench::BenchArgs),
    /// Check pipeline files.
    Validate(validate::ValidateArgs),
    /// Draw a pipeline.
    Graph(graph::GraphArgs),
    /// Print the JSON Schema of pipeline files, for editors.
    Schema,
    /// Print the module types that pipelines can name, or all about one of them.
    Modules(modules::ModulesArgs),
    /// Look at a model file: what it says of itself, and the module that serves it.
    #[command(subcommand)]
    Models(model_files::ModelsCommand),
    /// Measure how long each module takes at each batch size, and write the profile file; or how accurate variants are.
    Profile(profile::ProfileArgs),
    /// Plan batch sizes and workers for a rate or a number of GPUs.
    Plan(plan::PlanArgs),
    /// Run a pipeline in virtual time on emulated devices.
    Simulate(simulate::SimulateArgs),
    /// Show what processes are, do and expect: roles, workers, rates, peers.
    Status(status::StatusArgs),
    /// Make a token for a client of a server that is started with --tokens.
    Token(token::TokenArgs),
    /// Show a trace as a waterfall.
    Trace(trace::TraceArgs),
    /// Said where it is now.
    #[command(hide = true, disable_help_flag = true)]
    Evaluate(MovedCommand),
    /// Said where it is now.
    #[command(hide = true, disable_help_flag = true)]
    Adapt(MovedCommand),
    /// Load and run a module's models once, confined; the other commands start it.
    #[command(name = SUBCOMMAND, hide = true)]
    CheckModel,
}

/// The arguments of a command that is another program's.
#[derive(Args)]
struct MovedCommand {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _args: Vec<std::ffi::OsString>,
}

/// The whole command line of `spillgate`, with pipelines whose modules are of the types in `library`. It is the `main` of a program: one with
/// types of its own registers them beside those of `spillgate_modules::library()` (docs/extending.md).
///
/// Call it first and once: it checks model files in a process of its own, which is this program again.
pub fn main(library: Library) -> ExitCode {
    commands::set_library(library);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if matches!(cli.command, Command::CheckModel) {
        // Before there is a second thread.
        return model_check::answer(commands::library());
    }
    if let Err(error) = logging::init_logging(cli.log_json) {
        logging::complain(&format!("error: cannot start logging: {error}"));
        return ExitCode::from(1);
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Up(args) => up::run(args),
        Command::Gateway(args) => roles::gateway(args),
        Command::Controller(args) => roles::inner(args, Kind::Controller),
        Command::Worker(args) => roles::inner(args, Kind::Worker),
        Command::Rollout(args) => rollout::run(args),
        Command::Stream(args) => {
            commands::client(|stop| spillgate_client::stream::run_until(args, stop))
        }
        Command::Bench(args) => {
            commands::client(|stop| spillgate_client::bench::run_until(args, stop))
        }
        Command::Validate(args) => validate::run(&args),
        Command::Graph(args) => graph::run(&args),
        Command::Schema => schema::run(),
        Command::Modules(args) => modules::run(&args),
        Command::Models(command) => model_files::run(&command),
        Command::Profile(args) => profile::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Evaluate(_) => commands::in_laboratory("evaluate"),
        Command::Adapt(_) => commands::in_laboratory("adapt"),
        Command::Status(args) => status::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::CheckModel => unreachable!("it has no log"),
    };
    let code = result.unwrap_or_else(|error| commands::report(&error));
    logging::flush(LOG_LIMIT);
    code
}

/// Prints help, or the error in the arguments. The error is a JSON line, too, where JSON lines are wanted.
fn usage(error: &clap::Error) -> ExitCode {
    let falsey = FalseyValueParser::new();
    let by_environment = std::env::var_os(LOG_JSON).is_some_and(|value| {
        let parsed = falsey.parse_ref(&Cli::command(), None, &value);
        parsed.unwrap_or_default()
    });
    let json = by_environment || std::env::args_os().any(|argument| argument == "--log-json");
    if json && error.use_stderr() {
        let line = logging::json_error(error.to_string().trim_end());
        // It does not matter if the reader is gone.
        let _ = std::io::stderr().write_all(line.as_bytes());
    } else {
        let _ = error.print();
    }
    ExitCode::from(error.exit_code() as u8)
}
