//! libtorch through tch.
