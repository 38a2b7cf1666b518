//! Fair shares beside other gateways: each second this gateway tells the controller of the source what its clients asked
//! for, and gets its part of what they share.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Message, ModulePlan, Portion, ToController};

use super::{Command, Gateway};
use crate::shares::Party;

/// Reports are sent this often while clients ask.
const PERIOD: Duration = Duration::from_secs(1);
/// A portion counts for so long. Then the gateway's part follows what is offered to it ([`super::ModulePlan::part`]).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3);

/// When to tell, and what was heard last.
#[derive(Debug)]
pub(super) struct Exchange {
    /// There are other gateways.
    has_others: bool,
    /// When the period of the next report began.
    since: Timestamp,
    reports_at: Option<Timestamp>,
    portion_at: Option<Timestamp>,
    /// The part of all requests that a controller said that knows the gateways.
    part: Option<f64>,
}

impl Exchange {
    /// Nothing has been heard of other gateways.
    pub(super) fn new(born: Timestamp) -> Self {
        Exchange {
            has_others: false,
            since: born,
            reports_at: None,
            portion_at: None,
            part: None,
        }
    }

    /// A client asks. After a silence a period begins: a report of its first request would say that hardly any come here.
    pub(super) fn asked(&mut self, now: Timestamp, party: &Party) {
        if !self.has_others || party.client == Party::ONLY.client || self.reports_at.is_some() {
            return;
        }
        if now >= self.since + PERIOD {
            self.since = now;
        }
        self.reports_at = Some(self.since + PERIOD);
    }

    /// When a report is due.
    pub(super) fn reports_at(&self) -> Option<Timestamp> {
        self.reports_at
    }

    fn part_that_counts(&mut self, plan: &ModulePlan) -> f64 {
        if plan.knows_gateways {
            self.part = Some(plan.part);
        }
        self.part.unwrap_or(plan.part)
    }

    fn is_portion_known(&self, now: Timestamp) -> bool {
        self.portion_at
            .is_some_and(|at| now.since(at) < FORGOTTEN_AFTER)
    }
}

impl<P, L: Clone> Gateway<P, L> {
    /// Tells what the clients asked for, if it is time.
    pub(super) fn report_clients(&mut self, now: Timestamp, out: &mut Vec<Command<P, L>>) {
        if self.exchange.reports_at.is_none_or(|at| at > now) {
            return;
        }
        let period = now.since(self.exchange.since).max(PERIOD);
        self.exchange.reports_at = None;
        self.exchange.since = now;
        if let Some(report) = self.ledger.report_clients(period) {
            let to = Address::Controller(ModuleId::SOURCE);
            let message = ToController::Clients(Box::new(report));
            self.send(to, Message::Controller(message), out);
        }
    }

    /// A controller says which part of all requests this gateway accepts. One that has just begun knows the gateways that have
    /// greeted it, and takes this one for the only one at first: what was said before counts more. Returns the part that counts.
    pub(super) fn hear_part(&mut self, now: Timestamp, plan: &ModulePlan) -> f64 {
        let part = self.exchange.part_that_counts(plan);
        self.exchange.has_others = part < 1.0;
        self.ledger.divide_limits(part);
        if self.exchange.has_others && self.exchange.is_portion_known(now) {
            return part;
        }
        if self.exchange.portion_at.take().is_some() {
            self.ledger.divide(now, None);
        }
        self.ledger.set_part(now, part);
        part
    }

    /// The controller of the source says what is for this gateway of what all clients share.
    pub(super) fn hear_portion(&mut self, now: Timestamp, portion: &Portion) {
        if self.exchange.has_others {
            self.exchange.portion_at = Some(now);
            self.ledger.divide(now, Some(portion));
        }
    }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::clients::ClientKey;
    use spillgate_pipeline::policy::Guidance;
    use spillgate_protocol::message::BatchShape;

    use super::*;

    /// With a part of 1 each of four gateways let pass what all workers can serve.
    #[test]
    fn a_new_controller_takes_no_gateway_for_the_only_one_where_others_know_more() {
        let plan = |part, knows_gateways| ModulePlan {
            shape: BatchShape {
                size: 1,
                execution: Duration::ZERO,
            },
            admits: 1.0,
            backlog_check: None,
            part,
            knows_gateways,
            guidance: Guidance::NONE,
        };
        let mut exchange = Exchange::new(Timestamp::ZERO);
        let mut counts = |part, knows| exchange.part_that_counts(&plan(part, knows));
        assert_eq!(counts(1.0, false), 1.0, "nobody knows more");
        assert_eq!(counts(0.5, false), 0.5);
        assert_eq!(counts(0.25, true), 0.25);
        assert_eq!(counts(1.0, false), 0.25);
        assert_eq!(counts(0.3, true), 0.3);
    }

    #[test]
    fn only_clients_beside_other_gateways_are_reported() {
        let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
        let named = Party {
            client: ClientKey(7),
            ..Party::ONLY
        };
        let mut exchange = Exchange::new(at(0));
        exchange.asked(at(10), &named);
        assert_eq!(exchange.reports_at(), None, "it is the only gateway");
        exchange.has_others = true;
        exchange.asked(at(10), &Party::ONLY);
        assert_eq!(exchange.reports_at(), None, "clients are not told apart");
        exchange.asked(at(20), &named);
        exchange.asked(at(30), &named);
        assert_eq!(exchange.reports_at(), Some(at(1000)));
        let mut late = Exchange::new(at(0));
        late.has_others = true;
        late.asked(at(5000), &named);
        assert_eq!(late.reports_at(), Some(at(6000)), "after a silence");
    }
}
