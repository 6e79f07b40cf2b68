use super::first;

#[test]
fn the_first_block_is_read_whatever_surrounds_it() {
    for pem in [
        "-----BEGIN KEY-----\nY2FuYXJ5\n-----END KEY-----\n",
        "-----BEGIN KEY-----\r\nY2Fu\r\nYXJ5\r\n-----END KEY-----\r\n",
        "Bag Attributes\n  friendlyName: x\n-----BEGIN KEY-----\nY2FuYXJ5\n-----END KEY-----",
        "-----BEGIN KEY-----Y2FuYXJ5-----END KEY----- -----BEGIN CERT-----\nYQ==\n-----END CERT-----",
        "\u{feff}-----BEGIN KEY-----\n  Y2Fu YXJ5\n\n-----END KEY-----\n",
    ] {
        let (label, content) = first(pem.as_bytes()).unwrap();
        assert_eq!(
            (label, &content[..]),
            (&b"KEY"[..], &b"canary"[..]),
            "{pem}"
        );
    }
}

#[test]
fn what_is_no_whole_block_is_none() {
    for pem in [
        "",
        "canary",
        "-----BEGIN KEY-----\nY2FuYXJ5\n",
        "-----BEGIN KEY-----\nY2FuYXJ5\n-----END CERT-----\n",
        "-----BEGIN KEY-----\nY2FuYXJ5=\n-----END KEY-----\n",
        "-----BEGIN KEY-----\nProc-Type: 4,ENCRYPTED\n\nY2FuYXJ5\n-----END KEY-----\n",
        "-----BEGIN KEY-----\nY2FuYXJ5\n-----END KEY",
    ] {
        assert!(first(pem.as_bytes()).is_none(), "{pem}");
    }
}
