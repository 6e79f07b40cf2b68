//! The jobs are the programs beside this file. Here the README's example is compiled.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
