//! What links say of revisions: what is published, and what the revisions of this process do.

use std::sync::Arc;

use spillgate_protocol::publication::Publication;
use spillgate_protocol::session::Greeting;

use super::{PeerLinks, PeerRoles};
use crate::outlet::Outlet;
use crate::revisions::publishes;
use crate::wire::Packet;

impl PeerLinks {
    /// Tells a peer that is met what it is to serve: another publication may count since the greeting.
    pub(super) fn say_latest(&self, outlet: &Outlet) {
        let me = self.greeting(self.config.me.clone());
        if let Some(published) = &me.published {
            let _ = outlet.put(&Packet::Published(published.clone()));
        }
    }

    /// Tells a peer what the revisions of the pipeline do here.
    pub(super) fn report_to(&self, peer: &PeerRoles, outlet: &Outlet) {
        let revisions = self.config.revisions.as_ref();
        if let Some(of) = revisions.filter(|_| publishes(peer.member())) {
            let reports = of.reports(&self.config.me.pipeline);
            let _ = outlet.put(&Packet::Revisions(reports));
        }
    }

    /// Tells the gateways and controllers that are met what the revisions of the pipeline do here.
    pub fn report(&self) {
        for known in &self.peers.read().known {
            self.report_to(&known.roles, &known.way.outlet);
        }
    }

    /// Tells all that are met what they are to serve.
    pub fn say_published(&self, published: &Arc<Publication>) {
        if !publishes(&self.config.me.member) {
            return;
        }
        for known in &self.peers.read().known {
            let _ = known.way.outlet.put(&Packet::Published(published.clone()));
        }
    }

    /// The greeting of this process, with what it says is published, if it may say so.
    pub(crate) fn greeting(&self, me: Arc<Greeting>) -> Arc<Greeting> {
        let revisions = self.config.revisions.as_ref();
        let revisions = revisions.filter(|_| publishes(&me.member));
        match revisions.and_then(|revisions| revisions.published(&me.pipeline)) {
            None => me,
            published => Arc::new(Greeting {
                published,
                ..Greeting::clone(&me)
            }),
        }
    }

    /// How many gateways of other processes are met.
    pub fn gateways(&self) -> usize {
        let peers = self.peers.read();
        let gateways = peers.known.iter().filter(|of| of.roles.member().is_gateway);
        gateways.count()
    }
}
