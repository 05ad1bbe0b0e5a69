//! Writes lines, blocks, blank lines and comments.

use super::doc::Doc;
use crate::lexer::Comment;
use crate::span::Span;
use std::collections::VecDeque;

/// Writes a file line by line, in source order; comments are taken from a queue when their position is reached.
pub(super) struct Printer<'a> {
    pub(super) text: &'a str,
    out: String,
    pub(super) indent: usize,
    comments: VecDeque<Comment>,
    /// The end of the last printed source range.
    last_end: usize,
    /// Whether the next line is the first of its block, which has no blank line before it.
    first: bool,
    /// Whether the last line already ends in a comment.
    commented: bool,
}

impl<'a> Printer<'a> {
    pub(super) fn new(text: &'a str, comments: Vec<Comment>) -> Self {
        let comments = comments.into();
        Printer { text, out: String::new(), indent: 0, comments, last_end: 0, first: true, commented: true }
    }

    pub(super) fn finish(mut self) -> String {
        self.flush_comments(self.text.len());
        self.out
    }

    /// Writes a line for the source at `span`, preceded by earlier comments. `build` takes the comments inside the span; the
    /// remaining ones are written above the line.
    pub(super) fn line(&mut self, span: Span, build: impl FnOnce(&mut Self) -> Doc) {
        self.flush_comments(span.start as usize);
        let doc = build(self);
        let end = span.end as usize;
        while let Some(comment) = self.take_comment(end) {
            self.blank_line_before(comment.span.start as usize);
            self.write_comment_line(&comment);
        }
        self.blank_line_before(span.start as usize);
        let mut text = " ".repeat(self.indent);
        doc.write(&mut text, self.indent, 0);
        self.push_lines(&text);
        self.last_end = end;
    }

    /// Writes a line that opens a block, and the block's lines; `head` ends where the block's content starts.
    pub(super) fn block(&mut self, head: Span, build: impl FnOnce(&mut Self) -> Doc, body: impl FnOnce(&mut Self)) {
        let column = self.column(head.start as usize);
        self.line(head, build);
        self.indented(column, body);
    }

    /// Writes indented lines, then the comments that the source indents deeper than `column`.
    pub(super) fn indented(&mut self, column: usize, body: impl FnOnce(&mut Self)) {
        self.indent += 2;
        self.first = true;
        body(self);
        while let Some(comment) = self.comments.front().copied() {
            let start = comment.span.start as usize;
            let between = self.text.get(self.last_end..start).unwrap_or("x");
            let adjacent = between.trim().is_empty();
            if !comment.own_line {
                if !adjacent || self.commented {
                    break;
                }
                self.comments.pop_front();
                self.append_comment(&comment);
                continue;
            }
            if !adjacent || self.column(start) <= column {
                break;
            }
            self.comments.pop_front();
            self.blank_line_before(start);
            self.write_comment_line(&comment);
        }
        self.indent -= 2;
        self.first = false;
    }

    /// Requests a blank line before the next line.
    pub(super) fn separate(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
            self.first = true;
        }
    }

    /// Writes the comments before `end`: as trailing comments if they were, else on separate lines.
    pub(super) fn flush_comments(&mut self, end: usize) {
        while let Some(comment) = self.take_comment(end) {
            if !comment.own_line && !self.commented {
                self.append_comment(&comment);
            } else {
                self.blank_line_before(comment.span.start as usize);
                self.write_comment_line(&comment);
            }
        }
    }

    /// Takes the next comment, if it starts before `end`.
    pub(super) fn take_comment(&mut self, end: usize) -> Option<Comment> {
        let next = self.comments.front()?;
        if (next.span.start as usize) < end { self.comments.pop_front() } else { None }
    }

    /// Takes the next comment before `end`, if it is a trailing comment.
    pub(super) fn take_trailing(&mut self, end: usize) -> Option<String> {
        let next = self.comments.front()?;
        if next.own_line || next.span.start as usize >= end {
            return None;
        }
        let comment = self.comments.pop_front()?;
        Some(self.comment_text(&comment))
    }

    pub(super) fn comment_text(&self, comment: &Comment) -> String {
        let text = self.slice(comment.span);
        // `#note` becomes `# note`; rulers such as `####` are unchanged.
        match text[1..].chars().next() {
            Some(c) if c.is_alphanumeric() => format!("# {}", &text[1..]),
            _ => text.to_string(),
        }
    }

    pub(super) fn slice(&self, span: Span) -> &'a str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn column(&self, offset: usize) -> usize {
        let start = self.text[..offset].rfind('\n').map_or(0, |n| n + 1);
        self.text[start..offset].chars().count()
    }

    fn append_comment(&mut self, comment: &Comment) {
        let text = self.comment_text(comment);
        self.append_text(&text);
        self.last_end = comment.span.end as usize;
    }

    /// Appends a comment to the last line.
    pub(super) fn append_text(&mut self, comment: &str) {
        if self.commented {
            self.push_lines(&(" ".repeat(self.indent) + comment));
        } else {
            self.out.pop();
            self.out.push_str(&format!("  {comment}\n"));
        }
        self.commented = true;
    }

    fn write_comment_line(&mut self, comment: &Comment) {
        let text = " ".repeat(self.indent) + &self.comment_text(comment);
        self.push_lines(&text);
        self.commented = true;
        self.last_end = self.last_end.max(comment.span.end as usize);
    }

    /// Writes one blank line where the source has at least one.
    fn blank_line_before(&mut self, start: usize) {
        let between = self.text.get(self.last_end..start).unwrap_or_default();
        let blank = between.lines().skip(1).any(|line| line.trim().is_empty()) && between.matches('\n').count() > 1;
        if blank && !self.first && !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    pub(super) fn push_lines(&mut self, text: &str) {
        for line in text.split('\n') {
            self.out.push_str(line.trim_end());
            self.out.push('\n');
        }
        self.first = false;
        self.commented = false;
    }
}
