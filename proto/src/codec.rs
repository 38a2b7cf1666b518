//! The codec of all calls: prost's, with room for the whole message made at once, and bounds on what is decoded.

use std::marker::PhantomData;

use prost::bytes::{Buf, Bytes};
use prost::{Message, Name};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::shape::{self, Shape};

/// Encodes `T` and decodes `U`.
pub struct SizedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SizedCodec<T, U> {
    fn default() -> Self {
        SizedCodec(PhantomData)
    }
}

impl<T, U> Codec for SizedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SizedEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> SizedEncoder<T> {
        SizedEncoder(PhantomData)
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder {
            shape: shape::of::<U>(),
            message: PhantomData,
        }
    }
}

/// Encodes `T` into a buffer that it makes large enough. Left to itself the buffer doubles: fields after a large payload
/// would copy the payload once more.
pub struct SizedEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SizedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(item.encoded_len());
        item.encode(buf)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

/// Decodes `U`, unless its lists and maps have more entries than `proto/build.rs` allows.
pub struct BoundedDecoder<U> {
    /// None of a message that is not this package's.
    shape: Option<&'static Shape>,
    message: PhantomData<U>,
}

/// Decodes a message that did not come through a decoder of tonic. Its byte fields are slices of `bytes`.
///
/// # Errors
/// INVALID_ARGUMENT when it is no such message, or has more entries than `proto/build.rs` allows.
pub fn decode<U: Message + Name + Default>(bytes: Bytes) -> Result<U, Status> {
    if let Some(shape) = shape::of::<U>() {
        shape.check(&bytes).map_err(Status::invalid_argument)?;
    }
    U::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if let Some(shape) = self.shape {
            // Its bytes lie in one piece.
            shape.check(buf.chunk()).map_err(Status::invalid_argument)?;
        }
        let decoded = U::decode(buf);
        let decoded = decoded.map_err(|error| Status::invalid_argument(error.to_string()));
        decoded.map(Some)
    }
}
