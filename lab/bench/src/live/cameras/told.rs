//! What a client told of its frames (`stream --results`): how many were missed, how accurate the others were, how often their size changed.

use anyhow::{Context, Result};
use serde_json::Value;

/// Overlaps at which boxes are compared, as in the client.
const OVERLAPS: usize = 10;

/// Found, missed and spurious boxes at each overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Boxes([[u64; OVERLAPS]; 3]);

impl Boxes {
    fn read(detection: &Value) -> Option<Boxes> {
        let mut boxes = Boxes::default();
        for (counts, key) in boxes.0.iter_mut().zip(["found", "missed", "spurious"]) {
            let told = detection[key]
                .as_array()
                .filter(|told| told.len() == OVERLAPS)?;
            for (count, told) in counts.iter_mut().zip(told) {
                *count = told.as_u64()?;
            }
        }
        Some(boxes)
    }

    /// The same frame, had nothing been found.
    fn missed(&self) -> Boxes {
        let [found, missed, _] = self.0;
        let mut all = [0; OVERLAPS];
        for (all, (found, missed)) in all.iter_mut().zip(found.into_iter().zip(missed)) {
            *all = found + missed;
        }
        Boxes([[0; OVERLAPS], all, [0; OVERLAPS]])
    }

    fn add(&mut self, other: &Boxes) {
        let counts = self.0.iter_mut().flatten();
        for (count, more) in counts.zip(other.0.iter().flatten()) {
            *count += more;
        }
    }

    /// The mean over the overlaps.
    fn f1(&self) -> f64 {
        let [found, missed, spurious] = self.0;
        let at = |n: usize| match 2 * found[n] + missed[n] + spurious[n] {
            0 => 1.0,
            all => 2.0 * found[n] as f64 / all as f64,
        };
        (0..OVERLAPS).map(at).sum::<f64>() / OVERLAPS as f64
    }
}

/// Which frames count, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Frames that were due before that do not count.
    pub(super) warm_up_ms: f64,
    /// From the moment when a frame was due until its answer is there, by the camera's clock.
    pub(super) slo_ms: f64,
}

/// The frames of some clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// All that the cameras made.
    pub(super) frames: u64,
    /// Answered after the SLO, by the server's clock or by the camera's.
    pub(super) late: u64,
    /// Refused by the client, as they would have waited for the link.
    pub(super) unsent: u64,
    /// Dropped or refused by the server, or failed.
    pub(super) unserved: u64,
    sent: u64,
    sides: u64,
    switches: u64,
    /// Frames that are not in time count as found nothing.
    all: Boxes,
    in_time: Boxes,
}

impl Told {
    /// Reads the lines of one client.
    pub(super) fn read(text: &str, bounds: Bounds) -> Result<Told> {
        let lines = text.lines().map(serde_json::from_str);
        let mut lines = lines.collect::<Result<Vec<Value>, _>>()?;
        // Answers come in any order.
        lines.sort_by_key(|line| line["frame"].as_u64());
        let mut told = Told::default();
        let mut last = None;
        for line in &lines {
            let due = line["due_ms"].as_f64().context("a frame was never due")?;
            if due >= bounds.warm_up_ms {
                told.count(line, last, bounds.slo_ms)?;
            }
            last = line["side"].as_u64().or(last);
        }
        Ok(told)
    }

    /// A frame; `last` is the side of the one that was sent before.
    fn count(&mut self, line: &Value, last: Option<u64>, slo_ms: f64) -> Result<()> {
        let boxes = Boxes::read(&line["detection"]);
        let boxes = boxes.context("a result does not say what was detected")?;
        let latency = line["latency_ms"]
            .as_f64()
            .context("a frame has no latency")?;
        self.frames += 1;
        let in_time = line["outcome"] == "completed" && latency <= slo_ms;
        if in_time {
            self.all.add(&boxes);
            self.in_time.add(&boxes);
        } else {
            self.all.add(&boxes.missed());
        }
        match line["outcome"].as_str() {
            _ if in_time => {}
            Some("completed" | "late") => self.late += 1,
            _ if line["module"] == "client" => self.unsent += 1,
            _ => self.unserved += 1,
        }
        if let Some(side) = line["side"].as_u64() {
            self.sent += 1;
            self.sides += side;
            self.switches += u64::from(last.is_some_and(|last| last != side));
        }
        Ok(())
    }

    /// Adds another client's.
    pub(super) fn add(&mut self, other: &Told) {
        self.frames += other.frames;
        self.late += other.late;
        self.unsent += other.unsent;
        self.unserved += other.unserved;
        self.sent += other.sent;
        self.sides += other.sides;
        self.switches += other.switches;
        self.all.add(&other.all);
        self.in_time.add(&other.in_time);
    }

    /// The part that has no answer in time.
    pub(super) fn missed(&self) -> f64 {
        self.part(self.late + self.unsent + self.unserved)
    }

    /// So many, as a part of all frames.
    pub(super) fn part(&self, n: u64) -> f64 {
        n as f64 / self.frames.max(1) as f64
    }

    /// Mean F1 over the overlaps, of all frames: those that were missed found nothing.
    pub(super) fn f1(&self) -> f64 {
        self.all.f1()
    }

    /// The same of the frames in time alone.
    pub(super) fn f1_in_time(&self) -> f64 {
        self.in_time.f1()
    }

    /// Mean longer side of the frames that were sent.
    pub(super) fn side(&self) -> f64 {
        self.sides as f64 / self.sent.max(1) as f64
    }

    /// Changes of the side, in all.
    pub(super) fn switches(&self) -> u64 {
        self.switches
    }
}

/// Mean bytes of the frames of that side; `None` where there is none.
pub(super) fn bytes_of_side(text: &str, side: u64) -> Option<f64> {
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let of_side = lines.filter(|line: &Value| line["side"] == side);
    let bytes: Vec<f64> = of_side.filter_map(|line| line["bytes"].as_f64()).collect();
    (!bytes.is_empty()).then(|| bytes.iter().sum::<f64>() / bytes.len() as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// What was found at each overlap of `objects`; the rest was missed.
    fn line(frame: u64, outcome: &str, side: Option<u64>, found: u64, objects: u64) -> String {
        let each = |n: u64| vec![n; OVERLAPS];
        let module = if outcome == "refused" {
            "client"
        } else {
            "detect"
        };
        json!({
            "frame": frame, "due_ms": 100 * frame, "outcome": outcome, "module": module, "side": side,
            "latency_ms": 50.0, "bytes": side.map(|side| 10 * side),
            "detection": {"found": each(found), "missed": each(objects - found), "spurious": each(0)},
        })
        .to_string()
    }

    const BOUNDS: Bounds = Bounds {
        warm_up_ms: 100.0,
        slo_ms: 400.0,
    };

    /// So many frames of two objects each, and so many of them missed by the server; of the others one object is found.
    pub(in super::super) fn of(frames: u64, missed: u64) -> Told {
        let outcome = |n| match n < missed {
            true => line(n, "dropped", Some(320), 0, 2),
            false => line(n, "completed", Some(320), 1, 2),
        };
        let lines: Vec<String> = (0..frames).map(outcome).collect();
        let all = Bounds {
            warm_up_ms: 0.0,
            ..BOUNDS
        };
        Told::read(&lines.join("\n"), all).unwrap()
    }

    #[test]
    fn frames_are_counted_by_their_end_and_after_the_warm_up() {
        let text = [
            line(0, "completed", Some(640), 2, 2),
            line(2, "late", Some(320), 0, 2),
            line(1, "completed", Some(320), 2, 2),
            line(3, "refused", None, 0, 2),
            line(4, "dropped", Some(192), 0, 2),
            line(5, "completed", Some(192), 1, 2),
            line(6, "failed", Some(320), 0, 2),
        ]
        .join("\n");
        let mut told = Told::read(&text, BOUNDS).unwrap();
        let counts = (told.frames, told.late, told.unsent, told.unserved);
        assert_eq!(counts, (6, 1, 1, 2));
        assert_eq!(told.missed(), 4.0 / 6.0);
        // 640 to 320, to 192, and back to 320: the first frame does not count, but its size was the one before.
        assert_eq!(told.switches(), 3);
        assert_eq!(told.side(), (3 * 320 + 2 * 192) as f64 / 5.0);
        // 3 of 12 objects, and 3 of 4.
        assert!((told.f1() - 6.0 / 15.0).abs() < 1e-9, "{}", told.f1());
        assert!((told.f1_in_time() - 6.0 / 7.0).abs() < 1e-9);
        let once = told.clone();
        told.add(&once);
        assert_eq!(
            (told.frames, told.switches(), told.f1()),
            (12, 6, once.f1())
        );
        assert_eq!(bytes_of_side(&text, 320), Some(3200.0));
        assert_eq!(bytes_of_side(&text, 256), None);
    }

    /// The server does not see the way back.
    #[test]
    fn an_answer_after_the_slo_by_the_cameras_clock_is_missed() {
        let frame = |ms: u32| {
            let line = line(3, "completed", Some(320), 2, 2);
            let line = line.replace("50.0", &format!("{ms}.0"));
            Told::read(&line, BOUNDS).unwrap()
        };
        let (in_time, late) = (frame(400), frame(401));
        assert_eq!((in_time.late, in_time.f1()), (0, 1.0));
        assert_eq!((late.late, late.missed(), late.f1()), (1, 1.0, 0.0));
    }

    #[test]
    fn overlaps_weigh_the_same() {
        let mut found = [0; OVERLAPS];
        found[0] = 8;
        let boxes = Boxes([found, [8; OVERLAPS], [0; OVERLAPS]]);
        assert!((boxes.f1() - 16.0 / 24.0 / 10.0).abs() < 1e-9);
        assert_eq!(Boxes::default().f1(), 1.0);
    }

    #[test]
    fn results_without_a_known_truth_are_no_results() {
        let line = r#"{"frame": 0, "due_ms": 100, "latency_ms": 1, "outcome": "completed"}"#;
        assert!(Told::read(line, BOUNDS).is_err());
        assert!(Told::read("{", BOUNDS).is_err());
    }
}
