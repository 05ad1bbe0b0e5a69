//! What tokens are.

use crate::span::Span;

/// A token: its kind and where it stands. The text is the source under the span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Where it stands.
    pub span: Span,
}

/// A `# ...` comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comment {
    /// From the `#` to the end of the line, without trailing blanks.
    pub span: Span,
    /// Whether nothing but blanks stands before it on its line.
    pub own_line: bool,
}

/// Declares the kinds with the words used for them in messages.
macro_rules! token_kinds {
    ($($(#[$doc:meta])* $kind:ident = $shown:literal,)*) => {
        /// The kind of a token. Keywords are identifiers: the language reuses most of them as names (§2.3, §5.10).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum TokenKind {
            $($(#[$doc])* $kind,)*
        }

        impl TokenKind {
            /// How messages name this kind.
            pub fn describe(self) -> &'static str {
                match self { $(TokenKind::$kind => $shown,)* }
            }
        }
    };
}

token_kinds! {
    /// A word.
    Ident = "a name",
    /// `12`, `25_000_000`.
    Int = "a number",
    /// `1e-6`, `0.5`.
    Float = "a number",
    /// `"text"`.
    Str = "a string",
    /// `"""text"""`.
    DocStr = "a documentation string",
    /// `->`
    Arrow = "`->`",
    /// `=>`
    FatArrow = "`=>`",
    /// `:`
    Colon = "`:`",
    /// `=`
    Assign = "`=`",
    /// `==`
    EqEq = "`==`",
    /// `!=`
    NotEq = "`!=`",
    /// `<`
    Lt = "`<`",
    /// `<=`
    Le = "`<=`",
    /// `>`
    Gt = "`>`",
    /// `>=`
    Ge = "`>=`",
    /// `+`
    Plus = "`+`",
    /// `-`
    Minus = "`-`",
    /// `*`
    Star = "`*`",
    /// `**`
    StarStar = "`**`",
    /// `/`
    Slash = "`/`",
    /// `//`
    SlashSlash = "`//`",
    /// `%`
    Percent = "`%`",
    /// `×`
    Times = "`×`",
    /// `?`
    Question = "`?`",
    /// `@`
    At = "`@`",
    /// `!`
    Bang = "`!`",
    /// `&&`
    AndAnd = "`&&`",
    /// `||`
    OrOr = "`||`",
    /// `|`
    Pipe = "`|`",
    /// `,`
    Comma = "`,`",
    /// `.`
    Dot = "`.`",
    /// `...`
    Ellipsis = "`...`",
    /// `(`
    LParen = "`(`",
    /// `)`
    RParen = "`)`",
    /// `[`
    LBracket = "`[`",
    /// `]`
    RBracket = "`]`",
    /// `{`
    LBrace = "`{`",
    /// `}`
    RBrace = "`}`",
    /// End of a logical line.
    Newline = "the end of the line",
    /// A line indented deeper than the one before.
    Indent = "an indented block",
    /// The end of an indented block.
    Dedent = "the end of the block",
    /// The end of the file.
    Eof = "the end of the file",
}

impl TokenKind {
    /// The closing bracket for an opening one.
    pub fn closer(self) -> Option<TokenKind> {
        match self {
            TokenKind::LParen => Some(TokenKind::RParen),
            TokenKind::LBracket => Some(TokenKind::RBracket),
            TokenKind::LBrace => Some(TokenKind::RBrace),
            _ => None,
        }
    }

    /// Whether this is `)`, `]` or `}`.
    pub fn is_closer(self) -> bool {
        matches!(self, TokenKind::RParen | TokenKind::RBracket | TokenKind::RBrace)
    }
}
