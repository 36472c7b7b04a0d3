//! Receivers in configuration documents.

use crate::alerts::{Alerts, StoredReceivers};
use crate::receiver::Receiver;
use control::config::{ProvisionalChange, ReceiverEntry, Step, StepKind, changes};
use model::{MailTls, Name, ReceiverTrust, ReceiverWay, Refusal, WebhookForm};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Section of a document.
pub(crate) type Section = BTreeMap<Name, ReceiverEntry>;

impl Alerts {
    /// Exports the receivers for a document, without secrets.
    pub fn export(&self) -> Section {
        let node = self.node();
        self.receivers().iter().map(|(name, receiver)| (name.clone(), receiver.entry(&node))).collect()
    }

    /// Plans the changes of a section. Also returns the receivers that are not in it and stay.
    ///
    /// *Errors*: invalid settings, or there would be too many receivers.
    pub fn plan(&self, section: &Section, prune: bool) -> Result<(Vec<Step>, Vec<String>), Refusal> {
        let (before, node) = (self.receivers(), self.node());
        let after = after(&before, section, prune, &node)?;
        let kept = after.keys().filter(|name| !section.contains_key(*name));
        Ok((steps(&before, &after, &node), kept.map(|name| format!("receiver {name}")).collect()))
    }

    /// Applies the section. The result either confirms the change or reverts it.
    ///
    /// *Errors*: those of [`Alerts::plan`], or it could not be stored; nothing has changed then.
    pub fn commit(self: &Arc<Self>, section: &Section, prune: bool) -> Result<Box<dyn ProvisionalChange>, Refusal> {
        let node = self.node();
        let mut before = StoredReceivers::new();
        self.edit(|receivers| {
            let after = after(receivers, section, prune, &node)?;
            before = std::mem::replace(receivers, after);
            Ok(())
        })?;
        let now = self.receivers();
        let names: BTreeSet<&Name> = before.keys().chain(now.keys()).collect();
        let changed: Vec<Name> =
            names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect();
        // A rollback restores only these.
        before.retain(|name, _| changed.contains(name));
        Ok(Box::new(Changed { alerts: self.clone(), before, changed }))
    }

    fn node(&self) -> String {
        self.control().core.settings().node.to_string()
    }
}

/// Receivers that were changed by a document.
struct Changed {
    alerts: Arc<Alerts>,
    /// Receivers as they were before.
    before: StoredReceivers,
    changed: Vec<Name>,
}

impl ProvisionalChange for Changed {
    fn finalize(self: Box<Self>) {
        let now = self.alerts.receivers();
        for name in &self.changed {
            if now.contains_key(name) {
                // Restarted, so that a back-off under the old settings ends.
                self.alerts.start_delivery(name);
            } else {
                self.alerts.forget(name);
            }
        }
    }

    fn roll_back(self: Box<Self>) -> Result<(), Refusal> {
        let Self { alerts, before, changed } = *self;
        alerts.edit(|receivers| {
            for name in &changed {
                match before.get(name) {
                    Some(receiver) => receivers.insert(name.clone(), receiver.clone()),
                    None => receivers.remove(name),
                };
            }
            Ok(())
        })?;
        // The task of a receiver that was removed in between has ended.
        before.keys().for_each(|name| alerts.start_delivery(name));
        Ok(())
    }
}

/// Returns the receivers as they would be after the section is applied.
fn after(before: &StoredReceivers, section: &Section, prune: bool, node: &str) -> Result<StoredReceivers, Refusal> {
    let mut next = before.clone();
    // Without `prune`, receivers that the document omits stay.
    if prune {
        next.retain(|name, _| section.contains_key(name));
    }
    for (name, entry) in section {
        let known = next.get(name);
        if known.is_none() {
            Alerts::admit_new(&next, name)?;
        }
        let receiver = Receiver::of_entry(name, entry, known, node).map_err(|refusal| {
            Refusal::new(refusal.code, format!("receiver {name}: {}", refusal.message), refusal.hint)
        })?;
        next.insert(name.clone(), receiver);
    }
    Ok(next)
}

fn steps(before: &StoredReceivers, after: &StoredReceivers, node: &str) -> Vec<Step> {
    let names: BTreeSet<&Name> = before.keys().chain(after.keys()).collect();
    let step = |name: &Name| {
        let (kind, change) = match (before.get(name), after.get(name)) {
            (None, Some(is)) => (StepKind::Create, is.said()),
            (Some(_), None) => (StepKind::Remove, String::new()),
            (Some(was), Some(is)) if was != is => (StepKind::Change, difference(was, is, node)),
            _ => return None,
        };
        Some(Step::unnoticed(kind, format!("receiver {name}"), change))
    };
    names.into_iter().filter_map(step).collect()
}

fn difference(was: &Receiver, is: &Receiver, node: &str) -> String {
    let settings = changes(&settings(&was.entry(node)), &settings(&is.entry(node)));
    // Secrets are never shown, only that they differ.
    let proof = (was.credential != is.credential).then(|| "credentials".to_owned());
    settings.into_iter().chain(proof).collect::<Vec<_>>().join(", ")
}

fn settings(entry: &ReceiverEntry) -> [(&'static str, String); 11] {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let span = |span: Option<model::Span>| span.map_or_else(|| "default".to_owned(), |span| span.to_string());
    [
        ("to", entry.to.join(" ")),
        ("from", text(&entry.from)),
        ("smtp", text(&entry.smtp)),
        ("tls", entry.tls.unwrap_or_default().to_string()),
        ("user", text(&entry.user)),
        ("url", text(&entry.url)),
        ("format", entry.format.unwrap_or_default().to_string()),
        ("authorities", entry.pin.clone().or_else(|| entry.ca_file.clone()).unwrap_or_else(|| "system CAs".to_owned())),
        ("min_severity", entry.min_severity.unwrap_or(crate::receiver::LEAST).as_str().to_owned()),
        ("gather", span(entry.gather)),
        ("remind", span(entry.remind)),
    ]
}

impl Receiver {
    /// Returns the document entry: settings with default values are omitted.
    fn entry(&self, node: &str) -> ReceiverEntry {
        use crate::receiver::{GATHER, LEAST, REMIND, usual_sender};
        let mut entry = ReceiverEntry {
            // Values equal to the default are omitted.
            min_severity: (self.min_severity != LEAST).then_some(self.min_severity),
            gather: (self.gather != GATHER).then_some(self.gather),
            remind: (self.remind != REMIND).then_some(self.remind),
            ..ReceiverEntry::default()
        };
        match &self.delivery {
            ReceiverWay::Mail { to, from, smtp, tls, user } => {
                entry.to.clone_from(to);
                entry.from = (*from != usual_sender(node)).then(|| from.clone());
                entry.smtp = Some(smtp.clone());
                entry.tls = (*tls != MailTls::default()).then_some(*tls);
                entry.user.clone_from(user);
            }
            ReceiverWay::Webhook { url, format: form } => {
                entry.url = Some(url.clone());
                entry.format = (*form != WebhookForm::default()).then_some(*form);
                entry.signed = self.credential.is_some();
            }
        }
        match &self.trust {
            ReceiverTrust::System => {}
            ReceiverTrust::CaFile { path } => entry.ca_file = Some(path.clone()),
            ReceiverTrust::Pin { pin } => entry.pin = Some(pin.clone()),
        }
        entry
    }

    fn said(&self) -> String {
        match &self.delivery {
            ReceiverWay::Mail { to, smtp, tls, .. } => format!("mail to {} through {smtp} ({tls})", to.join(", ")),
            ReceiverWay::Webhook { url, format: form } => format!("{form} webhook {url}"),
        }
    }
}
