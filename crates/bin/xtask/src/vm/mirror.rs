//! Debian mirror from which this machine installs, according to its apt sources.
//!
//! *Source*: sources.list(5).

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Release that guests run.
pub(crate) const SUITE: &str = "bookworm";

/// Returns the first mirror of [`SUITE`] that apt would use over HTTP.
///
/// *Errors*: the sources name none.
pub(crate) fn find() -> Result<String> {
    find_in(Path::new("/etc/apt"))
}

fn find_in(folder: &Path) -> Result<String> {
    let of_file = |path: &PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        if path.extension() == Some(OsStr::new("sources")) { of_stanzas(&text) } else { of_lines(&text) }
    };
    files(folder).iter().find_map(of_file).with_context(|| {
        let folder = folder.display();
        format!(
            "no apt source of this machine is a {SUITE} mirror over http or https; \
             name one in {folder}/sources.list, as in \"deb http://MIRROR/debian {SUITE} main\""
        )
    })
}

/// Returns the files that apt reads, in its order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(folder.join("sources.list.d")).into_iter().flatten();
    let mut parts: Vec<PathBuf> = parts.filter_map(|entry| Some(entry.ok()?.path())).collect();
    parts.retain(|path| path.extension().is_some_and(|end| end == "list" || end == "sources"));
    parts.sort();
    std::iter::once(folder.join("sources.list")).chain(parts).collect()
}

/// Returns the mirror in one-line sources: `deb [ options ] URI suite component…`.
fn of_lines(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.split('#').next()?.trim().strip_prefix("deb")?;
        let words = line.strip_prefix([' ', '\t'])?.trim_start();
        let words = match words.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => words,
        };
        let mut words = words.split_whitespace();
        let (mirror, suite) = (words.next()?, words.next()?);
        (suite == SUITE && words.any(|component| component == "main")).then(|| over_http(mirror)).flatten()
    })
}

/// Returns the mirror in deb822 sources: stanzas of `Field: values`, with indented continuation lines.
fn of_stanzas(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.trim().is_empty()).find_map(|stanza| {
        let has = |field: &str, value: &str| values(stanza, field).contains(&value);
        let enabled = !values(stanza, "Enabled").iter().any(|value| value.eq_ignore_ascii_case("no"));
        let is_ours = enabled && has("Types", "deb") && has("Suites", SUITE) && has("Components", "main");
        values(stanza, "URIs").into_iter().filter(|_| is_ours).find_map(over_http)
    })
}

/// Returns the words of `field` in a stanza.
fn values<'a>(stanza: &[&'a str], field: &str) -> Vec<&'a str> {
    let mut inside = false;
    let mut values = Vec::new();
    for &line in stanza {
        // An indented line continues the field before it.
        let text = match line.split_once(':') {
            _ if line.starts_with([' ', '\t']) => line,
            Some((name, text)) => {
                inside = name.eq_ignore_ascii_case(field);
                text
            }
            None => continue,
        };
        values.extend(text.split_whitespace().filter(|_| inside));
    }
    values
}

fn over_http(mirror: &str) -> Option<String> {
    (mirror.starts_with("http://") || mirror.starts_with("https://")).then(|| mirror.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(mirror: &str) -> Option<String> {
        Some(mirror.to_owned())
    }

    #[test]
    fn one_line_source_of_the_suite_is_found_among_others() {
        let text = "\
            # deb http://commented.test/debian bookworm main\n\
            deb-src http://source.test/debian bookworm main\n\
            deb cdrom:[Debian 12]/ bookworm main\n\
            deb http://security.test/debian bookworm-security main\n\
            deb http://firmware.test/debian bookworm non-free-firmware\n\
            \tdeb [ arch=amd64 signed-by=/k.gpg ] https://mirror.test/debian/ bookworm contrib main # ours\n\
            deb http://second.test/debian bookworm main\n";
        assert_eq!(of_lines(text), some("https://mirror.test/debian"));
        assert_eq!(of_lines("deb http://mirror.test/debian trixie main\ndeb\ndeb [arch=amd64\n"), None);
    }

    #[test]
    fn stanza_of_the_suite_is_found_among_others() {
        let text = "Types: deb
URIs: http://off.test/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://source.test/debian
Suites: bookworm
Components: main

types: deb deb-src
# URIs: http://commented.test/debian
URIs:
 file:/srv/debian
 http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";
        assert_eq!(of_stanzas(text), some("http://mirror.test/debian"));
        assert_eq!(of_stanzas("Types: deb\nURIs: http://a.test\nSuites: trixie\nComponents: main\n"), None);
        assert_eq!(of_stanzas("no stanza at all\n"), None);
    }

    #[test]
    fn files_are_read_as_apt_reads_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = folder.path().join("sources.list.d");
        let error = find_in(folder.path()).expect_err("there is no source");
        assert!(error.to_string().contains("no apt source of this machine is a bookworm mirror"), "{error}");
        fs::create_dir(&parts).expect("a folder");
        fs::write(parts.join("a.list.disabled"), "deb http://disabled.test bookworm main\n").expect("writes");
        fs::write(parts.join("c.list"), "deb http://third.test bookworm main\n").expect("writes");
        let stanza = "Types: deb\nURIs: http://second.test\nSuites: bookworm\nComponents: main\n";
        fs::write(parts.join("b.sources"), stanza).expect("writes");
        assert_eq!(find_in(folder.path()).expect("one"), "http://second.test");
        fs::write(folder.path().join("sources.list"), "deb http://first.test bookworm main\n").expect("writes");
        assert_eq!(find_in(folder.path()).expect("one"), "http://first.test");
    }
}
