//! What a client may rely on: equal seeds give equal video, motion is continuous, the ground truth says
//! what the pixels show.

use spillgate_scenes::{Condition, IDENTITIES, PLATE_LEN, Rect, Scene, SceneConfig};

fn busy(seed: u64) -> Scene {
    Scene::new(SceneConfig {
        seed,
        density: 0.9,
        ..SceneConfig::default()
    })
}

#[test]
fn equal_seeds_give_equal_frames_in_any_order() {
    let (mut a, mut b) = (busy(5), busy(5));
    let forward = [0, 8, 16, 24].map(|n| a.frame(n));
    let backward = [24, 16, 8, 0].map(|n| b.frame(n));
    assert!(forward.iter().eq(backward.iter().rev()));
    assert_ne!(
        forward[0].0,
        busy(6).frame(0).0,
        "another seed is another street"
    );
}

#[test]
fn things_move_a_little_from_frame_to_frame() {
    let mut scene = busy(11);
    let mut n_moves = 0;
    for n in 200..260 {
        let (_, before) = scene.frame(n);
        let (_, after) = scene.frame(n + 1);
        for vehicle in before.vehicles.iter().filter(|v| v.visible > 0.99) {
            let Some(next) = after.vehicles.iter().find(|v| v.track == vehicle.track) else {
                panic!("a vehicle in full sight vanished in frame {n}");
            };
            assert_eq!(next.plate, vehicle.plate);
            let moved = (next.bbox.y1 - vehicle.bbox.y1).abs();
            assert!(
                (0.5..8.0).contains(&moved) || next.visible < 0.99,
                "{moved} pixels in frame {n}"
            );
            n_moves += 1;
        }
        for person in before.people.iter().filter(|p| p.visible > 0.99) {
            let next = after.people.iter().find(|p| p.track == person.track);
            let next = next.expect("a person in full sight stays");
            assert_eq!(next.identity, person.identity);
            assert!(next.bbox.iou(&person.bbox) > 0.85, "people do not jump");
        }
    }
    assert!(n_moves > 100, "only {n_moves} moves seen");
}

#[test]
fn new_vehicles_keep_coming_and_old_ones_leave() {
    let mut scene = busy(3);
    let mut plates: Vec<String> = Vec::new();
    for n in (0..2000).step_by(100) {
        plates.extend(scene.frame(n).1.vehicles.into_iter().map(|v| v.plate));
    }
    plates.sort();
    plates.dedup();
    assert!(plates.len() > 60, "only {} plates in 80 s", plates.len());
}

#[test]
fn boxes_lie_in_the_frame_and_hold_their_parts() {
    for (seed, width, height) in [(1, 640, 360), (2, 320, 240), (3, 1280, 720), (4, 360, 640)] {
        let config = SceneConfig {
            seed,
            width,
            height,
            density: 1.0,
            ..SceneConfig::default()
        };
        let mut scene = Scene::new(config);
        let frame = Rect::new(0.0, 0.0, width as f32, height as f32);
        for n in (0..400).step_by(80) {
            let (picture, truth) = scene.frame(n);
            assert_eq!(picture.rgb.len(), (width * height * 3) as usize);
            assert!(!truth.vehicles.is_empty() && !truth.people.is_empty());
            for vehicle in &truth.vehicles {
                assert_eq!(vehicle.bbox, vehicle.bbox.intersection(&frame));
                assert_eq!(vehicle.plate.len(), PLATE_LEN);
                if vehicle.visible > 0.99 {
                    let inside = vehicle.plate_box.intersection(&vehicle.bbox);
                    assert!((inside.area() - vehicle.plate_box.area()).abs() < 0.1);
                    for i in 0..PLATE_LEN {
                        let letter = vehicle.letter_box(i);
                        let inside = letter.intersection(&vehicle.plate_box);
                        assert!((inside.area() - letter.area()).abs() < 0.1);
                    }
                }
            }
            for person in &truth.people {
                assert_eq!(person.bbox, person.bbox.intersection(&frame));
                assert!(person.identity < IDENTITIES.len());
            }
        }
    }
}

/// Mean brightness of a part of a frame.
fn brightness(rgb: &[u8], width: usize, r: &Rect) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for y in r.y0 as usize..r.y1 as usize {
        for x in r.x0 as usize..r.x1 as usize {
            sum += f64::from(rgb[(y * width + x) * 3 + 1]);
            n += 1.0;
        }
    }
    sum / n
}

#[test]
fn plates_are_where_the_truth_says() {
    let config = SceneConfig {
        seed: 8,
        density: 0.8,
        condition: Some(Condition::Day),
        blur: Some(0.0),
        noise: Some(0.0),
        ..SceneConfig::default()
    };
    let mut scene = Scene::new(config);
    let (mut n_plates, mut contrasts) = (0, 0.0);
    for n in (0..1000).step_by(100) {
        let (frame, truth) = scene.frame(n);
        for vehicle in truth
            .vehicles
            .iter()
            .filter(|v| v.plate_visible && v.visible > 0.9)
        {
            // Light ground above and below the letters, darker where the letters are.
            let letters = vehicle.letter_box(0);
            let ground = Rect::new(
                vehicle.letter_box(2).x1,
                letters.y0,
                vehicle.letter_box(3).x0 + 1.0,
                letters.y1,
            );
            let width = frame.width as usize;
            contrasts +=
                brightness(&frame.rgb, width, &ground) - brightness(&frame.rgb, width, &letters);
            n_plates += 1;
        }
    }
    assert!(n_plates > 20, "{n_plates} plates");
    assert!(
        contrasts / f64::from(n_plates) > 25.0,
        "{}",
        contrasts / f64::from(n_plates)
    );
}

#[test]
fn conditions_differ_in_light() {
    let mean = |condition| {
        let config = SceneConfig {
            seed: 4,
            condition: Some(condition),
            ..SceneConfig::default()
        };
        let (frame, truth) = Scene::new(config).frame(10);
        assert_eq!(truth.condition, condition);
        brightness(&frame.rgb, 640, &Rect::new(0.0, 0.0, 640.0, 360.0))
    };
    let [day, dusk, night, fog] = Condition::ALL.map(mean);
    assert!(
        day > dusk * 1.2 && dusk > night * 1.2 && fog > day,
        "{day} {dusk} {night} {fog}"
    );
}
