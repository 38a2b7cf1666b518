//! A request as the API hands it to a host.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller::host::{Counted, Submission};
use spillgate_controller::record::{Sizes, TraceContext};
use spillgate_controller_policy::shares::Party;
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::id::{ClientId, ModuleId};
use spillgate_process::job::Job;
use spillgate_process::value::Value;

/// A request with a payload of bytes that is read already, for a pipeline of that many modules. Nobody waits for its answer.
pub(crate) fn submission(modules: usize) -> Submission {
    let frame = Frame {
        format: FrameFormat::Bytes,
        data: "x".into(),
        width: 0,
        height: 0,
    };
    let job = Arc::new(Job::unaccounted(frame, modules));
    job.set_outputs(ModuleId::SOURCE, vec![Value::Bytes("x".into())])
        .unwrap();
    Submission {
        job,
        source_done: true,
        number: 0,
        client: Arc::from(""),
        client_id: ClientId::default(),
        party: Party::ONLY,
        counted: Counted {
            name: Arc::from("test"),
            is_token: false,
        },
        decoding: Duration::ZERO,
        members: None,
        stream: Default::default(),
        frame: Default::default(),
        sizes: Sizes::default(),
        sent_at: None,
        application: Arc::from(""),
        timeout: None,
        trace: TraceContext {
            trace_id: 1,
            parent_span_id: 0,
            sampled: false,
        },
        on_end: Box::new(|_| {}),
    }
}
