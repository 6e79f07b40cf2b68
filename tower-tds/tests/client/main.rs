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
mod deadline;
mod deaths;
mod fairness;
mod first_run;
mod framing;
mod hints;
mod hostile;
mod limits;
mod log;
mod memory;
mod one_layer;
mod order;
mod overload;
mod pool;
mod request_bodies;
mod secrets;
mod server;
mod shutdown;
mod sim;
mod stack;
mod stalls;
mod telemetry;
mod texts;
mod tokens;
mod transport;
mod troubles;
