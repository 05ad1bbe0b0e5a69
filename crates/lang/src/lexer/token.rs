//! Token types.

use crate::span::Span;

/// A token: its kind and source span. Its text is the source in the span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: TokenKind,
    /// Its source span.
    pub span: Span,
}

/// A comment, `# ...`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comment {
    /// The span from the `#` to the end of the line, without trailing spaces.
    pub span: Span,
    /// Whether it is alone on its line.
    pub own_line: bool,
}

/// Declares the token kinds with their descriptions for messages.
macro_rules! token_kinds {
    ($($(#[$doc:meta])* $kind:ident = $shown:literal,)*) => {
        /// The kind of a token. Keywords are identifiers: the language reuses most of them as names (§2.3, §5.10).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum TokenKind {
            $($(#[$doc])* $kind,)*
        }

        impl TokenKind {
            /// The description of this kind in messages.
            pub fn describe(self) -> &'static str {
                match self { $(TokenKind::$kind => $shown,)* }
            }
        }
    };
}

token_kinds! {
    /// An identifier.
    Ident = "a name",
    /// An integer literal: `12`, `25_000_000`.
    Int = "a number",
    /// A float literal: `1e-6`, `0.5`.
    Float = "a number",
    /// A string literal, `"text"`.
    Str = "a string",
    /// A documentation string, `"""text"""`.
    DocStr = "a documentation string",
    /// The token `->`.
    Arrow = "`->`",
    /// The token `=>`.
    FatArrow = "`=>`",
    /// The token `:`.
    Colon = "`:`",
    /// The token `=`.
    Assign = "`=`",
    /// The token `==`.
    EqEq = "`==`",
    /// The token `!=`.
    NotEq = "`!=`",
    /// The token `<`.
    Lt = "`<`",
    /// The token `<=`.
    Le = "`<=`",
    /// The token `>`.
    Gt = "`>`",
    /// The token `>=`.
    Ge = "`>=`",
    /// The token `+`.
    Plus = "`+`",
    /// The token `-`.
    Minus = "`-`",
    /// The token `*`.
    Star = "`*`",
    /// The token `**`.
    StarStar = "`**`",
    /// The token `/`.
    Slash = "`/`",
    /// The token `//`.
    SlashSlash = "`//`",
    /// The token `%`.
    Percent = "`%`",
    /// The token `×`.
    Times = "`×`",
    /// The token `?`.
    Question = "`?`",
    /// The token `@`.
    At = "`@`",
    /// The token `!`.
    Bang = "`!`",
    /// The token `&&`.
    AndAnd = "`&&`",
    /// The token `||`.
    OrOr = "`||`",
    /// The token `|`.
    Pipe = "`|`",
    /// The token `,`.
    Comma = "`,`",
    /// The token `.`.
    Dot = "`.`",
    /// The token `...`.
    Ellipsis = "`...`",
    /// The token `(`.
    LParen = "`(`",
    /// The token `)`.
    RParen = "`)`",
    /// The token `[`.
    LBracket = "`[`",
    /// The token `]`.
    RBracket = "`]`",
    /// The token `{`.
    LBrace = "`{`",
    /// The token `}`.
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
