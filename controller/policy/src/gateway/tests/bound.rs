//! `adapt: jellyfish`: streams are bound to workers.

use std::collections::BTreeSet;

use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::pipeline::Variant;
use spillgate_pipeline::policy::{Adapt, AdaptName};
use spillgate_recipes::drops;

use super::*;
use crate::variant_selector::StreamKey;

/// A request as it was sent: when, of which stream, to which worker.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Timestamp,
    stream: u64,
    worker: u32,
    request: Request,
}

/// Two workers of a module with a small variant, of which a request takes 10 ms, and a large one of 40 ms, two at a time a half more.
fn gateway(policy: DropPolicy) -> Gateway<u64, ()> {
    let mut pipeline = noop_pipeline(SLO * 3, &[&[0]], &[]);
    pipeline.policy.drop = policy;
    let module = &mut pipeline.modules[1];
    let variant = |accuracy| Variant {
        model: "road.pt".to_owned(),
        input: None,
        accuracy: Some(accuracy),
    };
    module.variants = [0.5, 0.8].map(variant).to_vec();
    pipeline.adapt = Some(Adapt::new(module.id, AdaptName::Jellyfish));
    let mut planned = Planned {
        batch: vec![1, 2],
        execution: vec![vec![MS; 2], vec![MS * 40, MS * 60]].into(),
        workers: vec![1, 2],
        alone: true,
    };
    let times = [10, 40].map(|ms| vec![MS * ms, MS * ms * 3 / 2]);
    planned
        .execution
        .set(module.id, ModuleExecution::of_variants(times.to_vec()));
    let place = |worker: u32| Place {
        worker: WorkerId(worker),
        module: ModuleId(1),
        device: DeviceId(worker as u16),
    };
    let mut gateway = Gateway::new(&GatewayConfig {
        id: GatewayId(0),
        incarnation: LIFE,
        pipeline: &Arc::new(pipeline),
        planned: &Arc::new(planned),
        places: &[1, 2].map(place),
        turn: 0,
        seed: 1,
        born: Timestamp::ZERO,
    });
    for worker in [1, 2] {
        gateway.on_event(
            Timestamp::ZERO,
            Event::Greeted(device(worker), LIFE),
            &mut Vec::new(),
        );
    }
    gateway
}

/// Two streams send a request each every 100 ms for so long; a worker answers before the next one. Of `dies`, a device is lost then.
fn run(
    gateway: &mut Gateway<u64, ()>,
    streams: u64,
    seconds: u64,
    dies: Option<(u64, u32)>,
) -> Vec<Sent> {
    let mut all = Vec::new();
    for step in 0..seconds * 10 {
        let now = Timestamp::ZERO + MS * 100 * step as u32;
        let mut out = Vec::new();
        if let Some((at, worker)) = dies
            && at == step
        {
            gateway.on_event(now, Event::Lost(device(worker), "it died"), &mut out);
        }
        while gateway.next_wakeup().is_some_and(|at| at <= now) {
            gateway.on_event(now, Event::Wakeup, &mut out);
        }
        for stream in 0..streams {
            let id = RequestId(streams * step + stream);
            let offer = Offer {
                sent_at: now,
                timeout: None,
                decoding: Duration::ZERO,
                application: Application::default(),
                client: ClientId::default(),
                party: Party {
                    client: ClientKey(stream),
                    ..Party::ONLY
                },
                members: None,
                stream: StreamKey(stream),
                frame: Default::default(),
            };
            if gateway.admit(now, id, &offer, || (id.0, ())).is_ok() {
                gateway.on_event(now, Event::Read(id, Ok(Filled::ALL)), &mut out);
            }
        }
        let arrivals = out.into_iter().filter_map(|command| match command {
            Command::Send(Envelope {
                message: Message::Device(ToDevice::Requests(requests)),
                ..
            }) => Some(requests),
            _ => None,
        });
        let arrivals: Vec<Arrival<()>> = arrivals.flatten().collect();
        for arrival in arrivals {
            let message = ToGateway::Finished {
                worker: arrival.worker,
                batch: BatchId(arrival.request.id.0),
                took: MS * 40,
                size: 1,
                members: vec![Finished {
                    request: arrival.request.id,
                    result: Ok(Filled::ALL),
                }],
            };
            let from = device(arrival.worker.0);
            gateway.on_event(
                now + MS * 40,
                Event::Message(from, LIFE, message),
                &mut Vec::new(),
            );
            all.push(Sent {
                at: now,
                stream: arrival.request.id.0 % streams,
                worker: arrival.worker.0,
                request: arrival.request,
            });
        }
    }
    all
}

fn workers_of(sent: &[Sent], stream: u64, from: Duration) -> BTreeSet<u32> {
    let of = sent
        .iter()
        .filter(|s| s.stream == stream && s.at >= Timestamp::ZERO + from);
    of.map(|s| s.worker).collect()
}

#[test]
fn a_stream_stays_at_its_worker_in_batches_of_its_size() {
    for policy in drops::ALL {
        let mut gateway = gateway(policy);
        // Each worker bears 25 requests a second of the large variant alone, and 33 in batches of 2.
        let sent = run(&mut gateway, 2, 6, None);
        let of = |stream| workers_of(&sent, stream, Duration::from_secs(1));
        assert_eq!((of(0).len(), of(1).len()), (1, 1), "{policy:?}: {sent:?}");
        let last = sent.last().unwrap().request;
        assert_eq!(last.variant, VariantId(1), "{policy:?}");
        assert!((1..=2).contains(&last.batch_most), "{policy:?}: {last:?}");
    }
}

#[test]
fn the_streams_of_a_worker_that_dies_go_on_at_another() {
    let mut gateway = gateway(DropPolicy::SPILLGATE);
    let sent = run(&mut gateway, 2, 6, Some((30, 1)));
    for stream in 0..2 {
        assert_eq!(workers_of(&sent, stream, MS * 3_000), BTreeSet::from([2]));
    }
    let after = sent.iter().filter(|s| s.at >= Timestamp::ZERO + MS * 3_000);
    assert_eq!(after.count(), 60, "each request of both streams");
}

#[test]
fn streams_without_a_place_are_served_from_what_is_left() {
    let mut gateway = gateway(DropPolicy::SPILLGATE);
    // 400 requests a second are more than both workers bear of the small variant: 266.
    let sent = run(&mut gateway, 40, 6, None);
    let last: Vec<&Sent> = sent
        .iter()
        .filter(|s| s.at >= Timestamp::ZERO + MS * 5_500)
        .collect();
    let (bound, leftover): (Vec<&Sent>, Vec<&Sent>) =
        last.into_iter().partition(|s| s.request.batch_most > 0);
    assert!(!bound.is_empty() && !leftover.is_empty());
    assert!(
        leftover
            .iter()
            .all(|s| s.request.rank == 0 && s.request.variant == VariantId(0))
    );
}
