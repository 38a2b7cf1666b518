//! Emulated devices: written with the device thread.
