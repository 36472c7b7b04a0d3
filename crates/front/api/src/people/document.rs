//! Users in a configuration document: names and roles, no credentials.

use super::registry::{Registry, User};
use super::{Users, is_admin};
use control::config::{ProvisionalChange, Step, StepKind, UserEntry};
use control::now;
use model::{Name, Refusal, Role, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Section of the document.
pub(crate) type Section = BTreeMap<Name, UserEntry>;

impl Users {
    /// Users in the form of the document.
    pub(crate) fn export(&self) -> Section {
        self.store.now().users.iter().map(|(name, user)| (name.clone(), UserEntry { role: user.role })).collect()
    }

    /// Steps that the section would cause, and users that are not in it and stay.
    ///
    /// *Errors*: the last admin would be lost, or there would be too many users.
    pub(crate) fn plan(&self, section: &Section, prune: bool) -> Result<(Vec<Step>, Vec<String>), Refusal> {
        let before = self.store.now();
        // The plan is the difference to the present registry.
        let after = after(&before, section, prune)?;
        let steps = changed(&before, &after).iter().map(|name| self.step(name, &before, &after)).collect();
        let kept = after.users.keys().filter(|name| !section.contains_key(*name));
        Ok((steps, kept.map(|name| format!("user {name}")).collect()))
    }

    /// Applies the section, to be kept or undone later. Logins end when it is kept.
    ///
    /// *Errors*: as [`Users::plan`], or it could not be stored; nothing is changed then.
    pub(crate) fn commit(
        self: &Arc<Self>,
        section: &Section,
        prune: bool,
    ) -> Result<Box<dyn ProvisionalChange>, Refusal> {
        let (before, changed) = self.store.change(|registry| {
            let next = after(registry, section, prune)?;
            let changed = changed(registry, &next);
            // The registry of before goes along for the rollback.
            Ok((std::mem::replace(registry, next), changed))
        })?;
        Ok(Box::new(Changed { people: self.clone(), before, changed }))
    }

    fn step(&self, name: &Name, before: &Registry, after: &Registry) -> Step {
        let counted = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        let logins = self.logins.list(now()).iter().filter(|login| login.user == *name).count();
        let end = |number| if number == 1 { "ends" } else { "end" };
        let ended = (logins > 0).then(|| format!("{} {}", counted(logins, "login"), end(logins)));
        let (kind, said) = match (before.users.get(name), after.users.get(name)) {
            (None, Some(is)) => {
                // A new user has no password and needs a link.
                let link = format!("{}, who can log in with what blockyard web link --user {name} prints", is.role);
                (StepKind::Create, Some(link))
            }
            (Some(was), Some(is)) => (StepKind::Change, Some(format!("{} → {}", was.role, is.role))),
            _ => {
                let tokens = before.tokens.values().filter(|token| token.maker.as_ref() == Some(name)).count();
                (
                    StepKind::Remove,
                    (tokens > 0).then(|| format!("{} {} with it", counted(tokens, "token"), end(tokens))),
                )
            }
        };
        let change = said.into_iter().chain(ended).collect::<Vec<_>>().join(", ");
        Step::unnoticed(kind, format!("user {name}"), change)
    }
}

/// Users changed by a document, until the change is kept or undone.
struct Changed {
    people: Arc<Users>,
    before: Registry,
    changed: Vec<Name>,
}

impl ProvisionalChange for Changed {
    fn finalize(self: Box<Self>) {
        // Only now the change is final.
        for name in &self.changed {
            self.people.logins.end_others(name, None);
            self.people.links.forget(name);
        }
    }

    fn roll_back(self: Box<Self>) -> Result<(), Refusal> {
        let Self { people, before, changed } = *self;
        people.store.change(|registry| {
            for name in &changed {
                // Only what the document changed is restored: other changes since then stay.
                match (before.users.get(name), registry.users.get_mut(name)) {
                    (Some(was), Some(is)) => is.role = was.role,
                    (Some(was), None) => {
                        registry.users.insert(name.clone(), was.clone());
                        // The tokens went with their creator and return with it.
                        let own = before.tokens.iter().filter(|(_, token)| token.maker.as_ref() == Some(name));
                        own.for_each(|(token, what)| drop(registry.tokens.insert(token.clone(), what.clone())));
                    }
                    (None, Some(_)) => registry.remove_user(name)?,
                    (None, None) => {}
                }
            }
            Ok(())
        })
    }
}

/// Registry with the section applied.
fn after(before: &Registry, section: &Section, prune: bool) -> Result<Registry, Refusal> {
    let mut next = before.clone();
    // Pruned first, so that the limit on users counts those that stay.
    if prune {
        let gone: Vec<&Name> = before.users.keys().filter(|name| !section.contains_key(*name)).collect();
        gone.into_iter().try_for_each(|name| next.remove_user(name))?;
    }
    for (name, &UserEntry { role }) in section {
        match next.users.get_mut(name) {
            Some(user) => user.role = role,
            None => next.add_user(name, User::new(role, now()))?,
        }
    }
    admit_admins(before, &next, section)?;
    Ok(next)
}

/// Admits the change if it leaves an admin who can log in, where there was one.
fn admit_admins(before: &Registry, after: &Registry, section: &Section) -> Result<(), Refusal> {
    let admins: Vec<&Name> = before.users.iter().filter(|(_, user)| is_admin(user)).map(|(name, _)| name).collect();
    if admins.is_empty() || after.users.values().any(is_admin) {
        return Ok(());
    }
    let fate = |name: &&Name| match section.get(*name) {
        Some(entry) => format!("{name} would become {}", entry.role),
        None => format!("{name} would be removed"),
    };
    let fates = admins.iter().map(fate).collect::<Vec<_>>().join(", ");
    let message = format!("no admin that can log in would remain: {fates}");
    let hint = format!("write role = \"{}\" for a user that has a password", Role::Admin);
    Err(Refusal::new(code::LAST_ADMIN, message, hint))
}

/// Users that exist in only one of the registries, or with different roles.
fn changed(before: &Registry, after: &Registry) -> Vec<Name> {
    let names: BTreeSet<&Name> = before.users.keys().chain(after.users.keys()).collect();
    let role = |registry: &Registry, name: &Name| registry.users.get(name).map(|user| user.role);
    names.into_iter().filter(|name| role(before, name) != role(after, name)).cloned().collect()
}
