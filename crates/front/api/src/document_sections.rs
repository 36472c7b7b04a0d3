//! Users and alert receivers in a configuration document, limited to what the caller may see.

use crate::gate::{Caller, Gate};
use crate::people::Users;
use alert::Alerts;
use control::config::{Document, ExternalPlan, ExternalSections, ProvisionalChange};
use model::{Refusal, Role, Scope, code};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Sections of a document for users and receivers, as far as the caller is authorized.
pub(crate) struct DocumentSections {
    people: Arc<Users>,
    alerts: Arc<Alerts>,
    caller: Caller,
}

impl DocumentSections {
    /// Creates the sections for this caller.
    pub(crate) fn of(door: &Gate, caller: Caller) -> Self {
        Self { people: door.people.clone(), alerts: door.alerts.clone(), caller }
    }

    fn sees_users(&self) -> bool {
        self.caller.may(Role::Admin, "users")
    }

    fn sees_receivers(&self) -> bool {
        self.caller.may(Role::Operator, "receivers")
    }

    /// Admits a document that only has sections which its sender may see.
    fn admit(&self, document: &Document) -> Result<(), Refusal> {
        let wrong = |noun: &str, section: &str, role: Role| {
            let message = format!("the document contains {noun}, which {} may not read", self.caller.name);
            let hint = format!("remove [{section}], or use role {role} and a token with scope {noun}");
            Err(Refusal::new(code::FORBIDDEN, message, hint))
        };
        if document.user.is_some() && !self.sees_users() {
            return wrong("users", "user", Role::Admin);
        }
        if document.receiver.is_some() && !self.sees_receivers() {
            return wrong("receivers", "receiver", Role::Operator);
        }
        Ok(())
    }
}

impl ExternalSections for DocumentSections {
    fn export(&self, document: &mut Document) {
        // An absent section makes no statement, so hidden sections are left out.
        document.user = self.sees_users().then(|| self.people.export()).filter(|users| !users.is_empty());
        let receivers = self.sees_receivers().then(|| self.alerts.export());
        document.receiver = receivers.filter(|receivers| !receivers.is_empty());
    }

    fn plan(&self, document: &Document, prune: bool) -> Result<ExternalPlan, Refusal> {
        self.admit(document)?;
        let mut plan = ExternalPlan::default();
        let mut seen = Sha256::new();
        if let Some(section) = &document.user {
            let (steps, kept) = self.people.plan(section, prune)?;
            (plan.steps, plan.kept) = (steps, kept);
            // Plans are bound to the present state: the digest detects changes between plan and apply.
            seen.update(format!("{:?}", self.people.export()));
        }
        if let Some(section) = &document.receiver {
            let (steps, kept) = self.alerts.plan(section, prune)?;
            plan.steps.extend(steps);
            plan.kept.extend(kept);
            seen.update(format!("{:?}", self.alerts.export()));
        }
        // A plan without these sections does not depend on users and receivers.
        if document.user.is_some() || document.receiver.is_some() {
            let digest: String = seen.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            plan.fingerprint = format!("-{digest}");
        }
        Ok(plan)
    }

    fn commit(&self, document: &Document, prune: bool) -> Result<Box<dyn ProvisionalChange>, Refusal> {
        self.admit(document)?;
        // Changing users controls access, for which a token needs the scope.
        if document.user.is_some() && !self.caller.may_give_access("users") {
            let message =
                format!("the document contains users, but {} has no scope {}", self.caller.name, Scope::ACCESS);
            let hint = format!("remove [user], or create a token with --scope {}", Scope::ACCESS);
            return Err(Refusal::new(code::FORBIDDEN, message, hint));
        }
        let users = document.user.as_ref().map(|section| self.people.commit(section, prune)).transpose()?;
        let receivers = document.receiver.as_ref().map(|section| self.alerts.commit(section, prune)).transpose();
        match receivers {
            Ok(receivers) => Ok(Box::new(Both(users.into_iter().chain(receivers).collect()))),
            // Both sections change or none does.
            Err(refusal) => {
                let undone = users.map_or(Ok(()), ProvisionalChange::roll_back);
                Err(undone.err().map_or(refusal.clone(), |failed| {
                    let message = format!("{}, and could not roll back users: {failed}", refusal.message);
                    Refusal::new(refusal.code, message, refusal.hint)
                }))
            }
        }
    }
}

/// Applied changes of several sections, in order.
struct Both(Vec<Box<dyn ProvisionalChange>>);

impl ProvisionalChange for Both {
    fn finalize(self: Box<Self>) {
        self.0.into_iter().for_each(ProvisionalChange::finalize);
    }

    fn roll_back(self: Box<Self>) -> Result<(), Refusal> {
        // Each is undone even if undoing another one fails.
        let undone: Vec<_> = self.0.into_iter().rev().map(ProvisionalChange::roll_back).collect();
        undone.into_iter().collect()
    }
}
