//! Output of commands: data on stdout, everything else on stderr.

use crate::args::{Form, Global};
use crate::client::Answer;
use crate::failure::Failure;
use comfy_table::{ContentArrangement, Table, presets};
use model::{Refusal, code};
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Output settings of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    form: Option<Form>,
    headers: bool,
    quiet: bool,
}

/// Table of rows under a header.
pub(crate) struct Rows {
    pub header: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
}

impl Output {
    /// Takes the settings from the command line.
    pub(crate) fn new(global: &Global) -> Self {
        Self { form: global.output, headers: !global.no_headers, quiet: global.quiet }
    }

    /// Returns the same settings without headers, for rows that continue earlier output.
    pub(crate) fn without_headers(self) -> Self {
        Self { headers: false, ..self }
    }

    /// Returns true for JSON output.
    pub(crate) fn is_json(self) -> bool {
        self.form == Some(Form::Json)
    }

    /// Returns true if only results are printed.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Prints the answer: unchanged for `-o json`, else as these rows with a note on stderr about omitted rows.
    pub(crate) fn rows(self, answer: &Answer, rows: &Rows) -> Result<(), Failure> {
        if self.is_json() {
            return self.json(answer);
        }
        self.lines(rows)?;
        if let Some(sentence) = answer.left_out().filter(|_| !self.quiet) {
            eprintln!("blockyard: {sentence}");
        }
        Ok(())
    }

    /// Prints these rows.
    pub(crate) fn lines(self, rows: &Rows) -> Result<(), Failure> {
        if self.form == Some(Form::Name) {
            return put(&rows
                .rows
                .iter()
                .filter_map(|row| row.first())
                .map(|name| format!("{name}\n"))
                .collect::<String>());
        }
        // A pipe gets tabs, which `cut` and `awk` split without guessing at column widths.
        let aligned = self.form == Some(Form::Table) || io::stdout().is_terminal();
        put(&if aligned { self.aligned(rows) } else { self.tabbed(rows) })
    }

    /// Prints the answer as JSON.
    pub(crate) fn json(self, answer: &Answer) -> Result<(), Failure> {
        put(&format!("{:#}\n", answer.whole))
    }

    /// Prints the answer to a change: unchanged for `-o json`, else as this text, or nothing if quiet.
    pub(crate) fn done(self, answer: &Answer, text: &str) -> Result<(), Failure> {
        if self.is_json() { self.json(answer) } else { self.said(text) }
    }

    /// Prints the text, unless quiet.
    pub(crate) fn said(self, text: &str) -> Result<(), Failure> {
        if self.quiet || self.is_json() { Ok(()) } else { put(&format!("{text}\n")) }
    }

    fn aligned(self, rows: &Rows) -> String {
        let mut table = Table::new();
        // Rows are never wrapped, so that each object stays on one line for `grep`.
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.headers {
            table.set_header(rows.header.iter().copied());
        }
        table.add_rows(rows.rows.iter().cloned());
        // Without this, the padding of the first column would indent every line by one.
        let line = |line: String| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end());
        table.lines().map(line).collect()
    }

    fn tabbed(self, rows: &Rows) -> String {
        let header = self.headers.then(|| rows.header.join("\t"));
        let lines = header.into_iter().chain(rows.rows.iter().map(|row| row.join("\t")));
        lines.map(|line| line + "\n").collect()
    }
}

/// Writes text to stdout. A reader that has closed the pipe (`| head`) is no failure.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    // Flushed here, since an error of the flush at exit would be lost.
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let message = format!("the output cannot be written: {error}");
            Err(Refusal::new(code::IO_FAILED, message, "free disk space").into())
        }
        _ => Ok(()),
    }
}
