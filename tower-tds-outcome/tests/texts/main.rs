//! Two corpora: texts with secrets, and sentences of real servers and proxies.

mod secrets;
mod sentences;
mod third;
