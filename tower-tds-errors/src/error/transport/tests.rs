use std::io::{self, ErrorKind};

use tower::BoxError;

use crate::Kind;

fn kind(error: &(dyn std::error::Error + 'static)) -> Kind {
    super::kind(error).0
}

#[test]
fn io_errors_are_classified_by_their_kind() {
    for (io, expected) in [
        (ErrorKind::ConnectionRefused, Kind::Connect),
        (ErrorKind::NetworkUnreachable, Kind::Reset),
        (ErrorKind::TimedOut, Kind::Timeout),
        (ErrorKind::ConnectionReset, Kind::Reset),
        (ErrorKind::BrokenPipe, Kind::Reset),
        (ErrorKind::UnexpectedEof, Kind::Truncated),
        (ErrorKind::InvalidData, Kind::Malformed),
        (ErrorKind::Other, Kind::Unrecognized),
    ] {
        assert_eq!(kind(&io::Error::from(io)), expected, "{io:?}");
        let wrapped = io::Error::other(io::Error::from(io));
        assert_eq!(kind(&wrapped), expected, "wrapped {io:?}");
    }
}

/// In TLS 1.3 the alert comes after the handshake.
#[test]
fn refused_client_certificate_is_a_failure_of_tls() {
    for (alert, kind) in [
        ("CertificateRequired", Some(Kind::Tls)),
        ("UnknownCA", Some(Kind::Tls)),
        ("InternalError", None),
    ] {
        let alert = format!("received fatal alert: {alert}");
        let error = io::Error::new(ErrorKind::InvalidData, alert);
        let read = super::by_io(&error, Some(super::Phase::Connected));
        assert_eq!(read.map(|(kind, _)| kind), kind);
    }
}

#[test]
fn error_text_alone_is_unrecognized() {
    for words in ["timeout", "connection refused", "invalid token"] {
        assert_eq!(kind(&*BoxError::from(words)), Kind::Unrecognized);
    }
}

#[test]
fn cyclic_error_chain_terminates() {
    #[derive(Debug)]
    struct Ouroboros;
    impl std::fmt::Display for Ouroboros {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("round")
        }
    }
    impl std::error::Error for Ouroboros {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&Self)
        }
    }
    assert_eq!(kind(&Ouroboros), Kind::Unrecognized);
}
