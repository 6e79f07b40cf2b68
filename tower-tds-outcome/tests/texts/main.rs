//! Corpora: texts with secrets, sentences of real servers and proxies, lines of both kinds, and long texts.

mod lines;
mod long;
mod secrets;
mod sentences;
