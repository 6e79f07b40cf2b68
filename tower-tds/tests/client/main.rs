//! The assembled client and its layers, over sockets and under paused time: by what a server saw.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

mod api;
mod bodies;
mod body_timeouts;
mod certificates;
mod clients;
mod compile_errors;
mod compression;
mod connections;
mod cuts;
mod deaths;
mod fairness;
mod first_run;
mod framing;
mod hostile;
mod log;
mod memory;
mod order;
mod overload;
mod pool;
mod raw;
mod secrets;
mod shutdown;
mod stalls;
mod telemetry;
mod tokens;
mod transport;
mod troubles;
mod world;
