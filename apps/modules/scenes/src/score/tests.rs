use super::*;
use crate::{Scene, SceneConfig};

const A: Rect = Rect::new(0.0, 0.0, 10.0, 10.0);
const B: Rect = Rect::new(100.0, 0.0, 110.0, 10.0);
const NEAR_A: Rect = Rect::new(1.0, 0.0, 11.0, 10.0);

#[test]
fn the_best_box_takes_the_object_and_the_other_is_spurious() {
    let matching = match_boxes(&[(A, true), (B, true)], &[(NEAR_A, 0.5), (A, 0.9)], 0.5);
    assert_eq!(matching.pairs, [(1, 0)]);
    assert_eq!(
        matching.counts,
        Counts {
            found: 1,
            missed: 1,
            spurious: 1
        }
    );
    assert!((matching.counts.f1() - 0.5).abs() < 1e-9);
}

#[test]
fn ignored_objects_cost_nothing_either_way() {
    let none = match_boxes(&[(A, false)], &[], 0.5);
    assert_eq!(none.counts, Counts::default());
    let found = match_boxes(&[(A, false)], &[(A, 0.9), (NEAR_A, 0.8)], 0.5);
    assert_eq!(found.counts, Counts::default());
}

#[test]
fn a_box_off_by_too_much_is_a_miss() {
    let half = Rect::new(0.0, 0.0, 10.0, 4.0);
    let matching = match_boxes(&[(A, true)], &[(half, 0.9)], 0.5);
    assert_eq!(
        matching.counts,
        Counts {
            found: 0,
            missed: 1,
            spurious: 1
        }
    );
}

fn perfect(truth: &GroundTruth) -> Findings {
    Findings {
        vehicles: truth.vehicles.iter().map(|v| (v.bbox, 0.9)).collect(),
        plates: truth.vehicles.iter().map(|v| v.plate.clone()).collect(),
        people: truth.people.iter().map(|p| (p.bbox, 0.9)).collect(),
        faces: truth
            .people
            .iter()
            .map(|p| crate::IDENTITIES[p.identity].to_owned())
            .collect(),
    }
}

#[test]
fn perfect_findings_score_one_and_wrong_ones_less() {
    let mut scene = Scene::new(SceneConfig {
        seed: 2,
        density: 0.9,
        ..SceneConfig::default()
    });
    let (mut right, mut wrong) = (Score::default(), Score::default());
    for n in (0..500).step_by(100) {
        let (_, truth) = scene.frame(n);
        let mut findings = perfect(&truth);
        right.add_frame(&truth, &findings, IOU);
        findings.plates.iter_mut().for_each(|p| p.push('X'));
        findings
            .faces
            .iter_mut()
            .for_each(|f| *f = "nobody".to_owned());
        findings
            .vehicles
            .iter_mut()
            .for_each(|v| v.0 = v.0.part(0.6, 0.0, 1.6, 1.0));
        wrong.add_frame(&truth, &findings, IOU);
    }
    assert!(right.plates.all > 10 && right.faces.all > 10);
    assert_eq!(
        (
            right.detection().f1(),
            right.plates.rate(),
            right.faces.rate()
        ),
        (1.0, 1.0, 1.0)
    );
    assert_eq!(wrong.faces.right, 0);
    assert!(wrong.vehicles.f1() < 0.1, "{:?}", wrong.vehicles);
}

/// A small generator, so that a table of cases needs no seeds of another crate.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }

    fn rect(&mut self) -> Rect {
        let (x, y) = (self.below(30) as f32, self.below(30) as f32);
        let (w, h) = (1 + self.below(20), 1 + self.below(20));
        Rect::new(x, y, x + w as f32, y + h as f32)
    }
}

/// Found, missed and spurious at one overlap, said in another way: the best box that is left takes the best object that is
/// left, and both go.
fn slow_counts(expected: &[(Rect, bool)], found: &[(Rect, f32)], iou: f32) -> (u64, u64, u64) {
    let (mut objects, mut boxes) = (expected.to_vec(), found.to_vec());
    let (mut right, mut spurious) = (0, 0);
    while !boxes.is_empty() {
        let best = boxes.iter().map(|b| b.1).fold(f32::MIN, f32::max);
        let at = boxes.iter().position(|b| b.1 == best).expect("not empty");
        let (area, _) = boxes.remove(at);
        let closest = objects.iter().map(|o| o.0.iou(&area)).fold(0.0, f32::max);
        if closest >= iou {
            // Of equally close ones the last, which no count depends on unless one of them does not count.
            let at = objects.iter().rposition(|o| o.0.iou(&area) == closest);
            let (_, counts) = objects.remove(at.expect("the closest is one of them"));
            right += u64::from(counts);
        } else {
            let ignored = expected.iter().filter(|o| !o.1);
            let is_ignored = ignored.into_iter().any(|o| o.0.iou(&area) >= iou * 0.5);
            spurious += u64::from(!is_ignored);
        }
    }
    let missed = objects.iter().filter(|o| o.1).count() as u64;
    (right, missed, spurious)
}

#[test]
fn the_mean_f1_is_that_of_a_slow_reference() {
    let mut draws = Draws(7);
    for _ in 0..500 {
        let n_frames = draws.below(4);
        let mut mean = MeanF1::default();
        let mut sums = [(0, 0, 0); STRICTNESS.len()];
        for _ in 0..n_frames {
            let expected: Vec<(Rect, bool)> = (0..draws.below(6))
                .map(|_| (draws.rect(), draws.below(5) > 0))
                .collect();
            let mut found: Vec<(Rect, f32)> = Vec::new();
            for (object, _) in &expected {
                // A box near the object, most times.
                let off = draws.below(4) as f32;
                let near = Rect::new(object.x0 + off, object.y0, object.x1, object.y1);
                if draws.below(4) > 0 {
                    found.push((near, draws.below(1000) as f32 / 1000.0));
                }
            }
            found.extend((0..draws.below(3)).map(|_| (draws.rect(), 0.3)));
            mean.add_boxes(&expected, &found);
            for (sum, iou) in sums.iter_mut().zip(STRICTNESS) {
                let (right, missed, spurious) = slow_counts(&expected, &found, iou);
                *sum = (sum.0 + right, sum.1 + missed, sum.2 + spurious);
            }
        }
        let f1 = |(right, missed, spurious): (u64, u64, u64)| match right + missed + spurious {
            0 => 1.0,
            _ => 2.0 * right as f64 / (2 * right + missed + spurious) as f64,
        };
        let expected = sums.into_iter().map(f1).sum::<f64>() / 10.0;
        assert!(
            (mean.value() - expected).abs() < 1e-12,
            "{mean:?}: {sums:?}"
        );
    }
}

#[test]
fn the_mean_f1_of_what_is_known() {
    let of = |expected: &[(Rect, bool)], found: &[(Rect, f32)]| {
        let mut mean = MeanF1::default();
        mean.add_boxes(expected, found);
        mean.value()
    };
    let near = |share: f32| Rect::new(0.0, 0.0, 10.0 * share, 10.0);
    // An overlap of 0.72 counts at 0.5, 0.55, 0.6, 0.65 and 0.7.
    for (expected, found, value) in [
        (vec![], vec![], 1.0),
        (vec![(A, true)], vec![], 0.0),
        (vec![], vec![(A, 0.9)], 0.0),
        (vec![(A, true)], vec![(A, 0.9)], 1.0),
        (vec![(A, true)], vec![(near(0.72), 0.9)], 0.5),
        (vec![(A, true), (B, true)], vec![(A, 0.9)], 2.0 / 3.0),
        (vec![(A, false)], vec![(A, 0.9)], 1.0),
    ] {
        let is = of(&expected, &found);
        assert!((is - value).abs() < 1e-9, "{is} is not {value}");
    }
}

#[test]
fn frames_that_were_missed_halve_the_objects_found() {
    let (_, truth) = Scene::new(SceneConfig::default()).frame(100);
    let mut found = MeanF1::default();
    found.add_frame(&truth, &perfect(&truth));
    let mut both = MeanF1::default();
    both.add_frame(&truth, &Findings::default());
    assert_eq!(both.value(), 0.0);
    let n = found.counts()[0].found;
    assert!(n > 0 && both.counts().iter().all(|c| c.missed == n));
    both.add(&found);
    assert!((both.value() - 2.0 / 3.0).abs() < 1e-9, "{both:?}");
}
