//! Plots of numbers as SVG: curves over a quantity ([`lines`]), and panels over one axis of time ([`panels`]).
//!
//! Texts in, text out. Plots have a background of their own, so that they can be read on light and on dark pages.

mod axis;
pub mod lines;
pub mod panels;
