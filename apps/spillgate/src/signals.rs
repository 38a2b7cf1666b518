//! Signals from the first moment on. SIGTERM, SIGINT and SIGHUP end the process at once, with 128 and the signal's number as
//! its exit code, until a command heeds them in its own way.
//!
//! The default action would do almost the same, but not for process 1 of a container, for which the system ignores each signal
//! that has no handler. The handlers are there before libtorch initialises itself, which takes most of a second.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;

/// The signals that end a process in order.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Whether they end the process at once.
static AT_ONCE: AtomicBool = AtomicBool::new(true);

/// From now on the command hears of signals by its own handlers, which it has installed.
pub(crate) fn are_heeded() {
    AT_ONCE.store(false, Ordering::Relaxed);
}

/// From now on a signal ends the process at once, again.
pub(crate) fn end_at_once() {
    AT_ONCE.store(true, Ordering::Relaxed);
}

/// The signals that this process was not started to ignore, as `nohup` has SIGHUP ignored.
pub(crate) fn not_ignored() -> impl Iterator<Item = Signal> {
    ENDING.into_iter().filter(|signal| !is_ignored(*signal))
}

#[expect(unsafe_code, reason = "a call of the C library that only reads")]
fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeros are a value of this type, which the call fills in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no action is given, so none is changed; the pointer is to a value that lives until then.
    unsafe { libc::sigaction(signal as c_int, std::ptr::null(), &raw mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

#[expect(unsafe_code, reason = "a call that handlers of signals may make")]
extern "C" fn heard(signal: c_int) {
    if AT_ONCE.load(Ordering::Relaxed) {
        // SAFETY: it may be called by a handler, and does not return.
        unsafe { libc::_exit(128 + signal) }
    }
}

#[expect(
    unsafe_code,
    reason = "a call of the C library that installs a handler"
)]
extern "C" fn install() {
    for signal in not_ignored() {
        // SAFETY: the handler does nothing that handlers must not do, and lives as long as the process.
        unsafe { libc::signal(signal as c_int, heard as *const () as libc::sighandler_t) };
    }
}

/// The loader calls what stands in this section of a program before it initialises the program's libraries.
#[expect(unsafe_code, reason = "a place among functions that the loader calls")]
#[used]
#[unsafe(link_section = ".preinit_array")]
static BEFORE_LIBRARIES: extern "C" fn() = install;
