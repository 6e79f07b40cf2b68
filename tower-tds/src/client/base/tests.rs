use super::*;

fn base(url: &str) -> Base {
    let uri: Uri = url.parse().expect("an address");
    let origin = Origin::from_uri(&uri).expect("an origin");
    Base::new(origin, uri).expect("a base")
}

#[test]
fn path_is_appended_to_the_base_with_what_is_beyond_ascii_encoded() {
    let (odd, whole) = ("/é?q=駅%20x&y='ß'", "/%C3%A9?q=%E9%A7%85%20x&y='%C3%9F'");
    let unchanged = "/live/bus?$filter=line%20eq%20'307'&x=%2f//..;v=1";
    for (url, target, whole) in [
        ("https://d", "/v1/bus", "https://d/v1/bus"),
        ("https://d/", "/v1/bus", "https://d/v1/bus"),
        ("https://d:8443/api/v2", "/bus", "https://d:8443/api/v2/bus"),
        ("https://d/api/v2/", "/bus?a=b", "https://d/api/v2/bus?a=b"),
        (
            "https://d/api",
            unchanged,
            &format!("https://d/api{unchanged}"),
        ),
        ("https://d/api", "//e/bus", "https://d/api//e/bus"),
        ("https://d/api", "https://d/other?x", "https://d/other?x"),
        ("https://d/ö", odd, &format!("https://d/%C3%B6{whole}")),
        ("https://d", "https://d/ü?%fc", "https://d/%C3%BC?%fc"),
        ("https://d", "/%zz%", "https://d/%zz%"),
    ] {
        let target = Base::parse(target.to_owned()).expect("a target");
        let resolved = base(url).resolve(target).expect("an address");
        assert_eq!(resolved.to_string(), whole);
    }
}

#[test]
fn parameters_are_appended_and_read_back_as_they_were() {
    let values = [
        "",
        "a b",
        "a+b",
        "a&b=c",
        "100%",
        "#",
        "?",
        "Zürich",
        "line eq '307'",
        "\n\t\u{0}",
        "駅;\"<>",
        "a/b:c,(d)*",
        "[x]{y}|\\^`",
    ];
    for start in ["/stops", "/stops?", "/stops?x=1", "https://d/stops?x=1&"] {
        let mut uri: Uri = start.parse().expect("an address");
        let mut given = Vec::new();
        for value in values {
            for name in ["$filter", "a b&=", "ß"] {
                uri = with_query(&uri, name, value).expect("it is encoded");
                given.push((name.to_owned(), value.to_owned()));
            }
        }
        assert!(
            uri.path_and_query()
                .expect("it has one")
                .as_str()
                .is_ascii()
        );
        let read = form_urlencoded::parse(uri.query().expect("it has one").as_bytes());
        let read: Vec<_> = read.into_owned().filter(|(name, _)| name != "x").collect();
        assert_eq!(read, given, "{start}");
        assert_eq!(uri.path(), "/stops");
    }
}
