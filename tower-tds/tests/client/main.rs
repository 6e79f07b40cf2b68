//! The assembled client and its layers, over sockets and under paused time: by what a server saw.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a surprise in a test is a failed test"
)]

mod bodies;
mod clients;
mod compression;
mod connections;
mod deadline;
mod first_minute;
mod front;
mod hangs;
mod hints;
mod hostile;
mod limits;
mod log;
mod memory;
mod one_layer;
mod order;
mod others;
mod read;
mod refused;
mod secrets;
mod seen;
mod sends;
mod server;
mod shutdown;
mod texts;
mod tokens;
mod transport;
mod troubles;
mod whole;
mod wrong_orders;
