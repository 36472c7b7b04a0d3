//! JSON schemas of request and answer types, which may differ for the same type.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Prefix of references to components.
const PLACE: &str = "#/components/schemas/";

/// Suffix of the component name of a request type that differs from the answer type.
const INPUT: &str = "Input";

/// Schemas by type name, separately for requests and answers.
pub(crate) struct Schemas {
    asked: SchemaGenerator,
    told: SchemaGenerator,
}

/// Content of a successful answer.
pub(crate) enum AnswerSchema {
    /// No body.
    Nothing,
    /// A body that is not JSON.
    Bytes,
    /// One object of this schema.
    One(Value),
    /// A list of objects of this schema.
    List(Value),
}

impl AnswerSchema {
    /// Answer with one object.
    pub(crate) fn one<T: JsonSchema>(schemas: &mut Schemas) -> Self {
        Self::One(schemas.response_schema::<T>())
    }

    /// Answer with a list.
    pub(crate) fn list<T: JsonSchema>(schemas: &mut Schemas) -> Self {
        Self::List(schemas.response_schema::<T>())
    }
}

impl Schemas {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        // Serde may read a type in another form than it writes it.
        let settings =
            || SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
        Self { asked: settings().for_deserialize().into_generator(), told: settings().for_serialize().into_generator() }
    }

    /// Schema of a type in requests.
    pub(crate) fn request_schema<T: JsonSchema>(&mut self) -> Value {
        marked(self.asked.subschema_for::<T>().to_value())
    }

    /// Schema of a type in answers.
    pub(crate) fn response_schema<T: JsonSchema>(&mut self) -> Value {
        self.told.subschema_for::<T>().to_value()
    }

    /// Name, schema and whether it is required, for each field of a request type.
    pub(crate) fn query_parameters<T: JsonSchema>(&mut self) -> Vec<(String, Value, bool)> {
        // Inline rather than as a component, because each field becomes a parameter.
        let schema = T::json_schema(&mut self.asked).to_value();
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = schema["properties"].as_object().into_iter().flatten();
        let field = |(name, schema): (&String, &Value)| {
            (name.clone(), marked(without_null(schema.clone())), required.contains(name.as_str()))
        };
        fields.map(field).collect()
    }

    /// True if `{}` does not match this schema.
    pub(crate) fn has_required_fields(&self, asked: &Value) -> bool {
        let name = asked["$ref"].as_str().and_then(|place| place.strip_prefix(PLACE));
        let schema = name.and_then(|name| self.asked.definitions().get(name)).unwrap_or(asked);
        // A choice between forms has no default, so one of them must be sent.
        schema["required"].as_array().is_some_and(|required| !required.is_empty()) || schema.get("oneOf").is_some()
    }

    /// Collected components: of requests, and of answers.
    pub(crate) fn end(mut self) -> (Map<String, Value>, Map<String, Value>) {
        let defined = |generator: &mut SchemaGenerator| generator.take_definitions(true);
        (defined(&mut self.asked), defined(&mut self.told))
    }
}

/// Merges the components of both directions. Types whose schemas differ get two components, and the references in
/// `paths` are adjusted.
pub(crate) fn merged(paths: &mut Value, asked: Map<String, Value>, told: Map<String, Value>) -> Value {
    // A type differs also if it refers to one that differs, so this is repeated until nothing changes.
    let mut twofold: BTreeSet<String> = BTreeSet::new();
    // The set only grows, so this ends.
    loop {
        let differs = |(name, schema): (&String, &Value)| {
            let other = told.get(name)?;
            let mut renamed = schema.clone();
            rename(&mut renamed, &twofold);
            (*other != renamed && !twofold.contains(name)).then(|| name.clone())
        };
        let more: Vec<String> = asked.iter().filter_map(differs).collect();
        if more.is_empty() {
            break;
        }
        twofold.extend(more);
    }
    resolve(paths, &twofold);
    let mut all = told;
    for (name, mut schema) in asked {
        rename(&mut schema, &twofold);
        let name = if twofold.contains(&name) { name + INPUT } else { name };
        all.insert(name, schema);
    }
    Value::Object(all)
}

/// Marker of references from requests, until the components are merged.
const MARK: &str = "x-asked";

fn marked(mut schema: Value) -> Value {
    each(&mut schema, &mut |object| {
        if object.contains_key("$ref") {
            object.insert(MARK.to_owned(), true.into());
        }
    });
    schema
}

fn resolve(value: &mut Value, twofold: &BTreeSet<String>) {
    each(value, &mut |object| {
        if object.remove(MARK).is_some() {
            rename_one(object, twofold);
        }
    });
}

fn rename(value: &mut Value, twofold: &BTreeSet<String>) {
    each(value, &mut |object| rename_one(object, twofold));
}

fn rename_one(object: &mut Map<String, Value>, twofold: &BTreeSet<String>) {
    let name = object.get("$ref").and_then(Value::as_str).and_then(|place| place.strip_prefix(PLACE));
    if let Some(name) = name.filter(|name| twofold.contains(*name)) {
        object.insert("$ref".to_owned(), format!("{PLACE}{name}{INPUT}").into());
    }
}

/// Visits every object in a value.
fn each(value: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            visit(object);
            object.values_mut().for_each(|inner| each(inner, visit));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| each(inner, visit)),
        _ => {}
    }
}

/// Removes `null` from the schema of a query parameter, which is left out instead.
fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema.get("type").and_then(Value::as_array) {
        let left: Vec<&Value> = types.iter().filter(|kind| **kind != "null").collect();
        schema["type"] = if left.len() == 1 { left[0].clone() } else { json!(left) };
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
        let left: Vec<Value> = choices.iter().filter(|choice| choice["type"] != "null").cloned().collect();
        match left.as_slice() {
            // A single form replaces the choice, so that clients see a plain type.
            [Value::Object(one)] => {
                let one = one.clone();
                let object = schema.as_object_mut().expect("it has choices");
                object.remove("anyOf");
                object.extend(one);
            }
            _ => schema["anyOf"] = left.into(),
        }
    }
    if let Some(object) = schema.as_object_mut() {
        // A default of null says nothing in a query.
        object.retain(|key, value| key != "default" || !value.is_null());
    }
    schema
}
