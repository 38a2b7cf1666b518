//! The log's lines about requests: a warning for each that failed, and at level `debug` a line for each that ended otherwise.

use spillgate_controller::record::RequestRecord;
use spillgate_pipeline::request::Outcome;

/// `RUST_LOG=spillgate::request=debug` shows all lines.
const TARGET: &str = "spillgate::request";

/// A line about a request, with what tells which one it is.
macro_rules! tell {
    ($level:ident, $record:ident, $module:expr, $text:literal, $($more:tt)*) => {
        tracing::$level!(
            target: TARGET,
            request = $record.request.id.0,
            pipeline = $record.pipeline.name,
            client = &*$record.client,
            frame = $record.number,
            module = $module.and_then(|id| $record.pipeline.modules.get(id.idx())).map(|m| &*m.name),
            $($more)*
            trace = trace_id($record),
            $text
        )
    };
}

/// Logs the end of a request.
pub(crate) fn ended(record: &RequestRecord) {
    let (module, reason) = match record.outcome {
        Outcome::Failed { module } => {
            let error = record.error.as_deref();
            return tell!(warn, record, Some(module), "a module failed", error,);
        }
        Outcome::Dropped(drop) => (Some(drop.module), Some(drop.reason.label())),
        Outcome::Completed | Outcome::Late => (None, None),
    };
    let outcome = record.outcome.label();
    let latency_ms = record.latency().as_secs_f64() * 1e3;
    tell!(debug, record, module, "ended", outcome, reason, latency_ms,);
}

fn trace_id(record: &RequestRecord) -> String {
    format!("{:032x}", record.trace.trace_id)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use expect_test::expect;
    use parking_lot::Mutex;
    use spillgate_pipeline::request::Outcome;

    use super::*;
    use crate::testing;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(most: tracing::Level, records: &[RequestRecord]) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(most)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || records.iter().for_each(ended));
        String::from_utf8(lines.0.lock().clone()).unwrap()
    }

    fn records() -> [RequestRecord; 3] {
        let pipeline = testing::pipeline();
        let mut failed = testing::completed(&pipeline);
        failed.outcome = Outcome::Failed {
            module: testing::DETECT,
        };
        failed.error = Some("no such\nregion".to_owned());
        [
            testing::completed(&pipeline),
            testing::dropped(&pipeline),
            failed,
        ]
    }

    #[test]
    fn each_request_has_its_line() {
        expect![[r#"
            DEBUG spillgate::request: ended request=41 pipeline="traffic" client="gate-3" frame=17 outcome="completed" latency_ms=238.0 trace="4bf92f3577b34da6a3ce929d0e0e4736"
            DEBUG spillgate::request: ended request=41 pipeline="traffic" client="gate-3" frame=17 module="plates" outcome="dropped" reason="predicted" latency_ms=188.0 trace="4bf92f3577b34da6a3ce929d0e0e4736"
             WARN spillgate::request: a module failed request=41 pipeline="traffic" client="gate-3" frame=17 module="detect" error="no such\nregion" trace="4bf92f3577b34da6a3ce929d0e0e4736"
        "#]].assert_eq(&lines(tracing::Level::DEBUG, &records()));
    }

    #[test]
    fn only_failed_requests_are_told_of_by_default() {
        let lines = lines(tracing::Level::INFO, &records());
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains("a module failed"), "{lines}");
    }
}
