use super::Parameters;
use crate::request::Form;

fn form(parameters: &Parameters) -> String {
    let mut form = Form::new(String::new());
    form.extend_pairs(parameters.fields());
    form.finish()
}

#[test]
fn fields_are_form_encoded_in_their_order() {
    let parameters = Parameters::default()
        .scope("live history")
        .and_then(|p| p.extra("audience", "a&b"))
        .and_then(|p| p.extra("resource", "https://data.example.com/x?y=z"))
        .and_then(|p| p.extra("tenant", "é"))
        .unwrap();
    assert_eq!(
        form(&parameters),
        "scope=live+history&audience=a%26b&resource=https%3A%2F%2Fdata.example.com%2Fx%3Fy%3Dz\
         &tenant=%C3%A9"
    );
}

#[test]
fn the_last_scope_counts() {
    let parameters = Parameters::default()
        .scope("a")
        .and_then(|p| p.scope("c"))
        .unwrap();
    assert_eq!(form(&parameters), "scope=c");
}

#[test]
fn what_the_standards_refuse_is_refused_here() {
    for scope in ["", " ", "a  b", " a", "a ", "a\tb", "a\"b", "a\\b", "ü"] {
        assert!(Parameters::default().scope(scope).is_err(), "{scope:?}");
    }
}

#[test]
fn no_extra_field_repeats_another_or_one_of_the_grant_s_own() {
    for name in super::OWN {
        assert!(Parameters::default().extra(name, "x").is_err(), "{name}");
    }
    assert!(Parameters::default().extra("", "x").is_err());
    assert!(Parameters::default().extra("x", "").is_err());
    let once = Parameters::default().extra("tenant", "a").unwrap();
    assert!(once.extra("tenant", "b").is_err());
}

#[test]
fn debug_shows_names_alone() {
    let parameters = Parameters::default().extra("tenant", "canary").unwrap();
    assert_eq!(format!("{parameters:?}"), r#"["tenant"]"#);
}
