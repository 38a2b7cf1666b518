//! Values on their way between this process and others: they are packed into what travels, and unpacked into what a worker or a
//! gateway holds. [`Uses`] says which travel and which are kept, [`KnownValues`] and [`KeptValues`] who has which. The account of bytes says
//! what finds room.

mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::ItemOutputs;
use spillgate_link::wire::{self, Carried, Parcel};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{GatewayId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::pipeline::PortRef;
use spillgate_pipeline::request::Request;
use spillgate_process::account::{Account, Full, Holder, Lease};
use spillgate_process::job::{Job, are_outputs_of};
use spillgate_process::value::{Outputs, Value};
use spillgate_protocol::message::{Envelope, Message, Place, ToGateway};
use spillgate_protocol::values::{
    KeptLimits, KeptValues, KnownValues, LARGE_BYTES, Peer, Ports, Uses,
};
use spillgate_telemetry::metrics::ValuesReading;

use workers::{KnownWorker, KnownWorkers};

/// Values that are kept may hold this part of `--memory`: the rest is for requests that wait and run.
pub(crate) const KEPT_PART: u64 = 4;
/// Requests of one gateway for which values are kept.
pub(crate) const KEPT_REQUESTS_MAX: usize = 8192;

/// A value that is kept, and the bytes that it holds beside a payload.
struct KeptValue {
    value: Value,
    _lease: Option<Lease>,
}

/// A value that came.
enum Received {
    New(Value),
    /// It was kept here.
    Kept(Value),
    Unused,
}

/// What a request brought, with what was kept for it.
struct ReceivedRequest {
    frame: Option<Frame>,
    outputs: Vec<(ModuleId, Vec<Received>)>,
    keep: bool,
    is_traced: bool,
}

/// Requests that came from a gateway of another process.
pub(crate) struct Unpacked {
    /// Those that found room.
    pub(crate) envelope: Envelope<Arc<Job>>,
    /// The others.
    pub(crate) refused: Vec<(WorkerId, Request)>,
}

#[derive(Default)]
struct Counts {
    references: AtomicU64,
    given_back: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    fn add(count: &AtomicU64, n: usize) {
        count.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// The values of a pipeline that this process and others exchange.
pub(crate) struct Values {
    pipeline: Arc<Pipeline>,
    uses: Uses,
    workers: KnownWorkers,
    /// What other processes keep for the gateway of this one.
    known: Mutex<KnownValues>,
    /// What this process keeps for gateways of others.
    kept: Mutex<KeptValues<KeptValue>>,
    account: Arc<Account>,
    /// Of what gateways of other processes sent.
    holders: Mutex<IndexMap<GatewayId, Arc<Holder>, FxBuildHasher>>,
    counts: Counts,
}

impl Values {
    /// `own`: the workers of this process. `account`: of what other processes send.
    pub(crate) fn new(pipeline: Arc<Pipeline>, own: &[Place], account: Arc<Account>) -> Self {
        let limits = KeptLimits {
            bytes: account.budget() / KEPT_PART,
            requests: KEPT_REQUESTS_MAX,
        };
        let workers = KnownWorkers::default();
        workers.join(own);
        Values {
            uses: Uses::of(&pipeline),
            pipeline,
            workers,
            known: Mutex::default(),
            kept: Mutex::new(KeptValues::new(limits)),
            account,
            holders: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// Another process has these workers.
    pub(crate) fn join(&self, places: &[Place]) {
        self.workers.join(places);
    }

    /// The process of these workers has left, and its gateway if it had one. Their ids may be given to others from now on.
    pub(crate) fn forget(&self, places: &[Place], gateway: Option<GatewayId>) {
        self.workers.forget(places);
        if let Some(gateway) = gateway {
            self.loses(gateway);
            self.holders.lock().swap_remove(&gateway);
        }
    }

    /// What is read at a scrape.
    pub(crate) fn reading(&self) -> ValuesReading {
        let kept = self.kept.lock();
        let (kept_bytes, kept_requests) = (kept.bytes(), kept.len());
        drop(kept);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ValuesReading {
            kept_bytes,
            kept_requests,
            known_requests: self.known.lock().len(),
            held: self.account.held(),
            budget: self.account.budget(),
            references: read(&self.counts.references),
            given_back: read(&self.counts.given_back),
            refused: read(&self.counts.refused),
        }
    }

    // === From a gateway to a worker

    /// What goes to a process, and the requests for which it is to keep values. Once it is written, [`Values::ended_since`] is to
    /// be asked. Requests for workers that have left are left out: their gateway knows it.
    pub(crate) fn pack(
        &self,
        peer: Peer,
        envelope: Envelope<Arc<Job>>,
    ) -> (Envelope<Parcel>, Vec<RequestId>) {
        let mut told = Vec::new();
        let envelope = envelope.filter_map(|worker, request, job| {
            let parcel = self.parcel(peer, worker, request.id, &job)?;
            if parcel.keep {
                told.push(request.id);
            }
            Some(parcel)
        });
        (envelope, told)
    }

    /// `None` where the worker has left.
    fn parcel(
        &self,
        peer: Peer,
        worker: WorkerId,
        request: RequestId,
        job: &Job,
    ) -> Option<Parcel> {
        let worker = self.workers.get(worker)?;
        let inputs = self
            .pipeline
            .modules
            .get(worker.module.idx())?
            .inputs
            .iter();
        let is_worth = |port: &PortRef| {
            let value = job.output(*port);
            value.is_some_and(|value| self.is_worth(*port, value, &worker))
        };
        let is_needed_again = (self.uses).makes_for(worker.module, &worker.beside)
            || inputs.clone().flatten().any(is_worth);
        let mut known = self.known.lock();
        // The end of a request is noted in its job before it is noted here.
        let keep = is_needed_again && !job.has_ended();
        if keep {
            known.tells(request, peer);
        }
        if worker.module == ModuleId::SOURCE {
            return Some(Parcel {
                frame: Some(job.frame().clone()),
                outputs: Vec::new(),
                keep,
                is_traced: job.is_traced(),
            });
        }
        let mut modules: Vec<ModuleId> = inputs.flatten().map(|port| port.module).collect();
        modules.sort_unstable();
        modules.dedup();
        let mut carry = |port: PortRef, value: &Value| {
            if !self.uses.takes(worker.module, port) {
                return Carried::Unused;
            }
            if known.has(request, peer, port) {
                Counts::add(&self.counts.references, 1);
                return Carried::Kept;
            }
            if keep && self.is_worth(port, value, &worker) {
                known.gives(request, peer, port);
            }
            Carried::Value(value.clone())
        };
        let outputs = modules.into_iter().filter_map(|module| {
            let values = (0..).zip(job.outputs(module)?);
            let values = values.map(|(port, value)| carry(PortRef { module, port }, value));
            Some((module, values.collect()))
        });
        Some(Parcel {
            frame: None,
            outputs: outputs.collect(),
            keep,
            is_traced: job.is_traced(),
        })
    }

    /// Whether a process that a value goes to, or is made in, for that worker keeps it.
    fn is_worth(&self, port: PortRef, value: &Value, worker: &KnownWorker) -> bool {
        value.size() >= LARGE_BYTES
            && (self.uses).is_needed_beside(port, worker.module, &worker.beside)
    }

    /// Of the requests that a process was told to keep values of, those that ended before that was written: it is to hear of
    /// their ends behind it.
    pub(crate) fn ended_since(&self, peer: Peer, told: Vec<RequestId>) -> Vec<RequestId> {
        if told.is_empty() {
            return told;
        }
        let known = self.known.lock();
        let ended = told.into_iter().filter(|id| !known.is_told(*id, peer));
        ended.collect()
    }

    /// These requests did not go to a process, or came back from it: it has no values of them.
    pub(crate) fn lacks(&self, peer: Peer, requests: impl Iterator<Item = RequestId>) {
        let mut known = self.known.lock();
        requests.for_each(|request| known.lacks(request, peer));
    }

    /// A request of this process's gateway has ended. Returns the processes that are to hear of it.
    pub(crate) fn ends(&self, request: RequestId) -> Vec<Peer> {
        self.known.lock().ends(request)
    }

    /// The values of requests that came for a worker of this process.
    ///
    /// # Errors
    /// The requests without values, where one of them refers to a value that is not kept here.
    pub(crate) fn unpack(&self, envelope: Envelope<Parcel>) -> Result<Unpacked, Envelope<Parcel>> {
        let mut lacks = false;
        let envelope = envelope.map(|worker, request, parcel| {
            let whole = self.complete(worker, request.id, parcel);
            lacks |= whole.is_none();
            whole
        });
        if lacks {
            Counts::add(&self.counts.given_back, 1);
            return Err(envelope.map(|_, _, _| Parcel::default()));
        }
        let mut refused = Vec::new();
        let envelope = envelope.filter_map(|worker, request, whole| {
            let job = self.job(worker, request.id, whole?);
            if job.is_err() {
                refused.push((worker, *request));
            }
            job.ok()
        });
        Counts::add(&self.counts.refused, refused.len());
        Ok(Unpacked { envelope, refused })
    }

    /// Adds what is kept here; `None` where something is not.
    fn complete(
        &self,
        worker: WorkerId,
        request: RequestId,
        parcel: Parcel,
    ) -> Option<ReceivedRequest> {
        let module = self.workers.module_of(worker)?;
        let Parcel {
            frame,
            outputs,
            keep,
            is_traced,
        } = parcel;
        let complete = |(module_of, carried): (ModuleId, Vec<Carried>)| {
            let came = (0..).zip(carried).map(|(port, carried)| {
                let port = PortRef {
                    module: module_of,
                    port,
                };
                Some(match carried {
                    Carried::Value(value) => Received::New(value),
                    Carried::Kept if self.uses.takes(module, port) => {
                        Received::Kept(self.kept.lock().get(request, port)?.value.clone())
                    }
                    Carried::Kept | Carried::Unused => Received::Unused,
                })
            });
            Some((module_of, came.collect::<Option<Vec<Received>>>()?))
        };
        let outputs = outputs.into_iter().map(complete);
        Some(ReceivedRequest {
            frame,
            outputs: outputs.collect::<Option<Vec<_>>>()?,
            keep,
            is_traced,
        })
    }

    /// The values of a request at a worker of this process.
    fn job(
        &self,
        worker: WorkerId,
        request: RequestId,
        whole: ReceivedRequest,
    ) -> Result<Arc<Job>, Full> {
        let ReceivedRequest {
            frame,
            outputs,
            keep,
            is_traced,
        } = whole;
        let holder = self.holder(request.owner());
        let frame = frame.unwrap_or(Frame {
            format: FrameFormat::Bytes,
            data: Bytes::new(),
            width: 0,
            height: 0,
        });
        let came = outputs.iter().flat_map(|(_, came)| came);
        let beside_payloads = came.map(|came| match came {
            Received::New(value) => value.bytes(),
            Received::Kept(_) | Received::Unused => 0,
        });
        let bytes = frame.data.len() as u64 + beside_payloads.sum::<u64>();
        let lease = self.room(|| holder.take(bytes))?;
        let modules = &self.pipeline.modules;
        let job = Job::new(frame, Some(lease), modules.len(), holder.clone()).traced(is_traced);
        let worker = self.workers.get(worker).filter(|_| keep);
        if worker.is_some() {
            let given_up = self.kept.lock().open(request);
            drop(given_up);
        }
        for (module, came) in outputs {
            let Some(of) = modules.get(module.idx()) else {
                continue;
            };
            let mut values = Outputs::with_capacity(of.outputs.len());
            for ((port, came), (_, ty)) in (0..).zip(came).zip(&of.outputs) {
                values.push(match came {
                    Received::New(value) => {
                        let value = self.room(|| value.leased(&holder))?;
                        if let Some(worker) = &worker {
                            self.keep(worker, request, PortRef { module, port }, &value, &holder);
                        }
                        value
                    }
                    Received::Kept(value) => value,
                    Received::Unused => Value::empty(*ty),
                });
            }
            if are_outputs_of(of, &values) {
                job.set_held(module, values);
            }
        }
        Ok(Arc::new(job))
    }

    /// Takes bytes. Values that are kept make room for them, one request after the other.
    fn room<T>(&self, take: impl Fn() -> Result<T, Full>) -> Result<T, Full> {
        loop {
            let full = match take() {
                Ok(taken) => return Ok(taken),
                Err(full) => full,
            };
            let given_up = self.kept.lock().give_up();
            if given_up.is_empty() {
                return Err(full);
            }
        }
    }

    /// Keeps a value whose payload holds its bytes, if it is worth it and finds room. Whether it is kept.
    fn keep(
        &self,
        worker: &KnownWorker,
        request: RequestId,
        port: PortRef,
        value: &Value,
        holder: &Arc<Holder>,
    ) -> bool {
        if !self.is_worth(port, value, worker) {
            return false;
        }
        // Beside its payload it holds as much as at its job, which may end earlier.
        let beside_payload = value.bytes();
        let Ok(lease) = (beside_payload > 0)
            .then(|| holder.take(beside_payload))
            .transpose()
        else {
            return false;
        };
        let held = KeptValue {
            value: value.clone(),
            _lease: lease,
        };
        let mut kept = self.kept.lock();
        let put = kept.put(request, port, held, value.size());
        let is_kept = kept.get(request, port).is_some();
        drop(kept);
        // What is not kept is freed without the lock.
        drop(put);
        is_kept
    }

    fn holder(&self, home: GatewayId) -> Arc<Holder> {
        let mut holders = self.holders.lock();
        let holder = holders.entry(home);
        holder.or_insert_with(|| self.account.holder()).clone()
    }

    /// Gateways of another process say that these requests have ended.
    pub(crate) fn ended(&self, requests: impl Iterator<Item = RequestId>) {
        for request in requests {
            let ended = self.kept.lock().ends(request);
            drop(ended);
        }
    }

    /// A gateway of another process is gone, or begins anew.
    pub(crate) fn loses(&self, home: GatewayId) {
        let lost = self.kept.lock().loses(home);
        drop(lost);
    }

    // === From a worker to a gateway

    /// What members of a batch bring to the gateway of another process. What may be needed here again is kept.
    pub(crate) fn bring(
        &self,
        envelope: &Envelope<Arc<Job>>,
        brought: Vec<ItemOutputs>,
    ) -> Vec<wire::ItemOutputs> {
        let Message::Gateway(ToGateway::Finished {
            worker, members, ..
        }) = &envelope.message
        else {
            return Vec::new();
        };
        let worker = self.workers.get(*worker);
        let each = members.iter().zip(brought).map(|(member, brought)| {
            let mut kept = Ports::default();
            let outputs = worker.as_ref().zip(brought.outputs);
            let outputs = outputs.map(|(worker, outputs)| {
                let carry = |(port, value): (u16, Value)| {
                    let module = worker.module;
                    let is_kept = self.keep_made(worker, member.request, port, &value);
                    if is_kept {
                        kept = kept.with(port);
                    }
                    match self.uses.is_used(PortRef { module, port }) {
                        true => Carried::Value(value),
                        false => Carried::Unused,
                    }
                };
                (0..).zip(outputs).map(carry).collect()
            });
            wire::ItemOutputs {
                times: brought.times,
                outputs,
                kept,
                damage: brought.damage,
            }
        });
        each.collect()
    }

    /// Keeps what a module of this process made, as [`Values::keep`].
    fn keep_made(
        &self,
        worker: &KnownWorker,
        request: RequestId,
        port: u16,
        value: &Value,
    ) -> bool {
        let module = worker.module;
        let port = PortRef { module, port };
        if !self.is_worth(port, value, worker) || !self.kept.lock().is_open(request) {
            return false;
        }
        let holder = self.holder(request.owner());
        // A decoded picture holds its bytes already.
        let held = match module {
            ModuleId::SOURCE => Ok(value.clone()),
            _ => value.leased(&holder),
        };
        held.is_ok_and(|value| self.keep(worker, request, port, &value, &holder))
    }

    /// What members of a batch brought to the gateway of this process.
    pub(crate) fn take(
        &self,
        peer: Peer,
        envelope: &Envelope<Parcel>,
        brought: Vec<wire::ItemOutputs>,
    ) -> Vec<ItemOutputs> {
        let Message::Gateway(ToGateway::Finished {
            worker, members, ..
        }) = &envelope.message
        else {
            return Vec::new();
        };
        let module = self.workers.module_of(*worker);
        let each = members.iter().zip(brought).map(|(member, brought)| {
            let outputs = module
                .zip(brought.outputs)
                .and_then(|(module, carried)| self.outputs(module, carried));
            if let (Some(module), Some(outputs)) = (module, &outputs)
                && brought.kept != Ports::default()
            {
                let mut known = self.known.lock();
                for port in (0..outputs.len() as u16).filter(|port| brought.kept.has(*port)) {
                    known.gives(member.request, peer, PortRef { module, port });
                }
            }
            ItemOutputs {
                times: brought.times,
                outputs,
                damage: brought.damage,
            }
        });
        each.collect()
    }

    /// The outputs of a module; `None` where one is missing that something uses.
    fn outputs(&self, module: ModuleId, carried: Vec<Carried>) -> Option<Outputs> {
        let of = &self.pipeline.modules.get(module.idx())?.outputs;
        let each = (0..).zip(carried).map(|(port, carried)| match carried {
            Carried::Value(value) => Some(value),
            Carried::Unused if !self.uses.is_used(PortRef { module, port }) => {
                Some(Value::empty(of.get(usize::from(port))?.1))
            }
            Carried::Unused | Carried::Kept => None,
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests;
