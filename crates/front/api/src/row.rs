//! Rows of the API: method, path, required role, input and output of an operation, defined in one place.
//!
//! The router, the OpenAPI document ([`crate::openapi`]), the table of roles and that of commands are generated from
//! rows. Input is the [parts](Part) that the closure of a row takes, output is what it returns; both are described by
//! their types.

mod listed;
mod part;

pub(crate) use listed::{Atom, Key, Listed, Page, key};
pub(crate) use part::{Authenticated, Body, BodyParsed, Part, PathName, QueryParams, RowInput, RowRequest, Services};

use crate::conditional::{ObjectSettings, Tagged, tag_of};
use crate::openapi::{AnswerSchema, Schemas};
use axum::body;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use control::Control;
use model::{Refusal, Role, Scope, code};
use schemars::JsonSchema;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Version of the answer format. Keys are added without raising it, and never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Prefix of every path.
pub const BASE: &str = "/api/v1";

/// Longest request body of most rows, in bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>>;

/// One operation of the API.
pub struct Row {
    /// GET, POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// Path behind [`BASE`]; `{name}` is one segment, `{*name}` may contain slashes.
    pub path: &'static str,
    /// Least role of the caller.
    pub role: Role,
    /// Scope that a token needs regardless of the objects named; `None` for most rows.
    pub scope: Option<&'static str>,
    /// True if consent in the request (`force`, `prune`) is meant for a later call: this one changes nothing.
    pub only_plans: bool,
    /// True for rows without authentication, which are those for logging in.
    open: bool,
    /// Key of the answer beside `schema`; empty if the answer has none.
    pub noun: &'static str,
    /// Summary for the OpenAPI document, one line.
    pub summary: &'static str,
    /// Status of the successful answer.
    pub status: StatusCode,
    /// Media type of the successful answer.
    pub media: &'static str,
    /// True if the successful answer has an entity tag, on which changes at the same path can be made conditional.
    pub is_tagged: bool,
    /// True if the successful answer contains a secret and must not be stored for a repetition of the request.
    pub is_secret: bool,
    /// True if the answer contains data of hosts or the audit log; every such read is recorded.
    pub reads_host_data: bool,
    /// True if the row may be called while changes are held back: rows that end that state or change nothing durable.
    pub while_held: bool,
    /// Longest request body, in bytes.
    pub request_bytes_max: usize,
    run: Box<dyn Fn(Arc<Control>, RowRequest) -> Pending<Response> + Send + Sync>,
    pub(crate) takes: fn(&mut Schemas) -> RowInput,
    pub(crate) tells: fn(&mut Schemas) -> AnswerSchema,
}

impl Row {
    /// Requires this role or a higher one.
    pub(crate) fn only(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Marks a row that destroys data: a token needs [`Scope::DESTROY`].
    pub(crate) fn destroys(mut self) -> Self {
        self.scope = Some(Scope::DESTROY);
        self
    }

    /// Marks a row that controls access to the array: a token needs [`Scope::ACCESS`].
    pub(crate) fn gives_access(mut self) -> Self {
        self.scope = Some(Scope::ACCESS);
        self
    }

    /// Marks a row that changes nothing, whatever the request consents to.
    pub(crate) fn only_plans(mut self) -> Self {
        self.only_plans = true;
        self
    }

    /// Marks a row whose answer must not be stored.
    pub(crate) fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    /// Marks a row whose calls are recorded although it changes nothing.
    pub(crate) fn of_host_data(mut self) -> Self {
        self.reads_host_data = true;
        self
    }

    /// Permits calls while changes are held back.
    pub(crate) fn while_held(mut self) -> Self {
        self.while_held = true;
        self
    }

    /// Sets the longest request body, in bytes.
    pub(crate) fn up_to(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Marks a row that needs no authentication.
    pub(crate) fn open(mut self) -> Self {
        // Logging in changes nothing durable, and is needed to accept an older state.
        self.open = true;
        self.while_held = true;
        self
    }

    /// True for rows that need no authentication, which are those for logging in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Path from the root.
    #[must_use]
    pub fn full_path(&self) -> String {
        format!("{BASE}{}", self.path)
    }

    /// True for a row whose calls are recorded in the audit log.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        !self.is_read_only() || self.reads_host_data
    }

    /// True for a row that changes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.method == Method::GET
    }

    /// Carries out the operation.
    ///
    /// *Errors*: the request cannot be parsed, or the refusal of the control plane.
    pub(crate) fn answer(&self, control: Arc<Control>, question: RowRequest) -> Pending<Response> {
        (self.run)(control, question)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}): {}", self.method, self.path, self.role, self.summary)
    }
}

/// An asynchronous closure that takes parts of a request and returns an answer.
pub(crate) trait Handler<P>: Send + Sync + 'static {
    /// Type of the answer.
    type Output: Send + 'static;

    /// Parses the parts and calls the closure.
    ///
    /// *Errors*: a part cannot be parsed, or the request has a parameter that no part takes.
    fn call(&self, control: Arc<Control>, question: &mut RowRequest) -> Result<Pending<Self::Output>, Refusal>;

    /// Describes the parts for the OpenAPI document.
    fn takes(schemas: &mut Schemas) -> RowInput;
}

macro_rules! handlers {
    ($(($($part:ident $name:ident),*))*) => {$(
        impl<F, Pend, T, $($part),*> Handler<($($part,)*)> for F
        where
            F: Fn(Arc<Control>, $($part),*) -> Pend + Send + Sync + 'static,
            Pend: Future<Output = Result<T, Refusal>> + Send + 'static,
            T: Send + 'static,
            $($part: Part,)*
        {
            type Output = T;

            fn call(&self, control: Arc<Control>, question: &mut RowRequest) -> Result<Pending<T>, Refusal> {
                $(let $name = $part::take(question)?;)*
                // Unknown parameters are refused, so that a misspelled option is not silently ignored.
                question.admit_nothing_else()?;
                Ok(Box::pin(self(control, $($name),*)))
            }

            #[allow(unused_mut, unused_variables, reason = "of no parts nothing is said")]
            fn takes(schemas: &mut Schemas) -> RowInput {
                let mut taken = RowInput::default();
                $($part::describe(&mut taken, schemas);)*
                taken
            }
        }
    )*};
}

// Closures with up to three parts; a pair of parts counts as one.
handlers! { () (A a) (A a, B b) (A a, B b, C c) }

/// `GET` of one object or report.
pub(crate) fn get<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema,
{
    let run = move |control, mut question| {
        // Parsed before the future is made, which then owns all that it needs.
        let called = handler.call(control, &mut question);
        pending(async move { json_response(StatusCode::OK, Envelope::of(noun, called?.await?)) })
    };
    row(Method::GET, path, (noun, StatusCode::OK), summary, run, (H::takes, AnswerSchema::one::<H::Output>))
}

/// `GET` of an object that can be changed; the answer has its entity tag.
pub(crate) fn one<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema + Tagged,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { tagged(StatusCode::OK, noun, called?.await?) })
    };
    let row = row(Method::GET, path, (noun, StatusCode::OK), summary, run, (H::takes, AnswerSchema::one::<H::Output>));
    Row { is_tagged: true, ..row }
}

/// `GET` of a list, or of a page of it.
pub(crate) fn list<P, T, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    T: Listed + Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Output = Vec<T>>,
{
    let run = move |control, mut question: RowRequest| {
        // The parameters of the page are taken first; the parts of the closure see the rest.
        let called = Page::take::<T>(&mut question).and_then(|page| Ok((page, handler.call(control, &mut question)?)));
        pending(async move {
            let (page, called) = called?;
            // The closure returns the whole list, from which the page is cut.
            let (items, total, next) = page.cut(called.await?);
            json_response(StatusCode::OK, Envelope { noun, value: items, page: Some((total, next)) })
        })
    };
    let takes = |schemas: &mut Schemas| {
        let mut taken = H::takes(schemas);
        Page::describe::<T>(&mut taken);
        taken
    };
    row(Method::GET, path, (noun, StatusCode::OK), summary, run, (takes, AnswerSchema::list::<T>))
}

/// `GET` of another media type; the closure returns the body.
pub(crate) fn file<P, H>(path: &'static str, media: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Output = body::Body>,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { Ok(([(CONTENT_TYPE, media)], called?.await?).into_response()) })
    };
    let row = row(Method::GET, path, ("", StatusCode::OK), summary, run, (H::takes, |_| AnswerSchema::Bytes));
    Row { media, ..row }
}

/// `POST` that creates an object.
pub(crate) fn add<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema,
{
    change(Method::POST, path, (noun, StatusCode::CREATED), summary, handler)
}

/// Answer of a row with additional headers.
pub(crate) struct Headed<T> {
    /// Headers to add.
    pub head: HeaderMap,
    /// Body of the answer.
    pub value: T,
}

/// `POST` that creates an object, with additional headers in the answer.
pub(crate) fn add_headed<P, T, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    T: Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Output = Headed<T>>,
{
    headed(Method::POST, path, (noun, StatusCode::CREATED), summary, handler)
}

/// `DELETE` with additional headers in the answer.
pub(crate) fn end_headed<P, T, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    T: Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Output = Headed<T>>,
{
    headed(Method::DELETE, path, (noun, StatusCode::OK), summary, handler)
}

/// `POST` of an action; the answer is the state after it.
pub(crate) fn act<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema,
{
    change(Method::POST, path, (noun, StatusCode::OK), summary, handler)
}

/// `PATCH`: changes the given fields and keeps all others.
pub(crate) fn set<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema + Tagged,
{
    changed(Method::PATCH, path, noun, summary, handler)
}

/// `PUT`: replaces the whole object.
pub(crate) fn put<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema + Tagged,
{
    changed(Method::PUT, path, noun, summary, handler)
}

/// `DELETE` that answers with a result.
pub(crate) fn end<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema,
{
    change(Method::DELETE, path, (noun, StatusCode::OK), summary, handler)
}

/// `DELETE` without a body in the answer.
pub(crate) fn remove<P, H>(path: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Output = ()>,
{
    done(Method::DELETE, path, summary, handler)
}

/// `POST` of an action without a body in the answer.
pub(crate) fn post_empty<P, H>(path: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Output = ()>,
{
    done(Method::POST, path, summary, handler)
}

type Success = (&'static str, StatusCode);
type Types = (fn(&mut Schemas) -> RowInput, fn(&mut Schemas) -> AnswerSchema);

fn change<P, H>(method: Method, path: &'static str, good: Success, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema,
{
    let (noun, status) = good;
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        // Parsing errors are returned before the task starts; from then on the change runs to its end.
        pending(async move { json_response(status, Envelope::of(noun, run_detached(called?).await?)) })
    };
    row(method, path, good, summary, run, (H::takes, AnswerSchema::one::<H::Output>)).only(Role::Operator)
}

fn changed<P, H>(method: Method, path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Output: Serialize + JsonSchema + Tagged,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { tagged(StatusCode::OK, noun, run_detached(called?).await?) })
    };
    row(method, path, (noun, StatusCode::OK), summary, run, (H::takes, AnswerSchema::one::<H::Output>))
        .only(Role::Operator)
}

fn headed<P, T, H>(method: Method, path: &'static str, good: Success, summary: &'static str, handler: H) -> Row
where
    T: Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Output = Headed<T>>,
{
    let (noun, status) = good;
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move {
            let Headed { head, value } = run_detached(called?).await?;
            let mut response = json_response(status, Envelope::of(noun, value))?;
            response.headers_mut().extend(head);
            Ok(response)
        })
    };
    row(method, path, good, summary, run, (H::takes, AnswerSchema::one::<T>)).only(Role::Operator)
}

fn done<P, H>(method: Method, path: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Output = ()>,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { Ok(run_detached(called?).await.map(|()| StatusCode::NO_CONTENT)?.into_response()) })
    };
    row(method, path, ("", StatusCode::NO_CONTENT), summary, run, (H::takes, |_| AnswerSchema::Nothing))
        .only(Role::Operator)
}

fn row(
    method: Method,
    path: &'static str,
    (noun, status): Success,
    summary: &'static str,
    run: impl Fn(Arc<Control>, RowRequest) -> Pending<Response> + Send + Sync + 'static,
    (takes, tells): Types,
) -> Row {
    // Defaults of a read; `change` and the methods of `Row` adjust them.
    let media = "application/json";
    let (role, open, is_tagged, is_secret, run) = (Role::Viewer, false, false, false, Box::new(run));
    let (scope, only_plans) = (None, false);
    let (reads_host_data, while_held, request_bytes_max) = (false, false, REQUEST_BYTES_MAX);
    Row {
        method,
        path,
        role,
        scope,
        only_plans,
        open,
        noun,
        summary,
        status,
        media,
        is_tagged,
        is_secret,
        reads_host_data,
        while_held,
        request_bytes_max,
        run,
        takes,
        tells,
    }
}

fn pending(answer: impl Future<Output = Result<Response, Refusal>> + Send + 'static) -> Pending<Response> {
    Box::pin(answer)
}

/// Runs a change to its end even if the client disconnects: it must not be dropped half way.
async fn run_detached<T: Send + 'static>(change: Pending<T>) -> Result<T, Refusal> {
    tokio::spawn(change).await.unwrap_or_else(|error| {
        // The change has panicked; the log has the details.
        tracing::error!(%error, "a change failed unexpectedly");
        Err(Refusal::new(code::INTERNAL, "the change failed unexpectedly", "report this as a bug, with the daemon log"))
    })
}

/// Envelope of an answer: `{"schema":1,"<noun>":…}`, and for a list `total` and `next`.
struct Envelope<T> {
    noun: &'static str,
    value: T,
    page: Option<(usize, Option<String>)>,
}

impl<T> Envelope<T> {
    fn of(noun: &'static str, value: T) -> Self {
        Self { noun, value, page: None }
    }
}

impl<T: Serialize> Serialize for Envelope<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Serialized by hand, because the second key is known only at run time.
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &SCHEMA)?;
        map.serialize_entry(self.noun, &self.value)?;
        if let Some((total, next)) = &self.page {
            map.serialize_entry("total", total)?;
            map.serialize_entry("next", next)?;
        }
        map.end()
    }
}

/// Answer with the entity tag of its object.
fn tagged<T: Serialize + Tagged>(status: StatusCode, noun: &'static str, thing: T) -> Result<Response, Refusal> {
    // The tag covers the settings only: counters and states change without a change of the object.
    let set = ObjectSettings(thing.what_is_set());
    let tag = tag_of(&set);
    let mut response = json_response(status, Envelope::of(noun, thing))?;
    response.extensions_mut().insert(set);
    response.headers_mut().insert(ETAG, HeaderValue::try_from(tag).expect("digits in quotes"));
    Ok(response)
}

fn json_response<T: Serialize>(status: StatusCode, whole: Envelope<T>) -> Result<Response, Refusal> {
    let text = serde_json::to_vec(&whole).map_err(|error| {
        tracing::error!(%error, noun = whole.noun, "cannot be encoded as JSON");
        Refusal::new(
            code::INTERNAL,
            "the response cannot be encoded as JSON",
            "report this as a bug, with the daemon log",
        )
    })?;
    Ok((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Identity of the caller, by which idempotency keys are kept apart. Inserted into requests before they reach their
/// row.
#[derive(Clone, Debug)]
pub struct Principal(pub String);
