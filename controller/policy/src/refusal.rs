//! Why a request is refused: it was never accepted, and nothing of it remains.

use std::time::Duration;

use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::format_duration;

use crate::shares::Shortfall;

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The limit of requests in flight is reached.
    Full {
        /// The limit.
        limit: usize,
    },
    /// The limit of requests in flight of clients without an SLO is reached.
    BackgroundFull {
        /// The limit.
        limit: usize,
    },
    /// The limit of its stream's requests in flight is reached.
    StreamFull {
        /// The limit.
        limit: usize,
    },
    /// The server is shutting down.
    Draining,
    /// One revision of the pipeline has ended, and the next one is not ready yet.
    Replaced,
    /// Its deadline had passed when it came.
    Expired,
    /// It cannot be in time even if it had the pipeline for itself.
    Hopeless,
    /// The gate lets it not pass: more comes than the pipeline can serve, or more than the share of its client or of its
    /// stream.
    Overload(Shortfall),
    /// Its client shows no token that the server knows.
    UnknownToken,
    /// The token has as many requests in flight as it may have.
    TokenFull {
        /// Their number.
        limit: u32,
    },
    /// The token sends more requests a second than it may.
    TokenRate {
        /// Requests a second that it may send.
        rate: f64,
    },
    /// The client has as many requests in flight as the pipeline lets it have.
    ClientFull {
        /// Their number.
        limit: u32,
    },
    /// The client sends more requests a second than the pipeline lets it send.
    ClientRate {
        /// Requests a second that it may send.
        rate: f64,
    },
    /// It names a pipeline that does not exist for its client.
    UnknownPipeline {
        /// What it names.
        name: String,
        /// The pipelines that exist for its client.
        known: Vec<String>,
    },
    /// It names no pipeline, and there are several.
    UnnamedPipeline {
        /// The pipelines that exist for its client.
        known: Vec<String>,
    },
    /// Its frame has more bytes than the pipeline takes.
    FrameTooLarge {
        /// The frame's.
        bytes: usize,
        /// The most that are taken.
        limit: usize,
    },
    /// The bytes that it needs are not free for its client; why.
    Memory(String),
    /// Its frame cannot be read, or is not what the pipeline takes.
    InvalidFrame(String),
    /// It names a model for a module that has no family of them.
    NoFamily {
        /// The module, as it is named.
        module: String,
        /// The modules that have a family.
        families: Vec<String>,
    },
    /// It names a model that is not in the family.
    UnknownModel {
        /// The module.
        module: String,
        /// The name.
        name: String,
        /// The name that was probably meant.
        near: Option<String>,
        /// Models of the family.
        n_members: usize,
    },
    /// It names no model for a module whose family has no default.
    UnnamedModel {
        /// The module.
        module: String,
        /// The name of some model of the family.
        example: String,
    },
    /// Its picture would take longer to decode than the pipeline gives one.
    DecodingTooLong {
        /// Expected time to decode it.
        decoding: Duration,
        /// The most that is given.
        limit: Duration,
    },
}

impl Refusal {
    /// Label in metrics and results: that of the reason for which a request would be dropped later, where there is one.
    pub fn label(&self) -> &'static str {
        let reason = match self {
            Refusal::Full { .. } | Refusal::BackgroundFull { .. } | Refusal::StreamFull { .. } => {
                DropReason::QueueFull
            }
            Refusal::Draining => DropReason::Draining,
            Refusal::Replaced => return "replaced",
            Refusal::Expired => DropReason::Expired,
            Refusal::Hopeless => DropReason::Predicted,
            Refusal::Overload(Shortfall::Pipeline) => DropReason::Overload,
            Refusal::Overload(Shortfall::Client { .. } | Shortfall::Strangers { .. }) => {
                return "client_share";
            }
            Refusal::Overload(Shortfall::Stream { .. }) => return "stream_share",
            Refusal::DecodingTooLong { .. } => DropReason::Decoding,
            Refusal::Memory(_) => DropReason::Memory,
            Refusal::UnknownToken => return "unknown_token",
            Refusal::TokenFull { .. } => return "token_in_flight",
            Refusal::TokenRate { .. } => return "token_rate",
            Refusal::ClientFull { .. } => return "client_in_flight",
            Refusal::ClientRate { .. } => return "client_rate",
            Refusal::UnknownPipeline { .. } => return "unknown_pipeline",
            Refusal::UnnamedPipeline { .. } => return "unnamed_pipeline",
            Refusal::FrameTooLarge { .. } => return "frame_too_large",
            Refusal::InvalidFrame(_) => return "invalid_frame",
            Refusal::NoFamily { .. } | Refusal::UnknownModel { .. } => return "unknown_model",
            Refusal::UnnamedModel { .. } => return "unnamed_model",
        };
        reason.label()
    }

    /// Whether its call ends with it: no later request of the same call would do better. Such a request belongs to no
    /// pipeline that its client may use, so that none counts it.
    pub fn ends_call(&self) -> bool {
        matches!(
            self,
            Refusal::UnknownToken
                | Refusal::UnknownPipeline { .. }
                | Refusal::UnnamedPipeline { .. }
        )
    }

    /// Whether the pipeline would have served it with more workers.
    pub fn is_for_want_of_capacity(&self) -> bool {
        matches!(
            self,
            Refusal::Full { .. } | Refusal::Hopeless | Refusal::Overload(_)
        )
    }

    /// The fair share that was used up, in requests a second.
    pub fn share(&self) -> Option<f64> {
        match self {
            Refusal::Overload(
                Shortfall::Client { rate }
                | Shortfall::Strangers { rate }
                | Shortfall::Stream { rate },
            ) => Some(*rate),
            _ => None,
        }
    }

    /// What is wrong, as a sentence for the client.
    pub fn explain(&self) -> String {
        match self {
            Refusal::Full { limit } => {
                format!("refused: {limit} requests are in flight already (limits.in_flight)")
            }
            Refusal::BackgroundFull { limit } => format!(
                "refused: {limit} requests of clients without an SLO are in flight already (a quarter of limits.in_flight)"
            ),
            Refusal::StreamFull { limit } => format!(
                "refused: {limit} frames of this stream are in flight already (limits.in_flight_per_stream)"
            ),
            Refusal::Draining => "refused: the server is shutting down".to_owned(),
            Refusal::Replaced => {
                "refused: the pipelines are being replaced (--rollout recreate); send again in some seconds".to_owned()
            }
            Refusal::Expired => "refused: its time was over when it came".to_owned(),
            Refusal::Hopeless => {
                "refused: it could not be in time even if it had the pipeline for itself".to_owned()
            }
            Refusal::Overload(shortfall) => shortfall.explain(),
            Refusal::UnknownToken => "this server serves holders of a token only: send yours as \
                                      `authorization: Bearer TOKEN`"
                .to_owned(),
            Refusal::TokenFull { limit } => {
                format!("refused: {limit} requests of the token are in flight already (in_flight)")
            }
            Refusal::TokenRate { rate } => {
                format!("refused: the token may send {rate} requests a second (rate)")
            }
            Refusal::ClientFull { limit } => format!(
                "refused: {limit} requests of the client are in flight already (clients.each.in_flight, or that of its name)"
            ),
            Refusal::ClientRate { rate } => format!(
                "refused: the client may send {rate} requests a second (clients.each.rate, or that of its name)"
            ),
            Refusal::UnknownPipeline { name, known } if known.is_empty() => {
                format!("no pipeline named \"{name}\", nor any other that this token may use")
            }
            Refusal::UnknownPipeline { name, known } => format!(
                "no pipeline named \"{name}\"; this server serves: {}",
                known.join(", ")
            ),
            Refusal::UnnamedPipeline { known } => format!(
                "no pipeline named in the request, and this server serves several: {}",
                known.join(", ")
            ),
            Refusal::FrameTooLarge { bytes, limit } => format!(
                "the frame has {bytes} bytes, more than the {limit} that the server takes (limits.frame_bytes)"
            ),
            Refusal::InvalidFrame(what) => what.clone(),
            Refusal::Memory(why) => format!("refused: {why}"),
            Refusal::NoFamily { module, families } => {
                let module = shown(module);
                match families.as_slice() {
                    [] => format!(
                        "models: {module} has no family of models, nor has any other module of the pipeline; leave models out"
                    ),
                    families => format!(
                        "models: {module} has no family of models; modules with one: {}",
                        families.join(", ")
                    ),
                }
            }
            Refusal::UnknownModel {
                module,
                name,
                near,
                n_members,
            } => {
                let name = shown(name);
                match near {
                    Some(near) => format!(
                        "models: {module} has no model named {name}; did you mean \"{near}\"? Its family has {n_members}"
                    ),
                    None => format!(
                        "models: {module} has no model named {name}; its family has {n_members}"
                    ),
                }
            }
            Refusal::UnnamedModel { module, example } => format!(
                "models: the frame names no model for {module}, whose family has no default_model; name one, like {module}: \
                 {example}"
            ),
            Refusal::DecodingTooLong { decoding, limit } => format!(
                "decoding the frame would take about {}, more than the {} that the server gives one (limits.decoding)",
                format_duration(*decoding),
                format_duration(*limit)
            ),
        }
    }
}

/// A name that a client sent, as part of a sentence: of one line and bounded length.
fn shown(name: &str) -> String {
    /// Letters that are shown.
    const SHOWN: usize = 64;
    let letters = name.chars().take(SHOWN).flat_map(char::escape_debug);
    format!("\"{}\"", letters.collect::<String>())
}
