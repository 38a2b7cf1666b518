//! Messages for each role.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use spillgate_link::wire::{ItemOutputs, Parcel};
use spillgate_picture::Damage;
use spillgate_pipeline::family::MEMBERS_MAX;
use spillgate_pipeline::id::{BatchId, ClientId, Incarnation, MemberId, VariantId};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, ModuleTimes, Request};
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_pipeline::time::Budget;
use spillgate_protocol::message::{
    Answer, Arrival, Ask, BatchReport, Fault, Filled, Finished, Lent, Returned, Started,
    ToController, ToDevice, ToGateway,
};
use spillgate_protocol::values::Ports;

use super::policy::{clients, demand, guidance, order, plan, portion, state};
use super::values::{outputs, parcel};
use super::{module, request_id, span, text, time, worker};

pub(super) fn to_gateway() -> impl Strategy<Value = (ToGateway, Vec<ItemOutputs>)> {
    let others = prop_oneof![
        started().prop_map(ToGateway::Started),
        (worker(), request_id(), ".{0,20}").prop_map(|(worker, request, why)| {
            ToGateway::Failed {
                worker,
                request,
                why,
            }
        }),
        (worker(), request_id(), drop()).prop_map(|(worker, request, drop)| {
            let drop = Box::new(drop);
            ToGateway::Dropped {
                worker,
                request,
                drop,
            }
        }),
        (worker(), request_id())
            .prop_map(|(worker, request)| ToGateway::Forgotten { worker, request }),
        ask().prop_map(ToGateway::Ask),
        (worker(), any::<u64>()).prop_map(|(worker, ask)| ToGateway::Withdrawn(worker, ask)),
        returned().prop_map(ToGateway::Returned),
        worker().prop_map(ToGateway::Leaves),
        (worker(), holds()).prop_map(|(worker, models)| ToGateway::Holds(worker, models)),
        (module(), plan()).prop_map(|(module, plan)| ToGateway::Plan(module, Box::new(plan))),
        state().prop_map(|state| ToGateway::State(Arc::new(state))),
        portion().prop_map(|portion| ToGateway::Clients(Box::new(portion))),
        worker().prop_map(ToGateway::Serve),
        worker().prop_map(ToGateway::Retire),
        worker().prop_map(ToGateway::Try),
    ];
    prop_oneof![
        2 => finished(),
        10 => others.prop_map(|message| (message, Vec::new())),
    ]
}

fn started() -> impl Strategy<Value = Started> {
    (worker(), any::<u64>(), 0..=BATCH_MAX, time()).prop_map(|(worker, batch, size, end)| Started {
        worker,
        batch: BatchId(batch),
        size: size as usize,
        expected_end: end,
    })
}

fn finished() -> impl Strategy<Value = (ToGateway, Vec<ItemOutputs>)> {
    let batch = (any::<u64>(), 0..=BATCH_MAX);
    (worker(), batch, span(), vec(member(), 0..4)).prop_map(|(worker, batch, took, all)| {
        let (members, brought) = all.into_iter().unzip();
        let message = ToGateway::Finished {
            worker,
            batch: BatchId(batch.0),
            took,
            size: batch.1,
            members,
        };
        (message, brought)
    })
}

fn member() -> impl Strategy<Value = (Finished, ItemOutputs)> {
    let result = prop_oneof![
        (any::<u64>(), outputs()).prop_map(|(bits, out)| (Ok(Filled::from_bits(bits)), Some(out))),
        text().prop_map(|text| (Err(Fault::Module(text)), None)),
        text().prop_map(|text| (Err(Fault::Memory(text)), None)),
    ];
    let kept = any::<u64>().prop_map(Ports::from_bits);
    let damage = (0..5u32).prop_map(Damage::of_number);
    let all = (request_id(), times(), result, kept, damage);
    all.prop_map(|(request, times, (result, outputs), kept, damage)| {
        let brought = ItemOutputs {
            times,
            outputs,
            kept,
            damage,
        };
        (Finished { request, result }, brought)
    })
}

prop_compose! {
    fn times()(
        module in module(),
        worker in worker(),
        at in (time(), time(), time(), time()),
        batch in any::<u64>(),
        batch_size in 0..=BATCH_MAX,
    ) -> ModuleTimes {
        ModuleTimes {
            module,
            worker,
            arrived_at: at.0,
            batched_at: at.1,
            started_at: at.2,
            ended_at: at.3,
            batch: BatchId(batch),
            batch_size,
            load: None,
            incarnation: Incarnation::default(),
        }
    }
}

fn reason() -> impl Strategy<Value = DropReason> {
    select(DropReason::ALL.to_vec())
}

prop_compose! {
    fn drop()(
        module in module(),
        reason in reason(),
        at in time(),
        budget in any::<i64>(),
        estimate in option::of((span(), span(), span())),
    ) -> Drop {
        Drop {
            module,
            reason,
            at,
            budget: Budget::from_ns(budget),
            estimate: estimate.map(|(wait, execution, downstream)| Estimate {
                wait,
                execution,
                downstream,
            }),
        }
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    let counts = any::<(u64, u32, u32)>();
    (worker(), counts, time(), option::of(time())).prop_map(
        |(worker, (serial, most, elsewhere), starts_at, until)| Ask {
            worker,
            serial,
            most,
            elsewhere,
            starts_at,
            until,
        },
    )
}

/// Models that are there come first in a message.
fn holds() -> impl Strategy<Value = Vec<(MemberId, bool)>> {
    let model = (any::<u16>().prop_map(MemberId), any::<bool>());
    vec(model, 0..4).prop_map(|mut models| {
        models.sort_by_key(|(_, is_there)| !is_there);
        models
    })
}

fn returned() -> impl Strategy<Value = Returned> {
    let requests = vec((request_id(), time()), 0..4);
    (worker(), any::<(u64, u32)>(), requests).prop_map(|(worker, (serial, elsewhere), requests)| {
        Returned {
            worker,
            serial,
            elsewhere,
            requests,
        }
    })
}

pub(super) fn to_controller() -> impl Strategy<Value = ToController> {
    prop_oneof![
        demand().prop_map(|demand| ToController::Demand(Box::new(demand))),
        clients().prop_map(|report| ToController::Clients(Box::new(report))),
        report().prop_map(ToController::Report),
        (worker(), any::<bool>()).prop_map(|(worker, ready)| ToController::Loaded(worker, ready)),
        state().prop_map(|state| ToController::Peer(Arc::new(state))),
    ]
}

fn report() -> impl Strategy<Value = BatchReport> {
    let members = vec((time(), time()), 0..4);
    let of = (worker(), any::<u16>());
    (of, time(), time(), members).prop_map(|((worker, variant), started_at, ended_at, members)| {
        BatchReport {
            worker,
            variant: VariantId(variant),
            started_at,
            ended_at,
            size: members.len() as u32,
            members,
        }
    })
}

pub(super) fn to_device() -> impl Strategy<Value = ToDevice<Parcel>> {
    prop_oneof![
        6 => requests(),
        1 => (worker(), request_id()).prop_map(|(worker, id)| ToDevice::Cancel(worker, id)),
        1 => (worker(), request_id(), reason())
            .prop_map(|(worker, id, reason)| ToDevice::Withdraw(worker, id, reason)),
        1 => application().prop_map(ToDevice::Reassigned),
        1 => (worker(), guidance()).prop_map(|(worker, told)| ToDevice::Guide(worker, told)),
        1 => worker().prop_map(ToDevice::Load),
        1 => worker().prop_map(ToDevice::Unload),
    ]
}

/// Those that bring requests.
pub(super) fn requests() -> impl Strategy<Value = ToDevice<Parcel>> {
    prop_oneof![
        vec(arrival(), 0..4).prop_map(ToDevice::Requests),
        answer().prop_map(ToDevice::Answer),
    ]
}

fn application() -> impl Strategy<Value = Application> {
    (0..APPLICATIONS_MAX as u16).prop_map(Application)
}

prop_compose! {
    fn request()(
        id in request_id(),
        sent_at in time(),
        deadline in time(),
        application in application(),
        others in any::<(u32, u32, u8, bool)>(),
        member in 0..MEMBERS_MAX as u16,
        (variant, batch_most) in any::<(u16, u16)>(),
    ) -> Request {
        let (client, decoding_us, rank, background) = others;
        Request {
            id,
            sent_at,
            deadline,
            application,
            client: ClientId(client),
            decoding_us,
            rank,
            member: MemberId(member),
            variant: VariantId(variant),
            batch_most,
            background,
        }
    }
}

fn arrival() -> impl Strategy<Value = Arrival<Parcel>> {
    (worker(), request(), parcel()).prop_map(|(worker, request, payload)| Arrival {
        worker,
        request,
        payload,
    })
}

fn lent() -> impl Strategy<Value = Lent<Parcel>> {
    (request(), time(), parcel()).prop_map(|(request, since, payload)| Lent {
        request,
        since,
        payload,
    })
}

fn answer() -> impl Strategy<Value = Answer<Parcel>> {
    let counts = any::<(u64, u32)>();
    (worker(), counts, order(), vec(lent(), 0..3)).prop_map(
        |(worker, (serial, waiting), order, requests)| Answer {
            worker,
            serial,
            order,
            waiting,
            requests,
        },
    )
}
