//! Rows for the caller, users, logins, tokens, links and the web server.

use crate::gate::{Authentication, COOKIE, Caller, ClientInfo, Gate, scopes};
use crate::people::NewLogin;
use crate::request::{ChangePassword, Confirm, LogIn, NewLink, NewToken, NewUser, Prove, SetUser, UseLink};
use crate::row::{
    Authenticated, Body, Headed, PathName, Row, Services, act, add, add_headed, end_headed, get, list, one, remove, set,
};
use axum::http::{HeaderMap, HeaderValue, header};
use control::Control;
use model::{CallerReport, LinkReport, Name, NewTokenReport, Refusal, Role, WebReport, code};
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    [own(), own_proof(), users(), tokens(), web()].into_iter().flatten().collect()
}

/// Rows for the caller's own session.
fn own() -> Vec<Row> {
    vec![
        get(
            "/session",
            "session",
            "Show the current login and its permissions",
            |_: C, Authenticated(caller): Authenticated, Services(door): Services| async move {
                Ok(caller.report(&door.people))
            },
        ),
        add_headed(
            "/session",
            "session",
            "Log in; the session cookie is in the response headers",
            |_: C, Services(door): Services, from: ClientInfo, Body(asked): Body<LogIn>| async move {
                let LogIn { name, password, code } = asked;
                let code = code.map(String::from);
                let let_in = door.people.log_in(&name, password, code.as_deref(), (from.address, &from.agent)).await?;
                welcome(&door, let_in)
            },
        )
        .open()
        .secret(),
        add_headed(
            "/session/link",
            "session",
            "Use a one-time link: set the password and log in",
            |_: C, Services(door): Services, from: ClientInfo, Body(asked): Body<UseLink>| async move {
                let UseLink { token, name, password } = asked;
                let token = String::from(token);
                let let_in = door.people.use_link(&token, name, password, (from.address, &from.agent)).await?;
                welcome(&door, let_in)
            },
        )
        .open()
        .secret(),
        end_headed(
            "/session",
            "session",
            "Log out",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated| async move {
                let login = caller.login()?;
                door.people.end_login(&login.id, None)?;
                Ok(Headed { head: cookie("", 0)?, value: caller.report(&door.people) })
            },
        )
        .only(Role::Viewer)
        .while_held(),
    ]
}

/// Rows for the caller's own credentials.
fn own_proof() -> Vec<Row> {
    vec![
        act(
            "/session/password",
            "user",
            "Change your password and end your other logins",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<ChangePassword>| async move {
                door.people.change_own_password(caller.login()?, asked.old_password, asked.password).await
            },
        )
        .only(Role::Viewer)
        .secret(),
        act(
            "/session/second-factor",
            "second_factor",
            "Start the enrollment of a second factor",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<Prove>| async move {
                door.people.offer_second_factor(caller.login()?, asked.password).await
            },
        )
        .only(Role::Viewer)
        .secret(),
        act(
            "/session/second-factor/confirm",
            "user",
            "Confirm the enrollment of a second factor",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<Confirm>| async move {
                door.people.confirm_second_factor(caller.login()?, &String::from(asked.code))
            },
        )
        .only(Role::Viewer),
        act(
            "/session/second-factor/removal",
            "user",
            "Remove your second factor",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<Prove>| async move {
                door.people.drop_second_factor(caller.login()?, asked.password).await
            },
        )
        .only(Role::Viewer),
    ]
}

fn users() -> Vec<Row> {
    vec![
        list("/users", "users", "List users", |_: C, Services(door): Services| async move { Ok(door.people.users()) })
            .only(Role::Admin),
        one(
            "/users/{name}",
            "user",
            "Show a user",
            |_: C, Services(door): Services, PathName(name): PathName<Name>| async move { door.people.user(&name) },
        )
        .only(Role::Admin),
        add("/users", "user", "Add a user", |_: C, Services(door): Services, Body(asked): Body<NewUser>| async move {
            door.people.add_user(asked).await
        })
        .gives_access()
        .only(Role::Admin),
        set(
            "/users/{name}",
            "user",
            "Change the role or password of a user or remove the second factor; ends the user's logins",
            |_: C,
             Services(door): Services,
             who: Authenticated,
             (PathName(name), Body(asked)): (PathName<Name>, Body<SetUser>)| async move {
                // Callers who change themselves keep their session.
                let own = who.0.login().ok().map(|login| login.id.clone());
                door.people.set_user(&name, asked, own.as_deref()).await
            },
        )
        .gives_access()
        .only(Role::Admin),
        remove("/users/{name}", "Remove a user", |_: C, Services(door): Services, PathName(name): PathName<Name>| async move {
            door.people.remove_user(&name)
        })
        .gives_access()
        .only(Role::Admin),
        list(
            "/logins",
            "logins",
            "List open logins: your own, or all of them as an admin",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated| async move {
                let own = caller.login().ok().map(|login| login.id.clone());
                // A caller without a user, such as a token, has no logins of its own.
                let of = if caller.role == Role::Admin { None } else { caller.user().cloned() };
                match (of, caller.role) {
                    (None, role) if role < Role::Admin => Ok(Vec::new()),
                    (of, _) => Ok(door.people.logins(of.as_ref(), own.as_deref())),
                }
            },
        ),
        remove(
            "/logins/{id}",
            "End a login: your own, or any as an admin",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, PathName(id): PathName<Name>| async move {
                let of = if caller.role == Role::Admin { None } else { Some(caller.login()?.user.clone()) };
                door.people.end_login(id.as_str(), of.as_ref())
            },
        )
        .gives_access()
        .only(Role::Viewer),
    ]
}

fn tokens() -> Vec<Row> {
    vec![
        list(
            "/tokens",
            "tokens",
            "List API tokens: your own, or all of them as an admin",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated| async move {
                let mut tokens = door.people.tokens();
                // Tokens created by root have no creator and are listed for admins only.
                if caller.role < Role::Admin {
                    tokens.retain(|token| token.created_by.is_some() && token.created_by.as_ref() == caller.user());
                }
                Ok(tokens)
            },
        ),
        add(
            "/tokens",
            "token",
            "Create an API token; its value is shown only once",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<NewToken>| async move {
                make_token(&door, &caller, asked)
            },
        )
        .gives_access()
        .only(Role::Viewer)
        .secret(),
        remove(
            "/tokens/{name}",
            "Revoke an API token: your own, or any as an admin",
            |_: C, Services(door): Services, Authenticated(caller): Authenticated, PathName(name): PathName<Name>| async move {
                let of = if caller.role == Role::Admin { None } else { Some(caller.login()?.user.clone()) };
                door.people.revoke_token(&name, of.as_ref())
            },
        )
        .gives_access()
        .only(Role::Viewer),
    ]
}

fn web() -> Vec<Row> {
    vec![
        get(
            "/web",
            "web",
            "Show the address of the console and its certificate",
            |c: C, Services(door): Services| async move {
                // Without an HTTPS server the report is empty.
                let none = WebReport { url: None, addresses: Vec::new(), certificate: None };
                Ok(door.web.as_ref().map_or(none, |web| web.report(c.core.settings().node.as_str())))
            },
        ),
        add(
            "/web/links",
            "link",
            "Create a one-time link to set a password",
            |_: C, Services(door): Services, Body(asked): Body<NewLink>| async move { make_link(&door, asked) },
        )
        .gives_access()
        .only(Role::Admin)
        .secret(),
    ]
}

fn make_link(door: &Gate, asked: NewLink) -> Result<LinkReport, Refusal> {
    let report = door.web.as_ref().map(|web| web.report(door.control.core.settings().node.as_str()));
    let url = report.and_then(|report| report.url).ok_or_else(|| {
        let hint = "set an address under [web] in the configuration file, or with --web";
        Refusal::new(code::WEB_CLOSED, "the console is not enabled, so a link cannot be used", hint)
    })?;
    let NewLink { user, role } = asked;
    let (secret, until) = door.people.make_link(user, role)?;
    // After the `#`: browsers do not send the fragment, so no server, proxy or log sees the secret.
    Ok(LinkReport { url: format!("{url}welcome#{secret}"), until })
}

fn make_token(door: &Gate, caller: &Caller, asked: NewToken) -> Result<NewTokenReport, Refusal> {
    // A leaked token must not be extended by creating another one.
    if let Authentication::Token { .. } = caller.known {
        let message = "a token cannot create tokens";
        return Err(Refusal::new(code::FORBIDDEN, message, "log in, or run blockyard token create as root"));
    }
    let nouns: Vec<&str> = scopes::nouns(super::table()).into_iter().collect();
    door.people.make_token(asked, caller.user(), caller.role, &nouns)
}

/// Answer to a login: the caller, and the cookie in a header.
fn welcome(door: &Gate, let_in: NewLogin) -> Result<Headed<CallerReport>, Refusal> {
    let NewLogin { cookie: secret, login } = let_in;
    // Read again, because a link may have created the user.
    let role = door.people.user(&login.user)?.role;
    let name = login.user.to_string();
    let caller = Caller { name, role, known: Authentication::Session(Box::new(login)) };
    Ok(Headed { head: cookie(&secret, crate::people::LASTS_SECONDS)?, value: caller.report(&door.people) })
}

/// Header that sets the session cookie; `seconds` 0 removes it.
fn cookie(secret: &str, seconds: u64) -> Result<HeaderMap, Refusal> {
    // `Secure` and `Path=/` without a domain are required by the prefix `__Host-`.
    let text = format!("{COOKIE}={secret}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict");
    let value = HeaderValue::from_str(&text).map_err(|error| {
        tracing::error!(%error, "the session cookie cannot be encoded");
        Refusal::new(
            code::INTERNAL,
            "the session cookie cannot be encoded",
            "report this as a bug, with the daemon log",
        )
    })?;
    Ok(HeaderMap::from_iter([(header::SET_COOKIE, value)]))
}
