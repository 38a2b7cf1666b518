//! The attacks. Each has a server of its own.

mod edge;
mod memory;
mod models;
mod phase;
mod places;
mod sources;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use crate::report::Outcome;
pub(crate) use places::Bad;

/// Where attacks take place.
pub(crate) struct Scene {
    /// The program that serves.
    pub(crate) spillgate: PathBuf,
    /// Folder of the shipped pipelines.
    pub(crate) pipelines: PathBuf,
    /// How long each attack lasts.
    pub(crate) duration: Duration,
}

type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Outcome>> + 'a>>;

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(&Scene) -> Running<'_>,
}

macro_rules! attack {
    ($name:literal, $what:literal, $run:path) => {
        Attack {
            name: $name,
            what: $what,
            run: |scene| Box::pin($run(scene)),
        }
    };
}

/// All of them.
pub(crate) const ATTACKS: &[Attack] = &[
    attack!(
        "hurry",
        "300 requests a second with a deadline of 1 ms",
        places::hurry
    ),
    attack!(
        "unreadable",
        "300 undecodable pictures a second",
        places::unreadable
    ),
    attack!("empty", "300 empty frames a second", places::empty),
    attack!(
        "cancelled",
        "300 calls a second, cancelled after 5 ms",
        places::cancelled
    ),
    attack!(
        "scans",
        "a progressive 7680 x 4320 JPEG with 99 scans, each second",
        places::scans
    ),
    attack!(
        "bits",
        "a one-bit PNG of 7680 x 4320, four a second",
        places::bits
    ),
    attack!(
        "blocks",
        "a PNG of 15 MB of deflate blocks that bring nothing, each second",
        places::blocks
    ),
    attack!(
        "healing",
        "20 such PNGs of 60 KB, then pictures of 21 megapixels from a client of the same address",
        places::healing
    ),
    attack!(
        "costly",
        "pictures just within limits.decoding, on four connections",
        places::costly
    ),
    attack!(
        "unfinished",
        "128 messages of 16 MiB on one connection, each without its last byte",
        memory::unfinished
    ),
    attack!(
        "claimed",
        "102 messages that claim 1 GB and bring nothing",
        memory::claimed
    ),
    attack!(
        "refused",
        "an in-order stream of refused frames behind one that waits",
        memory::refused
    ),
    attack!(
        "unread-streams",
        "60 streams with answers of 1 MB that are never read",
        memory::unread_streams
    ),
    attack!(
        "unread-calls",
        "256 calls with answers of 5 MB that are never read",
        memory::unread_calls
    ),
    attack!(
        "pictures",
        "35 JPEGs of a few KB and 33 megapixels at a slow module",
        memory::pictures
    ),
    attack!(
        "files",
        "four models whose code reads or writes files, in ways that no search of text finds",
        models::files
    ),
    attack!(
        "keys",
        "12 frames of 14 MB that name two million models each",
        memory::keys
    ),
    attack!(
        "bombs",
        "64 messages of 15 KB, packed with gzip, with a frame of 15 MB in each",
        memory::bombs
    ),
    attack!(
        "too-large",
        "frames of 100 MB where 1 MB is the limit, eight streams at a time",
        memory::too_large
    ),
    attack!(
        "unpacking",
        "20 messages a second with 15 MB packed in 15 KB",
        places::unpacking
    ),
    attack!(
        "small-frames",
        "HTTP/2 frames of one byte, on four connections",
        memory::small_frames
    ),
    attack!(
        "leavers",
        "200 requests a second, each from another address that leaves after 10 ms",
        sources::leavers
    ),
    attack!(
        "phase",
        "4, 40 and 100 streams of one address that send in step, ten times a second",
        phase::phase
    ),
    attack!(
        "ping-flood",
        "a connection of 100,000 pings and nothing else",
        sources::ping_flood
    ),
    attack!(
        "settings-flood",
        "a connection of 100,000 frames of settings and nothing else",
        sources::settings_flood
    ),
    attack!(
        "pings",
        "1,100 connections that only answer pings",
        edge::pings
    ),
    attack!(
        "descriptors",
        "the same from four addresses, at a server that may open 1,024 descriptors",
        edge::descriptors
    ),
    attack!(
        "admin",
        "32 silent connections to the admin port",
        edge::admin
    ),
    attack!("names", "pipelines with names of 10 MB", edge::names),
    attack!(
        "near-names",
        "300 requests a second for a model whose name is nearly that of 12,000 models",
        places::near_names
    ),
    attack!(
        "nonsense",
        "connections that bring frames of HTTP/2 by chance",
        edge::nonsense
    ),
    attack!(
        "resets",
        "calls that are reset as soon as they begin, as many as go",
        edge::resets
    ),
];
