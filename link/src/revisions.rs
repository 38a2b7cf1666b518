//! What sessions say of revisions: what is published, what revisions do, what operators ask.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use spillgate_proto::link as pb;
use spillgate_protocol::membership::Member;
use spillgate_protocol::publication::{Operate, Operated, Operation, Publication, RevisionReports};
use spillgate_protocol::session::rights::LinkProcess;

use crate::dial::dial;
use crate::tls::LinkTls;
use crate::wire::{self, Packet};

/// An answer to an operator, once it is there.
pub type Operating = Pin<Box<dyn Future<Output = Operated> + Send>>;

/// The revisions of the pipelines of this process, as sessions see them.
pub trait Revisions: Send + Sync {
    /// The publication that counts of a pipeline. A gateway or controller says it at the beginning of each connection.
    fn published(&self, pipeline: &str) -> Option<Arc<Publication>>;

    /// A gateway or controller says what is published.
    fn heard(&self, said: Arc<Publication>);

    /// A gateway or controller greeted that knows this generation of a pipeline.
    fn greeted(&self, pipeline: &str, generation: u64);

    /// What this process's revisions of a pipeline do.
    fn reports(&self, pipeline: &str) -> RevisionReports;

    /// What a process's revisions of a pipeline do, as it says.
    fn seen(&self, pipeline: &str, process: &Member, reports: RevisionReports);

    /// What an operator asks of the controllers of this process.
    fn operate(self: Arc<Self>, what: Operate) -> Operating;
}

/// Whether a process may say what is published: what it says changes what all processes of the set serve.
pub(crate) fn publishes(member: &Member) -> bool {
    member.is_gateway || !member.controllers.is_empty()
}

/// Asks the controller at this address (host and port) as an operator, and waits for its answer.
///
/// # Errors
/// When it cannot be reached, or does not answer within `limit`.
pub async fn operate(
    address: &str,
    operation: Operation,
    tls: Option<Arc<LinkTls>>,
    limit: Duration,
) -> Result<Operated, String> {
    let asked = async {
        let controller = LinkProcess::controller();
        let mut wire = dial(address.to_owned(), controller, tls, limit).await?;
        let _ = wire.outlet.put(&Packet::Operation(operation));
        let broke = |status: tonic::Status| format!("the connection broke: {}", status.message());
        while let Some(said) = wire.inbound.message().await.map_err(broke)? {
            for packet in said.packets {
                if let Some(operated) = answer_of(packet)? {
                    return Ok(operated);
                }
            }
        }
        Err("it closed the connection without an answer".to_owned())
    };
    let answered = tokio::time::timeout(limit, asked).await;
    answered.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}

/// The answer that a packet is, if it is one.
fn answer_of(packet: pb::Packet) -> Result<Option<Operated>, String> {
    match wire::decode(packet) {
        Ok(Some(Packet::Operated(operated))) => Ok(Some(operated)),
        Ok(Some(Packet::Refused(why))) => Ok(Some(Err(why))),
        Ok(_) => Ok(None),
        Err(error) => Err(format!("it sent what cannot be read: {error}")),
    }
}
