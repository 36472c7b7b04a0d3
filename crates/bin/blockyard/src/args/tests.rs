use super::Cli;
use clap::{Command, CommandFactory, Parser};

/// Calls `see` with each command and with the words that lead to it.
fn walk(command: &Command, words: &[&str], see: &mut dyn FnMut(&Command, &[&str])) {
    see(command, words);
    for inner in command.get_subcommands() {
        let words: Vec<&str> = words.iter().copied().chain([inner.get_name()]).collect();
        walk(inner, &words, see);
    }
}

#[test]
fn help_of_every_command_says_what_it_does_and_gives_an_example() {
    let mut count = 0;
    walk(&Cli::command(), &["blockyard"], &mut |command, words| {
        let path = words.join(" ");
        assert!(command.get_about().is_some(), "{path} has no description");
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example:\n  blockyard "), "{path} has no example");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path} says nothing about {}", argument.get_id());
        }
        count += 1;
    });
    assert!(count > 30, "only {count} commands were seen");
}

#[test]
fn examples_in_the_help_are_commands_that_exist() {
    walk(&Cli::command(), &["blockyard"], &mut |command, words| {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default().replace("\\\n", " ");
        let examples = after.lines().filter_map(|line| line.trim().strip_prefix("blockyard "));
        for example in examples {
            // Shell syntax after the command is not parsed.
            let line = example.split(['&', '|', '<', '>', '#']).next().unwrap_or(example);
            let parsed = Cli::try_parse_from(["blockyard"].into_iter().chain(line.split_whitespace()));
            assert!(parsed.is_ok(), "{}: {example}\n{}", words.join(" "), parsed.expect_err("it failed"));
        }
    });
}

#[test]
fn command_line_is_well_formed() {
    Cli::command().debug_assert();
}
