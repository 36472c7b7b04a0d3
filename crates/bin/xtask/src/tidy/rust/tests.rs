use super::*;

fn source(path: &str, text: &str) -> Source {
    Source::parse(&TextFile { path: path.into(), text: text.into() }).unwrap()
}

fn sentences(path: &str, text: &str) -> Vec<String> {
    source(path, text).check().into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn unsafe_outside_a_sys_module_is_found() {
    let text = "fn f() { let _ = unsafe { g() }; }\nunsafe fn g() -> u8 { 0 }\nunsafe impl Send for X {}\n";
    assert_eq!(sentences("crates/pure/raid/src/lib.rs", text).len(), 3);
    assert_eq!(sentences("crates/world/uring/src/ring.rs", text).len(), 3);
    assert_eq!(sentences("crates/world/uring/src/sys.rs", text), Vec::<String>::new());
    assert_eq!(sentences("crates/base/simd/src/sys/avx2.rs", text), Vec::<String>::new());
}

#[test]
fn word_unsafe_in_a_comment_or_string_is_no_finding() {
    assert!(
        sentences("crates/pure/raid/src/lib.rs", "// unsafe\nconst A: &str = \"unsafe { todo!() }\";\n").is_empty()
    );
}

#[test]
fn empty_names_are_found() {
    for text in [
        "struct VolumeManager;",
        "mod util {}",
        "fn helper() {}",
        "fn get_lun() {}",
        "fn do_it() {}",
        "impl X { fn process_pdu(&self) {} }",
        "trait CommonDevice {}",
    ] {
        assert_eq!(sentences("crates/pure/raid/src/lib.rs", text).len(), 1, "{text}");
    }
}

#[test]
fn names_that_contain_an_empty_word_as_part_of_another_pass() {
    for text in
        ["fn get() {}", "struct Utilisation;", "fn processed_bytes() {}", "fn domain_of() {}", "fn commonest() {}"]
    {
        assert_eq!(sentences("crates/pure/raid/src/lib.rs", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn unfinished_work_is_found() {
    for text in [
        "fn f() { todo!() }",
        "fn f() { unimplemented!(\"x\") }",
        "#[test]\n#[ignore]\nfn f() {}",
        "#[test]\n#[ignore = \"slow\"]\nfn f() {}",
    ] {
        assert_eq!(sentences("crates/pure/raid/src/lib.rs", text).len(), 1, "{text}");
    }
}

#[test]
fn test_that_another_runs_in_a_child_and_its_sentence_pass() {
    let text = "#[test]\n#[ignore = \"the child of a test above\"]\nfn strongest_common_one_is_chosen() {}";
    assert_eq!(sentences("crates/pure/raid/src/tests.rs", text), Vec::<String>::new());
}

#[test]
fn lengths_count_production_and_leave_tests_apart() {
    let text = "fn a() {\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn long() {\n    }\n}\n";
    let read = source("crates/pure/raid/src/lib.rs", text);
    assert_eq!(read.production_lines, 4);
    assert_eq!(read.functions, [Function { name: "a".into(), line: 1, lines: 3 }]);
    let read = source("crates/pure/raid/src/plan/tests.rs", text);
    assert_eq!((read.production_lines, read.functions.len()), (0, 0));
}

#[test]
fn assertions_are_those_that_a_release_build_keeps() {
    let text =
        "fn a() { assert!(b()); assert_eq!(1, 1); assert_ne!(1, 2); unreachable!(\"why\"); const { assert!(C) } }
        fn b() { debug_assert!(c()); unreachable!(); d().expect(\"why\"); panic!(\"what\"); }
        #[cfg(test)] fn c() { assert!(d()); }
        #[test] fn d() { } #[cfg(test)] mod tests { fn e() { assert!(f()); } } #[cfg(test)] mod rig; mod other;";
    let read = source("crates/pure/raid/src/lib.rs", text);
    assert_eq!((read.assertions, read.test_modules), (5, vec!["rig".to_owned()]));
    assert_eq!(source("crates/pure/raid/src/plan/tests.rs", "fn a() { assert!(b()); }").assertions, 0);
}

#[test]
fn tests_of_every_kind_are_known_by_name() {
    let text =
        "#[test]\nfn one() {}\n#[tokio::test]\nasync fn two() {}\nproptest! { #[test] fn three(x in 0..3) {} }\n";
    let names = test_names(&[source("crates/pure/raid/src/tests.rs", text)]);
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["one", "three", "two"]);
}

#[test]
fn file_with_an_empty_name_is_found() {
    let file = TextFile { path: "crates/pure/raid/src/utils.rs".into(), text: String::new() };
    assert_eq!(check_paths(&Tree { files: vec![file] }).len(), 1);
}
