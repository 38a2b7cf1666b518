use super::super::{
    Complaint, ErrorStatus, Forecast, NamedStreamStatus, PlannerStatus, ScalingStatus,
    StreamStatus, WeightsReading, WorkerStatus,
};
use super::*;

#[test]
fn a_module_without_workers_can_be_read_and_is_told() {
    let pipeline = PipelineStatus {
        next: Some(Forecast {
            bottleneck: "a".to_owned(),
            ..Forecast::default()
        }),
        ..PipelineStatus::default()
    };
    let status = Status {
        pipelines: vec![pipeline],
        ..Status::default()
    };
    let json = serde_json::to_string(&status).unwrap();
    let read: Status = serde_json::from_str(&json).unwrap();
    assert_eq!(read, status);
    let told = "of 0.0 that a can serve (no workers now); none need be dropped";
    assert!(text(&read).contains(told), "{}", text(&read));
}

#[test]
fn a_gateway_in_lines() {
    let planner = PlannerStatus {
        offered: 60.0,
        executed: 48.8,
        capacity: Some(50.0),
        batch_size: 1.0,
        pace: 1.02,
        queueing_ms: 12.34,
    };
    let worker = |worker: u32, state: &str| WorkerStatus {
        worker,
        process: format!("a-{worker}"),
        device: "cpu:0".to_owned(),
        has: 2,
        state: state.to_owned(),
    };
    let status = Status {
        process: "gateway-0".to_owned(),
        version: "0.1.0".to_owned(),
        incarnation: "00000000000000ff".to_owned(),
        up_s: 75.0,
        not_ready: None,
        pipelines: vec![PipelineStatus {
            name: "pair".to_owned(),
            slo_ms: 400.0,
            drop: "spillgate".to_owned(),
            dispatch: "pull".to_owned(),
            in_flight: Some(7),
            gate: Some(49.5),
            next: Some(Forecast {
                offered: 60.0,
                capacity: 50.0,
                bottleneck: "a".to_owned(),
                load: Some(1.2),
                dropped: 1.0 - 1.0 / 1.2,
            }),
            revisions: vec![
                RevisionStatus {
                    revision: "5d41402a".to_owned(),
                    share: 1.0,
                    state: "stable".to_owned(),
                    for_s: Some(42.0),
                    why: None,
                },
                RevisionStatus {
                    revision: "7b52009b".to_owned(),
                    share: 0.0,
                    state: "taken_back".to_owned(),
                    for_s: Some(42.0),
                    why: Some("it was undone".to_owned()),
                },
            ],
            modules: vec![ModuleStatus {
                name: "a".to_owned(),
                planner: Some(planner),
                downstream_ms: 24.0,
                order: "highest".to_owned(),
                waiting: 3,
                scaling: Some(ScalingStatus {
                    wanted: 3,
                    wanted_s: 65.0,
                    serving: 2,
                    is_fixed: false,
                    reason: "offered more than two can serve".to_owned(),
                }),
                workers: vec![worker(0, "serves"), worker(1, "set_aside")],
            }],
            adaptation: Some(AdaptationStatus {
                module: "a".to_owned(),
                by: "spillgate".to_owned(),
                part: 0.92,
                streams: vec![
                    StreamStatus {
                        stream: "7/1".to_owned(),
                        rate: 10.0,
                        variant: "road.pt@192".to_owned(),
                        asked_side: Some(192),
                        obstacle: Some("link".to_owned()),
                        why: Some("its link bears no larger frames".to_owned()),
                        ..StreamStatus::default()
                    },
                    StreamStatus {
                        stream: "9".to_owned(),
                        rate: 80.25,
                        variant: "road.pt@256".to_owned(),
                        better: Some(("road.pt@320".to_owned(), 0.25)),
                        obstacle: Some("capacity".to_owned()),
                        why: Some("there is no more device time".to_owned()),
                        ..StreamStatus::default()
                    },
                ],
            }),
            named: vec![NamedStreamStatus {
                name: "gate".to_owned(),
                requests: 120,
                good: 117,
                refused: 2,
            }],
        }],
        devices: vec![DeviceStatus {
            name: "decode:0".to_owned(),
            is_alive: true,
            waiting: 0,
            weights: Some(WeightsReading {
                pages: Some(39),
                pages_limit: Some(40),
                workspace: Some(31_500_000),
                batches: 1200,
                cold: 31,
                loads: 25,
                failed_loads: 1,
                unloads: 12,
                refused: spillgate_telemetry::metrics::RefusedReading {
                    late_batches: 1,
                    late_loads: 1,
                    ..Default::default()
                },
            }),
            errors: vec![ErrorStatus {
                action: "execute".to_owned(),
                of: "duration".to_owned(),
                p1_ms: -0.21,
                p50_ms: 0.003,
                p99_ms: 0.4,
            }],
            measured: Vec::new(),
        }],
        values: ValuesStatus {
            held: 2_000_000,
            limit: 256 << 20,
            kept: 691_200,
            kept_requests: 1,
            known_requests: 3,
        },
        peers: vec![
            PeerStatus {
                process: "a-0".to_owned(),
                roles: vec!["worker of a on cpu:0".to_owned()],
                state: "met".to_owned(),
                incarnation: String::new(),
                met_s: 3700.0,
                clock_ms: -0.123,
                clock_error_ms: 0.05,
                waiting: 12_345,
                ..PeerStatus::default()
            },
            PeerStatus {
                process: "control".to_owned(),
                roles: vec!["controller of a".to_owned()],
                state: "away".to_owned(),
                ..PeerStatus::default()
            },
        ],
        complaints: vec![Complaint {
            peer: "control".to_owned(),
            why: "it cannot be reached: Connection refused (os error 111)".to_owned(),
        }],
    };
    let expected = "\
process gateway-0, spillgate 0.1.0, up 1m 15s, ready

pipeline pair: slo 400ms, drop spillgate, dispatch pull
7 requests in flight; the entry gate lets 49.5 requests/s pass
next seconds: 60.0 requests/s of 50.0 that a can serve (load 1.20); at least 17% will be dropped
revision  streams  state       for  why
5d41402a  100%     stable      42s  -
7b52009b  0%       taken back  42s  it was undone
module  offered/s  ran/s  capacity/s  batch  pace  queueing  left for later  first           waiting
a       60.0       48.8   50.0        1.0    1.02  12.3ms    24.0ms          highest budget  3
workers of  wanted  for    serving  why
a           3       1m 5s  2        offered more than two can serve
worker  module  process  device  has  state
0       a       a-0      cpu:0   2    serves
1       a       a-1      cpu:0   2    SET ASIDE
spillgate chooses the variant of a for each stream, within 92% of the device time
stream  requests/s  variant                       asked   not the next better one
7/1     10.0        road.pt@192                   192 px  link: its link bears no larger frames
9       80.2        road.pt@256, 25% road.pt@320  -       capacity: there is no more device time
stream  requests  in time  refused
gate    120       117      2

device    waiting  state
decode:0  0        runs
device    pages  of  workspace  batches  cold requests  loads  failed  unloads  refused
decode:0  39     40  31 MiB     1200     31             25     1       12       2
device    error of          p1        p50       p99
decode:0  execute duration  -0.210ms  +0.003ms  +0.400ms

2.0 MB of 268.4 MB are held; 0.7 MB are kept for 1 requests of others, others keep values of 3 requests
peer     state  since  clock          waiting  roles
a-0      met    1h 1m  -0.12ms ±0.05  12 kB    worker of a on cpu:0
control  AWAY   -      -              -        controller of a
control: it cannot be reached: Connection refused (os error 111)
";
    assert_eq!(text(&status), expected);
}
