//! One event of a device's queues of actions, with 4,000 models in its cache and with one.

use spillgate_pipeline::action::{Action, Window, Work};
use spillgate_pipeline::id::{ActionId, ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::actions::Actions;

fn main() {
    divan::main();
}

/// A batch is received, its input comes, and the one before it ends: three events.
#[divan::bench(args = [1, 4_000])]
fn a_batch(bencher: divan::Bencher<'_, '_>, models: u32) {
    let resident: Vec<WeightsId> = (0..models).map(WeightsId).collect();
    let mut actions = Actions::new(models, vec![1; models as usize], &resident);
    let mut out = Vec::new();
    let mut n = 0;
    bencher.bench_local(|| {
        let now = Timestamp::from_ns(n);
        let window = Window {
            earliest: now,
            latest: Timestamp::MAX,
        };
        let work = Work::Infer {
            model: ModelId(n as u32 % models),
            weights: WeightsId(n as u32 % models),
            members: vec![()],
        };
        let action = Action {
            id: ActionId(n),
            work,
            window,
            starts_at: now,
            expected_end: now,
        };
        actions.receive(now, action, &mut out);
        actions.input_ready(now, ActionId(n), &mut out);
        if n > 0 {
            actions.executed(now, ActionId(n - 1), &mut out);
        }
        n += 1;
        out.clear();
        actions.next_wakeup()
    });
}

/// A model gives way and another is read: three events.
#[divan::bench(args = [1, 4_000])]
fn a_load(bencher: divan::Bencher<'_, '_>, models: u32) {
    let resident: Vec<WeightsId> = (0..models).map(WeightsId).collect();
    let mut actions = Actions::new(models, vec![1; models as usize + 1], &resident);
    let mut out: Vec<spillgate_worker_policy::actions::ActionCommand<()>> = Vec::new();
    let mut n = 0;
    bencher.bench_local(|| {
        let now = Timestamp::from_ns(n);
        let window = Window {
            earliest: now,
            latest: Timestamp::MAX,
        };
        let of = |work| Action {
            id: ActionId(n),
            work,
            window,
            starts_at: now,
            expected_end: now,
        };
        // One more model than fits: the next one to go is the next one to come after it.
        let n_models = u64::from(models) + 1;
        let (goes, comes) = (n % n_models, (n + n_models - 1) % n_models);
        actions.receive(now, of(Work::Unload(WeightsId(goes as u32))), &mut out);
        actions.receive(now, of(Work::Load(WeightsId(comes as u32))), &mut out);
        actions.loaded(now, ActionId(n), true, &mut out);
        n += 1;
        out.clear();
        actions.next_wakeup()
    });
}
