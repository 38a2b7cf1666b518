//! Parcels: what a request carries.

use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::spec::MODULES_MAX;
use spillgate_proto::link as pb;

use super::error::{Field, WireError, field};
use super::{Carried, Parcel, values};

/// `None` for an empty one.
pub(super) fn encode(parcel: &Parcel) -> Option<pb::Parcel> {
    let Parcel {
        frame,
        outputs,
        keep,
        is_traced,
    } = parcel;
    let module = |(module, outputs): &(ModuleId, Vec<Carried>)| pb::ModuleOutputs {
        module: u32::from(module.0),
        outputs: Some(values::encode(outputs)),
    };
    (frame.is_some() || !outputs.is_empty() || *keep || *is_traced).then(|| pb::Parcel {
        frame: frame.as_ref().map(encode_frame),
        modules: outputs.iter().map(module).collect(),
        keep: *keep,
        traced: *is_traced,
    })
}

pub(super) fn decode(parcel: Option<pb::Parcel>) -> Result<Parcel, WireError> {
    let pb::Parcel {
        frame,
        modules,
        keep,
        traced,
    } = parcel.unwrap_or_default();
    // The source has outputs, too.
    field("Parcel", "modules").at_most(modules.len(), MODULES_MAX + 1)?;
    let outputs: Result<Vec<_>, _> = modules.into_iter().map(decode_module).collect();
    Ok(Parcel {
        frame: frame.map(decode_frame).transpose()?,
        outputs: outputs?,
        keep,
        is_traced: traced,
    })
}

fn decode_module(module: pb::ModuleOutputs) -> Result<(ModuleId, Vec<Carried>), WireError> {
    let of = |name| field("ModuleOutputs", name);
    let id = ModuleId(of("module").u16(module.module)?);
    let outputs = of("outputs").required(module.outputs)?;
    Ok((id, values::decode(outputs)?))
}

fn encode_frame(frame: &Frame) -> pb::Frame {
    let format = match frame.format {
        FrameFormat::Auto => pb::FrameFormat::Auto,
        FrameFormat::Jpeg => pb::FrameFormat::Jpeg,
        FrameFormat::Png => pb::FrameFormat::Png,
        FrameFormat::Webp => pb::FrameFormat::Webp,
        FrameFormat::Rgb8 => pb::FrameFormat::Rgb8,
        FrameFormat::Bytes => pb::FrameFormat::Bytes,
    };
    pb::Frame {
        format: format.into(),
        data: frame.data.clone(),
        width: frame.width,
        height: frame.height,
    }
}

fn decode_frame(frame: pb::Frame) -> Result<Frame, WireError> {
    Ok(Frame {
        format: decode_format(field("Frame", "format"), frame.format)?,
        data: frame.data,
        width: frame.width,
        height: frame.height,
    })
}

fn decode_format(of: Field, format: i32) -> Result<FrameFormat, WireError> {
    Ok(match pb::FrameFormat::try_from(format) {
        Ok(pb::FrameFormat::Auto) => FrameFormat::Auto,
        Ok(pb::FrameFormat::Jpeg) => FrameFormat::Jpeg,
        Ok(pb::FrameFormat::Png) => FrameFormat::Png,
        Ok(pb::FrameFormat::Webp) => FrameFormat::Webp,
        Ok(pb::FrameFormat::Rgb8) => FrameFormat::Rgb8,
        Ok(pb::FrameFormat::Bytes) => FrameFormat::Bytes,
        Ok(pb::FrameFormat::Unspecified) | Err(_) => {
            return Err(of.is(format, "it must be a format from 1 to 5"));
        }
    })
}
