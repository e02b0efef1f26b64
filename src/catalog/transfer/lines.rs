//! Lines of bounded length: a long value is split into chunks.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ExportLine;
use crate::text::hex;

/// Longest text within a line.
const CHUNK: usize = 16 * 1024;
/// Longest line: a row has at most 21 columns, and JSON escapes a byte by up to 6.
const MAX_LINE: u64 = 4 * 1024 * 1024;
/// Longest row. Postgres stores no larger JSON.
const MAX_ROW: usize = 256 * 1024 * 1024;

pub(super) struct Writer<W> {
    out: W,
    digest: Sha256,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            digest: Sha256::new(),
        }
    }

    pub(super) fn line(&mut self, line: &ExportLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.digest.update(&text);
        self.out.write_all(&text)
    }

    /// Writes a row, its long texts before it.
    pub(super) fn row(&mut self, mut row: Vec<Value>) -> io::Result<()> {
        for value in &mut row {
            if let Value::String(text) = value
                && text.len() > CHUNK
            {
                let text = std::mem::take(text);
                let mut chunks = 0;
                for chunk in chunks_of(&text) {
                    self.line(&ExportLine::Chunk(chunk.to_owned()))?;
                    chunks += 1;
                }
                *value = json!({ "chunks": chunks });
            }
        }
        self.line(&ExportLine::Row(row))
    }

    pub(super) fn digest(&self) -> String {
        hex(&self.digest.clone().finalize())
    }

    pub(super) fn finish(mut self, end: &ExportLine) -> io::Result<()> {
        self.line(end)?;
        self.out.flush()
    }
}

fn chunks_of(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (chunk, rest) = text.split_at(text.floor_char_boundary(CHUNK));
        text = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Reads lines and joins the chunks of rows. Fails with a message that names the line.
pub(super) struct Reader<R> {
    input: R,
    digest: Sha256,
    line: u64,
    chunks: VecDeque<String>,
    chunk_bytes: usize,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            digest: Sha256::new(),
            line: 0,
            chunks: VecDeque::new(),
            chunk_bytes: 0,
        }
    }

    /// Joins the chunks of rows. `None` at the end of the input. The text is the digest of all lines before.
    pub(super) fn next(&mut self) -> Result<Option<(ExportLine, String)>, String> {
        loop {
            let before = self.digest.clone();
            let Some(line) = self.read()? else { return Ok(None) };
            match line {
                ExportLine::Chunk(chunk) => {
                    self.chunk_bytes += chunk.len();
                    if self.chunk_bytes > MAX_ROW {
                        return Err(self.error(&format!("the row is longer than {MAX_ROW} bytes")));
                    }
                    self.chunks.push_back(chunk);
                }
                ExportLine::Row(row) => {
                    let row = self.join(row)?;
                    return Ok(Some((ExportLine::Row(row), hex(&before.finalize()))));
                }
                line if self.chunks.is_empty() => return Ok(Some((line, hex(&before.finalize())))),
                _ => return Err(self.error("a chunk without a row")),
            }
        }
    }

    fn read(&mut self) -> Result<Option<ExportLine>, String> {
        let mut text = Vec::new();
        self.line += 1;
        let read = self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut text);
        read.map_err(|error| self.error(&error.to_string()))?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.last() != Some(&b'\n') {
            return Err(self.error("the line is cut or too long"));
        }
        self.digest.update(&text);
        let line = serde_json::from_slice(&text);
        line.map(Some)
            .map_err(|error| self.error(&format!("not a line of an export: {error}")))
    }

    fn join(&mut self, mut row: Vec<Value>) -> Result<Vec<Value>, String> {
        for value in &mut row {
            if let Value::Object(reference) = value {
                let count = reference.get("chunks").and_then(Value::as_u64);
                let count = count.and_then(|count| usize::try_from(count).ok());
                match count.filter(|count| *count <= self.chunks.len()) {
                    Some(count) => *value = Value::String(self.chunks.drain(..count).collect()),
                    None => return Err(self.error("a chunk is missing")),
                }
            }
        }
        if !self.chunks.is_empty() {
            return Err(self.error("a chunk without a value"));
        }
        self.chunk_bytes = 0;
        Ok(row)
    }

    pub(super) fn error(&self, reason: &str) -> String {
        format!("line {}: {reason}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(row: Vec<Value>) -> Vec<u8> {
        let mut out = Vec::new();
        Writer::new(&mut out).row(row).unwrap();
        out
    }

    #[test]
    fn long_texts_are_split_and_joined() {
        let long = "ä\u{0}\"\n".repeat(CHUNK);
        let row = vec![
            json!(1),
            json!(long),
            json!(null),
            json!("ß".repeat(CHUNK)),
            json!(true),
        ];
        let out = written(row.clone());
        assert!(
            out.split(|byte| *byte == b'\n')
                .all(|line| line.len() < CHUNK * 6 + 100)
        );
        let mut reader = Reader::new(out.as_slice());
        assert_eq!(reader.next().unwrap().unwrap().0, ExportLine::Row(row));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn a_line_that_is_cut_too_long_or_unknown_is_an_error_with_its_number() {
        let out = written(vec![json!("a")]);
        for (text, expected) in [
            (&out[..out.len() - 1], "line 1: the line is cut"),
            (
                b"{\"row\":[1]}\n{\"rows\":[]}\n".as_slice(),
                "line 2: not a line of an export",
            ),
            (
                b"{\"chunk\":\"a\"}\n{\"row\":[1]}\n".as_slice(),
                "line 2: a chunk without a value",
            ),
            (b"{\"row\":[{\"chunks\":1}]}\n".as_slice(), "line 1: a chunk is missing"),
            (
                b"{\"chunk\":\"a\"}\n{\"end\":{\"rows\":0,\"sha256\":\"\"}}\n".as_slice(),
                "line 2: a chunk without a row",
            ),
        ] {
            let mut reader = Reader::new(text);
            let error = loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("no error in {}", String::from_utf8_lossy(text)),
                    Err(error) => break error,
                }
            };
            assert!(error.starts_with(expected), "{error}");
        }
        let endless = io::repeat(b'x').take(MAX_LINE * 2);
        let error = Reader::new(io::BufReader::new(endless)).next().unwrap_err();
        assert!(error.contains("too long"), "{error}");
    }
}
