//! Commands `blockyard alert …`.

use super::{CommandContext, joined, or_dash};
use crate::args::{AlertCommand, ListOptions, ReceiverOptions};
use crate::client::escaped;
use crate::failure::Failure;
use crate::output::Rows;
use crate::secret;
use alert::request::{NewReceiver, NewSilence, SetReceiver};
use model::{AlertReport, Name, ReceiverReport, ReceiverTest, ReceiverWay, SilenceReport};

pub(super) fn run(desk: &CommandContext, command: AlertCommand) -> Result<(), Failure> {
    match command {
        AlertCommand::Active(options) => active(desk, &options),
        AlertCommand::List(options) => list(desk, &options),
        AlertCommand::Add { name, how } => {
            let new = NewReceiver { name: name.clone(), settings: asked(how)? };
            let answer = desk.client.post("/receivers", &new, "receiver")?;
            desk.out.done(&answer, &format!("receiver {name} added; test it with blockyard alert test {name}"))
        }
        AlertCommand::Set { name, how } => {
            let answer = desk.client.patch(&path_of(&name), &asked(how)?, "receiver")?;
            desk.out.done(&answer, &format!("receiver {name} changed; test it with blockyard alert test {name}"))
        }
        AlertCommand::Test { name } => {
            let answer = desk.client.post(&format!("{}/test", path_of(&name)), &serde_json::json!({}), "test")?;
            let ReceiverTest { response: said } = answer.decode()?;
            desk.out.done(&answer, &format!("receiver {name} accepted the test message: {said}"))
        }
        AlertCommand::Remove { name } => {
            desk.client.delete(&path_of(&name))?;
            desk.out.said(&format!("receiver {name} removed"))
        }
        // A subject such as `pool tank` arrives as two words, because the shell splits it.
        AlertCommand::Silence { what, lasts, .. } => silence(desk, what.join(" "), lasts),
        AlertCommand::Acknowledge { number } => {
            let path = format!("/alerts/{number}/acknowledge");
            let answer = desk.client.post(&path, &serde_json::json!({}), "alert")?;
            let AlertReport { facts, .. } = answer.decode()?;
            desk.out.done(&answer, &format!("alert {number} acknowledged: {}", facts.message))
        }
        AlertCommand::Silenced(options) => silenced(desk, &options),
    }
}

fn path_of(name: &Name) -> String {
    format!("/receivers/{name}")
}

fn asked(how: ReceiverOptions) -> Result<SetReceiver, Failure> {
    let ReceiverOptions { mail, smtp, from, tls, user, password_file, webhook, form, secret_file, .. } = how;
    // A secret in the environment belongs to the user name or the URL that it was set for, so it is read only together
    // with that.
    let variable = |is_wanted: bool, name: &'static str| if is_wanted { name } else { "" };
    let password = secret::read(password_file.as_deref(), variable(user.is_some(), "BLOCKYARD_SMTP_PASSWORD"), false)?;
    let signing = variable(webhook.is_some(), "BLOCKYARD_WEBHOOK_SECRET");
    let secret = secret::read(secret_file.as_deref(), signing, false)?;
    Ok(SetReceiver {
        // An absent field keeps its value. An empty list would remove all addresses.
        to: (!mail.is_empty()).then_some(mail),
        from,
        smtp,
        tls,
        user,
        password,
        url: webhook,
        format: form,
        secret,
        ca_file: how.server_ca_file.map(|file| file.to_string_lossy().into_owned()),
        pin: how.server_pin,
        min_severity: how.least,
        gather: how.gather,
        remind: how.remind,
    })
}

fn active(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/alerts", "alerts", options, &[])?;
    let alerts: Vec<AlertReport> = answer.decode()?;
    // A search without a result prints the empty table, since alerts may well be active.
    if alerts.is_empty() && options.search.is_none() && !desk.out.is_json() {
        return desk.out.said("no active alerts");
    }
    let row = |alert: &AlertReport| {
        let facts = &alert.facts;
        let mut what = vec![facts.message.clone()];
        what.extend(facts.details.iter().cloned());
        what.extend((!facts.action.is_empty()).then(|| facts.action.clone()));
        vec![
            facts.number.to_string(),
            facts.severity.as_str().to_owned(),
            facts.since.to_string(),
            facts.code.to_string(),
            facts.subject.to_string(),
            alert.silenced.map_or_else(|| joined(&alert.notified), |until| format!("silenced until {until}")),
            what.join("; "),
        ]
    };
    let header = &["ALERT", "SEVERITY", "SINCE", "CODE", "SUBJECT", "SENT TO", "MESSAGE"];
    desk.out.rows(&answer, &Rows { header, rows: alerts.iter().map(row).collect() })
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/receivers", "receivers", options, &[])?;
    let receivers: Vec<ReceiverReport> = answer.decode()?;
    let row = |receiver: &ReceiverReport| {
        let way = match &receiver.delivery {
            ReceiverWay::Mail { to, smtp, tls, .. } => format!("mail to {} by {smtp} ({tls})", to.join(", ")),
            ReceiverWay::Webhook { url, format: form } => format!("{form} webhook {url}"),
        };
        vec![
            receiver.name.to_string(),
            way,
            receiver.min_severity.as_str().to_owned(),
            or_dash(receiver.last_success),
            or_dash(receiver.last_failure),
            or_dash(receiver.error.as_ref()),
        ]
    };
    let header = &["RECEIVER", "METHOD", "MIN SEVERITY", "SENT", "FAILED", "ERROR"];
    desk.out.rows(&answer, &Rows { header, rows: receivers.iter().map(row).collect() })
}

fn silence(desk: &CommandContext, what: String, lasts: Option<model::Span>) -> Result<(), Failure> {
    // Clap requires either `--for` or `--off`.
    let Some(lasts) = lasts else {
        desk.client.delete(&format!("/silences?matcher={}", escaped(&what)))?;
        return desk.out.said(&format!("silence of {what} removed"));
    };
    let answer = desk.client.post("/silences", &NewSilence { matcher: what, lasts }, "silence")?;
    let SilenceReport { matcher: what, until } = answer.decode()?;
    desk.out.done(&answer, &format!("{what} is silenced until {until}"))
}

fn silenced(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/silences", "silences", options, &[])?;
    let silences: Vec<SilenceReport> = answer.decode()?;
    let rows = silences.iter().map(|it| vec![it.matcher.clone(), it.until.to_string()]).collect();
    desk.out.rows(&answer, &Rows { header: &["ALERT", "UNTIL"], rows })
}
