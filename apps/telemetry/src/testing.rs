//! Records for tests, examples and the cost measurement: one small traffic pipeline and requests through it.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller::record::{BatchRecord, RequestRecord, Sizes, TraceContext};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{BatchId, DeviceId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, ModuleTimes, Outcome, Request};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::job::Job;

/// The module that finds vehicles and people.
pub const DETECT: ModuleId = ModuleId(1);
/// The module that reads plates; it works on what [`DETECT`] found.
pub const PLATES: ModuleId = ModuleId(2);
/// The module that recognises faces; it works on what [`DETECT`] found.
pub const FACES: ModuleId = ModuleId(3);
/// The life of the process that ran all batches.
const LIFE: Incarnation = Incarnation(5);

/// `ms` milliseconds after the epoch.
pub fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

/// `traffic`: source, detect, then plates and faces side by side; 400 ms.
pub fn pipeline() -> Arc<Pipeline> {
    let mut pipeline = noop_pipeline(Duration::from_millis(400), &[&[0], &[1], &[1]], &[]);
    pipeline.name = "traffic".to_owned();
    for (module, name) in pipeline.modules[1..]
        .iter_mut()
        .zip(["detect", "plates", "faces"])
    {
        module.name = name.to_owned();
    }
    Arc::new(pipeline)
}

/// The way through one module: arrival, batch, start and end, in milliseconds; batch number and size.
pub fn times(module: ModuleId, [r, b, e, end]: [u64; 4], batch: u64, size: u32) -> ModuleTimes {
    ModuleTimes {
        module,
        worker: WorkerId(u32::from(module.0)),
        arrived_at: at(r),
        batched_at: at(b),
        started_at: at(e),
        ended_at: at(end),
        batch: BatchId(batch),
        batch_size: size,
        load: None,
        incarnation: LIFE,
    }
}

/// A request that went through all modules: frame 17 of `gate-3`, sampled, with no client's span above it.
pub fn completed(pipeline: &Arc<Pipeline>) -> RequestRecord {
    let frame = Frame {
        format: FrameFormat::Bytes,
        data: bytes::Bytes::new(),
        width: 0,
        height: 0,
    };
    RequestRecord {
        pipeline: pipeline.clone(),
        request: Request::new(RequestId(41), at(1000), at(1400)),
        number: 17,
        client: Arc::from("gate-3"),
        sizes: Sizes::default(),
        admitted_at: at(1002),
        ended_at: at(1240),
        outcome: Outcome::Completed,
        error: None,
        times: vec![
            times(ModuleId::SOURCE, [1002, 1003, 1004, 1012], 90, 1),
            times(DETECT, [1013, 1040, 1061, 1125], 7, 4),
            times(FACES, [1126, 1130, 1142, 1180], 8, 2),
            times(PLATES, [1126, 1150, 1181, 1239], 9, 3),
        ],
        trace: TraceContext {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            parent_span_id: 0,
            sampled: true,
        },
        job: Arc::new(Job::unaccounted(frame, pipeline.modules.len())),
    }
}

/// The same request, dropped at `plates` because it was expected to be late.
pub fn dropped(pipeline: &Arc<Pipeline>) -> RequestRecord {
    let mut record = completed(pipeline);
    let ms = Duration::from_millis;
    record.times.retain(|times| times.module != PLATES);
    record.ended_at = at(1190);
    record.outcome = Outcome::Dropped(Drop {
        module: PLATES,
        reason: DropReason::Predicted,
        at: at(1190),
        budget: record.request.deadline.budget_at(at(1190)),
        estimate: Some(Estimate {
            wait: ms(170),
            execution: ms(58),
            downstream: ms(2),
        }),
    });
    record
}

/// The batch of `detect` in which these requests were.
pub fn batch() -> BatchRecord {
    BatchRecord {
        device: DeviceId(0),
        batch: BatchId(7),
        module: DETECT,
        worker: WorkerId(1),
        variant: Default::default(),
        size: 4,
        ran_together: 4,
        started_at: at(1061),
        expected_end: at(1121),
        reported_end: at(1119),
        ended_at: at(1125),
        incarnation: LIFE,
        is_traced: true,
    }
}
