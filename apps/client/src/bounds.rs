//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        ClientProgram,
        "clients of a run of `stream`",
        count(crate::stream::sources::CLIENTS_MAX),
        "a usage error"
    ),
    bound!(
        ClientProgram,
        "pictures of a source that wait to be sent",
        count(crate::stream::producer::READY_FRAMES_MAX),
        "the source waits"
    ),
    bound!(
        ClientProgram,
        "the same of a live source, and of a stream that adapts",
        count(crate::stream::producer::READY_FRAMES_MAX_LIVE),
        "a live source skips pictures"
    ),
    bound!(
        ClientProgram,
        "sides of a picture that is sent",
        words("the flag", crate::stream::producer),
        "it is made smaller",
        "stream --max-side"
    ),
    bound!(
        ClientProgram,
        "sizes of a preloaded frame that are kept",
        count(crate::stream::producer::preloaded::SIZES_MAX),
        "it is made anew"
    ),
    bound!(
        ClientProgram,
        "a picture from standard input",
        bytes(crate::source::stdin::PICTURE_BYTES_MAX),
        "an error"
    ),
    bound!(
        ClientProgram,
        "bytes between two pictures from standard input",
        bytes(crate::source::stdin::BETWEEN_BYTES_MAX),
        "an error"
    ),
    bound!(
        ClientProgram,
        "a frame of pixels from standard input",
        bytes(crate::source::stdin::RAW_BYTES_MAX),
        "an error"
    ),
    bound!(
        ClientProgram,
        "a picture of a video",
        bytes(crate::source::video::PICTURE_BYTES_MAX),
        "an error"
    ),
    bound!(
        ClientProgram,
        "frames given to a connection of `stream` and not yet written",
        count(crate::stream::open_stream::OUTGOING_MAX),
        "the frame is refused, `backlog`"
    ),
    bound!(
        ClientProgram,
        "times that a stream goes on elsewhere without an answer in between",
        count(crate::stream::session::moving::MOVES_MAX),
        "the server is lost"
    ),
    bound!(
        ClientProgram,
        "frames that wait while a stream goes on elsewhere",
        count(crate::stream::session::moving::HELD_MAX),
        "the frame is refused"
    ),
    bound!(
        ClientProgram,
        "time to find another server once one ended the stream in order",
        time(crate::stream::open_stream::MOVE_TIME_MAX),
        "the server is lost"
    ),
    bound!(
        ClientProgram,
        "pause between attempts to reach a lost camera or server",
        time(crate::stream::backoff::PAUSE_MAX),
        "the client waits, until the run is over"
    ),
    bound!(
        ClientProgram,
        "time for an answer beyond what it may take, after the last frame",
        time(crate::stream::session::ANSWER_GRACE),
        "the server is lost"
    ),
    bound!(
        ClientProgram,
        "time for an answer, whatever the server says",
        time(crate::stream::session::ANSWER_LONGEST),
        "the server is lost"
    ),
    bound!(
        ClientProgram,
        "time for the handshakes of TCP and TLS",
        time(crate::connect::CONNECT_TIME_MAX),
        "an error that says what was waited for"
    ),
    bound!(
        ClientProgram,
        "time for the server's greeting of HTTP/2",
        time(crate::connect::watched::GREETING_TIME_MAX),
        "an error that says what was waited for"
    ),
    bound!(
        ClientProgram,
        "time for an answer that needs no work",
        time(crate::connect::PROMPT_TIME_MAX),
        "an error that says what was waited for"
    ),
    bound!(
        ClientProgram,
        "a message of the server",
        bytes(crate::connect::MESSAGE_BYTES_MAX),
        "an error"
    ),
    bound!(
        ClientProgram,
        "time until a further address of a name is tried",
        time(crate::connect::addresses::NEXT_AFTER),
        "the next one is tried beside it"
    ),
    bound!(
        ClientProgram,
        "what waits before a slow link: as much as leaves within",
        time(crate::connect::shaped::BUFFER),
        "the writer waits"
    ),
    bound!(
        ClientProgram,
        "bytes on a slow link",
        bytes(crate::connect::shaped::ON_THE_WAY_MAX),
        "the writer waits"
    ),
    bound!(
        ClientProgram,
        "frames in the picture of `--plot`",
        count(crate::stream::plot::FRAMES_MAX),
        "each second one is left out"
    ),
    bound!(
        ClientProgram,
        "frames that wait to be saved",
        count(crate::stream::saver::WAITING_MAX),
        "further frames are not saved, and counted"
    ),
    bound!(
        ClientProgram,
        "frames that wait to be saved in order",
        count(crate::stream::saver::REORDERED_MAX),
        "the missing frame is not waited for"
    ),
    bound!(
        ClientProgram,
        "frames without an answer that are recorded when a server is lost",
        count(crate::stream::session::UNSENT_MAX),
        "the others are left out of the results"
    ),
    bound!(
        ClientProgram,
        "requests of `bench` that wait for their answers",
        count(crate::bench::generator::IN_FLIGHT_MAX),
        "the request fails at once"
    ),
    bound!(
        ClientProgram,
        "time for answers after the last request of `bench`",
        time(crate::bench::generator::ANSWER_WAIT_MAX),
        "they count as failed"
    ),
    bound!(
        ClientProgram,
        "frames given to a connection of `bench` and not yet written",
        count(crate::bench::streams::OUTGOING_MAX),
        "the request fails at once"
    ),
    bound!(
        ClientProgram,
        "connections on which a call of `bench` is tried that servers did not take",
        count(crate::bench::wire::MOVES_MAX),
        "the request fails"
    ),
    bound!(
        ClientProgram,
        "bytes of all payloads of `bench`",
        bytes(crate::bench::payloads::PAYLOADS_BYTES_MAX),
        "an error"
    ),
    bound!(
        ClientProgram,
        "payloads of `bench` after `--model`",
        count(crate::models::PAYLOADS_MAX),
        "an error"
    ),
];
