//! Routes of the REST API, version 1: plural nouns under `/api/v1`, JSON, problem documents (RFC 9457).
//!
//! Each file has the [rows](Row) of a noun; routing, documentation and authorization are derived from them.

mod access;
mod alerts;
mod audit;
mod config;
mod disks;
mod hosts;
mod live;
mod node;
mod operations;
mod people;
mod pools;
mod portals;
mod presentations;
mod sessions;
mod snapshots;
mod traces;
mod volumes;

use crate::Problem;
use crate::conditional::ConditionalRequests;
use crate::openapi;
use crate::row::{Principal, Row, RowRequest};
use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use control::Control;
use model::{Refusal, code};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Paths that are also served at the root, where tools expect them.
const AT_ROOT: [&str; 2] = ["/openapi.json", "/metrics"];

/// All rows, by noun.
static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let nouns = [
        node::rows(),
        config::rows(),
        disks::rows(),
        pools::rows(),
        volumes::rows(),
        snapshots::rows(),
        hosts::rows(),
        presentations::rows(),
        access::rows(),
        sessions::rows(),
        traces::rows(),
        live::rows(),
        operations::rows(),
        portals::rows(),
        people::rows(),
        audit::rows(),
        alerts::rows(),
    ];
    nouns.into_iter().flatten().collect()
});

/// Rows by path and method.
static FOUND: LazyLock<BTreeMap<(String, &str), &Row>> =
    LazyLock::new(|| TABLE.iter().map(|row| ((row.full_path(), row.method.as_str()), row)).collect());

/// Returns all rows of the API.
#[must_use]
pub fn table() -> &'static [Row] {
    &TABLE
}

/// Generates the OpenAPI document.
#[must_use]
pub fn document() -> Value {
    openapi::document(table())
}

/// OpenAPI document in the form that is checked in.
#[must_use]
pub fn description() -> String {
    let text = serde_json::to_string_pretty(&document()).expect("values are said in JSON");
    text + "\n"
}

/// Row of a routed request; `None` if there is none.
#[must_use]
pub fn row_of(method: &Method, path: &str) -> Option<&'static Row> {
    // HEAD is answered like GET, without the body.
    let method = if *method == Method::HEAD { Method::GET.as_str() } else { method.as_str() };
    // Rows are found by their path below the base.
    let path = if AT_ROOT.contains(&path) { format!("{}{path}", crate::row::BASE) } else { path.to_owned() };
    FOUND.iter().find(|((at, by), _)| *at == path && *by == method).map(|(_, row)| *row)
}

/// Builds the router of the whole API over `control`, for authenticated requests.
pub fn router(control: Arc<Control>) -> Router {
    let mut paths: BTreeMap<String, MethodRouter<ConditionalRequests>> = BTreeMap::new();
    for row in table() {
        let by = MethodFilter::try_from(row.method.clone()).expect("rows have the usual methods");
        // Some rows are served at a second path.
        let places = [Some(row.full_path()), AT_ROOT.contains(&row.path).then(|| row.path.to_owned())];
        for place in places.into_iter().flatten() {
            let at = paths.entry(place).or_default();
            let answer = async move |State(keeping): State<ConditionalRequests>, request: Request| {
                answered(row, keeping, request).await
            };
            // The gate has limited the body already; this holds for a router without the gate as well.
            let limit = DefaultBodyLimit::max(row.request_bytes_max);
            // All methods of a path form one route.
            *at = std::mem::take(at).merge(MethodRouter::new().on(by, answer).layer(limit));
        }
    }
    let routed = paths.into_iter().fold(Router::new(), |router, (path, methods)| router.route(&path, methods));
    routed
        .with_state(ConditionalRequests::new(control, table()))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
}

/// Attaches to each request its row, which the layers inside evaluate.
pub fn marked(router: Router) -> Router {
    router.layer(middleware::from_fn(async |mut request: Request, next: Next| {
        // The matched path is the template by which rows are found.
        let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
        if let Some(row) = path.and_then(|path| row_of(request.method(), &path)) {
            request.extensions_mut().insert(row);
        }
        next.run(request).await
    }))
}

async fn answered(row: &'static Row, keeping: ConditionalRequests, request: Request) -> Response {
    let asker = request.extensions().get::<Principal>().map(|asker| asker.0.clone()).unwrap_or_default();
    let answer = async { keeping.answer(row, RowRequest::of(request).await?, &asker).await };
    answer.await.unwrap_or_else(|refusal| Problem(refusal).into_response())
}

async fn no_route(uri: Uri) -> Problem {
    let message = format!("unknown path {}", uri.path().escape_debug());
    Problem(Refusal::new(code::ROUTE_UNKNOWN, message, "see docs/operate/api.md"))
}

async fn no_method(method: Method, path: Option<MatchedPath>, uri: Uri) -> Response {
    let message = format!("{} does not support {method}", uri.path().escape_debug());
    let at = path.map(|path| path.as_str().to_owned()).unwrap_or_default();
    // An answer with 405 lists the permitted methods (RFC 9110 §15.5.6).
    let methods: Vec<&str> = FOUND.keys().filter(|(path, _)| *path == at).map(|(_, method)| *method).collect();
    let problem = Problem(Refusal::new(code::METHOD_UNKNOWN, message, "see docs/operate/api.md"));
    let mut response = problem.into_response();
    if let Ok(allowed) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}
