//! The document model of a line, before it is known whether it fits.

use super::WIDTH;

/// A part of a line; lists may be broken over several lines.
#[derive(Clone, Debug)]
pub(super) enum Doc {
    Text(String),
    Seq(Vec<Doc>),
    List(List),
}

#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) open: &'static str,
    pub(super) items: Vec<ListItem>,
    /// Comments on separate lines after the last element.
    pub(super) tail: Vec<String>,
    pub(super) close: &'static str,
    /// Whether a trailing comma is required, as in `(x,)`.
    pub(super) comma: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ListItem {
    /// Comments on separate lines before the element.
    pub(super) before: Vec<String>,
    pub(super) doc: Doc,
    /// A comment at the end of the element's line.
    pub(super) after: Option<String>,
}

impl Doc {
    pub(super) fn text(text: impl Into<String>) -> Doc {
        Doc::Text(text.into())
    }

    /// The document on one line; `None` if a comment prevents that.
    pub(super) fn flat(&self) -> Option<String> {
        match self {
            Doc::Text(text) => Some(text.clone()),
            Doc::Seq(parts) => parts.iter().map(Doc::flat).collect::<Option<Vec<_>>>().map(|parts| parts.concat()),
            Doc::List(list) => {
                let plain = list.tail.is_empty()
                    && list.items.iter().all(|item| item.before.is_empty() && item.after.is_none());
                if !plain {
                    return None;
                }
                let items = list.items.iter().map(|item| item.doc.flat()).collect::<Option<Vec<_>>>()?;
                let comma = if list.comma { "," } else { "" };
                Some(format!("{}{}{comma}{}", list.open, items.join(", "), list.close))
            }
        }
    }

    /// Writes the document after the current last line of `out`; lists are broken if the line would be too long. `after` is the
    /// length of the text that must follow on the same line.
    pub(super) fn write(&self, out: &mut String, indent: usize, after: usize) {
        match self {
            Doc::Text(text) => out.push_str(text),
            Doc::Seq(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    let rest: usize = parts[index + 1..].iter().map(Doc::least_width).sum();
                    part.write(out, indent, rest + after);
                }
            }
            Doc::List(list) => {
                let column = out.len() - out.rfind('\n').map_or(0, |n| n + 1);
                match self.flat() {
                    Some(flat) if column + flat.chars().count() + after <= WIDTH || list.items.is_empty() => {
                        out.push_str(&flat);
                    }
                    _ => list.write_broken(out, indent),
                }
            }
        }
    }

    /// The minimum width of the first line: a list may break right after its opening bracket.
    fn least_width(&self) -> usize {
        match self {
            Doc::Text(text) => text.chars().count(),
            Doc::Seq(parts) => parts.iter().map(Doc::least_width).sum(),
            Doc::List(list) => list.open.len(),
        }
    }
}

impl List {
    fn write_broken(&self, out: &mut String, indent: usize) {
        out.push_str(self.open);
        let inner = " ".repeat(indent + 2);
        for (index, item) in self.items.iter().enumerate() {
            for comment in &item.before {
                out.push_str(&format!("\n{inner}{comment}"));
            }
            out.push_str(&format!("\n{inner}"));
            item.doc.write(out, indent + 2, 1);
            if index + 1 < self.items.len() || self.comma {
                out.push(',');
            }
            if let Some(comment) = &item.after {
                out.push_str(&format!("  {comment}"));
            }
        }
        for comment in &self.tail {
            out.push_str(&format!("\n{inner}{comment}"));
        }
        out.push_str(&format!("\n{}{}", " ".repeat(indent), self.close));
    }
}
