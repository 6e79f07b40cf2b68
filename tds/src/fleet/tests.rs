use super::table;

#[test]
fn silent_member_shows_when_its_share_is_free() {
    let fields = [
        ("began", "1000000"),
        (
            "member:a",
            "7,20,4,30,20,4,30,50,10,60,1,1002,1060000,12004,2,0,\"web-1.example:4321\"",
        ),
        (
            "member:b",
            "7,30,6,20,30,6,20,50,10,60,1,1002,1065500,12004,2,0",
        ),
    ];
    let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned()));
    let table = table(&fields.into(), 1_066_000);
    let lines: Vec<_> = table.lines().collect();
    assert!(
        lines[1].ends_with("6.0 s ago; requests free in 12 s, sockets in 74 s"),
        "{table}"
    );
    assert!(
        lines[1].contains("silent") && lines[2].contains("holds"),
        "{table}"
    );
    assert!(lines[2].ends_with("0.5 s ago"), "{table}");
    // A member of an earlier version has no such text.
    assert!(
        lines[1].starts_with("a                web-1.example:4321       silent"),
        "{table}"
    );
    assert!(
        lines[2].starts_with("b                                         holds"),
        "{table}"
    );
    assert_eq!(lines[3], "the store has known this fleet for 66 s");
}

#[test]
fn silent_member_counts_anew_from_a_step_of_the_clock() {
    let record = "7,20,4,30,20,4,30,50,10,60,1,1002,1060000,12004,2,0";
    let fields = [("anew", "1080000"), ("member:a", record)];
    let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned()));
    let table = table(&fields.into(), 1_081_000);
    let text = "requests free in 12 s, sockets in 74 s";
    assert!(table.contains(text), "{table}");
}
