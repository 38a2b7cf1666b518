//! Envelopes and the addresses on them.

use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId};
use spillgate_proto::link as pb;
use spillgate_protocol::message::{Address, Envelope, Message, ToDevice};

use super::error::{Field, WireError, field};
use super::{ItemOutputs, Parcel, to_controller, to_device, to_gateway};
use pb::address::Role;
use pb::envelope::Message as Wire;

pub(super) fn encode(
    envelope: &Envelope<Parcel>,
    brought: &[ItemOutputs],
    listed: &str,
) -> pb::Envelope {
    let message = match &envelope.message {
        Message::Gateway(message) => Wire::Gateway(to_gateway::encode(message, brought)),
        Message::Controller(message) => Wire::Controller(to_controller::encode(message)),
        Message::Device(message) => Wire::Device(to_device::encode(message)),
    };
    pb::Envelope {
        from: Some(encode_address(&envelope.from)),
        incarnation: envelope.incarnation.0,
        to: Some(encode_address(&envelope.to)),
        message: Some(message),
        listed: listed.to_owned(),
    }
}

/// An envelope, and what its message brings.
type Whole = (Envelope<Parcel>, Vec<ItemOutputs>);

/// An envelope that was read; `None` for a message of a kind that this version does not know.
pub(super) fn decode(envelope: pb::Envelope) -> Result<Option<Whole>, WireError> {
    let of = |name| field("Envelope", name);
    let from = of("from").required(envelope.from)?;
    let from = decode_address(of("from"), from)?;
    let to = of("to").required(envelope.to)?;
    let to = decode_address(of("to"), to)?;
    let incarnation = Incarnation(envelope.incarnation);
    let mut brought = Vec::new();
    let is_known = match &envelope.message {
        Some(Wire::Gateway(message)) => message.message.is_some(),
        Some(Wire::Controller(message)) => message.message.is_some(),
        Some(Wire::Device(message)) => message.message.is_some(),
        None => false,
    };
    let Some(message) = envelope.message.filter(|_| is_known) else {
        return Ok(None);
    };
    let message = match message {
        Wire::Gateway(message) => {
            let (message, all) = to_gateway::decode(message, incarnation)?;
            brought = all;
            Message::Gateway(message)
        }
        Wire::Controller(message) => Message::Controller(to_controller::decode(message)?),
        Wire::Device(message) => Message::Device(to_device::decode(message)?),
    };
    let (is_for_it, role) = match message {
        Message::Gateway(_) => (matches!(to, Address::Gateway(_)), "gateway"),
        Message::Controller(_) => (matches!(to, Address::Controller(_)), "controller"),
        Message::Device(_) => (matches!(to, Address::Device(_)), "device"),
    };
    if !is_for_it {
        let was = format!("is {to:?}");
        return Err(of("to").wrong(was, format!("the message is for a {role}")));
    }
    let envelope = Envelope {
        from,
        incarnation,
        to,
        message,
    };
    Ok(Some((envelope, brought)))
}

/// Requests that are given back.
pub(super) fn decode_lacking(envelope: pb::Envelope) -> Result<Envelope<Parcel>, WireError> {
    let envelope = decode(envelope)?;
    let (envelope, _) = field("Packet", "lacking").required(envelope)?;
    let is_for_device = match &envelope.message {
        Message::Device(ToDevice::Requests(_) | ToDevice::Answer(_)) => true,
        Message::Device(_) | Message::Gateway(_) | Message::Controller(_) => false,
    };
    if !is_for_device || !matches!(envelope.from, Address::Gateway(_)) {
        let was = "is no request of a gateway".to_owned();
        return Err(field("Packet", "lacking").wrong(was, "only requests are given back"));
    }
    Ok(envelope.map(|_, _, _| Parcel::default()))
}

pub(super) fn encode_address(address: &Address) -> pb::Address {
    let role = match *address {
        Address::Gateway(id) => Role::Gateway(u32::from(id.0)),
        Address::Controller(id) => Role::Controller(u32::from(id.0)),
        Address::Device(id) => Role::Device(u32::from(id.0)),
    };
    pb::Address { role: Some(role) }
}

/// `of` is the field that holds the address.
pub(super) fn decode_address(of: Field, address: pb::Address) -> Result<Address, WireError> {
    let missing = || of.wrong("names no role".to_owned(), "each address names one");
    Ok(match address.role.ok_or_else(missing)? {
        Role::Gateway(id) => Address::Gateway(GatewayId(of.u16(id)?)),
        Role::Controller(id) => Address::Controller(ModuleId(of.u16(id)?)),
        Role::Device(id) => Address::Device(DeviceId(of.u16(id)?)),
    })
}
