use http::Uri;

use super::{Noted, ROOM};

#[test]
fn what_fits_is_copied_and_what_does_not_is_cloned_and_both_say_the_same() {
    let most = format!("/{}", "x".repeat(ROOM - 2));
    let more = format!("{most}x");
    for (uri, fits, parts) in [
        (
            "https://api.example/v2?key=1",
            true,
            ["https", "api.example", "/v2"],
        ),
        (
            "http://me:pw@host:8443",
            true,
            ["http", "me:pw@host:8443", "/"],
        ),
        ("/v2/rail", true, ["", "", "/v2/rail"]),
        ("*", true, ["", "", "*"]),
        ("api.example:443", true, ["", "api.example:443", ""]),
        ("ftp://host/file", false, ["ftp", "host", "/file"]),
        (&format!("http://h{most}"), true, ["http", "h", &most]),
        (&format!("http://h{more}"), false, ["http", "h", &more]),
    ] {
        let uri: Uri = uri.parse().unwrap();
        let noted = Noted::of(&uri);
        assert_eq!(matches!(noted, Noted::Bytes { .. }), fits, "{uri}");
        assert_eq!(noted.parts(), parts);
    }
}
