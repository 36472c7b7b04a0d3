//! Visitor that collects the facts about a source file in one pass.

use super::super::language;
use super::{Function, Name, Source};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Lit, Meta};

/// Collects the facts about the file at `path`.
pub(super) fn read(path: &str, text: &str, syntax: &syn::File) -> Source {
    let all_tests = path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests" || part == "benches");
    let lines: Vec<&str> = text.lines().collect();
    let mut walk = Walk {
        source: Source { path: path.to_owned(), ..Source::default() },
        is_test: vec![all_tests; lines.len()],
        lines,
        test_depth: usize::from(all_tests),
    };
    walk.visit_file(syntax);
    walk.count_lines();
    let docs = language::doc_comments(text).into_iter();
    // In tests as well: documentation follows the same rule everywhere.
    walk.source.clauses = docs.filter(|(_, first)| language::begins_with_clause(first)).map(|(line, _)| line).collect();
    walk.source
}

struct Walk<'a> {
    source: Source,
    lines: Vec<&'a str>,
    /// For each line, true if it belongs to tests.
    is_test: Vec<bool>,
    /// Number of enclosing test items.
    test_depth: usize,
}

impl Walk<'_> {
    fn count_lines(&mut self) {
        for (line, _) in self.lines.iter().zip(&self.is_test).filter(|(_, is_test)| !**is_test) {
            let comment = is_comment(line);
            self.source.production_lines += usize::from(!comment);
            self.source.comment_lines += usize::from(comment);
            self.source.doc_lines += usize::from(language::is_doc(line));
        }
    }

    fn type_name(&mut self, ident: &Ident) {
        self.name(ident);
        if language::is_denied_type(&ident.to_string()) {
            self.source.denied_types.push((ident.to_string(), ident.span().start().line));
        }
    }

    fn name(&mut self, ident: &Ident) {
        self.source.names.push((Name::Other(ident.to_string()), ident.span().start().line));
    }

    fn function(&mut self, attributes: &[Attribute], signature: &syn::Signature, body: Span) {
        let name = signature.ident.to_string();
        let line = signature.fn_token.span.start().line;
        let is_test = attributes.iter().any(is_test);
        if !is_test {
            // The name of a test is a sentence, which may use any word.
            self.source.names.push((Name::Function(name.clone()), line));
        }
        if let syn::Safety::Unsafe(token) = &signature.safety {
            self.mark_unsafe(token.span());
        }
        if is_test {
            self.source.tests.push(name.clone());
        }
        if attributes.iter().any(is_left_out) {
            self.source.unfinished.push(("#[ignore]".into(), line));
        }
        if self.test_depth == 0 {
            let lines = self.lines[line - 1..body.end().line].iter().filter(|line| !is_comment(line)).count();
            self.source.functions.push(Function { name, line, lines });
        }
    }

    fn mark_unsafe(&mut self, span: Span) {
        self.source.unsafe_lines.push(span.start().line);
    }

    fn inside<T: Spanned>(&mut self, attributes: &[Attribute], item: &T, visit: impl FnOnce(&mut Self)) {
        let is_test = attributes.iter().any(is_cfg_test);
        // An item inside a test item is marked already.
        if is_test && self.test_depth == 0 {
            let span = item.span();
            self.is_test[span.start().line - 1..span.end().line].fill(true);
        }
        self.test_depth += usize::from(is_test);
        visit(self);
        self.test_depth -= usize::from(is_test);
    }
}

/// True for a line that holds nothing but a comment: comments make neither a file nor a function too long.
fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn is_cfg_test(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}

/// True for macros that panic in a release build as well when an invariant does not hold. `unreachable!` must give a
/// reason.
fn is_assertion(name: &str, call: &syn::Macro) -> bool {
    match name {
        "assert" | "assert_eq" | "assert_ne" => true,
        "unreachable" => !call.tokens.is_empty(),
        _ => false,
    }
}

/// True for `#[ignore]`, unless its reason says that another test runs this one in a child process.
fn is_left_out(attribute: &Attribute) -> bool {
    let is_child = match &attribute.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(reason), .. }) => reason.value().starts_with("the child of a test"),
            _ => false,
        },
        _ => false,
    };
    attribute.path().is_ident("ignore") && !is_child
}

impl<'a> Visit<'a> for Walk<'_> {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        self.name(&item.ident);
        // The lines of a test module with a file of its own are in that file.
        if item.content.is_none() && item.attrs.iter().any(is_cfg_test) {
            self.source.test_modules.push(item.ident.to_string());
        }
        self.inside(&item.attrs, item, |walk| visit::visit_item_mod(walk, item));
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.inside(&item.attrs, item, |walk| {
            walk.function(&item.attrs, &item.sig, item.block.span());
            visit::visit_item_fn(walk, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.inside(&item.attrs, item, |walk| {
            walk.function(&item.attrs, &item.sig, item.block.span());
            visit::visit_impl_item_fn(walk, item);
        });
    }

    // The body may be missing, so the whole item counts.
    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.span());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.inside(&item.attrs, item, |walk| walk.uses(&item.tree, &mut Vec::new()));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if self.test_depth == 0 && item.trait_.is_none() && !item.attrs.iter().any(is_cfg_test) {
            self.methods_of(item);
        }
        if let Some(unsafety) = &item.unsafety {
            self.mark_unsafe(unsafety.span());
        }
        self.inside(&item.attrs, item, |walk| visit::visit_item_impl(walk, item));
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.type_name(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.type_name(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.type_name(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.type_name(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.name(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_expr_unsafe(&mut self, expression: &'a syn::ExprUnsafe) {
        self.mark_unsafe(expression.span());
        visit::visit_expr_unsafe(self, expression);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if name == "todo" || name == "unimplemented" {
            self.source.unfinished.push((format!("{name}!"), call.span().start().line));
        }
        if self.test_depth == 0 && is_assertion(&name, call) {
            self.source.assertions += 1;
        }
        if name == "proptest" {
            self.proptest(call);
        }
        visit::visit_macro(self, call);
    }
}

impl Walk<'_> {
    /// Records each path of a `use` item.
    fn uses(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.uses(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.uses(item, before)),
            syn::UseTree::Name(name) => self.path([before.as_slice(), &[name.ident.to_string()]].concat()),
            syn::UseTree::Rename(rename) => self.path([before.as_slice(), &[rename.ident.to_string()]].concat()),
            syn::UseTree::Glob(_) => self.path(before.clone()),
        }
    }

    fn path(&mut self, path: Vec<String>) {
        let is_inside = path.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str()));
        if path.len() > 1 && self.test_depth == 0 {
            let list = if is_inside { &mut self.source.paths } else { &mut self.source.root_exports };
            list.push(path);
        }
    }

    fn methods_of(&mut self, item: &syn::ItemImpl) {
        let syn::Type::Path(of) = &*item.self_ty else { return };
        let Some(name) = of.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let is_method =
            |item: &&syn::ImplItem| matches!(item, syn::ImplItem::Fn(method) if !method.attrs.iter().any(is_cfg_test));
        *self.source.methods.entry(name).or_default() += item.items.iter().filter(is_method).count();
    }

    /// Reads the test names of a `proptest!` block, whose argument lists are not Rust syntax.
    fn proptest(&mut self, call: &syn::Macro) {
        let mut after_fn = false;
        for token in call.tokens.clone() {
            if let proc_macro2::TokenTree::Ident(ident) = &token {
                if after_fn {
                    self.source.tests.push(ident.to_string());
                }
                after_fn = ident == "fn";
            } else {
                after_fn = false;
            }
        }
    }
}
