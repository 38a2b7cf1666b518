//! The requests of a scenario's folder, which `simulate --scenario` serves in virtual time: when each is due, which model it is for, and
//! within what time it wants its answer.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indexmap::IndexMap;
use spillgate_proto::pb;

/// Payloads of a scenario: one for each model and objective.
const KINDS_MAX: usize = 65_536;

/// Requests, in order of their times.
pub(super) struct Requests {
    pub(super) due: Vec<Duration>,
    /// Position of the payload of each.
    pub(super) order: Vec<u32>,
    /// Model and objective of each payload.
    kinds: IndexMap<(String, u64), ()>,
}

impl Requests {
    /// Reads `models.csv` and `arrivals.csv` of a folder.
    ///
    /// # Errors
    /// When one is missing or a line is not right.
    pub(super) fn read(folder: &Path) -> Result<Requests> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let (models, arrivals) = (text("models.csv")?, text("arrivals.csv")?);
        let wrong = |file: &str, line: usize, right: &str| {
            anyhow::anyhow!("{}: line {line}: {right}", folder.join(file).display())
        };
        let mut names = Vec::new();
        for (i, line) in models.lines().enumerate().skip(1) {
            let name = line.split(',').nth(1);
            let name =
                name.ok_or_else(|| wrong("models.csv", i + 1, "the second column is a name"))?;
            names.push(name.to_owned());
        }
        let mut requests = Requests {
            due: Vec::new(),
            order: Vec::new(),
            kinds: IndexMap::new(),
        };
        for (i, line) in arrivals.lines().enumerate().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let parsed = || {
                let [at, model, slo] = fields.as_slice() else {
                    return None;
                };
                let at = at.trim().parse::<f64>().ok()?;
                let slo = slo.trim().parse::<f64>().ok()?;
                let name = names.get(model.trim().parse::<usize>().ok()?)?;
                let at = Duration::try_from_secs_f64(at).ok()?;
                let slo = Duration::try_from_secs_f64(slo / 1e3).ok()?;
                Some((at, (name.clone(), slo.as_micros() as u64)))
            };
            let right = "write time_s,model,slo_ms with the id of a model";
            let (at, kind) = parsed().ok_or_else(|| wrong("arrivals.csv", i + 1, right))?;
            if requests.due.last().is_some_and(|last| at < *last) {
                bail!(wrong(
                    "arrivals.csv",
                    i + 1,
                    "its time is before that of the line above"
                ));
            }
            let (payload, _) = requests.kinds.insert_full(kind, ());
            requests.due.push(at);
            requests.order.push(payload as u32);
        }
        if requests.kinds.len() > KINDS_MAX {
            bail!(
                "{}: more than {KINDS_MAX} models and objectives",
                folder.display()
            );
        }
        if requests.due.is_empty() {
            bail!("{}: there are no arrivals", folder.display());
        }
        Ok(requests)
    }

    /// A payload for each model and objective.
    pub(super) fn payloads(&self, module: &str, frame: &pb::Frame) -> Vec<pb::Frame> {
        let of = |(name, slo_us): &(String, u64)| pb::Frame {
            models: [(module.to_owned(), name.clone())].into(),
            timeout_ms: *slo_us as f64 / 1e3,
            ..frame.clone()
        };
        self.kinds.keys().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: &str = "id,name,weights_mb\n0,cam-1,1\n1,cam-2,1\n";

    fn read(arrivals: &str) -> Result<Requests> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("spillgate-requests-{}-{n}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("models.csv"), MODELS).unwrap();
        std::fs::write(folder.join("arrivals.csv"), arrivals).unwrap();
        let read = Requests::read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        read
    }

    #[test]
    fn each_request_has_its_time_its_model_and_its_objective() {
        let rows = "time_s,model,slo_ms\n0.5,1,100\n0.75,0,100\n0.75,1,100\n";
        let requests = read(rows).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(requests.due, [ms(500), ms(750), ms(750)]);
        assert_eq!(requests.order, [0, 1, 0]);
        let payloads = requests.payloads("faces", &pb::Frame::default());
        let model = |i: usize| payloads[i].models["faces"].as_str();
        assert_eq!((model(0), model(1)), ("cam-2", "cam-1"));
        assert_eq!(payloads[0].timeout_ms, 100.0);
    }

    #[test]
    fn a_line_that_is_not_right_is_named() {
        let header = "time_s,model,slo_ms\n";
        for (rows, line) in [
            ("1,2,100\n", "line 2"),
            ("1,0\n", "line 2"),
            ("-1,0,100\n", "line 2"),
            ("2,0,100\n1,0,100\n", "line 3"),
        ] {
            let error = read(&format!("{header}{rows}")).err().unwrap().to_string();
            assert!(error.contains(line), "{error}");
        }
        let error = read(header).err().unwrap().to_string();
        assert!(error.contains("no arrivals"), "{error}");
    }
}
