//! Writes frames of a scene as PNG files: `cargo run --example render -- SEED DENSITY N OUT.png [WIDTH HEIGHT]`.

use std::process::ExitCode;
use std::time::Instant;

use spillgate_scenes::{Scene, SceneConfig};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match args.as_slice() {
        [seed, density, n, out, size @ ..] if matches!(size.len(), 0 | 2) => {
            let side = |i: usize, default: u32| size.get(i).map_or(Ok(default), |s| s.parse());
            match (
                seed.parse(),
                density.parse(),
                n.parse(),
                side(0, 640),
                side(1, 360),
            ) {
                (Ok(seed), Ok(density), Ok(n), Ok(width), Ok(height)) => Some((
                    SceneConfig {
                        seed,
                        width,
                        height,
                        density,
                        ..Default::default()
                    },
                    n,
                    out,
                )),
                _ => None,
            }
        }
        _ => None,
    };
    let Some((config, n, out)) = parsed else {
        eprintln!("usage: render SEED DENSITY FRAME OUT.png [WIDTH HEIGHT]");
        return ExitCode::from(2);
    };
    let mut scene = Scene::new(config);
    let _ = scene.frame(n);
    let start = Instant::now();
    let (frame, truth) = scene.frame(n);
    println!(
        "rendered in {:?}, {}",
        start.elapsed(),
        scene.condition().name()
    );
    println!("{truth:#?}");
    if let Err(error) = image::save_buffer(
        out,
        &frame.rgb,
        frame.width,
        frame.height,
        image::ColorType::Rgb8,
    ) {
        eprintln!("{out}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
