//! Corpora: texts with secrets, sentences and lines of real servers and proxies, and long texts.

mod long;
mod secrets;
mod sentences;
