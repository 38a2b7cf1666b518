//! Requests whose execution time depends on their content.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::distribution::BatchTime;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::schedule::Application;
use spillgate_worker_policy::schedule::SchedulerConfig;

/// The content of requests, and the modules whose time depends on it.
#[derive(Clone, Debug)]
pub struct DynamicWork {
    /// Application and length in milliseconds of each request, in order of arrival.
    pub requests: Arc<[(Application, f64)]>,
    /// Names of the applications, by ordinal.
    pub names: Vec<String>,
    /// The same of earlier requests: they fill the distributions before the start.
    pub history: Arc<[(Application, f64)]>,
    /// Whether finished requests run again on devices without work, so that distributions are learnt while it runs.
    pub reruns: bool,
    /// By module; `None` for modules that take the time of the profile.
    pub modules: Vec<Option<DynamicModule>>,
}

/// A module whose time depends on the content of requests.
#[derive(Clone, Debug)]
pub struct DynamicModule {
    /// Time of a batch from the lengths of its members.
    pub time: BatchTime,
    /// Its scheduler.
    pub schedule: SchedulerConfig,
}

impl DynamicWork {
    /// The application of a request.
    pub(super) fn application(&self, request: usize) -> Application {
        self.requests[request].0
    }

    /// How long a batch of these requests takes at that module, if that depends on them.
    pub(super) fn execution(
        &self,
        module: ModuleId,
        requests: impl ExactSizeIterator<Item = usize>,
    ) -> Option<Duration> {
        let module = self.modules[module.idx()].as_ref()?;
        let n = requests.len() as u32;
        // Requests that a rogue invents bring nothing.
        let lengths = requests.map(|i| self.requests.get(i).map_or(0.0, |(_, length)| *length));
        let (longest, sum) = lengths.fold((0.0f64, 0.0), |(longest, sum), length| {
            (longest.max(length), sum + length)
        });
        let ms = module.time.ms(n, longest, sum);
        Some(Duration::from_nanos((ms * 1e6).round() as u64))
    }
}
