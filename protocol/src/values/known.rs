//! What a gateway knows of the values that processes keep for its requests.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::pipeline::PortRef;

/// A session with a process. What one session brought counts in no other one: the process may have begun anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub u64);

/// What one process keeps for one request.
#[derive(Clone, Debug)]
struct At {
    peer: Peer,
    ports: Vec<PortRef>,
}

/// What a gateway knows of the values that processes keep for its requests. It has an entry for each request for which a process
/// was told to keep values, until [`KnownValues::ends`]: as many as requests are in flight, each with the processes that it went to.
#[derive(Clone, Debug, Default)]
pub struct KnownValues {
    requests: IndexMap<RequestId, Vec<At>, FxBuildHasher>,
}

impl KnownValues {
    /// A process is told to keep values of a request until it ends.
    pub fn tells(&mut self, request: RequestId, peer: Peer) {
        let at = self.requests.entry(request).or_default();
        if !at.iter().any(|at| at.peer == peer) {
            at.push(At {
                peer,
                ports: Vec::new(),
            });
        }
    }

    /// Whether the process was told to keep values of a request that has not ended.
    pub fn is_told(&self, request: RequestId, peer: Peer) -> bool {
        self.at(request, peer).is_some()
    }

    /// The process has a value from now on. Nothing is noted where it was not told to keep any.
    pub fn gives(&mut self, request: RequestId, peer: Peer, port: PortRef) {
        if let Some(at) = self.at_mut(request, peer)
            && !at.ports.contains(&port)
        {
            at.ports.push(port);
        }
    }

    /// Whether the process is taken to have a value.
    pub fn has(&self, request: RequestId, peer: Peer, port: PortRef) -> bool {
        let at = self.at(request, peer);
        at.is_some_and(|at| at.ports.contains(&port))
    }

    /// The process lacks values that it was taken to have: it is taken to have none of the request.
    pub fn lacks(&mut self, request: RequestId, peer: Peer) {
        if let Some(at) = self.at_mut(request, peer) {
            at.ports.clear();
        }
    }

    /// The request has ended. Returns the processes that are to hear of it.
    pub fn ends(&mut self, request: RequestId) -> Vec<Peer> {
        let at = self.requests.swap_remove(&request).unwrap_or_default();
        at.into_iter().map(|at| at.peer).collect()
    }

    /// Requests for which processes keep values.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no process keeps any.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn at(&self, request: RequestId, peer: Peer) -> Option<&At> {
        let at = self.requests.get(&request)?;
        at.iter().find(|at| at.peer == peer)
    }

    fn at_mut(&mut self, request: RequestId, peer: Peer) -> Option<&mut At> {
        let at = self.requests.get_mut(&request)?;
        at.iter_mut().find(|at| at.peer == peer)
    }
}
