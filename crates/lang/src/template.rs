//! Tensor names with expressions in braces, such as `"layers.{2 * layer}.weight"`.

use crate::ast::Expr;
use crate::parser;

/// A part of a name.
#[derive(Clone, Debug, PartialEq)]
pub enum NamePiece<'a> {
    /// Literal text.
    Text(&'a str),
    /// An expression in braces: its source text and its tree.
    Value(&'a str, Box<Expr>),
}

/// Splits a name into its parts, or returns the error.
pub fn pieces(text: &str) -> Result<Vec<NamePiece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((inside, behind)) = after.split_once('}') else {
            return Err("a `{` without its `}`".to_string());
        };
        if !before.is_empty() {
            found.push(NamePiece::Text(before));
        }
        found.push(NamePiece::Value(inside, Box::new(parser::expression(inside)?)));
        rest = behind;
    }
    if !rest.is_empty() {
        found.push(NamePiece::Text(rest));
    }
    Ok(found)
}

/// The names in an expression.
pub fn names(expr: &Expr) -> Vec<&str> {
    let mut found: Vec<&str> = expr.as_name().into_iter().collect();
    let callee = match &expr.kind {
        crate::ast::ExprKind::Call(callee, _) => Some(&**callee),
        _ => None,
    };
    for child in expr.children() {
        if callee.is_none_or(|callee| !std::ptr::eq(callee, child)) {
            found.extend(names(child));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{NamePiece, names, pieces};

    #[test]
    fn names_are_cut_into_texts_and_expressions() {
        let found = pieces("a.{2 * i + k}.b{n}").expect("a name");
        let shown: Vec<String> = found
            .iter()
            .map(|piece| match piece {
                NamePiece::Text(text) => (*text).to_string(),
                NamePiece::Value(_, expr) => format!("<{}>", names(expr).join(",")),
            })
            .collect();
        assert_eq!(shown, ["a.", "<i,k>", ".b", "<n>"]);
        for bad in ["a{", "a{}", "a{i i}", "a{+}"] {
            assert!(pieces(bad).is_err(), "{bad}");
        }
    }
}
