//! The gateways that a fleet knows, and what all of them hear: that its process is about to end.

use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::message::ToGateway;

use super::{Fleet, FleetCommand};

#[derive(Debug, Default)]
pub(super) struct Homes {
    there: Vec<GatewayId>,
    is_leaving: bool,
}

impl Homes {
    pub(super) fn lose(&mut self, home: GatewayId) {
        self.there.retain(|h| *h != home);
    }
}

impl<T: Clone> Fleet<T> {
    /// A gateway greets. It hears at once if nothing more is to come here.
    pub(super) fn greeted(&mut self, home: GatewayId, out: &mut Vec<FleetCommand<T>>) {
        if self.homes.there.contains(&home) {
            return;
        }
        self.homes.there.push(home);
        if self.homes.is_leaving {
            self.say_leave(home, out);
        }
    }

    /// The process is about to end: gateways send nothing more, and what is here is served.
    pub(super) fn leave(&mut self, out: &mut Vec<FleetCommand<T>>) {
        if std::mem::replace(&mut self.homes.is_leaving, true) {
            return;
        }
        for &home in &self.homes.there {
            self.say_leave(home, out);
        }
    }

    fn say_leave(&self, home: GatewayId, out: &mut Vec<FleetCommand<T>>) {
        let leaves = |&worker: &_| FleetCommand::Tell {
            worker,
            home,
            message: ToGateway::Leaves(worker),
        };
        out.extend(self.workers.keys().map(leaves));
    }
}
