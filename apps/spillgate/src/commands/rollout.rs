//! `spillgate rollout`: another revision of a pipeline takes the place of the one that a set serves.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use spillgate_controller_policy::rollout::{RevisionId, RevisionState, Share};
use spillgate_link::revisions::operate;
use spillgate_pipeline::printable::printable_line;
use spillgate_protocol::publication::{
    DEFINITION_BYTES_MAX, Definition, Operate, Operated, Operation, ProcessReport, RevisionReport,
    RolloutReport,
};
use spillgate_protocol::session::rights::SET_DEFAULT;
use spillgate_protocol::topology::check_address;
use spillgate_telemetry::logging::say;

use super::link_tls::LinkTlsArgs;
use super::roles::set_name;
use crate::files;
use crate::rollout_flag;

/// How long a controller may take to answer: it reads and checks a definition.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How often it is asked how far the rollout is.
const LOOK: Duration = Duration::from_millis(500);
/// How often it may be away in a row while the rollout is followed: it begins anew within that time.
const AWAY_MAX: u32 = 60;

/// Which revision, of which set.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: Option<RolloutCommand>,
    /// Pipeline file of the new revision. Paths in it are relative to the files with which the processes began
    #[arg(required = true)]
    pipeline: Option<PathBuf>,
    #[command(flatten)]
    set: SetArgs,
    /// How it takes the place of the old one: `at-once`; `5%` of the streams for one watch, then all; or `recreate`, where memory or
    /// devices do not hold both: the old one ends first, and meanwhile nothing is served. A watch judges the new one; `,watch=0s`
    /// leaves it out [default: at-once,watch=1m]
    #[arg(long, value_name = "HOW[,watch=TIME]", value_parser = how)]
    how: Option<String>,
    /// File of profiles, where it does not lie beside the pipeline
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// End once it is published, and do not follow it
    #[arg(long)]
    no_wait: bool,
}

#[derive(Subcommand)]
enum RolloutCommand {
    /// Show what is to be served of each pipeline, and what the revisions do in each process.
    Status(SetArgs),
    /// Serve again what was served before the last rollout.
    Undo(UndoArgs),
}

#[derive(Args)]
struct UndoArgs {
    /// Name of the pipeline
    pipeline: String,
    #[command(flatten)]
    set: SetArgs,
    /// End once it is published, and do not follow it
    #[arg(long)]
    no_wait: bool,
}

/// Which set.
#[derive(Args)]
struct SetArgs {
    /// Address of a controller of the set, like control.example.org:7720
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "SPILLGATE_CONTROLLERS",
        required = true
    )]
    to: Option<String>,
    /// Name of the set
    #[arg(long, env = "SPILLGATE_SET", default_value = SET_DEFAULT, value_parser = set_name)]
    set: String,
    #[command(flatten)]
    tls: LinkTlsArgs,
}

fn how(text: &str) -> Result<String, String> {
    rollout_flag::rollout(text).map(|_| text.to_owned())
}

/// Publishes a definition, undoes that, or shows what is published.
pub(crate) fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match args.command {
            Some(RolloutCommand::Status(set)) => {
                let rollouts = Set::of(&set)?.ask(Operate::Query).await??;
                for rollout in &rollouts {
                    super::print(&text(rollout))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Some(RolloutCommand::Undo(undo)) => {
                let what = Operate::Undo(undo.pipeline.as_str().into());
                rolls_out(&undo.set, what, undo.no_wait).await
            }
            None => {
                let file = args.pipeline.context("the pipeline file is missing")?;
                let definition = definition(&file, args.profiles.as_deref())?;
                let how = args.how.unwrap_or_default().into();
                let what = Operate::Offer { definition, how };
                rolls_out(&args.set, what, args.no_wait).await
            }
        }
    })
}

/// Publishes, and follows what comes of it unless that is not wanted.
async fn rolls_out(set: &SetArgs, what: Operate, no_wait: bool) -> anyhow::Result<ExitCode> {
    let set = Set::of(set)?;
    let published = set.publish(what).await?;
    match no_wait {
        true => Ok(ExitCode::SUCCESS),
        false => set.follow(&published).await,
    }
}

/// What a pipeline file and its profiles say.
pub(crate) fn definition(
    pipeline: &Path,
    profiles: Option<&Path>,
) -> anyhow::Result<Arc<Definition>> {
    let beside = files::profile_path(pipeline);
    let profiles = match profiles {
        Some(file) => files::read(file)?,
        None if beside.exists() => files::read(&beside)?,
        None => String::new(),
    };
    Ok(Arc::new(Definition {
        revision: 0,
        pipeline: files::read(pipeline)?.into(),
        profiles: profiles.into(),
    }))
}

/// A set, by one of its controllers.
pub(crate) struct Set {
    controller: String,
    name: Arc<str>,
    tls: Option<Arc<spillgate_link::tls::LinkTls>>,
}

impl Set {
    fn of(args: &SetArgs) -> anyhow::Result<Self> {
        // Of several controllers the first one is asked: the others hear of it.
        let to = args
            .to
            .as_deref()
            .context("--to: the address of a controller is missing")?;
        let first = to.split(',').next().unwrap_or_default();
        check_address(first).context("--to")?;
        let name: Arc<str> = args.set.as_str().into();
        Ok(Set {
            controller: first.to_owned(),
            tls: args.tls.read(name.clone())?,
            name,
        })
    }

    /// The set of this controller, which speaks plain text.
    pub(crate) fn plain(controller: String) -> Self {
        Set {
            controller,
            name: SET_DEFAULT.into(),
            tls: None,
        }
    }

    /// Asks the controller.
    ///
    /// # Errors
    /// It cannot be reached.
    async fn ask(&self, what: Operate) -> anyhow::Result<anyhow::Result<Vec<RolloutReport>>> {
        let set = self.name.clone();
        let operation = Operation { set, what };
        let asked = operate(&self.controller, operation, self.tls.clone(), ANSWER_LIMIT).await;
        let answered: Operated =
            asked.map_err(|why| anyhow::anyhow!("controller {}: {why}", self.controller))?;
        Ok(answered.map_err(|why| anyhow::anyhow!("{}", printable(&why))))
    }

    /// Publishes a definition or undoes that, and says so.
    ///
    /// # Errors
    /// The controller cannot be reached, or refuses.
    pub(crate) async fn publish(&self, what: Operate) -> anyhow::Result<RolloutReport> {
        if let Operate::Offer { definition, .. } = &what
            && definition.bytes() > DEFINITION_BYTES_MAX
        {
            bail!(
                "the pipeline file and its profiles have {} bytes; at most {DEFINITION_BYTES_MAX} are published: leave out comments, or \
                 restart the processes with the file",
                definition.bytes()
            );
        }
        let before = self.ask(Operate::Query).await??;
        let is_offer = matches!(what, Operate::Offer { .. });
        let mut published = self.ask(what).await??;
        let (Some(published), true) = (published.pop(), published.is_empty()) else {
            bail!("the controller does not answer for one pipeline");
        };
        let before = before.iter().find(|of| of.pipeline == published.pipeline);
        if is_offer && before.is_some_and(|before| before.generation == published.generation) {
            bail!(
                "pipeline {} is to be served as revision {} already; a model that changed needs another file name",
                printable(&published.pipeline),
                RevisionId(published.revision)
            );
        }
        say(&format!(
            "pipeline {}: revision {} is published, generation {}",
            printable(&published.pipeline),
            RevisionId(published.revision),
            published.generation
        ));
        Ok(published)
    }

    /// Says what changes until all gateways serve the revision and its watch is over, or another one is published.
    pub(crate) async fn follow(&self, published: &RolloutReport) -> anyhow::Result<ExitCode> {
        let mut shown: Vec<String> = Vec::new();
        let mut n_away = 0;
        loop {
            tokio::time::sleep(LOOK).await;
            let rollouts = match self.ask(Operate::Query).await {
                Ok(answered) => answered?,
                Err(_) if n_away < AWAY_MAX => {
                    n_away += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            n_away = 0;
            let now = rollouts
                .into_iter()
                .find(|of| of.pipeline == published.pipeline);
            let now = now.context("the controller serves the pipeline no more")?;
            for line in lines(&now, published.revision) {
                if !shown.contains(&line) {
                    say(&line);
                    shown.push(line);
                }
            }
            if now.generation > published.generation {
                let why = match &*now.why {
                    "" => "another revision is published since".to_owned(),
                    why => format!("taken back: {}", printable(why)),
                };
                say(&format!("pipeline {}: {why}", now.pipeline));
                return Ok(ExitCode::FAILURE);
            }
            // A controller that began anew has not heard of it yet.
            let is_known = now.generation == published.generation;
            if is_known && is_done(&now) {
                say(&format!("pipeline {}: done", now.pipeline));
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// Whether all gateways serve the published revision, and are done with the one before.
fn is_done(rollout: &RolloutReport) -> bool {
    let stable = RevisionState::Stable.name();
    let serves = |of: &ProcessReport| {
        let mut revisions = of.revisions.iter();
        revisions.any(|of| of.id == rollout.revision && &*of.state == stable)
    };
    let mut gateways = rollout
        .processes
        .iter()
        .filter(|of| of.is_gateway)
        .peekable();
    gateways.peek().is_some() && gateways.all(serves)
}

/// A line for what a revision does in each gateway, and in each other process that cannot serve it.
fn lines(rollout: &RolloutReport, revision: u64) -> Vec<String> {
    let back = RevisionState::TakenBack.name();
    let mut lines = Vec::new();
    for process in &rollout.processes {
        let of_it = process.revisions.iter().filter(|of| of.id == revision);
        let said = of_it.filter(|of| process.is_gateway || &*of.state == back);
        lines.extend(said.map(|of| format!("{}: {}", printable(&process.process), words(of))));
    }
    lines
}

fn printable(text: &str) -> String {
    printable_line(text).into_owned()
}

/// What a revision does, in words.
fn words(of: &RevisionReport) -> String {
    let share = Share::of_parts(of.share).filter(|share| *share > Share::NONE);
    let share = share.map_or_else(String::new, |share| format!(" {share}"));
    let why = match &*of.why {
        "" => String::new(),
        why => format!(": {}", printable(why)),
    };
    format!("{} {}{share}{why}", RevisionId(of.id), printable(&of.state))
}

/// A rollout for people.
fn text(rollout: &RolloutReport) -> String {
    let why = match &*rollout.why {
        "" => String::new(),
        why => format!("; the one before was taken back: {}", printable(why)),
    };
    let generation = match rollout.generation {
        0 => "as the files say".to_owned(),
        n => format!("generation {n}"),
    };
    let mut text = format!(
        "pipeline {}: revision {}, {generation}{why}\n",
        printable(&rollout.pipeline),
        RevisionId(rollout.revision)
    );
    for process in &rollout.processes {
        let each: Vec<String> = process.revisions.iter().map(words).collect();
        let name = printable(&process.process);
        text += &format!("  {name:<24} {}\n", each.join("; "));
    }
    text
}
