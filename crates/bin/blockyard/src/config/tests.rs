use super::*;
use crate::args::{Cli, Command};
use clap::Parser;

/// Loads this text with further arguments, and returns the configuration or the error as a sentence.
fn load(text: &str, arguments: &[&str]) -> Result<Config, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("blockyard.toml");
    std::fs::write(&path, text).expect("writes");
    let path = path.to_string_lossy().into_owned();
    let line = ["blockyard", "serve", "--config", &path].into_iter().chain(arguments.iter().copied());
    let cli = Cli::try_parse_from(line).expect("a command line");
    let Command::Serve(options) = cli.command else { panic!("serve was asked for") };
    Config::load(&options, cli.global.socket).map_err(|failure| match failure {
        Failure::Usage(sentence) => sentence.replace(&path, "FILE"),
        other => panic!("{other:?} is no usage error"),
    })
}

#[test]
fn config_without_a_line_holds_the_defaults() {
    let config = load("", &[]).expect("defaults");
    assert_eq!(config.settings.state_dir, Path::new("/var/lib/blockyard"));
    assert_eq!(config.settings.portals, ["0.0.0.0:3260".parse().expect("an address")]);
    assert_eq!((config.shards, config.io, config.buffers), (None, IoChoice::Auto, None));
}

#[test]
fn config_file_goes_before_defaults_and_the_command_line_before_the_file() {
    let text = r#"
        state_dir = "/srv/state"
        node = "left"
        shards = 2
        io = "threads"
        busy_poll = true
        buffers = "1GiB"
        log = "debug"
        log_form = "json"

        [[portal]]
        address = "10.0.0.1"

        [[portal]]
        address = "[fd00::1]:3261"
    "#;
    let config = load(text, &["--shards", "4", "--node", "right"]).expect("loads");
    assert_eq!(config.settings.state_dir, Path::new("/srv/state"));
    assert_eq!(config.settings.node.as_str(), "right");
    assert_eq!((config.shards, config.io, config.buffers), (Some(4), IoChoice::Threads, Some(Size::gib(1))));
    assert_eq!(
        (config.log_form, load("", &["--log-form", "json"]).expect("loads").log_form),
        (LogForm::Json, LogForm::Json)
    );
    assert!(config.busy_poll && !load("", &[]).expect("defaults").busy_poll);
    let portals: Vec<String> = config.settings.portals.iter().map(ToString::to_string).collect();
    assert_eq!(portals, ["10.0.0.1:3260", "[fd00::1]:3261"]);
    let config = load(text, &["--portal", "127.0.0.1:0"]).expect("loads");
    assert_eq!(config.settings.portals.len(), 1, "portals of the command line stand for all");
}

#[test]
fn config_names_cores_and_the_command_line_others() {
    let cpus = |arguments: &[&str]| load("cpus = \"0\"", arguments).expect("loads").cpus.map(|cpus| cpus.to_string());
    assert_eq!(cpus(&[]).as_deref(), Some("0"));
    assert_eq!(cpus(&["--shards", "1", "--cpus", "0"]).as_deref(), Some("0"));
    assert_eq!(load("", &[]).expect("loads").cpus, None, "the kernel chooses unless told otherwise");
}

#[test]
fn config_that_is_nonsense_gets_one_sentence_with_its_line() {
    let whole = "state_dir = \"/srv\"\nnode = \"left\"\n[[portal]]\naddress = \"10.0.0.1\"\n";
    for (text, expected) in [
        ("colour = 1", "FILE line 1: unknown field `colour`"),
        ("\nshards = \"two\"", "FILE line 2: invalid type: string \"two\", expected u16"),
        ("shards = -1", "FILE line 1: invalid value: integer `-1`, expected u16"),
        ("shards = 0", "shards = 0 is not possible"),
        ("cpus = \"0-\"", "FILE line 1: \"0-\" is not a list of cores"),
        ("cpus = 0", "FILE line 1: invalid type"),
        ("cpus = \"0,60000\"", "cpus = 0,60000 names cores that do not exist"),
        ("shards = 9\ncpus = \"0\"", "9 shards do not match the number of cores in cpus = 0"),
        ("io = \"magic\"", "FILE line 1: unknown variant `magic`"),
        ("buffers = \"lots\"", "FILE line 1: \"lots\" is not a size"),
        ("silence = \"1s\"", "a timeout of 1s is out of range"),
        ("buffers = \"1MiB\"", "buffers = 1 MiB (1 MB) is too small"),
        ("node = \"Two Words\"", "FILE line 1: \"Two Words\" is not a name"),
        ("target_base = \"storage\"", "target_base \"storage\" is not the beginning of an iSCSI name"),
        ("[[portal]]\naddress = \"here\"", "FILE line 2: \"here\" is not an address"),
        ("[[portal]]\nadress = \"10.0.0.1\"", "FILE line 2: unknown field `adress`"),
        (
            "[[portal]]\naddress = \"10.0.0.1\"\n[[portal]]\naddress = \"10.0.0.1:3260\"",
            "portal 10.0.0.1:3260 is listed twice",
        ),
        ("[web]\nlisten = [\"here\"]", "FILE line 2: \"here\" is not an address for the console"),
        ("[web]\nkey = \"/k.pem\"", "[web] needs both certificate and key"),
        ("[web]\ncertificate = 1", "FILE line 2: invalid type"),
        (&whole[..30], "FILE line 2:"),
        (&whole[..40], "FILE line 3:"),
        ("\u{0}\u{1}\u{2}", "FILE line 1:"),
    ] {
        let sentence = load(text, &[]).expect_err(text);
        assert!(sentence.starts_with(expected), "{text:?}:\n{sentence}\nshould begin\n{expected}");
        assert!(sentence.contains("; ") && sentence.ends_with("(BY-1801)"), "{sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
}

#[test]
fn config_cut_short_anywhere_is_refused_or_means_what_it_says() {
    let whole =
        "state_dir = \"/srv/state\"\nnode = \"left\"\nbuffers = \"64MiB\"\n\n[[portal]]\naddress = \"10.0.0.1\"\n";
    for length in 0..whole.len() {
        // A truncated file must not panic. If it loads, its first lines are in force.
        if let Ok(config) = load(&whole[..length], &[]) {
            assert!(length < 24 || config.settings.state_dir == Path::new("/srv/state"));
        }
    }
}

#[test]
fn config_in_the_manual_loads_and_says_what_holds_without_it() {
    let manual = include_str!("../../../../../docs/operate/configuration.md");
    let (_, rest) = manual.split_once("```toml\n").expect("the manual has a file");
    let (file, _) = rest.split_once("```").expect("it ends");
    let (written, defaults) = (load(file, &[]).expect("loads"), load("", &[]).expect("defaults"));
    assert_eq!(written.settings.state_dir, defaults.settings.state_dir);
    assert_eq!(written.settings.target_base, defaults.settings.target_base);
    assert_eq!(written.settings.portals, defaults.settings.portals);
    assert_eq!(written.settings.disk_search, defaults.settings.disk_search);
    assert_eq!((written.io, written.buffers, written.log), (defaults.io, Some(BUFFERS), defaults.log));
    assert_eq!((written.silence, written.log_form), (defaults.silence, defaults.log_form));
}

#[test]
fn console_is_served_to_this_machine_unless_told_otherwise() {
    let listens = |text: &str, arguments: &[&str]| {
        let web = load(text, arguments).expect("loads").web;
        web.map(|web| web.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    let file = "[web]\nlisten = [\"10.0.0.1\", \"[fd00::1]:443\"]";
    assert_eq!(listens("", &[]).as_deref(), Some("127.0.0.1:8443"));
    assert_eq!(listens(file, &[]).as_deref(), Some("10.0.0.1:8443 [fd00::1]:443"));
    assert_eq!(listens(file, &["--web", "127.0.0.1:0"]).as_deref(), Some("127.0.0.1:0"));
    assert_eq!(listens(file, &["--no-web"]), None);
    assert_eq!(listens("[web]\nlisten = []", &[]), None);
}

#[test]
fn certificate_is_made_for_every_name_of_the_node_or_is_its_owners() {
    let web = load("node = \"left.example.com\"\n[web]\nlisten = [\"0.0.0.0\", \"10.9.8.7\"]", &[])
        .expect("loads")
        .web
        .expect("a door");
    let Source::Generated { names, folder } = web.source else { panic!("it is generated") };
    assert_eq!(folder, Path::new("/var/lib/blockyard/web"));
    for name in ["left", "left.example.com", "localhost", "127.0.0.1", "::1", "10.9.8.7"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    assert!(!names.contains("0.0.0.0"));
    let named = load("[web]\nnames = [\"san.example.com\", \"192.0.2.7\"]", &[]).expect("loads").web.expect("a door");
    assert!(named.names.contains("san.example.com") && named.names.contains("192.0.2.7"));
    let Source::Generated { names, .. } = named.source else { panic!("it is generated") };
    assert_eq!(names, named.names);
    for wrong in ["https://san", "san:8443", "", "a b", "*"] {
        let why = load(&format!("[web]\nnames = [\"{wrong}\"]"), &[]).expect_err("no name").to_string();
        assert!(why.contains("neither a DNS name nor an address"), "{wrong}: {why}");
    }
    let own = load("[web]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"", &[]).expect("loads").web.expect("a door");
    assert_eq!(own.source, Source::Own { certificate: "/c.pem".into(), key: "/k.pem".into() });
}

#[test]
fn file_that_is_too_long_or_nests_without_end_is_refused_in_a_few_words() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let refused = |text: &[u8]| {
        std::fs::write(file.path(), text).expect("writes");
        format!("{:?}", read(file.path()).expect_err("no configuration"))
    };
    let why = refused(&vec![b'['; 1 + (1 << 20)]);
    assert!(why.contains("it has 1,048,577 bytes, and the limit is 1,048,576 bytes"), "{why}");
    for text in ["[".repeat(1 << 20), format!("cpus = {}", "[".repeat(1 << 19)), "a.".repeat(1 << 19)] {
        let why = refused(text.as_bytes());
        assert!(why.len() < 700 && why.contains("line 1: "), "{why}");
    }
}
