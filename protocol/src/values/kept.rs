//! What a process keeps for the requests of gateways.

use std::collections::BTreeMap;

use spillgate_pipeline::id::{GatewayId, RequestId};
use spillgate_pipeline::pipeline::PortRef;

/// Bounds of what a process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptLimits {
    /// Bytes of all values.
    pub bytes: u64,
    /// Requests of one gateway. One more, and the one with the lowest id is forgotten: it was admitted first.
    pub requests: usize,
}

#[derive(Debug)]
struct Entry<V> {
    port: PortRef,
    value: V,
    bytes: u64,
}

/// What is kept for a gateway.
#[derive(Debug)]
struct GatewayValues<V> {
    id: GatewayId,
    /// In the order in which the gateway admitted them.
    requests: BTreeMap<RequestId, Vec<Entry<V>>>,
    bytes: u64,
}

/// What a process keeps for the requests of gateways. A request is opened by its gateway, and kept for until the gateway says that
/// it has ended, or is lost.
///
/// Where the values of all exceed their bound, they are given up: of the gateway that has the most bytes, those of the request that
/// it admitted last, and so on. A gateway that never says that a request has ended loses its own values. Of one that does, the
/// requests that were admitted first are the next to be served.
#[derive(Debug)]
pub struct KeptValues<V> {
    limits: KeptLimits,
    gateways: Vec<GatewayValues<V>>,
    bytes: u64,
}

impl<V> KeptValues<V> {
    /// Nothing yet.
    pub fn new(limits: KeptLimits) -> Self {
        KeptValues {
            limits,
            gateways: Vec::new(),
            bytes: 0,
        }
    }

    /// Values of this request are to be kept from now on. Returns what is given up for it.
    #[must_use]
    pub fn open(&mut self, request: RequestId) -> Vec<V> {
        let most = self.limits.requests;
        let gateway = self.gateway_or_new(request.owner());
        gateway.requests.entry(request).or_default();
        if gateway.requests.len() <= most {
            return Vec::new();
        }
        let given_up = gateway.requests.pop_first().map(|(_, entries)| entries);
        self.count_out(request.owner(), given_up)
    }

    /// Keeps a value of a request, unless that is not open, or has the value, or the value alone exceeds the bound. Returns what
    /// is given up for it; that may be the value itself.
    ///
    /// # Errors
    /// The value, where it is not kept.
    pub fn put(
        &mut self,
        request: RequestId,
        port: PortRef,
        value: V,
        bytes: u64,
    ) -> Result<Vec<V>, V> {
        if bytes > self.limits.bytes || !self.is_open(request) || self.get(request, port).is_some()
        {
            return Err(value);
        }
        let gateway = self.gateway_or_new(request.owner());
        gateway.bytes += bytes;
        let entries = gateway.requests.entry(request).or_default();
        entries.push(Entry { port, value, bytes });
        self.bytes += bytes;
        let mut given_up = Vec::new();
        while self.bytes > self.limits.bytes {
            given_up.extend(self.give_up());
        }
        Ok(given_up)
    }

    /// A value that is kept.
    pub fn get(&self, request: RequestId, port: PortRef) -> Option<&V> {
        let gateway = self.gateways.iter().find(|h| h.id == request.owner())?;
        let mut entries = gateway.requests.get(&request)?.iter();
        Some(&entries.find(|entry| entry.port == port)?.value)
    }

    /// Whether values of the request are to be kept.
    pub fn is_open(&self, request: RequestId) -> bool {
        let gateway = self.gateways.iter().find(|h| h.id == request.owner());
        gateway.is_some_and(|gateway| gateway.requests.contains_key(&request))
    }

    /// Gives up the values of one request: of the gateway that has the most bytes, of the request that it admitted last. The
    /// request stays open. Nothing where nothing is kept.
    #[must_use]
    pub fn give_up(&mut self) -> Vec<V> {
        let most = self.gateways.iter_mut().max_by_key(|gateway| gateway.bytes);
        let Some(gateway) = most else {
            return Vec::new();
        };
        let id = gateway.id;
        let mut with_values = gateway.requests.values_mut().filter(|of| !of.is_empty());
        let given_up = with_values.next_back().map(std::mem::take);
        self.count_out(id, given_up)
    }

    /// The gateway says that a request has ended. Returns what was kept for it.
    #[must_use]
    pub fn ends(&mut self, request: RequestId) -> Vec<V> {
        let gateway = self.gateways.iter_mut().find(|h| h.id == request.owner());
        let Some(gateway) = gateway else {
            return Vec::new();
        };
        let ended = gateway.requests.remove(&request);
        self.count_out(request.owner(), ended)
    }

    /// The gateway is lost, or begins anew. Returns what was kept for it.
    #[must_use]
    pub fn loses(&mut self, gateway: GatewayId) -> Vec<V> {
        let Some(at) = self.gateways.iter().position(|h| h.id == gateway) else {
            return Vec::new();
        };
        let gateway = self.gateways.swap_remove(at);
        self.bytes -= gateway.bytes;
        let entries = gateway.requests.into_values().flatten();
        entries.map(|entry| entry.value).collect()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests that are open.
    pub fn len(&self) -> usize {
        self.gateways
            .iter()
            .map(|gateway| gateway.requests.len())
            .sum()
    }

    /// Whether no request is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn gateway_or_new(&mut self, id: GatewayId) -> &mut GatewayValues<V> {
        let at = self.gateways.iter().position(|h| h.id == id);
        let at = at.unwrap_or_else(|| {
            self.gateways.push(GatewayValues {
                id,
                requests: BTreeMap::new(),
                bytes: 0,
            });
            self.gateways.len() - 1
        });
        &mut self.gateways[at]
    }

    /// Takes entries of a gateway out of the counts, and returns their values.
    fn count_out(&mut self, gateway: GatewayId, entries: Option<Vec<Entry<V>>>) -> Vec<V> {
        let entries = entries.unwrap_or_default();
        let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        self.bytes -= bytes;
        if let Some(gateway) = self.gateways.iter_mut().find(|h| h.id == gateway) {
            gateway.bytes -= bytes;
        }
        entries.into_iter().map(|entry| entry.value).collect()
    }
}
