use super::*;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn description_that_is_checked_in_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        std::fs::write(&path, crate::description()).expect("the description is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == crate::description(),
        "openapi.json is not what the rows say; write it anew with BLOCKYARD_BLESS=1"
    );
}

/// Every reference in a value.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|inner| references(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

#[test]
fn description_refers_to_what_it_holds_and_holds_nothing_else() {
    let document = crate::document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in &found {
        let place = reference.trim_start_matches('#');
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
    for name in document["components"]["schemas"].as_object().expect("schemas").keys() {
        assert!(found.contains(&format!("#/components/schemas/{name}")), "nobody refers to {name}");
    }
    assert!(!document.to_string().contains("x-asked"));
}

#[test]
fn description_has_every_row_once_and_each_has_its_own_id() {
    let document = crate::document();
    let mut ids = BTreeSet::new();
    for row in crate::table() {
        let operation = &document["paths"][templated(&row.full_path())][row.method.as_str().to_lowercase()];
        assert_eq!(operation["summary"], row.summary, "{row:?}");
        assert!(ids.insert(operation["operationId"].to_string()), "{row:?}");
        let has_name = operation["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["in"] == "path"));
        assert_eq!(has_name, row.path.contains('{'), "{row:?}");
        assert!(!row.summary.ends_with('.') && !row.summary.is_empty(), "{row:?}");
    }
}

#[test]
fn sizes_are_read_as_text_or_number_and_written_as_numbers() {
    let document = crate::document();
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["Size"]["type"], "integer");
    assert_eq!(schemas["SizeInput"]["anyOf"].as_array().map(Vec::len), Some(2));
    let asked = &schemas["NewVolume"]["properties"]["size"];
    assert!(asked.to_string().contains("SizeInput"), "{asked}");
    let told = &schemas["VolumeReport"]["properties"]["size"];
    assert_eq!(told["$ref"], "#/components/schemas/Size");
}

/// The audit log records only bodies that their row has parsed, because only then it is known which keys are secrets.
#[test]
fn bodies_have_the_keys_of_their_type_and_no_others() {
    let document = crate::document();
    let mut found = BTreeSet::new();
    for path in document["paths"].as_object().expect("paths").values() {
        for operation in path.as_object().expect("operations").values() {
            references(&operation["requestBody"], &mut found);
        }
    }
    let mut left: Vec<String> = found.iter().cloned().collect();
    while let Some(reference) = left.pop() {
        let schema = document.pointer(reference.trim_start_matches('#')).expect("it leads somewhere");
        let is_open = schema.get("properties").is_some() && schema["additionalProperties"] != false;
        assert!(!is_open, "{reference} takes keys that it does not know");
        let mut more = BTreeSet::new();
        references(schema, &mut more);
        left.extend(more.into_iter().filter(|reference| found.insert(reference.clone())));
    }
    assert!(found.len() > 30, "{found:?}");
}
