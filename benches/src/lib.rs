//! Criterion benchmarks: each group with its baseline and its peers.
