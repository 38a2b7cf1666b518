//! The three ways to form a batch.

use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::policy::recipe::Bind;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::time::Timestamp;

use super::BrokerConfig;
use super::ahead::Ahead;
use super::late::Late;
use super::scheduled::Scheduled;

/// How a broker forms its batches.
pub(super) enum Formation<T> {
    /// A batch ahead.
    Ahead(Ahead<T>),
    /// When the device is about to be free.
    Late(Late),
    /// By a batch scheduler, when the device is about to be free.
    Scheduled(Box<Scheduled<T>>),
}

impl<T> Formation<T> {
    /// The way that the configuration asks for. `static` forms batches as planned, as any module without a scheduler.
    pub(super) fn new(config: &BrokerConfig) -> Self {
        let schedule = config.schedule.as_ref();
        match schedule.filter(|s| s.policy != SchedulePolicy::STATIC) {
            Some(schedule) => Formation::Scheduled(Box::new(Scheduled::new(schedule.clone()))),
            None if config.recipe.bind == Bind::Late => Formation::Late(Late::new()),
            None => Formation::Ahead(Ahead::new()),
        }
    }

    /// Requests that it holds, which are not in the queue.
    pub(super) fn len(&self) -> usize {
        match self {
            Formation::Ahead(ahead) => ahead.len(),
            Formation::Late(_) => 0,
            Formation::Scheduled(scheduled) => scheduled.len(),
        }
    }

    /// The requests that it holds.
    pub(super) fn ids(&self) -> Vec<RequestId> {
        match self {
            Formation::Ahead(ahead) => ahead.ids(),
            Formation::Late(_) => Vec::new(),
            Formation::Scheduled(scheduled) => scheduled.ids(),
        }
    }

    /// The same, whole.
    pub(super) fn requests(&self) -> Vec<&Request> {
        match self {
            Formation::Ahead(ahead) => ahead.requests().collect(),
            Formation::Late(_) => Vec::new(),
            Formation::Scheduled(scheduled) => scheduled.requests().collect(),
        }
    }

    /// Whether it holds that request.
    pub(super) fn holds(&self, id: RequestId) -> bool {
        match self {
            Formation::Ahead(ahead) => ahead.holds(id),
            Formation::Late(_) => false,
            Formation::Scheduled(scheduled) => scheduled.holds(id),
        }
    }

    /// The earliest deadline of the requests that it holds: module deadlines at a scheduler.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        match self {
            Formation::Ahead(ahead) => ahead.first_deadline(),
            Formation::Late(_) => None,
            Formation::Scheduled(scheduled) => scheduled.scheduler.next_expiry(),
        }
    }

    /// Takes out one request that it holds.
    pub(super) fn take(&mut self, id: RequestId) -> Option<(Request, T)> {
        match self {
            Formation::Ahead(ahead) => ahead.take(id).map(|m| (m.request, m.payload)),
            Formation::Late(_) => None,
            Formation::Scheduled(scheduled) => scheduled.take(id).map(|w| (w.request, w.payload)),
        }
    }

    /// Takes out some request that a scheduler holds, and when it came; `None` when there is none.
    pub(super) fn take_waiting(&mut self) -> Option<(RequestId, Timestamp)> {
        match self {
            Formation::Ahead(_) | Formation::Late(_) => None,
            Formation::Scheduled(scheduled) => {
                let waiting = scheduled.take_any()?;
                Some((waiting.request.id, waiting.arrived_at))
            }
        }
    }

    /// Takes out all requests that it holds.
    pub(super) fn take_all(&mut self) -> Vec<(Request, T)> {
        match self {
            Formation::Ahead(ahead) => {
                let members = ahead.take_all().into_iter();
                members.map(|m| (m.request, m.payload)).collect()
            }
            Formation::Late(_) => Vec::new(),
            Formation::Scheduled(scheduled) => {
                let all = std::iter::from_fn(|| scheduled.take_any());
                all.map(|w| (w.request, w.payload)).collect()
            }
        }
    }
}
