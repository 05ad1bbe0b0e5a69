//! Converts expressions of ECMA-262, the syntax of `pattern` in JSON schemas, to the syntax of the `regex` crate.
//!
//! The two differ in their classes: `\d` and `\w` are ASCII in ECMA-262, and `.` excludes all line terminators.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Ast, ClassPerl, ClassPerlKind, ClassSetBinaryOp, ClassSetItem, GroupKind, Visitor, visit};

/// White space of ECMA-262.
const SPACE: &str = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
/// Characters that must be escaped in a JSON string.
const ESCAPED: &str = r#""\\\x00-\x1F\x7F"#;

/// Replaces the classes `\d`, `\w` and `\s` by those of ECMA-262.
pub(super) fn expand_classes(pattern: &str) -> Result<String, String> {
    translate(pattern, false)
}

/// Restricts a schema's `pattern` to characters that a JSON string can contain unescaped.
pub(super) fn json_string_pattern(pattern: &str) -> Result<String, String> {
    translate(pattern, true)
}

fn translate(pattern: &str, schema: bool) -> Result<String, String> {
    // The engine parses it again and gives a better error.
    let Ok(ast) = Parser::new().parse(pattern) else { return Ok(pattern.to_string()) };
    let mut edits = visit(&ast, PatternEdits { schema, found: Vec::new() })?;
    edits.sort_by_key(|edit| (edit.0, edit.1));
    let (mut text, mut at) = (String::new(), 0);
    for (from, to, new) in edits {
        text.push_str(&pattern[at..from]);
        text.push_str(&new);
        at = to;
    }
    text.push_str(&pattern[at..]);
    Ok(text)
}

/// Replacements of byte ranges.
struct PatternEdits {
    /// Whether the expression is a schema's `pattern`: syntax that ECMA-262 does not have, or that differs there, is rejected.
    schema: bool,
    found: Vec<(usize, usize, String)>,
}

impl PatternEdits {
    fn class(&mut self, class: &ClassPerl, bracketed: bool) {
        let set = match class.kind {
            ClassPerlKind::Digit => "0-9",
            ClassPerlKind::Word => "A-Za-z0-9_",
            ClassPerlKind::Space => SPACE,
        };
        let not = if class.negated { "^" } else { "" };
        let (from, to) = (class.span.start.offset, class.span.end.offset);
        let new = match (bracketed, class.negated) {
            (true, false) => set.to_string(),
            _ if self.schema && !bracketed => format!("[[{not}{set}]&&[^{ESCAPED}]]"),
            _ => format!("[{not}{set}]"),
        };
        self.found.push((from, to, new));
    }

    fn refuse(&self, what: &str) -> Result<(), String> {
        match self.schema {
            true => Err(format!("`pattern`: {what} is not supported")),
            false => Ok(()),
        }
    }
}

impl Visitor for PatternEdits {
    type Output = Vec<(usize, usize, String)>;
    type Err = String;

    fn finish(self) -> Result<Self::Output, String> {
        Ok(self.found)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::ClassPerl(class) => self.class(class, false),
            Ast::Dot(span) if self.schema => {
                let new = format!(r"[^{ESCAPED}\u{{2028}}\u{{2029}}]");
                self.found.push((span.start.offset, span.end.offset, new));
            }
            Ast::ClassBracketed(class) if self.schema => {
                let (from, to) = (class.span.start.offset, class.span.end.offset);
                self.found.push((from, from, "[".into()));
                self.found.push((to, to, format!("&&[^{ESCAPED}]]")));
            }
            Ast::ClassUnicode(class) if self.schema => {
                let (from, to) = (class.span.start.offset, class.span.end.offset);
                self.found.push((from, from, "[".into()));
                self.found.push((to, to, format!("&&[^{ESCAPED}]]")));
            }
            Ast::Assertion(_) => self.refuse("an assertion such as `^`, `$` or `\\b` inside the expression")?,
            Ast::Flags(_) => self.refuse("a flag")?,
            Ast::Group(group) => {
                if let GroupKind::NonCapturing(flags) = &group.kind
                    && !flags.items.is_empty()
                {
                    self.refuse("a flag")?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Perl(class) => self.class(class, true),
            ClassSetItem::Ascii(_) | ClassSetItem::Bracketed(_) => {
                self.refuse("`[` inside a class (write `\\[`)")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), String> {
        self.refuse("`&&`, `--` or `~~` inside a class")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::meta::Regex;

    /// Compares the characters of each class with those of ECMA-262 engines (`node -e`).
    #[test]
    fn classes_are_those_of_ecma() {
        let space = |c: char| {
            matches!(c, '\t'..='\r' | ' ' | '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{2028}' | '\u{2029}'
                | '\u{202F}' | '\u{205F}' | '\u{3000}' | '\u{FEFF}')
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        type Has = Box<dyn Fn(char) -> bool>;
        let cases: [(&str, Has); 10] = [
            (r"\d", Box::new(|c| c.is_ascii_digit())),
            (r"\D", Box::new(|c| !c.is_ascii_digit())),
            (r"\w", Box::new(word)),
            (r"\W", Box::new(move |c| !word(c))),
            (r"\s", Box::new(space)),
            (r"\S", Box::new(move |c| !space(c))),
            (r"[\d_]", Box::new(|c| c.is_ascii_digit() || c == '_')),
            (r"[^\d]", Box::new(|c| !c.is_ascii_digit())),
            (r"[^\S]", Box::new(space)),
            (r".", Box::new(|c| !matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}'))),
        ];
        let escaped = |c: char| matches!(c, '"' | '\\' | '\u{7F}') || c < ' ';
        let characters = (0..0x30000).filter_map(char::from_u32);
        for (pattern, has) in cases {
            let inside = Regex::new(&format!("^(?:{})$", json_string_pattern(pattern).expect("fine"))).expect("valid");
            let plain = Regex::new(&format!("^(?:{})$", expand_classes(pattern).expect("fine"))).expect("valid");
            for c in characters.clone() {
                let text = c.to_string();
                assert_eq!(inside.is_match(&text), has(c) && !escaped(c), "{pattern} {c:?} in a string");
                assert!(pattern == "." || plain.is_match(&text) == has(c), "{pattern} {c:?}");
            }
        }
    }

    #[test]
    fn what_means_something_else_is_refused() {
        for pattern in ["a^b", r"\bx", "(?i)a", "(?x: a)", "[a&&b]", "[[a]", "[[:alpha:]]", "[a--b]", r"\Aa"] {
            assert!(
                json_string_pattern(pattern).is_err_and(|e| e.contains("pattern"))
                    || Parser::new().parse(pattern).is_err()
            );
        }
        for pattern in ["(?:a|b)", "(a)", "[a-c]{2,3}", r"\p{L}", r"\.", "(?P<x>a)"] {
            assert!(json_string_pattern(pattern).is_ok(), "{pattern}");
        }
    }
}
