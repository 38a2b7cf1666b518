//! How a picture becomes the input of a model: options that module types share, with defaults from what the model file says of itself.

use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::catalog::{ModuleType, OptionType};
use spillgate_process::value::Image;

use crate::facts::{Facts, STD_MIN};
use crate::letterbox::Fit;
use crate::options::Options;
use crate::resample::PixelFormat;

/// How a picture gets the size of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FitBy {
    /// Each side by itself.
    Stretch,
    /// Both sides alike until it fits in; the rest is grey.
    Letterbox,
    /// Both sides alike until the shorter one is as long as the input's over this number; what stands out is cut off on both sides.
    Crop(f32),
}

impl FitBy {
    /// Words of the option `fit`.
    pub(crate) const WORDS: [&str; 3] = ["stretch", "letterbox", "crop"];

    /// Where a picture lies in the input.
    pub(crate) fn fit(self, image: &Image, (width, height): (usize, usize)) -> Fit {
        let source = (image.width, image.height);
        match self {
            FitBy::Stretch => Fit::stretch(source, width, height),
            FitBy::Letterbox => Fit::letterbox(source, width, height),
            FitBy::Crop(part) => Fit::crop(source, width, height, part),
        }
    }
}

/// The options `size`, `layout`, `color`, `scale`, `mean` and `std`, added to a type. Names and docs are the same in all types.
pub(crate) fn options(ty: ModuleType, size: &str) -> ModuleType {
    let words =
        |words: &[&str]| OptionType::Choice(words.iter().map(|w| (*w).to_owned()).collect());
    ty.option(
        "size",
        OptionType::Numbers(2),
        &format!("[width, height] of the input (default: the variant's `input`, square; else what the file says{size})"),
    )
    .option("layout", words(&["nchw", "nhwc"]), "order of the input's dimensions (default: what the file says, else nchw)")
    .option("color", words(&["rgb", "bgr"]), "order of the colours (default: what the file says, else rgb)")
    .option(
        "scale",
        OptionType::Number(1e-6, 1e6),
        "a pixel of 0..255 is multiplied by it (default 0.003921569, that is 1/255; 1 where the model takes bytes)",
    )
    .option(
        "mean",
        OptionType::Numbers(3),
        "taken from each channel after `scale` (default: what the file says, else [0, 0, 0])",
    )
    .option(
        "std",
        OptionType::Numbers(3),
        "each channel is divided by it, last (default: what the file says, else [1, 1, 1])",
    )
}

/// The options `fit` and `crop`, added to a type.
pub(crate) fn fit_options(ty: ModuleType, default: &str) -> ModuleType {
    ty.option(
        "fit",
        OptionType::Choice(FitBy::WORDS.map(str::to_owned).to_vec()),
        &format!(
            "how a picture gets that size: stretch (each side by itself), letterbox (grey around it), crop (its middle) (default: what the file says, else {default})"
        ),
    )
    .option(
        "crop",
        OptionType::Number(0.1, 1.0),
        "for crop: how much of the shorter side is seen (default: what the file says, else 1)",
    )
}

/// The value of `fit`.
pub(crate) fn fit(
    options: &Options<'_>,
    facts: &Facts,
    default: &str,
) -> Result<FitBy, OperatorError> {
    let word = options.text("fit", facts.fit.as_deref().unwrap_or(default))?;
    let part = options.number("crop", facts.crop.unwrap_or(1.0))?;
    match word.as_str() {
        "stretch" => Ok(FitBy::Stretch),
        "letterbox" => Ok(FitBy::Letterbox),
        "crop" => Ok(FitBy::Crop(part)),
        _ => Err(options.error(format_args!(
            "its model's metadata has fit: {word:?}; stretch, letterbox and crop are known, and the option `fit` goes first"
        ))),
    }
}

/// The option `region`: the part of each box to look at.
///
/// # Errors
/// When no boxes are wired.
pub(crate) fn region(options: &Options<'_>, with_boxes: bool) -> Result<[f32; 4], OperatorError> {
    if options.has("region") && !with_boxes {
        return Err(
            options.error("options.region: it is of boxes; wire them: inputs: { boxes: ... }")
        );
    }
    if options.has("fit") && with_boxes {
        return Err(
            options.error("options.fit: what is cut out of boxes is stretched; leave it out")
        );
    }
    options.part("region", [0.0, 0.0, 1.0, 1.0])
}

/// Width and height of the input of a variant whose option `input` is `square`.
///
/// # Errors
/// When nothing says it and there is no `default`; or when the model takes another one.
pub(crate) fn size(
    options: &Options<'_>,
    model: &str,
    (square, facts): (Option<usize>, &Facts),
    default: Option<usize>,
) -> Result<(usize, usize), OperatorError> {
    let given = match (options.has("size"), square) {
        (true, _) => Some((options.size("size", [0.0; 2])?, "options.size")),
        (false, Some(side)) => Some(((side, side), "its `input`")),
        (false, None) => None,
    };
    match (given, facts.size, default) {
        (Some(((width, height), what)), Some((w, h)), _) if facts.is_fixed && (width, height) != (w, h) => {
            Err(options.error(format_args!(
                "{what} is {width}x{height}, and {model} takes {w}x{h} alone; leave it out, or export the model for that size"
            )))
        }
        (Some((size, _)), ..) | (None, Some(size), _) => Ok(size),
        (None, None, Some(side)) => Ok((side, side)),
        (None, None, None) => Err(options.error(format_args!(
            "{model} does not say how large its input is; write it: options: {{ size: [640, 640] }}, or an `input` for each of its variants"
        ))),
    }
}

/// How pixels lie in the input.
pub(crate) fn format(options: &Options<'_>, facts: &Facts) -> Result<PixelFormat, OperatorError> {
    let unit = if facts.takes_bytes { 1.0 } else { 1.0 / 255.0 };
    let scale = options.number("scale", unit)?;
    let mean = options.numbers("mean", facts.mean.unwrap_or([0.0; 3]))?;
    let std = options.numbers("std", facts.std.unwrap_or([1.0; 3]))?;
    if std.iter().any(|v| *v < STD_MIN) {
        return Err(options.error(format_args!("options.std: {std:?} must be above 0")));
    }
    let color = facts.color.as_deref().unwrap_or("rgb");
    if !["rgb", "bgr"].contains(&color) {
        return Err(options.error(format_args!(
            "its model's metadata has color: {color:?}; rgb and bgr are known"
        )));
    }
    let layout = if facts.interleaved == Some(true) {
        "nhwc"
    } else {
        "nchw"
    };
    Ok(PixelFormat {
        interleaved: options.text("layout", layout)? == "nhwc",
        bgr: options.text("color", color)? == "bgr",
        mul: std.map(|s| scale / s),
        add: std::array::from_fn(|c| -mean[c] / std[c]),
    })
}
