//! Users as a document has them: their names and roles, and nothing that they prove themselves with.

use super::registry::{Registry, User};
use super::{People, is_admin};
use control::config::{Pending, Step, StepKind, UserEntry};
use control::now;
use model::{Name, Refusal, Role, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The section of a document.
pub(crate) type Section = BTreeMap<Name, UserEntry>;

impl People {
    /// Users as they stand in a document.
    pub(crate) fn export(&self) -> Section {
        self.book.now().users.iter().map(|(name, user)| (name.clone(), UserEntry { role: user.role })).collect()
    }

    /// What the section would change, and who is not in it and stays.
    ///
    /// *Errors*: nobody would be admin any more, or there would be too many.
    pub(crate) fn plan(&self, section: &Section, prune: bool) -> Result<(Vec<Step>, Vec<String>), Refusal> {
        let before = self.book.now();
        let after = after(&before, section, prune)?;
        let steps = changed(&before, &after).iter().map(|name| self.step(name, &before, &after)).collect();
        let kept = after.users.keys().filter(|name| !section.contains_key(*name));
        Ok((steps, kept.map(|name| format!("user {name}")).collect()))
    }

    /// Users are what the section says, until it is known whether that stays. Logins end when it does.
    ///
    /// *Errors*: as of [`People::plan`], or it could not be written; all is then as it was.
    pub(crate) fn commit(self: &Arc<Self>, section: &Section, prune: bool) -> Result<Box<dyn Pending>, Refusal> {
        let (before, changed) = self.book.change(|registry| {
            let next = after(registry, section, prune)?;
            let changed = changed(registry, &next);
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
                let link = format!("{}, who can log in with what blockyard web link --user {name} prints", is.role);
                (StepKind::Make, Some(link))
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

/// Users that a document has changed.
struct Changed {
    people: Arc<People>,
    before: Registry,
    changed: Vec<Name>,
}

impl Pending for Changed {
    fn keep(self: Box<Self>) {
        for name in &self.changed {
            self.people.logins.end_others(name, None);
            self.people.links.forget(name);
        }
    }

    fn take_back(self: Box<Self>) -> Result<(), Refusal> {
        let Self { people, before, changed } = *self;
        people.book.change(|registry| {
            for name in &changed {
                match (before.users.get(name), registry.users.get_mut(name)) {
                    (Some(was), Some(is)) => is.role = was.role,
                    (Some(was), None) => {
                        registry.users.insert(name.clone(), was.clone());
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

/// Everybody as they would be.
fn after(before: &Registry, section: &Section, prune: bool) -> Result<Registry, Refusal> {
    let mut next = before.clone();
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

/// Admits that somebody who is admin and can log in is left, where there was one.
fn admit_admins(before: &Registry, after: &Registry, section: &Section) -> Result<(), Refusal> {
    let admins: Vec<&Name> = before.users.iter().filter(|(_, user)| is_admin(user)).map(|(name, _)| name).collect();
    if admins.is_empty() || after.users.values().any(is_admin) {
        return Ok(());
    }
    let fate = |name: &&Name| match section.get(*name) {
        Some(entry) => format!("{name} would be {}", entry.role),
        None => format!("{name} would go"),
    };
    let fates = admins.iter().map(fate).collect::<Vec<_>>().join(", ");
    let message = format!("no admin who can log in would be left: {fates}");
    let hint = format!("write role = \"{}\" for one who has a password", Role::Admin);
    Err(Refusal::new(code::LAST_ADMIN, message, hint))
}

/// Who is there in one of them alone, or has another role.
fn changed(before: &Registry, after: &Registry) -> Vec<Name> {
    let names: BTreeSet<&Name> = before.users.keys().chain(after.users.keys()).collect();
    let role = |registry: &Registry, name: &Name| registry.users.get(name).map(|user| user.role);
    names.into_iter().filter(|name| role(before, name) != role(after, name)).cloned().collect()
}
