//! Alert service of this node: alert state, receivers, and their periodic work.

use crate::book::{Alert, Book, State};
use crate::message::{Message, MessageAlert};
use crate::receiver::Receiver;
use crate::request::{NewReceiver, NewSilence, SetReceiver};
use crate::send;
use control::{Control, EventFilter, now};
use model::{
    AlertReport, EventSeverity, Name, Problem, ReceiverReport, ReceiverTest, Refusal, Severity, SilenceReport, Subject,
    SubjectKind, code, event,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Names of the documents in the control plane's store.
const RECEIVERS: &str = "receivers";
const BOOK: &str = "alerts";

/// Interval at which all conditions are evaluated.
const ROUND: Duration = Duration::from_secs(2);
/// Interval at which a receiver's task checks for due messages.
const TICK: Duration = Duration::from_millis(500);
/// Back-off after each consecutive failure in seconds; the last value repeats.
const AGAIN_SECONDS: [u64; 6] = [2, 5, 15, 60, 300, 900];
const RECEIVERS_MAX: usize = 100;
const SILENCES_MAX: usize = 1000;

pub(crate) type StoredReceivers = BTreeMap<Name, Receiver>;
/// Alerts in a message: number, reported state and severity.
type OccurrenceBatch = Vec<(u64, State, EventSeverity)>;

/// Active alerts and their receivers.
pub struct Alerts {
    control: Arc<Control>,
    receivers: Mutex<Arc<StoredReceivers>>,
    book: Mutex<Books>,
    delivery_tasks: Mutex<BTreeMap<Name, AbortHandle>>,
    delivered: Mutex<BTreeMap<(Name, bool), u64>>,
}

/// Alert state in memory, and as last written to the store.
struct Books {
    now: Book,
    kept: Book,
}

/// Delivery counter of a receiver since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Receiver name.
    pub receiver: Name,
    /// True for successful deliveries.
    pub is_good: bool,
    /// Number of messages.
    pub count: u64,
}

impl Alerts {
    /// Loads the stored receivers and alert state.
    ///
    /// *Errors*: the store cannot be read.
    pub fn open(control: Arc<Control>) -> Result<Self, Refusal> {
        let receivers: StoredReceivers = kept(&control, RECEIVERS)?;
        let book: Book = kept(&control, BOOK)?;
        // `kept` is the state that was stored last; a change is written only if it differs.
        let books = Books { now: book.clone(), kept: book };
        let (tellers, delivered) = Default::default();
        Ok(Self {
            control,
            receivers: Mutex::new(Arc::new(receivers)),
            book: Mutex::new(books),
            delivery_tasks: tellers,
            delivered,
        })
    }

    /// Evaluates conditions and sends messages until this future is dropped.
    pub async fn watch(self: Arc<Self>) {
        // Ends the delivery tasks when this future is dropped.
        let _tellers = DeliveryTasks(self.clone());
        for name in self.receivers().keys() {
            self.start_delivery(name);
        }
        loop {
            match self.evaluate().await {
                // The data plane is gone, as at the end of the daemon; any other error is retried.
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => tracing::warn!(%refusal, "the active alerts could not be evaluated"),
                Ok(()) => {}
            }
            sleep(ROUND).await;
        }
    }

    async fn evaluate(&self) -> Result<(), Refusal> {
        let found = self.control.status.conditions().await?;
        let events = self
            .control
            .reconciler
            .events(EventFilter { since: Some(Book::events_since(now())), ..EventFilter::default() })
            .await;
        // After the queries, so that the alert of an object that they include is not dropped.
        let state = self.control.core.state();
        let receivers = self.receivers();
        let is_there = |alert: &Alert| {
            let name = alert.subject.name.as_str();
            match alert.subject.kind {
                SubjectKind::Pool => state.pools.keys().any(|pool| pool.as_str() == name),
                SubjectKind::Disk => state.disks.keys().any(|disk| disk.as_str() == name),
                SubjectKind::Receiver => {
                    name == crate::AUDIT_RECEIVER || receivers.keys().any(|receiver| receiver.as_str() == name)
                }
                // Of the others the state has no complete list; their alerts end with their conditions.
                _ => true,
            }
        };
        // In one change: the state is written at most once per round.
        self.change(|book| {
            book.apply_events(&events, now());
            book.apply_conditions(&found, now());
            book.drop_subjects(is_there, now());
            book.forget(now());
        });
        Ok(())
    }

    /// Evaluates the conditions now and returns the active alerts, the worst first.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn active_now(&self) -> Result<Vec<AlertReport>, Refusal> {
        self.evaluate().await?;
        Ok(self.active())
    }

    /// Returns the alerts that were active at the last evaluation, the worst first.
    pub fn active(&self) -> Vec<AlertReport> {
        let books = self.book();
        let report = |(number, alert): (u64, &Alert)| AlertReport {
            facts: alert.facts(number),
            notified: alert.notified(),
            silenced: books.now.silenced(alert, now()),
        };
        let mut active: Vec<AlertReport> = books.now.active().map(report).collect();
        // Most severe first, then oldest first.
        active.sort_by_key(|alert| (std::cmp::Reverse(alert.facts.severity), alert.facts.number));
        active
    }

    /// Returns the delivery counters since the start.
    pub fn delivered(&self) -> Vec<Delivered> {
        let delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |((receiver, is_good), &count): (&(Name, bool), &u64)| Delivered {
            receiver: receiver.clone(),
            is_good: *is_good,
            count,
        };
        delivered.iter().map(row).collect()
    }

    /// Returns all receivers.
    pub fn list(&self) -> Vec<ReceiverReport> {
        self.receivers().iter().map(|(name, receiver)| self.report(name, receiver)).collect()
    }

    /// Returns one receiver.
    ///
    /// *Errors*: there is no receiver of this name.
    pub fn receiver(&self, name: &Name) -> Result<ReceiverReport, Refusal> {
        Ok(self.report(name, &*self.find(name)?))
    }

    /// Adds a receiver. It is also notified of alerts that are active already.
    ///
    /// *Errors*: invalid settings, the name is taken, or it could not be stored.
    pub fn add(self: &Arc<Self>, new: NewReceiver) -> Result<ReceiverReport, Refusal> {
        let NewReceiver { name, settings: how } = new;
        // Before the lock is taken, because the settings may name a file that has to be read.
        let receiver = Receiver::new(&name, how, self.control.core.settings().node.as_str())?;
        self.edit(|receivers| {
            if receivers.contains_key(&name) {
                let message = format!("receiver {name} already exists");
                return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
            }
            Self::admit_new(receivers, &name)?;
            receivers.insert(name.clone(), receiver);
            Ok(())
        })?;
        // After the receiver is stored: the task ends if it does not find it.
        self.start_delivery(&name);
        self.receiver(&name)
    }

    /// Checks that another receiver can be added with this name, which no receiver has.
    pub(crate) fn admit_new(receivers: &StoredReceivers, name: &Name) -> Result<(), Refusal> {
        if name.as_str() == crate::AUDIT_RECEIVER {
            let message = format!("{name} is the name of the audit forwarding target");
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
        }
        if receivers.len() >= RECEIVERS_MAX {
            let message = format!("the limit of {RECEIVERS_MAX} receivers is reached");
            return Err(Refusal::new(code::LIMIT_REACHED, message, "remove unused receivers"));
        }
        Ok(())
    }

    /// Changes the settings of a receiver.
    ///
    /// *Errors*: invalid settings, there is no receiver of this name, or it could not be stored; nothing has changed
    /// then.
    pub fn set(self: &Arc<Self>, name: &Name, how: SetReceiver) -> Result<ReceiverReport, Refusal> {
        self.edit(|receivers| {
            let receiver = receivers.get_mut(name).ok_or_else(|| unknown(name))?;
            *receiver = receiver.clone().changed(how)?;
            Ok(())
        })?;
        self.start_delivery(name);
        self.receiver(name)
    }

    /// Acknowledges an alert that does not end by itself: a past event, or a condition that only an operator can end.
    ///
    /// *Errors*: there is no alert of this number, or it ends by itself.
    pub fn acknowledge(&self, number: u64) -> Result<AlertReport, Refusal> {
        let active = self.active().into_iter().find(|alert| alert.facts.number == number);
        let report = active.ok_or_else(|| {
            let message = format!("alert {number} does not exist or has cleared");
            Refusal::new(code::ALERT_UNKNOWN, message, "see blockyard alert active")
        })?;
        // An alert with a condition that is evaluated would be raised again in the next round.
        if !report.facts.requires_acknowledgment {
            let message = format!("alert {number} clears by itself and needs no acknowledgement");
            let hint = format!("{}; or silence it with blockyard alert silence", report.facts.action);
            return Err(Refusal::new(code::ALERT_STANDS, message, hint));
        }
        let facts = &report.facts;
        // The event ends the standing condition, which would otherwise raise the alert again in the next round.
        if control::is_standing(facts.code) {
            let sentence = format!("acknowledged by an operator: {}", facts.message);
            self.control.core.raise(event::ACKNOWLEDGED, facts.subject.clone(), sentence);
        }
        self.change(|book| book.end(number, now()));
        Ok(report)
    }

    /// Removes a receiver.
    ///
    /// *Errors*: there is no receiver of this name, or it could not be stored.
    pub fn remove(&self, name: &Name) -> Result<(), Refusal> {
        self.edit(|receivers| receivers.remove(name).map(drop).ok_or_else(|| unknown(name)))?;
        self.forget(name);
        Ok(())
    }

    /// Stops the task of a removed receiver and deletes its delivery state.
    pub(crate) fn forget(&self, name: &Name) {
        // The task first, or it would record one more result.
        if let Some(teller) = self.lock_delivery_tasks().remove(name) {
            teller.abort();
        }
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).retain(|(receiver, _), _| receiver != name);
        self.change(|book| book.forget_receiver(name));
        self.control.notices.remove(event::RECEIVER_AWAY, &Subject::new(SubjectKind::Receiver, name));
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Sends a test message to a receiver and returns its response.
    ///
    /// *Errors*: there is no receiver of this name, or the reason why delivery failed.
    pub async fn test(&self, name: &Name) -> Result<ReceiverTest, Refusal> {
        let receiver = self.find(name)?;
        let message = Message::test(self.control.core.settings().node.as_str(), name.as_str(), now());
        let sent = send::send(name, &receiver, &message).await;
        // A test counts as a delivery: its result sets or clears the failure state.
        self.conclude(name, &sent);
        let away = |why| {
            let message = format!("receiver {name} could not be notified: {why}");
            Refusal::new(
                code::RECEIVER_AWAY,
                message,
                "correct it with blockyard alert set, or check the mail server or webhook",
            )
        };
        sent.map(|said| ReceiverTest { response: said }).map_err(away)
    }

    /// Returns the active silences.
    pub fn silences(&self) -> Vec<SilenceReport> {
        let books = self.book();
        // Expired silences stay in the book until the next round.
        let is_on = |(_, until): &(&String, &model::Timestamp)| **until > now();
        let report = |(what, &until): (&String, &model::Timestamp)| SilenceReport { matcher: what.clone(), until };
        books.now.silences.iter().filter(is_on).map(report).collect()
    }

    /// Silences a code or a subject for a time. Alerts that are still active afterwards are sent then.
    ///
    /// *Errors*: it is neither a code nor a subject, or there are too many silences.
    pub fn silence(&self, new: NewSilence) -> Result<SilenceReport, Refusal> {
        let NewSilence { matcher: what, lasts } = new;
        let is_code = what.parse::<model::EventCode>().is_ok();
        let kinds = ["disk", "pool", "volume", "host", "portal", "node", "receiver"];
        let subject = what.split_once(' ').filter(|(kind, name)| kinds.contains(kind) && !name.trim().is_empty());
        if !is_code && (subject.is_none() || what.len() > 255) {
            let message = format!("\"{}\" is neither a code nor an object", what.escape_debug());
            let hint = "write a code such as BY-E302, or an object such as \"pool tank\"";
            return Err(Refusal::new(code::SUBJECT_INVALID, message, hint));
        }
        let until = now().plus(lasts.seconds());
        if self.book().now.silences.len() >= SILENCES_MAX {
            let message = format!("the limit of {SILENCES_MAX} silences is reached");
            return Err(Refusal::new(code::LIMIT_REACHED, message, "wait until some expire, or remove one"));
        }
        self.change(|book| {
            book.silences.insert(what.clone(), until);
        });
        Ok(SilenceReport { matcher: what, until })
    }

    /// Ends a silence.
    ///
    /// *Errors*: it is not silenced.
    pub fn end_silence(&self, what: &str) -> Result<(), Refusal> {
        let mut ended = None;
        self.change(|book| ended = book.silences.remove(what));
        ended.map(drop).ok_or_else(|| {
            let message = format!("\"{}\" is not silenced", what.escape_debug());
            Refusal::new(code::SILENCE_UNKNOWN, message, "see blockyard alert silenced")
        })
    }

    /// Sends due messages to one receiver until it is removed.
    async fn run_delivery(self: Arc<Self>, name: Name) {
        let mut failures: usize = 0;
        loop {
            let Ok(receiver) = self.find(&name) else { return };
            let Some((due, message)) = self.next_message(&name, &receiver) else {
                sleep(TICK).await;
                continue;
            };
            let sent = send::send(&name, &receiver, &message).await;
            // Recorded after delivery: a crash in between sends the message again, with the same ID, rather than never.
            if sent.is_ok() {
                self.change(|book| book.note_delivered(&name, &due, now()));
                failures = 0;
            }
            self.conclude(&name, &sent);
            if sent.is_err() {
                let wait = AGAIN_SECONDS[failures.min(AGAIN_SECONDS.len() - 1)];
                failures += 1;
                sleep(Duration::from_secs(wait)).await;
            }
        }
    }

    fn next_message(&self, name: &Name, receiver: &Receiver) -> Option<(OccurrenceBatch, Message)> {
        let wanted = receiver.due(name);
        let due = self.book().now.due(&wanted, now());
        if due.is_empty() {
            return None;
        }
        // Before the first attempt: an alert that ends while the receiver is unreachable must still be reported as
        // resolved.
        self.change(|book| book.note_attempt(&wanted, &due, now()));
        let books = self.book();
        let told: Vec<(State, MessageAlert)> = due
            .iter()
            .filter_map(|&(number, state)| Some((state, MessageAlert::of(number, state, books.now.alert(number)?))))
            .collect();
        // With the severity that is sent, so that a rise during the delivery is reported afterwards.
        let due = told.iter().map(|(state, told)| (told.facts.number, *state, told.facts.severity)).collect();
        let alerts = told.into_iter().map(|(_, told)| told).collect();
        Some((due, Message::of(self.control.core.settings().node.as_str(), name.as_str(), alerts, now())))
    }

    /// Records the outcome of a delivery. A receiver that becomes unreachable, or reachable again, raises an event.
    fn conclude(&self, name: &Name, sent: &Result<String, String>) {
        *self
            .delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((name.clone(), sent.is_ok()))
            .or_default() += 1;
        // Removed during the delivery: its state must not reappear.
        if !self.receivers().contains_key(name) {
            return;
        }
        self.change(|book| match sent {
            Ok(_) => book.note_success(name, now()),
            Err(why) => book.note_failure(name, why, now()),
        });
        let subject = Subject::new(SubjectKind::Receiver, name);
        match sent {
            Ok(_) => {
                let sentence = format!("receiver {name} works again");
                self.control.notices.settle(event::RECEIVER_AWAY, subject, event::RECEIVER_BACK, &sentence);
            }
            // The first failure after a start is reported again, so that the status shows it.
            Err(why) => self.control.notices.add(event::RECEIVER_AWAY, subject, away(name, why)),
        }
    }

    pub(crate) fn start_delivery(self: &Arc<Self>, name: &Name) {
        let teller = tokio::spawn(self.clone().run_delivery(name.clone()));
        // A task with the old settings may be in its back-off: it is replaced.
        if let Some(before) = self.lock_delivery_tasks().insert(name.clone(), teller.abort_handle()) {
            before.abort();
        }
    }

    fn report(&self, name: &Name, receiver: &Receiver) -> ReceiverReport {
        let fare = self.book().now.fares.get(name).cloned().unwrap_or_default();
        receiver.report(name, &fare)
    }

    fn find(&self, name: &Name) -> Result<Arc<Receiver>, Refusal> {
        self.receivers().get(name).cloned().map(Arc::new).ok_or_else(|| unknown(name))
    }

    pub(crate) fn edit(&self, edit: impl FnOnce(&mut StoredReceivers) -> Result<(), Refusal>) -> Result<(), Refusal> {
        // The lock is held while the document is written, so that edits are applied one after the other.
        let mut current = self.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = StoredReceivers::clone(&current);
        edit(&mut next)?;
        if next != **current {
            keep(&self.control, RECEIVERS, &next)?;
            *current = Arc::new(next);
        }
        Ok(())
    }

    /// Changes the alert state, and stores it when the change is relevant.
    fn change(&self, edit: impl FnOnce(&mut Book)) {
        let mut books = self.book();
        edit(&mut books.now);
        // Nothing has changed that must survive a restart.
        if books.now.is_as(&books.kept) {
            return;
        }
        match keep(&self.control, BOOK, &books.now) {
            Ok(()) => books.kept = books.now.clone(),
            // The service continues: at worst a restart sends some messages again.
            Err(refusal) => tracing::error!(%refusal, "the delivery status could not be saved"),
        }
    }

    pub(crate) fn receivers(&self) -> Arc<StoredReceivers> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn book(&self) -> MutexGuard<'_, Books> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_delivery_tasks(&self) -> MutexGuard<'_, BTreeMap<Name, AbortHandle>> {
        self.delivery_tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the tasks of all receivers on drop.
struct DeliveryTasks(Arc<Alerts>);

impl Drop for DeliveryTasks {
    fn drop(&mut self) {
        std::mem::take(&mut *self.0.lock_delivery_tasks()).values().for_each(AbortHandle::abort);
    }
}

fn kept<T: DeserializeOwned + Default>(control: &Control, name: &str) -> Result<T, Refusal> {
    let kept = control.core.document(name)?;
    kept.map_or_else(|| Ok(T::default()), serde_json::from_value).map_err(|error| {
        let message = format!("the stored document {name} cannot be read: {error}");
        Refusal::new(code::STATE_DAMAGED, message, "start the version that wrote it")
    })
}

fn keep(control: &Control, name: &str, value: &impl Serialize) -> Result<(), Refusal> {
    let value = serde_json::to_value(value).map_err(|error| {
        tracing::error!(%error, name, "cannot be encoded as JSON");
        Refusal::new(
            code::INTERNAL,
            format!("{name} cannot be encoded as JSON"),
            "report this as a bug, with the daemon log",
        )
    })?;
    control.core.keep_document(name, value)
}

/// Problem report of a receiver that cannot be reached.
fn away(name: &Name, why: &str) -> Problem {
    Problem {
        severity: Severity::Warning,
        subject: format!("receiver {name}"),
        state: "not receiving alerts".to_owned(),
        meaning: format!("{why}; delivery is retried"),
        action: format!("correct this, then test with blockyard alert test {name}"),
    }
}

fn unknown(name: &Name) -> Refusal {
    Refusal::new(code::RECEIVER_UNKNOWN, format!("receiver {name} does not exist"), "see blockyard alert list")
}
