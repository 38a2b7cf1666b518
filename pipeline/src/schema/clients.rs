//! The section `clients:`.

use serde_json::{Value, json};

use super::integer;
use crate::clients::{CLASSES, ClientsBy, Strangers, StreamsBy, WEIGHT};
use crate::spec::IN_FLIGHT_MAX;
use crate::spec::clients::{NAMED_MAX, RATE};

pub(super) fn schema() -> Value {
    json!({
        "description": "Clients, which share the pipeline fairly under overload, and their rights (docs/fairness.md).",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "by": {
                "description": "How clients are told apart: by the name of their token, or where there are no tokens \
                                by their address; by address; by connection; by the application that a request \
                                names; by a header (metadata).",
                "enum": ClientsBy::ALL.map(ClientsBy::name),
                "default": ClientsBy::Token.name(),
            },
            "streams": {
                "description": "How the streams of a client are told apart, which share what the client gets.",
                "enum": StreamsBy::ALL.map(StreamsBy::name),
                "default": StreamsBy::Stream.name(),
            },
            "metadata": {
                "description": "The header that names the client or the stream, for metadata. Only a proxy may set it.",
                "type": "string",
                "pattern": "^[a-z0-9._-]{1,64}$",
            },
            "strangers": {
                "description": "Clients without a token or a name here, until three of their requests were answered: together they \
                                share the place of one client, or each has a place (apart).",
                "enum": Strangers::ALL.map(Strangers::name),
                "default": Strangers::Together.name(),
            },
            "each": rights("Rights of clients that are not named."),
            "named": {
                "description": "Rights of clients by name: of a token, an address, an application or a value of the header.",
                "type": "object",
                "minProperties": 1,
                "maxProperties": NAMED_MAX,
                "additionalProperties": rights("Rights of this client; the others are as in `each`."),
            },
        },
    })
}

fn rights(text: &str) -> Value {
    json!({
        "description": text,
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "weight": {
                "description": "Weight of its share among the clients of its class.",
                "type": "number",
                "minimum": WEIGHT.0,
                "maximum": WEIGHT.1,
                "default": 1,
            },
            "class": integer(
                "Its priority class: a request is never refused for one of a lower class.",
                0,
                CLASSES as i64 - 1,
            ),
            "rate": {
                "description": "Most requests a second, over all gateways; more are refused.",
                "type": "number",
                "minimum": RATE.0,
                "maximum": RATE.1,
            },
            "in_flight": integer("Most requests in flight, over all gateways; one more is refused.", 1, IN_FLIGHT_MAX.into()),
            "slo": {
                "description": "With `none` its requests have no deadline and are served in idle time only, never at the cost of others.",
                "const": "none",
            },
        },
    })
}
