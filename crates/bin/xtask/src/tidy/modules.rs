//! Module structure of each crate: import cycles, and the number of methods per type.
//!
//! Only top-level modules are distinguished; nested modules belong to them. The root of a crate belongs to no module:
//! re-exported names are resolved to their module.

use super::rust::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Import cycle of modules in a crate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ImportCycle {
    pub modules: Vec<String>,
    /// Pairs of importing and imported module within the cycle.
    pub imports: Vec<(String, String)>,
}

impl fmt::Display for ImportCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} modules import each other in a circle:", self.modules.len())?;
        for module in &self.modules {
            let used = self.imports.iter().filter(|(user, _)| user == module).map(|(_, used)| used.as_str());
            write!(f, "\n  {module} → {}", used.collect::<Vec<_>>().join(" "))?;
        }
        Ok(())
    }
}

/// Returns the largest import cycle of each crate that has one.
pub(super) fn circles(sources: &[Source]) -> BTreeMap<String, ImportCycle> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((name, _)) = place(&source.path) {
            crates.entry(name).or_default().push(source);
        }
    }
    let largest = |sources: Vec<&Source>| largest_circle(&imports(&sources));
    let found = crates.into_iter().map(|(name, sources)| (name.to_owned(), largest(sources)));
    found.filter(|(_, circle)| !circle.modules.is_empty()).collect()
}

/// Returns the number of methods of each type, as `crate::Type`.
pub(super) fn methods(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for source in sources {
        let Some((name, _)) = place(&source.path) else { continue };
        for (of, count) in &source.methods {
            *all.entry(format!("{name}::{of}")).or_default() += count;
        }
    }
    all
}

/// Splits the path of a source file into crate and module path: `crates/pure/raid/src/redo/ring.rs` is `pure/raid`,
/// `[redo, ring]`.
pub(super) fn place(path: &str) -> Option<(&str, Vec<&str>)> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let modules = if ["lib", "main"].contains(&inside) { Vec::new() } else { inside.split('/').collect() };
    Some((name, modules))
}

type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn imports<'a>(sources: &[&'a Source]) -> Imports<'a> {
    let of = |source: &'a Source| place(&source.path).map(|(_, modules)| modules).unwrap_or_default();
    let modules: BTreeSet<&str> = sources.iter().filter_map(|source| of(source).first().copied()).collect();
    // Names that the root re-exports, with their modules.
    let mut exported: BTreeMap<&str, &str> = BTreeMap::new();
    for source in sources.iter().filter(|source| of(source).is_empty()) {
        for path in &source.root_exports {
            // A re-export of a name that is no module's, such as one of another crate, leads nowhere.
            if let [module, .., name] = path.as_slice()
                && modules.contains(module.as_str())
            {
                exported.insert(name, module);
            }
        }
    }
    let mut all = Imports::new();
    for source in sources {
        let own = of(source);
        let Some(module) = own.first().copied() else { continue };
        let used = all.entry(module).or_default();
        for path in &source.paths {
            let Some(target) = target_of(path, &own) else { continue };
            let found = modules.get(target).copied().or_else(|| exported.get(target).copied());
            // An import of the own module is no edge.
            used.extend(found.filter(|found| *found != module));
        }
    }
    all
}

/// Returns the first segment after the crate root of a path written in module `own`; `None` when the path stays inside
/// `own`.
fn target_of<'a>(path: &'a [String], own: &[&str]) -> Option<&'a str> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first()?.as_str() {
        "crate" => path.get(1).map(String::as_str),
        // As many `super` as the module is deep lead to the root; fewer stay inside the module.
        "super" if ups == own.len() => path.get(ups).map(String::as_str),
        _ => None,
    }
}

/// Returns the largest set of modules that can all reach each other.
fn largest_circle(imports: &Imports<'_>) -> ImportCycle {
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = imports.get(from).into_iter().flatten().copied().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|module| (*module, reached(module))).collect();
    let circle = |module: &&str| -> Vec<String> {
        // Two modules that reach each other are on one circle.
        let both = reach[module].iter().filter(|other| reach.get(*other).is_some_and(|back| back.contains(module)));
        both.map(|other| (*other).to_owned()).collect()
    };
    let modules = imports.keys().map(circle).max_by_key(Vec::len).unwrap_or_default();
    let within = |module: &str| modules.iter().any(|one| one == module);
    let pairs = imports.iter().flat_map(|(user, used)| used.iter().map(|used| (*user, *used)));
    let pairs = pairs.filter(|(user, used)| within(user) && within(used));
    ImportCycle { imports: pairs.map(|(user, used)| (user.to_owned(), used.to_owned())).collect(), modules }
}

#[cfg(test)]
mod tests {
    use super::super::rust::sources_of;
    use super::*;

    fn circle_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(name, text)| (format!("crates/pure/x/src/{name}"), *text)).collect();
        circles(&sources_of(&files)).remove("pure/x").unwrap_or_default().modules
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle_however_it_is_written() {
        for back in [
            "use crate::a::A;",
            "use super::a::A;",
            "use crate::{b, a::{A, B}};",
            "fn f(_: crate::a::A) {}",
            "use crate::A;",
        ] {
            let found =
                circle_of(&[("lib.rs", "mod a; mod b; pub use a::A;"), ("a.rs", "use crate::b::B;"), ("b.rs", back)]);
            assert_eq!(found, ["a", "b"], "{back}");
        }
    }

    #[test]
    fn what_lies_below_a_module_belongs_to_it() {
        let found = circle_of(&[
            ("a.rs", "use self::c::C;"),
            ("a/c.rs", "use super::A; use super::super::b::B;"),
            ("b.rs", "use crate::a::c::C;"),
        ]);
        assert_eq!(found, ["a", "b"]);
        assert!(circle_of(&[("a.rs", "use self::c::C;"), ("a/c.rs", "use super::A;")]).is_empty());
    }

    #[test]
    fn tests_and_one_way_imports_are_no_circle() {
        let with_test = "#[cfg(test)] mod tests { use crate::b::B; }";
        assert!(circle_of(&[("a.rs", with_test), ("b.rs", "use crate::a::A;")]).is_empty());
        assert!(circle_of(&[("a.rs", ""), ("b.rs", "use crate::a::A;"), ("c.rs", "use crate::{a, b};")]).is_empty());
    }

    #[test]
    fn methods_of_a_type_are_counted_over_its_files_without_traits_and_tests() {
        let files = [
            (
                "crates/pure/x/src/a.rs".to_owned(),
                "impl<T> A<T> { fn f() {} fn g() {} } impl Drop for A<u8> { fn drop(&mut self) {} }",
            ),
            (
                "crates/pure/x/src/b.rs".to_owned(),
                "impl super::A<u8> { fn h() {} } #[cfg(test)] impl A<u8> { fn i() {} }",
            ),
        ];
        assert_eq!(methods(&sources_of(&files)), BTreeMap::from([("pure/x::A".to_owned(), 3)]));
    }
}
