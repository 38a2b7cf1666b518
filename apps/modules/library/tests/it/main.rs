//! The shipped types, with the pages and pipelines that name them.

mod pages;
mod pipelines;
