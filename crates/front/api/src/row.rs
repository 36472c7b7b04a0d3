//! One row of the API: method, path, who may, what goes in and what comes out, said once.
//!
//! The router, the description ([`crate::openapi`]), the table of roles and the table of commands are made from rows. What goes in
//! is the [parts](Part) that a row's closure takes, what comes out is what it gives; both are described by their own types.

mod listed;
mod part;

pub(crate) use listed::{Atom, Key, Listed, Page, key};
pub(crate) use part::{Asked, Behind, Body, Named, Part, Question, Taken, Understood, Who};

use crate::keeping::{AsSet, Tagged, tag_of};
use crate::openapi::{Schemas, Told};
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

/// The version of the answers' form. Keys are added without raising it, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Where every path begins.
pub const BASE: &str = "/api/v1";

/// The longest request that most rows read.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>>;

/// One thing that can be asked.
pub struct Row {
    /// GET, POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// Behind [`BASE`]; `{name}` is one name, `{*name}` one that may have slashes.
    pub path: &'static str,
    /// The least that whoever asks must be.
    pub role: Role,
    /// The scope that a token needs for it whatever its nouns are; none for most.
    pub scope: Option<&'static str>,
    /// True where consent in the request (`force`, `prune`) is for a later call: this one changes nothing.
    pub only_plans: bool,
    /// True for what nobody has proven anything for: logging in.
    open: bool,
    /// The key of the answer beside `schema`; empty where the answer has none.
    pub noun: &'static str,
    /// What is so when it has been answered, in one line.
    pub summary: &'static str,
    /// The status of the good answer.
    pub status: StatusCode,
    /// What the good answer is.
    pub media: &'static str,
    /// True where the good answer has an entity tag, which changes at the same path can be made conditional on.
    pub is_tagged: bool,
    /// True where the good answer holds a secret, which is not kept.
    pub is_secret: bool,
    /// True where the answer is data of hosts, or the audit: who reads it is written down.
    pub reads_host_data: bool,
    /// True where it may be asked while changes are refused: what ends that, and what changes nothing that is kept.
    pub while_held: bool,
    /// The longest request that is read.
    pub request_bytes_max: usize,
    run: Box<dyn Fn(Arc<Control>, Question) -> Pending<Response> + Send + Sync>,
    pub(crate) takes: fn(&mut Schemas) -> Taken,
    pub(crate) tells: fn(&mut Schemas) -> Told,
}

impl Row {
    /// Only somebody with this role, or more, may ask it.
    pub(crate) fn only(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// It destroys data: a token needs [`Scope::DESTROY`].
    pub(crate) fn destroys(mut self) -> Self {
        self.scope = Some(Scope::DESTROY);
        self
    }

    /// It decides who may use the array: a token needs [`Scope::ACCESS`].
    pub(crate) fn gives_access(mut self) -> Self {
        self.scope = Some(Scope::ACCESS);
        self
    }

    /// It changes nothing, whatever the request consents to.
    pub(crate) fn only_plans(mut self) -> Self {
        self.only_plans = true;
        self
    }

    /// Its answer is not kept.
    pub(crate) fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    /// Who asks it is written down, though nothing changes.
    pub(crate) fn of_host_data(mut self) -> Self {
        self.reads_host_data = true;
        self
    }

    /// It may be asked while changes are refused.
    pub(crate) fn while_held(mut self) -> Self {
        self.while_held = true;
        self
    }

    /// Requests may be as long as this.
    pub(crate) fn up_to(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Whoever comes may ask it, without having proven anything.
    pub(crate) fn open(mut self) -> Self {
        self.open = true;
        self.while_held = true;
        self
    }

    /// True for what may be asked by whoever comes: logging in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The whole path, from the root.
    #[must_use]
    pub fn full_path(&self) -> String {
        format!("{BASE}{}", self.path)
    }

    /// True for a row whose calls are written down.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        !self.looks() || self.reads_host_data
    }

    /// True for a row that changes nothing.
    #[must_use]
    pub fn looks(&self) -> bool {
        self.method == Method::GET
    }

    /// The good answer.
    ///
    /// *Errors*: the question cannot be understood, or what control says.
    pub(crate) fn answer(&self, control: Arc<Control>, question: Question) -> Pending<Response> {
        (self.run)(control, question)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}): {}", self.method, self.path, self.role, self.summary)
    }
}

/// A closure that takes parts of a question and gives an answer in time.
pub(crate) trait Handler<P>: Send + Sync + 'static {
    /// What it gives.
    type Said: Send + 'static;

    /// The answer, once the parts are read.
    ///
    /// *Errors*: a part cannot be understood, or something is asked that no part takes.
    fn call(&self, control: Arc<Control>, question: &mut Question) -> Result<Pending<Self::Said>, Refusal>;

    /// What the parts are.
    fn takes(schemas: &mut Schemas) -> Taken;
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
            type Said = T;

            fn call(&self, control: Arc<Control>, question: &mut Question) -> Result<Pending<T>, Refusal> {
                $(let $name = $part::take(question)?;)*
                question.admit_nothing_else()?;
                Ok(Box::pin(self(control, $($name),*)))
            }

            #[allow(unused_mut, unused_variables, reason = "of no parts nothing is said")]
            fn takes(schemas: &mut Schemas) -> Taken {
                let mut taken = Taken::default();
                $($part::describe(&mut taken, schemas);)*
                taken
            }
        }
    )*};
}

handlers! { () (A a) (A a, B b) (A a, B b, C c) }

/// `GET`: one thing.
pub(crate) fn get<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { said(StatusCode::OK, Whole::of(noun, called?.await?)) })
    };
    row(Method::GET, path, (noun, StatusCode::OK), summary, run, (H::takes, Told::one::<H::Said>))
}

/// `GET`: one thing that can be changed; its tag comes with it.
pub(crate) fn one<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema + Tagged,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { tagged(StatusCode::OK, noun, called?.await?) })
    };
    let row = row(Method::GET, path, (noun, StatusCode::OK), summary, run, (H::takes, Told::one::<H::Said>));
    Row { is_tagged: true, ..row }
}

/// `GET`: a list, or a page of it.
pub(crate) fn list<P, T, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    T: Listed + Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Said = Vec<T>>,
{
    let run = move |control, mut question: Question| {
        let called = Page::take::<T>(&mut question).and_then(|page| Ok((page, handler.call(control, &mut question)?)));
        pending(async move {
            let (page, called) = called?;
            let (items, total, next) = page.cut(called.await?);
            said(StatusCode::OK, Whole { noun, value: items, page: Some((total, next)) })
        })
    };
    let takes = |schemas: &mut Schemas| {
        let mut taken = H::takes(schemas);
        Page::describe::<T>(&mut taken);
        taken
    };
    row(Method::GET, path, (noun, StatusCode::OK), summary, run, (takes, Told::list::<T>))
}

/// `GET`: bytes of another media type. What the closure gives is the body.
pub(crate) fn file<P, H>(path: &'static str, media: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Said = body::Body>,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { Ok(([(CONTENT_TYPE, media)], called?.await?).into_response()) })
    };
    let row = row(Method::GET, path, ("", StatusCode::OK), summary, run, (H::takes, |_| Told::Bytes));
    Row { media, ..row }
}

/// `POST`: something new is there.
pub(crate) fn add<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema,
{
    change(Method::POST, path, (noun, StatusCode::CREATED), summary, handler)
}

/// What a row says, and more for the head of its answer.
pub(crate) struct Headed<T> {
    /// Added to the head.
    pub head: HeaderMap,
    /// What is said.
    pub value: T,
}

/// `POST`: something new is there, and the head of the answer has more to say.
pub(crate) fn add_headed<P, T, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    T: Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Said = Headed<T>>,
{
    headed(Method::POST, path, (noun, StatusCode::CREATED), summary, handler)
}

/// `DELETE`: something is over, and the head of the answer has more to say.
pub(crate) fn end_headed<P, T, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    T: Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Said = Headed<T>>,
{
    headed(Method::DELETE, path, (noun, StatusCode::OK), summary, handler)
}

/// `POST`: something is done; the answer says how it is then.
pub(crate) fn act<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema,
{
    change(Method::POST, path, (noun, StatusCode::OK), summary, handler)
}

/// `PATCH`: what is named is otherwise, and everything else as it was.
pub(crate) fn set<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema + Tagged,
{
    changed(Method::PATCH, path, noun, summary, handler)
}

/// `PUT`: it is as it is said now.
pub(crate) fn put<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema + Tagged,
{
    changed(Method::PUT, path, noun, summary, handler)
}

/// `DELETE`: something is over; the answer says how it ended.
pub(crate) fn end<P, H>(path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema,
{
    change(Method::DELETE, path, (noun, StatusCode::OK), summary, handler)
}

/// `DELETE`: it is gone, and there is no more to say.
pub(crate) fn remove<P, H>(path: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Said = ()>,
{
    done(Method::DELETE, path, summary, handler)
}

/// `POST`: it is done, and there is no more to say.
pub(crate) fn quietly<P, H>(path: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Said = ()>,
{
    done(Method::POST, path, summary, handler)
}

type Good = (&'static str, StatusCode);
type Types = (fn(&mut Schemas) -> Taken, fn(&mut Schemas) -> Told);

fn change<P, H>(method: Method, path: &'static str, good: Good, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema,
{
    let (noun, status) = good;
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { said(status, Whole::of(noun, to_its_end(called?).await?)) })
    };
    row(method, path, good, summary, run, (H::takes, Told::one::<H::Said>)).only(Role::Operator)
}

fn changed<P, H>(method: Method, path: &'static str, noun: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P>,
    H::Said: Serialize + JsonSchema + Tagged,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { tagged(StatusCode::OK, noun, to_its_end(called?).await?) })
    };
    row(method, path, (noun, StatusCode::OK), summary, run, (H::takes, Told::one::<H::Said>)).only(Role::Operator)
}

fn headed<P, T, H>(method: Method, path: &'static str, good: Good, summary: &'static str, handler: H) -> Row
where
    T: Serialize + JsonSchema + Send + 'static,
    H: Handler<P, Said = Headed<T>>,
{
    let (noun, status) = good;
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move {
            let Headed { head, value } = to_its_end(called?).await?;
            let mut response = said(status, Whole::of(noun, value))?;
            response.headers_mut().extend(head);
            Ok(response)
        })
    };
    row(method, path, good, summary, run, (H::takes, Told::one::<T>)).only(Role::Operator)
}

fn done<P, H>(method: Method, path: &'static str, summary: &'static str, handler: H) -> Row
where
    H: Handler<P, Said = ()>,
{
    let run = move |control, mut question| {
        let called = handler.call(control, &mut question);
        pending(async move { Ok(to_its_end(called?).await.map(|()| StatusCode::NO_CONTENT)?.into_response()) })
    };
    row(method, path, ("", StatusCode::NO_CONTENT), summary, run, (H::takes, |_| Told::Nothing)).only(Role::Operator)
}

fn row(
    method: Method,
    path: &'static str,
    (noun, status): Good,
    summary: &'static str,
    run: impl Fn(Arc<Control>, Question) -> Pending<Response> + Send + Sync + 'static,
    (takes, tells): Types,
) -> Row {
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

/// Runs a change to its end, also when the asker hangs up: half a change is no change.
async fn to_its_end<T: Send + 'static>(change: Pending<T>) -> Result<T, Refusal> {
    tokio::spawn(change).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a change broke off");
        Err(Refusal::new(code::INTERNAL, "the change broke off", "report this with the daemon's log"))
    })
}

/// An answer: `{"schema":1,"<noun>":…}`, and for a list `total` and `next`.
struct Whole<T> {
    noun: &'static str,
    value: T,
    page: Option<(usize, Option<String>)>,
}

impl<T> Whole<T> {
    fn of(noun: &'static str, value: T) -> Self {
        Self { noun, value, page: None }
    }
}

impl<T: Serialize> Serialize for Whole<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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

/// An answer with the tag of what it holds.
fn tagged<T: Serialize + Tagged>(status: StatusCode, noun: &'static str, thing: T) -> Result<Response, Refusal> {
    let set = AsSet(thing.what_is_set());
    let tag = tag_of(&set);
    let mut response = said(status, Whole::of(noun, thing))?;
    response.extensions_mut().insert(set);
    response.headers_mut().insert(ETAG, HeaderValue::try_from(tag).expect("digits in quotes"));
    Ok(response)
}

fn said<T: Serialize>(status: StatusCode, whole: Whole<T>) -> Result<Response, Refusal> {
    let text = serde_json::to_vec(&whole).map_err(|error| {
        tracing::error!(%error, noun = whole.noun, "cannot be said in JSON");
        Refusal::new(code::INTERNAL, "the answer cannot be said in JSON", "report this with the daemon's log")
    })?;
    Ok((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Who has asked: the keys of one asker are not those of another. Put into requests before they come to their row.
#[derive(Clone, Debug)]
pub struct Asker(pub String);
