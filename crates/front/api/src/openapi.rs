//! OpenAPI 3.1 document of the API, generated from the rows.

mod schemas;

pub(crate) use schemas::{AnswerSchema, Schemas};

use crate::conditional::look_of;
use crate::problem::ProblemDocument;
use crate::row::{Row, RowInput, SCHEMA};
use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

/// Generates the document for every row of `table`.
pub(crate) fn document(table: &'static [Row]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for row in table {
        // Rows of the same path share one entry.
        let path = paths.entry(templated(&row.full_path())).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(row.method.as_str().to_lowercase(), operation(table, row, &mut schemas));
        }
    }
    let problem = schemas.response_schema::<ProblemDocument>();
    // Complete only after all rows were described.
    let (asked, told) = schemas.end();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Blockyard",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Management API of a Blockyard array. A successful response is an object with `schema` and one more key, the noun; \
                errors are problem documents (RFC 9457). Sizes are integers in bytes, times are RFC 3339 in UTC. \
                A slash in a name may be sent as it is or as %2F.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
    });
    document["components"] = json!({ "schemas": schemas::merged(&mut document["paths"], asked, told) });
    document["components"]["responses"] = responses(&problem);
    document
}

/// Path template in the syntax of OpenAPI: `{*name}` becomes `{name}`.
fn templated(path: &str) -> String {
    path.replace("{*", "{")
}

fn operation(table: &'static [Row], row: &Row, schemas: &mut Schemas) -> Value {
    // A change of an object with a tag can be conditional.
    let is_conditional = !row.is_read_only() && look_of(table, row).is_some();
    let taken = (row.takes)(schemas);
    let good = good(row, (row.tells)(schemas));
    let mut responses = json!({ row.status.as_str(): good });
    if row.is_tagged {
        responses["304"] = json!({ "description": "Not modified: the entity tag still matches." });
    }
    // By reference, or the document would repeat every refusal for every row.
    for (status, name) in refusals(row, &taken, is_conditional) {
        responses[status.as_str()] = json!({ "$ref": format!("#/components/responses/{name}") });
    }
    let mut operation = json!({
        "operationId": operation_id(row),
        "summary": row.summary,
        "tags": [tag(row)],
        "x-role": row.role,
        "x-scope": row.scope,
        "parameters": parameters(row, &taken, is_conditional),
        "responses": responses,
    });
    // A body without required fields may be left out.
    if let Some(body) = taken.body {
        operation["requestBody"] = json!({
            "required": schemas.has_required_fields(&body),
            "content": { "application/json": { "schema": body } },
        });
    }
    operation
}

fn good(row: &Row, told: AnswerSchema) -> Value {
    let description = "Success";
    // Every JSON answer has the schema version and one noun.
    let whole = |value: Value, page: Option<Value>| {
        let mut properties = json!({ "schema": { "const": SCHEMA }, row.noun: value });
        let mut required = vec!["schema", row.noun];
        if let Some(Value::Object(page)) = page {
            properties.as_object_mut().expect("just made").extend(page);
            required.extend(["total", "next"]);
        }
        json!({ "type": "object", "properties": properties, "required": required })
    };
    let schema = match told {
        AnswerSchema::Nothing => return json!({ "description": description }),
        AnswerSchema::Bytes => json!({}),
        AnswerSchema::One(schema) => whole(schema, None),
        AnswerSchema::List(items) => {
            let page = json!({
                "total": { "type": "integer", "minimum": 0, "description": "Number of rows on all pages." },
                "next": { "type": ["string", "null"], "description": "Cursor of the next page; null on the last page." },
            });
            whole(json!({ "type": "array", "items": items }), Some(page))
        }
    };
    let mut good = json!({ "description": description, "content": { row.media: { "schema": schema } } });
    if has_tag(row) {
        let what = "Entity tag of the settings of the object; counters do not change it.";
        good["headers"] = json!({ "ETag": { "description": what, "schema": { "type": "string" } } });
    }
    good
}

/// Operation ID: the words of the path without names, and the method.
fn operation_id(row: &Row) -> String {
    let words = row.path.split('/').filter(|word| !word.is_empty() && !word.starts_with('{'));
    let mut id = row.method.as_str().to_lowercase();
    for word in words {
        id = id + "_" + &word.replace(['-', '.'], "_");
    }
    // Separates the object from the list at the same path.
    if row.path.ends_with('}') { id + "_one" } else { id }
}

fn tag(row: &Row) -> &str {
    row.path.split('/').nth(1).unwrap_or_default()
}

fn parameters(row: &Row, taken: &RowInput, is_conditional: bool) -> Vec<Value> {
    // The parameter is named like the placeholder in the path.
    // A placeholder with a star matches the rest of the path, slashes included.
    let named = row.path.find('{').map(|at| row.path[at..].trim_start_matches(['{', '*']));
    let name = named.and_then(|rest| rest.split('}').next()).zip(taken.name.as_ref());
    let in_path = name.map(|(name, schema)| json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    let in_query = taken
        .query
        .iter()
        .map(|(name, schema, required)| json!({ "name": name, "in": "query", "required": required, "schema": schema }));
    let header = |(name, what): (&str, &str)| json!({ "name": name, "in": "header", "required": false, "description": what, "schema": { "type": "string" } });
    in_path.into_iter().chain(in_query).chain(headers(row, is_conditional).into_iter().map(header)).collect()
}

/// Request headers that a row evaluates, with their descriptions.
fn headers(row: &Row, is_conditional: bool) -> Vec<(&'static str, &'static str)> {
    let mut headers = Vec::new();
    if row.is_tagged {
        headers.push(("If-None-Match", "Entity tags of cached responses: 304 if one of them still matches."));
    } else if is_conditional {
        headers.push(("If-Match", "Entity tags of the object as it was read: 412 if none of them matches any more."));
    }
    if row.method == Method::POST && !row.is_secret {
        headers.push((
            "Idempotency-Key",
            "Requests with the same key are executed once; the response is repeated for 24 hours.",
        ));
    }
    headers
}

fn has_tag(row: &Row) -> bool {
    row.is_tagged || row.method == Method::PATCH || row.method == Method::PUT
}

/// Refusals that a row can return, by status.
fn refusals(row: &Row, taken: &RowInput, is_conditional: bool) -> Vec<(StatusCode, &'static str)> {
    let changes = row.method != Method::GET;
    // Only a request that names something can fail to find it.
    let asks = taken.name.is_some() || taken.body.is_some() || !taken.query.is_empty();
    let may =
        |status: StatusCode, when: bool| when.then(|| (status, REFUSALS.iter().find(|row| row.0 == status.as_u16())));
    [
        may(StatusCode::UNAUTHORIZED, true),
        may(StatusCode::TOO_MANY_REQUESTS, true),
        may(StatusCode::FORBIDDEN, true),
        may(StatusCode::NOT_FOUND, asks),
        may(StatusCode::CONFLICT, changes || taken.name.is_some()),
        may(StatusCode::PRECONDITION_FAILED, is_conditional),
        may(StatusCode::PAYLOAD_TOO_LARGE, true),
        may(StatusCode::UNSUPPORTED_MEDIA_TYPE, taken.body.is_some()),
        may(StatusCode::UNPROCESSABLE_ENTITY, true),
        may(StatusCode::INTERNAL_SERVER_ERROR, true),
        may(StatusCode::SERVICE_UNAVAILABLE, true),
    ]
    .into_iter()
    .flatten()
    .filter_map(|(status, refusal)| refusal.map(|(_, name, _)| (status, *name)))
    .collect()
}

/// Status, name and description of the refusals.
const REFUSALS: [(u16, &str, &str); 11] = [
    (401, "Unauthenticated", "Not authenticated: credentials are missing or wrong."),
    (403, "Forbidden", "Forbidden: the role or the scopes of the caller do not allow this."),
    (404, "NotFound", "Not found: the named object does not exist."),
    (409, "Refused", "Conflict: not possible in the present state. Nothing was changed."),
    (412, "ChangedSince", "Precondition failed: the object has changed since it was read. Nothing was changed."),
    (413, "TooLarge", "The request is too large."),
    (415, "NotJson", "Unsupported media type: the body is not application/json."),
    (422, "Invalid", "Invalid request. Nothing was changed."),
    (429, "TooOften", "Too many requests: try again later."),
    (500, "Bug", "Internal error."),
    (503, "Unavailable", "Unavailable: a part of the daemon does not respond, or the machine is out of a resource."),
];

fn responses(problem: &Value) -> Value {
    let response = |&(_, name, description): &(u16, &str, &str)| {
        let content = json!({ "application/problem+json": { "schema": problem } });
        (name.to_owned(), json!({ "description": description, "content": content }))
    };
    Value::Object(REFUSALS.iter().map(response).collect())
}

#[cfg(test)]
mod tests;
