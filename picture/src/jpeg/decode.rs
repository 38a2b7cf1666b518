//! What libjpeg's numbers mean, in words.

use mozjpeg_sys as jpeg;

use super::libjpeg::{Decompress, Failed};
use crate::upright::Upright;
use crate::{Damage, Decoded, NotDecoded, Picture};

/// Decodes upright.
pub(crate) fn decode(
    data: &[u8],
    picture: &Picture,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Decoded, NotDecoded> {
    let wrong = |failed| match failed {
        Failed::Stopped => NotDecoded::Stopped,
        Failed::Cut => unreadable("it is cut short: its data end before its end marker"),
        Failed::TooManyScans => unreadable("it has more scans than its header promised"),
        Failed::Error(code) => unreadable(&sentence(code)),
    };
    let held = usize::try_from(picture.bytes).unwrap_or(usize::MAX);
    let mut decompress = Decompress::new(data, held, stops).map_err(wrong)?;
    let size = decompress.header().map_err(wrong)?;
    // The decoder must find the size that was checked.
    if size != picture.stored() {
        return Err(unreadable("it claims two sizes"));
    }
    let mut upright = Upright::new(size, picture.orientation);
    decompress.rgb(&mut upright).map_err(wrong)?;
    let rgb = upright.done();
    Ok(Decoded {
        rgb: rgb.ok_or_else(|| unreadable("rows are missing"))?.into(),
        damage: decompress.damage().map(damage),
    })
}

fn unreadable(what: &str) -> NotDecoded {
    NotDecoded::Unreadable(crate::wrong("JPEG", what))
}

/// What an error means.
fn sentence(code: i32) -> String {
    let code = code as jpeg::J_MESSAGE_CODE;
    let text = match code {
        jpeg::JERR_BAD_HUFF_TABLE
        | jpeg::JERR_DHT_INDEX
        | jpeg::JERR_DQT_INDEX
        | jpeg::JERR_DAC_INDEX
        | jpeg::JERR_DAC_VALUE
        | jpeg::JERR_BAD_LENGTH => "one of its tables is damaged",
        jpeg::JERR_NO_HUFF_TABLE | jpeg::JERR_NO_QUANT_TABLE => "a table that it needs is missing",
        jpeg::JERR_SOF_DUPLICATE => "it has two frame headers",
        jpeg::JERR_SOI_DUPLICATE => "another picture begins inside of it",
        jpeg::JERR_SOS_NO_SOF | jpeg::JERR_SOF_NO_SOS | jpeg::JERR_NO_IMAGE => {
            "its pixels come without a frame header"
        }
        jpeg::JERR_BAD_PROGRESSION | jpeg::JERR_BAD_PROG_SCRIPT | jpeg::JERR_BAD_COMPONENT_ID => {
            "its scans contradict its header"
        }
        jpeg::JERR_BAD_SAMPLING
        | jpeg::JERR_FRACT_SAMPLE_NOTIMPL
        | jpeg::JERR_CCIR601_NOTIMPL
        | jpeg::JERR_BAD_MCU_SIZE
        | jpeg::JERR_CONVERSION_NOTIMPL
        | jpeg::JERR_BAD_J_COLORSPACE => "its colours are sampled in a way that is not read",
        jpeg::JERR_NO_BACKING_STORE | jpeg::JERR_OUT_OF_MEMORY => {
            "decoding it takes more memory than its header promised"
        }
        jpeg::JERR_UNKNOWN_MARKER | jpeg::JERR_SOF_UNSUPPORTED => {
            "it has a segment of a kind that is not read"
        }
        _ => return format!("its data are damaged (libjpeg's error {code})"),
    };
    text.to_owned()
}

/// What a warning means for the picture.
fn damage(code: i32) -> Damage {
    match code as jpeg::J_MESSAGE_CODE {
        jpeg::JWRN_HIT_MARKER => Damage::Missing,
        jpeg::JWRN_MUST_RESYNC => Damage::Markers,
        jpeg::JWRN_EXTRANEOUS_DATA => Damage::Extra,
        _ => Damage::Broken,
    }
}
