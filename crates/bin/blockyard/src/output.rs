//! What commands print: data on stdout, everything else on stderr.

use crate::args::{Form, Global};
use crate::client::Answer;
use crate::failure::Failure;
use comfy_table::{ContentArrangement, Table, presets};
use model::{Refusal, code};
use std::io::{self, ErrorKind, IsTerminal, Write};

/// How this command prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    form: Option<Form>,
    headers: bool,
    quiet: bool,
}

/// Rows under a header.
pub(crate) struct Rows {
    pub header: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
}

impl Output {
    /// As the command line asks for.
    pub(crate) fn new(global: &Global) -> Self {
        Self { form: global.output, headers: !global.no_headers, quiet: global.quiet }
    }

    /// As this one, for rows that continue what was printed before.
    pub(crate) fn without_headers(self) -> Self {
        Self { headers: false, ..self }
    }

    /// True when answers are printed as JSON.
    pub(crate) fn is_json(self) -> bool {
        self.form == Some(Form::Json)
    }

    /// True when only what was asked for is printed.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// The answer is printed: as it came for `-o json`, else as these rows, and what a limit left out is told.
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

    /// These rows are printed.
    pub(crate) fn lines(self, rows: &Rows) -> Result<(), Failure> {
        if self.form == Some(Form::Name) {
            return put(&rows
                .rows
                .iter()
                .filter_map(|row| row.first())
                .map(|name| format!("{name}\n"))
                .collect::<String>());
        }
        let aligned = self.form == Some(Form::Table) || io::stdout().is_terminal();
        put(&if aligned { self.aligned(rows) } else { self.tabbed(rows) })
    }

    /// The answer is printed as it came.
    pub(crate) fn json(self, answer: &Answer) -> Result<(), Failure> {
        put(&format!("{:#}\n", answer.whole))
    }

    /// The answer to a change is printed: as it came for `-o json`, else as this text, or not at all when quiet.
    pub(crate) fn done(self, answer: &Answer, text: &str) -> Result<(), Failure> {
        if self.is_json() { self.json(answer) } else { self.said(text) }
    }

    /// The text is printed, unless quiet.
    pub(crate) fn said(self, text: &str) -> Result<(), Failure> {
        if self.quiet || self.is_json() { Ok(()) } else { put(&format!("{text}\n")) }
    }

    fn aligned(self, rows: &Rows) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.headers {
            table.set_header(rows.header.iter().copied());
        }
        table.add_rows(rows.rows.iter().cloned());
        // The first column's padding would indent every line by one.
        let line = |line: String| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end());
        table.lines().map(line).collect()
    }

    fn tabbed(self, rows: &Rows) -> String {
        let header = self.headers.then(|| rows.header.join("\t"));
        let lines = header.into_iter().chain(rows.rows.iter().map(|row| row.join("\t")));
        lines.map(|line| line + "\n").collect()
    }
}

/// The text is on stdout. A reader that has gone (`| head`) is no failure.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let message = format!("the output cannot be written: {error}");
            Err(Refusal::new(code::IO_FAILED, message, "make room for it").into())
        }
        _ => Ok(()),
    }
}
