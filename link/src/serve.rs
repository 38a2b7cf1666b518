//! The port on which other processes reach this one.

use std::future::Future;
use std::sync::Arc;

use spillgate_proto::link as pb;
use spillgate_proto::link::link_server::{Link, LinkServer};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::end::{MESSAGE_MAX, WINDOW, Wire};
use crate::links::Links;
use crate::outlet::{Writes, outlet};

struct Port(Arc<Links>);

#[tonic::async_trait]
impl Link for Port {
    type JoinStream = Results;

    async fn join(
        &self,
        request: Request<Streaming<pb::Packets>>,
    ) -> Result<Response<Results>, Status> {
        let (outlet, writes) = outlet();
        let peer = request.remote_addr();
        let peer = peer.map_or("an unknown address".to_owned(), |peer| peer.to_string());
        let wire = Wire {
            peer,
            outlet,
            inbound: request.into_inner(),
        };
        if !self.0.accept(wire) {
            return Err(Status::resource_exhausted(
                "the process has too many connections",
            ));
        }
        Ok(Response::new(Results(writes)))
    }
}

/// The answer of a call: all that is written to the peer.
pub(crate) struct Results(Writes);

impl tokio_stream::Stream for Results {
    type Item = Result<pb::Packets, Status>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let writes = std::pin::Pin::new(&mut self.get_mut().0);
        writes.poll_next(cx).map(|packets| packets.map(Ok))
    }
}

/// Accepts the connections of other processes until `stop` is done.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    links: Arc<Links>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let service = LinkServer::new(Port(links)).max_decoding_message_size(MESSAGE_MAX);
    // With Nagle's algorithm small messages would wait for the peer's delayed acknowledgements.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(1)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stop)
        .await
}
