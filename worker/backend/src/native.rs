//! What C++ functions (`native/`) say.

#![expect(unsafe_code, reason = "texts of C++ functions")]

use std::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    fn free(text: *mut c_void);
}

/// What a function said: null, or a text that is ours.
pub(crate) fn said(text: *mut c_char) -> Result<(), String> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: the functions return null or a text from `strdup`, which nothing else holds.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        free(text.cast());
        Err(owned)
    }
}
