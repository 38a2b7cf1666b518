//! SIGHUP: what the pipeline files say now is offered to the server.

use spillgate_controller_policy::rollout::Share;

use crate::commands::serve::pipeline_files::PipelineFiles;
use crate::deployment::Revision;
use crate::renewer::{Renewed, Renewer};

/// Reads the pipeline files and serves what they say, if that is not served already. Returns a line about the result.
///
/// # Errors
/// When something is wrong with them, or what they say cannot be served. What was served is served on.
pub(super) fn pipelines(files: &PipelineFiles, renewer: &Renewer) -> anyhow::Result<String> {
    let serve = |revision: Revision| {
        let names = revision.deployments.iter();
        let names: Vec<&str> = names.map(|d| d.pipeline.name.as_str()).collect();
        let (names, id) = (names.join(", "), revision.id);
        Ok(match renewer.renew(revision)? {
            Renewed::Same => return Ok(None),
            Renewed::Undone => {
                format!("{names}; requests under way end as they began; the former revision {id} serves again")
            }
            Renewed::Serves(Share::ALL) => {
                format!("{names}; requests under way end as they began; revision {id} serves")
            }
            Renewed::Serves(share) => format!(
                "{names}; requests under way end as they began; revision {id} serves {share} of the streams"
            ),
        }
        .into())
    };
    let said = files.run(|id, _| renewer.serves(id), serve)?.flatten();
    Ok(said.unwrap_or_else(|| "nothing has changed".to_owned()))
}
