//! `up --scale`: as many workers of each module as its controller wants.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use spillgate_telemetry::logging::{complain, say};
use tokio::task::JoinHandle;

use super::child::Child;
use super::folder::Folder;
use super::{PROCESSES_MAX, Plan, Served};
use crate::commands::status;
use crate::status::Status;

/// How often the controller is asked.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The workers of a module that follow the load.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    /// The position of its pipeline, and its name.
    pub(super) pipeline: (usize, String),
    pub(super) module: String,
    /// What its processes are called, but for the number at the end.
    pub(super) prefix: String,
    /// The flag that says how much memory the device of a worker has for weights.
    pub(super) memory: Option<String>,
}

/// Asks the controller, and has workers start and end.
pub(super) struct Scaling {
    plan: Plan,
    served: Vec<Served>,
    folder: Rc<Folder>,
    /// The controller's admin port.
    admin: SocketAddr,
    asked_at: Instant,
    asking: Option<JoinHandle<anyhow::Result<Status>>>,
}

impl Scaling {
    pub(super) fn new(
        plan: Plan,
        served: Vec<Served>,
        folder: &Rc<Folder>,
        admin: SocketAddr,
    ) -> Self {
        Scaling {
            plan,
            served,
            folder: folder.clone(),
            admin,
            asked_at: Instant::now(),
            asking: None,
        }
    }

    /// Asks the controller when it is time, and does what it said. While it does not answer nothing changes.
    pub(super) async fn look(&mut self, children: &mut Vec<Child>) {
        match self.asking.take_if(|asking| asking.is_finished()) {
            Some(asked) => {
                if let Ok(Ok(status)) = asked.await {
                    self.follow(&status, children);
                }
            }
            None if self.asking.is_none() && self.asked_at.elapsed() >= ASK_INTERVAL => {
                self.asked_at = Instant::now();
                let admin = self.admin.to_string();
                let ask = move || status::of(&admin);
                self.asking = Some(tokio::task::spawn_blocking(ask));
            }
            None => {}
        }
    }

    fn follow(&mut self, status: &Status, children: &mut Vec<Child>) {
        for of in self.plan.scaled.clone() {
            let mut pipelines = status.pipelines.iter();
            let pipeline = pipelines.find(|p| p.name == of.pipeline.1);
            let module = pipeline.and_then(|p| p.modules.iter().find(|m| m.name == of.module));
            let scaling = module.and_then(|m| m.scaling.as_ref());
            // A fixed number is what --workers says.
            let Some(scaling) = scaling.filter(|scaling| !scaling.is_fixed) else {
                continue;
            };
            let wanted = (scaling.wanted as usize).clamp(1, PROCESSES_MAX);
            let serving = |c: &&mut Child| c.serves(&of) && !c.is_away();
            let n = children.iter_mut().filter(|c| serving(c)).count();
            if n == wanted {
                continue;
            }
            say(&format!(
                "{}: {n} workers, {wanted} wanted: {}",
                of.module, scaling.reason
            ));
            for child in children
                .iter_mut()
                .rev()
                .filter(serving)
                .take(n.saturating_sub(wanted))
            {
                child.retire();
            }
            for _ in n..wanted {
                if let Err(error) = self.one_more(&of, children) {
                    complain(&format!("{}: no further worker: {error:#}", of.module));
                    break;
                }
            }
        }
    }

    /// One that was retired, or one that is new.
    fn one_more(&mut self, of: &Scaled, children: &mut Vec<Child>) -> anyhow::Result<()> {
        if let Some(retired) = children.iter_mut().find(|c| c.serves(of) && c.is_retired()) {
            retired.start_again();
            return Ok(());
        }
        let number = children.iter().filter(|c| c.serves(of)).count();
        let worker = self.plan.worker(of, number)?;
        children.push(Child::new(worker, &self.plan, &self.served, &self.folder));
        Ok(())
    }
}
