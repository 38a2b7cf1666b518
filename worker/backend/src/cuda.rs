//! What libtorch has for GPUs and tch does not bind (`native/cuda.cpp`): a stream for each thread, and records of executions.
//!
//! Work that threads send to one stream is done in order. So each thread that uses a GPU has a stream of its own there: copies of inputs
//! and outputs, LOADs and executions then go on beside each other. A thread waits for its stream before it hands tensors on, so
//! streams need not wait for each other.
//!
//! A record ([`Recording`], a CUDA graph) holds all kernels of an execution with their arguments. Launching it takes one call where the
//! execution took one a kernel.

#![expect(unsafe_code, reason = "calls of C++ functions")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use crate::native::said;

unsafe extern "C" {
    fn spillgate_cuda_enter(index: c_int, urgent: bool) -> *mut c_char;
    fn spillgate_cuda_use(index: c_int) -> *mut c_char;
    fn spillgate_cuda_synchronize(index: c_int) -> *mut c_char;
    fn spillgate_cuda_records() -> bool;
    fn spillgate_cuda_recorder(index: c_int, out: *mut *mut c_void) -> *mut c_char;
    fn spillgate_cuda_recorder_free(recorder: *mut c_void);
    fn spillgate_cuda_record(recorder: *const c_void, out: *mut *mut c_void) -> *mut c_char;
    fn spillgate_cuda_recorded(graph: *mut c_void) -> *mut c_char;
    fn spillgate_cuda_launch(graph: *mut c_void) -> *mut c_char;
    fn spillgate_cuda_graph_free(graph: *mut c_void);
}

thread_local! {
    /// GPUs on which this thread has a stream of its own; the last one is current.
    static ENTERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Whose kernels go first where a GPU has work of several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Batches, and what is copied for them.
    Serving,
    /// Loading.
    Loading,
}

/// Makes a GPU current for this thread, with a stream of the thread's own there. Its urgency is that of the first call.
///
/// # Errors
/// libtorch's text.
pub(crate) fn enter(index: usize, urgency: Urgency) -> Result<(), String> {
    ENTERED.with_borrow_mut(|entered| {
        if entered.last() == Some(&index) {
            return Ok(());
        }
        let place = entered.iter().position(|i| *i == index);
        let number = number(index)?;
        // SAFETY: they take numbers, and check them.
        match place {
            Some(place) => {
                said(unsafe { spillgate_cuda_use(number) })?;
                entered.remove(place);
            }
            None => said(unsafe { spillgate_cuda_enter(number, urgency == Urgency::Serving) })?,
        }
        entered.push(index);
        Ok(())
    })
}

/// Waits until the stream of this thread on a GPU has done everything.
///
/// # Errors
/// libtorch's text, also where an earlier kernel failed.
pub(crate) fn synchronize(index: usize) -> Result<(), String> {
    // SAFETY: it takes a number, and checks it.
    said(unsafe { spillgate_cuda_synchronize(number(index)?) })
}

fn number(index: usize) -> Result<c_int, String> {
    c_int::try_from(index).map_err(|_| format!("there is no GPU {index}"))
}

/// Whether this libtorch can record executions.
pub(crate) fn records() -> bool {
    // SAFETY: it takes nothing, and looks symbols up once.
    unsafe { spillgate_cuda_records() }
}

/// Records executions on one GPU. All of them use the same memory for what lies between input and output, so one at a time may be launched.
#[derive(Debug)]
pub(crate) struct Recorder(NonNull<c_void>);

// SAFETY: it is three numbers that nothing changes.
unsafe impl Send for Recorder {}

/// A recorded execution.
#[derive(Debug)]
pub(crate) struct Recording(NonNull<c_void>);

// SAFETY: libtorch lets a graph be launched and destroyed by another thread than the one that recorded it; `launch` takes it exclusively.
unsafe impl Send for Recording {}

impl Recorder {
    /// A recorder for a GPU.
    ///
    /// # Errors
    /// libtorch's text.
    pub(crate) fn new(index: usize) -> Result<Self, String> {
        assert!(records(), "asked before");
        let mut out = null_mut();
        // SAFETY: `out` is written before it returns null.
        said(unsafe { spillgate_cuda_recorder(number(index)?, &mut out) })?;
        NonNull::new(out)
            .map(Recorder)
            .ok_or_else(|| "no recorder".to_owned())
    }

    /// Records what `run` does on the GPU. Nothing of it is done.
    ///
    /// # Errors
    /// When libtorch or `run` fail. The recorder must not be used again then.
    pub(crate) fn record<T>(
        &mut self,
        run: impl FnOnce() -> Result<T, String>,
    ) -> Result<(Recording, T), String> {
        let mut out = null_mut();
        // SAFETY: the recorder lives, and `out` is written before it returns null.
        said(unsafe { spillgate_cuda_record(self.0.as_ptr(), &mut out) })?;
        let graph = NonNull::new(out).map(Recording);
        let graph = graph.ok_or_else(|| "no graph".to_owned())?;
        let done = run();
        // SAFETY: the graph lives, and this thread began it.
        let ended = said(unsafe { spillgate_cuda_recorded(graph.0.as_ptr()) });
        match (done, ended) {
            (Ok(made), Ok(())) => Ok((graph, made)),
            (Err(why), _) | (_, Err(why)) => Err(why),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: nothing else holds it.
        unsafe { spillgate_cuda_recorder_free(self.0.as_ptr()) }
    }
}

impl Recording {
    /// Does what was recorded, on the stream of this thread. Returns before it is done.
    ///
    /// # Errors
    /// libtorch's or CUDA's text.
    pub(crate) fn launch(&mut self) -> Result<(), String> {
        // SAFETY: the graph lives, and is launched by one thread at a time.
        said(unsafe { spillgate_cuda_launch(self.0.as_ptr()) })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: nothing else holds it.
        unsafe { spillgate_cuda_graph_free(self.0.as_ptr()) }
    }
}
