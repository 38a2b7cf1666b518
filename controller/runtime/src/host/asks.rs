//! The streams whose clients adapt, and the ways to tell them what their frames should be like.

use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::gateway::Event;
use spillgate_controller_policy::uplink::UplinkReport;
use spillgate_controller_policy::variant_selector::{Asked, StreamKey};

use super::PipelineHost;

/// Told what the frames of a stream should be like from now on. Called without locks held.
pub(crate) type OnAsk = Arc<dyn Fn(Asked) + Send + Sync>;

/// The streams that listen: no more than are open.
#[derive(Default)]
pub(super) struct Asks(Mutex<IndexMap<StreamKey, OnAsk, FxBuildHasher>>);

impl Asks {
    /// Tells a stream. One that has ended needs to hear nothing.
    pub(super) fn tell(&self, stream: StreamKey, asked: Asked) {
        let on_ask = self.0.lock().get(&stream).cloned();
        if let Some(on_ask) = on_ask {
            on_ask(asked);
        }
    }
}

/// A stream listens for as long as this lives.
pub(crate) struct Listening {
    host: Arc<PipelineHost>,
    stream: StreamKey,
    on_ask: OnAsk,
}

impl Listening {
    /// Its client says this of its link.
    pub(crate) fn reports(&self, link: UplinkReport) {
        self.host.tell(Event::Uplink(self.stream, link));
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut asks = self.host.asks.0.lock();
        // A later call of the connection may have the key by now.
        if (asks.get(&self.stream)).is_some_and(|on_ask| Arc::ptr_eq(on_ask, &self.on_ask)) {
            asks.swap_remove(&self.stream);
        }
    }
}

impl PipelineHost {
    /// `on_ask` is told what the frames of that stream should be like, when that changes.
    pub(crate) fn listen(self: &Arc<Self>, stream: StreamKey, on_ask: OnAsk) -> Listening {
        self.asks.0.lock().insert(stream, on_ask.clone());
        Listening {
            host: self.clone(),
            stream,
            on_ask,
        }
    }
}
