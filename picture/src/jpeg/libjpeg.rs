//! libjpeg-turbo, called so that it can be stopped anywhere, ends nothing but the picture, prints nothing, and reads nothing but the
//! picture's bytes.
//!
//! Its errors unwind from a callback through its C code, which is compiled for that, to [`guard`]. That leaves its structures as `longjmp`
//! would: only good to be destroyed. They lie behind raw pointers, because they point to each other.

#![expect(unsafe_code, reason = "libjpeg-turbo is C")]

use std::any::Any;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use mozjpeg_sys::{
    J_MESSAGE_CODE, JCS_CMYK, JCS_RGB, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_NOT_SEQUENTIAL,
    boolean, c_int, c_long, jpeg_common_struct, jpeg_create_decompress, jpeg_decompress_struct,
    jpeg_destroy_decompress, jpeg_error_mgr, jpeg_finish_decompress, jpeg_progress_mgr,
    jpeg_read_header, jpeg_read_scanlines, jpeg_resync_to_restart, jpeg_source_mgr,
    jpeg_start_decompress, jpeg_std_error,
};

use super::SCANS_MAX;
use crate::upright::Upright;

/// Bytes that are read before it is asked whether to go on. Decoding asks at each row of blocks, too.
const READ_MOST: usize = 64 << 10;
/// Rows that are asked for at once: as many as a row of blocks has.
const ROWS_MOST: usize = 16;

/// Why a picture was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It was told to stop.
    Stopped,
    /// The data end before the picture does.
    Cut,
    /// More than [`SCANS_MAX`].
    TooManyScans,
    /// One of libjpeg's errors: a number of `jerror.h`.
    Error(c_int),
}

/// What callbacks know.
struct Context<'a> {
    rest: &'a [u8],
    stops: &'a mut dyn FnMut() -> bool,
    /// The first of libjpeg's warnings that tells of damage: a number of `jerror.h`.
    damage: Option<c_int>,
}

/// Warnings that tell of no damage: of markers that say more, or something else, than they need to.
const HARMLESS: [J_MESSAGE_CODE; 3] = [JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_NOT_SEQUENTIAL];

struct State<'a> {
    info: jpeg_decompress_struct,
    errors: jpeg_error_mgr,
    source: jpeg_source_mgr,
    progress: jpeg_progress_mgr,
    context: Context<'a>,
}

/// A picture that is decoded.
pub(super) struct Decompress<'a> {
    /// From a box.
    state: *mut State<'a>,
    data: PhantomData<&'a mut State<'a>>,
}

impl<'a> Decompress<'a> {
    /// `held`: most bytes that the library may take.
    pub(super) fn new(
        data: &'a [u8],
        held: usize,
        stops: &'a mut dyn FnMut() -> bool,
    ) -> Result<Self, Failed> {
        let context = Context {
            rest: data,
            stops,
            damage: None,
        };
        let mut state: Box<MaybeUninit<State<'a>>> = Box::new(MaybeUninit::zeroed());
        let state: *mut State<'a> = unsafe {
            // SAFETY: all but the context are C structures of numbers and pointers that may be null.
            ptr::addr_of_mut!((*state.as_mut_ptr()).context).write(context);
            Box::into_raw(state).cast()
        };
        let this = Decompress {
            state,
            data: PhantomData,
        };
        guard(|| unsafe {
            // SAFETY: the structures live behind `state` until it is dropped, and nothing else refers to them now.
            let state = this.state;
            let info = ptr::addr_of_mut!((*state).info);
            (*info).common.err = jpeg_std_error(&mut (*state).errors);
            (*state).errors.error_exit = Some(error_exit);
            (*state).errors.emit_message = Some(emit_message);
            (*state).errors.output_message = Some(output_message);
            jpeg_create_decompress(info);
            (*info).common.client_data = ptr::addr_of_mut!((*state).context).cast();
            (*info).common.progress = ptr::addr_of_mut!((*state).progress);
            (*state).progress.progress_monitor = Some(progress_monitor);
            (*info).src = ptr::addr_of_mut!((*state).source);
            (*state).source.init_source = Some(nothing);
            (*state).source.fill_input_buffer = Some(fill_input_buffer);
            (*state).source.skip_input_data = Some(skip_input_data);
            (*state).source.resync_to_restart = Some(jpeg_resync_to_restart);
            (*state).source.term_source = Some(nothing);
            (*(*info).common.mem).max_memory_to_use = c_long::try_from(held).unwrap_or(c_long::MAX);
        })?;
        Ok(this)
    }

    /// Reads the header: columns and rows.
    pub(super) fn header(&mut self) -> Result<(u32, u32), Failed> {
        let info = self.info();
        // SAFETY: it was created, and reads from the source that was set.
        guard(|| unsafe { jpeg_read_header(info, 1) })?;
        Ok((info.image_width, info.image_height))
    }

    /// Decodes the picture, of which the header was read, to rows of RGB.
    pub(super) fn rgb(&mut self, upright: &mut Upright) -> Result<(), Failed> {
        let info = self.info();
        let is_cmyk = info.num_components == 4;
        info.out_color_space = if is_cmyk { JCS_CMYK } else { JCS_RGB };
        // SAFETY: the header was read.
        guard(|| unsafe { jpeg_start_decompress(info) })?;
        let width = info.output_width as usize;
        if !is_cmyk && upright.rest().is_some() {
            self.rows_in_place(upright, width * 3)?;
        } else {
            let mut row = vec![0; width * if is_cmyk { 4 } else { 3 }];
            for _ in 0..self.info().output_height {
                let info = self.info();
                // SAFETY: the row has the length that the library computed for it.
                guard(|| unsafe { jpeg_read_scanlines(info, &mut row.as_mut_ptr(), 1) })?;
                match is_cmyk {
                    true => upright.row(row.as_chunks().0.iter().map(|cmyk| of_cmyk(*cmyk))),
                    false => upright.row(row.as_chunks().0.iter().copied()),
                }
            }
        }
        let info = self.info();
        // SAFETY: all rows were read.
        guard(|| unsafe { jpeg_finish_decompress(info) })?;
        Ok(())
    }

    /// Rows that lie as they are stored, some at a time.
    fn rows_in_place(&mut self, upright: &mut Upright, stride: usize) -> Result<(), Failed> {
        while let Some(rest) = upright.rest().filter(|rest| !rest.is_empty()) {
            let mut rows = [ptr::null_mut(); ROWS_MOST];
            let mut n = 0;
            for (to, bytes) in rows.iter_mut().zip(rest.chunks_exact_mut(stride)) {
                *to = bytes.as_mut_ptr();
                n += 1;
            }
            let info = self.info();
            // SAFETY: each of the `n` rows has the length that the library computed for it.
            let read = guard(|| unsafe { jpeg_read_scanlines(info, rows.as_mut_ptr(), n) })?;
            if read == 0 {
                // Never asked for more than there are; without this a library that gives none would hold the thread.
                return Ok(());
            }
            upright.wrote(read as usize);
        }
        Ok(())
    }

    /// The first of the library's warnings that tells of damage.
    pub(super) fn damage(&self) -> Option<c_int> {
        // SAFETY: no callback runs now.
        unsafe { (*self.state).context.damage }
    }

    fn info(&mut self) -> &mut jpeg_decompress_struct {
        // SAFETY: it lives as long as this does, and is borrowed once at a time.
        unsafe { &mut (*self.state).info }
    }
}

impl Drop for Decompress<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` from a box, and is used no more.
        let mut state = unsafe { Box::from_raw(self.state) };
        // SAFETY: its own memory is all that it frees.
        let _ = guard(|| unsafe { jpeg_destroy_decompress(&mut state.info) });
    }
}

/// Inks as Adobe writes them, inverted.
fn of_cmyk([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let times = |ink: u8| {
        let product = u32::from(ink) * u32::from(k) + 128;
        ((product + (product >> 8)) >> 8) as u8
    };
    [times(c), times(m), times(y)]
}

/// Calls the library; what its callbacks unwind with comes back.
fn guard<T>(call: impl FnOnce() -> T) -> Result<T, Failed> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|thrown: Box<dyn Any + Send>| {
        match thrown.downcast::<Failed>() {
            Ok(failed) => *failed,
            // A bug of ours goes on as such.
            Err(other) => resume_unwind(other),
        }
    })
}

fn throw(failed: Failed) -> ! {
    resume_unwind(Box::new(failed))
}

/// # Safety
/// `common` is of a [`State`] whose context nothing else refers to, as during callbacks.
unsafe fn context<'c>(common: &jpeg_common_struct) -> &'c mut Context<'c> {
    // SAFETY: `new` set the pointer, and the caller sees to the rest.
    unsafe { &mut *common.client_data.cast::<Context<'c>>() }
}

/// The structure that begins with this one.
fn info(common: &jpeg_common_struct) -> &jpeg_decompress_struct {
    // SAFETY: `common` is the first field of the only structure that `new` creates.
    unsafe { &*ptr::from_ref(common).cast() }
}

impl Context<'_> {
    fn look(&mut self) {
        if (self.stops)() {
            throw(Failed::Stopped);
        }
    }
}

unsafe extern "C-unwind" fn error_exit(common: &mut jpeg_common_struct) {
    // SAFETY: the library calls with what `new` set.
    throw(Failed::Error(unsafe { (*common.err).msg_code }))
}

unsafe extern "C-unwind" fn emit_message(common: &mut jpeg_common_struct, level: c_int) {
    // Others are traces.
    let is_warning = level == -1;
    // SAFETY: the library calls with what `new` set.
    let code = unsafe { (*common.err).msg_code };
    // Bytes between segments, before any of a pixel.
    let is_early = info(common).input_scan_number == 0;
    if is_warning && !is_early && !HARMLESS.contains(&(code as J_MESSAGE_CODE)) {
        // SAFETY: as above.
        unsafe { context(common) }.damage.get_or_insert(code);
    }
}

unsafe extern "C-unwind" fn output_message(_: &mut jpeg_common_struct) {}

unsafe extern "C-unwind" fn nothing(_: &mut jpeg_decompress_struct) {}

unsafe extern "C-unwind" fn progress_monitor(common: &mut jpeg_common_struct) {
    if info(common).input_scan_number > SCANS_MAX as c_int {
        throw(Failed::TooManyScans);
    }
    // SAFETY: the library calls with what `new` set.
    unsafe { context(common) }.look();
}

unsafe extern "C-unwind" fn fill_input_buffer(info: &mut jpeg_decompress_struct) -> boolean {
    // SAFETY: the library calls with what `new` set.
    let context = unsafe { context(&info.common) };
    context.look();
    let (piece, rest) = context.rest.split_at(context.rest.len().min(READ_MOST));
    if piece.is_empty() {
        throw(Failed::Cut);
    }
    context.rest = rest;
    // SAFETY: as above.
    let source = unsafe { &mut *info.src };
    source.next_input_byte = piece.as_ptr();
    source.bytes_in_buffer = piece.len();
    1
}

unsafe extern "C-unwind" fn skip_input_data(info: &mut jpeg_decompress_struct, n: c_long) {
    // SAFETY: the library calls with what `new` set.
    let source = unsafe { &mut *info.src };
    let Ok(n) = usize::try_from(n) else { return };
    let here = n.min(source.bytes_in_buffer);
    // SAFETY: so many bytes of the piece are left.
    source.next_input_byte = unsafe { source.next_input_byte.add(here) };
    source.bytes_in_buffer -= here;
    // SAFETY: as above.
    let context = unsafe { context(&info.common) };
    let further = n - here;
    if further > context.rest.len() {
        throw(Failed::Cut);
    }
    context.rest = &context.rest[further..];
}
