//! Named settings: parsing, validation and display, common to pools, volumes and portals.

use crate::{Refusal, Size, code};
use std::fmt;

/// Table of the settings of one kind of object: its name, and for each setting the name and the permitted values.
#[derive(Clone, Copy)]
pub(crate) struct Settings<const N: usize> {
    pub owner: &'static str,
    pub names: [(&'static str, &'static str); N],
}

impl<const N: usize> Settings<N> {
    /// Returns a function that creates the refusal of `value` for the setting `key`.
    ///
    /// *Errors*: unknown setting.
    pub(crate) fn wrong<'a>(&self, key: &'a str, value: &'a str) -> Result<impl Fn() -> Refusal + 'a, Refusal> {
        let Some(&(_, right)) = self.names.iter().find(|(name, _)| *name == key) else {
            let hint = format!("write {}", self.names.map(|(name, _)| name).join(", "));
            let message = format!("a {} has no setting \"{key}\"", self.owner);
            return Err(Refusal::new(code::SETTING_INVALID, message, hint));
        };
        // A closure, because most values are right and then no message is built.
        Ok(move || {
            Refusal::new(code::SETTING_INVALID, format!("{key} cannot be \"{value}\""), format!("write {right}"))
        })
    }

    /// Combines each name with its value.
    pub(crate) fn with(&self, values: [String; N]) -> [(&'static str, String); N] {
        let mut values = values.into_iter();
        self.names.map(|(name, _)| (name, values.next().expect("there are as many values as names")))
    }
}

/// Checks that a lower bound does not exceed an upper bound. Each bound is a setting name with its value, if it is set.
pub(crate) fn in_order<T: PartialOrd>(
    least: (&str, Option<T>),
    most: (&str, Option<T>),
    shown: impl Fn(&T) -> String,
) -> Result<(), Refusal> {
    match (least, most) {
        // A bound that is not set cannot contradict the other one.
        ((low, Some(least)), (high, Some(most))) if least > most => {
            let message = format!("{low} of {} is more than {high} of {}", shown(&least), shown(&most));
            Err(Refusal::new(code::SETTING_INVALID, message, format!("lower {low} or raise {high}")))
        }
        _ => Ok(()),
    }
}

/// Parses a value or the word `off`.
pub(crate) fn or_off<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    // Two levels: the outer `None` is an invalid value, the inner one the disabled setting.
    if text == "off" { Some(None) } else { parse(text).map(Some) }
}

/// Parses a rate in bytes per second, greater than zero.
pub(crate) fn rate(text: &str) -> Option<Size> {
    // The suffix is optional on input; the output always has it.
    let size: Size = text.strip_suffix("/s").unwrap_or(text).parse().ok()?;
    // A rate of zero would stop all I/O. `off` removes a limit.
    (size > Size::ZERO).then_some(size)
}

/// Formats a rate.
pub(crate) fn as_rate(size: &Size) -> String {
    // Exact: the text must parse to the same rate again.
    format!("{}/s", size.exact())
}

/// Formats a value, or `off`.
pub(crate) fn shown<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "off".to_owned(), |value| value.to_string())
}

/// Parses a Boolean setting.
pub(crate) fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        // No synonyms: what `settings` shows is all that `set` accepts, so exports compare as text.
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Formats a Boolean setting for [`yes_or_no`].
pub(crate) fn as_yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
