//! Parses a source to a syntax tree. Statements and expressions are those of Jinja.

use super::Fault;
use super::ast::{
    CallArgs, Expr, For, IMPLICIT_NAMES, MacroDef, Stmt, StmtKind, Target, TemplateBinaryOp, TemplateCompareOp,
    TemplateExprKind,
};
use super::budget::{HEIGHT, SOURCE_DEPTH};
use super::filters::FILTERS;
use super::lex::{TemplatePiece, Token, tokenize};
use super::predicates::TESTS;
use super::value::Str;
use std::rc::Rc;

type ParseResult<T> = Result<T, Fault>;

/// Parses a source.
pub(super) fn parse(source: &str) -> ParseResult<Vec<Stmt>> {
    let pieces = tokenize(source)?.into_iter();
    let mut parser = Parser {
        pieces,
        tokens: Vec::new(),
        at: 0,
        line: 1,
        depth: 0,
        loops: 0,
        soft: false,
        has_if: false,
        named: Vec::new(),
    };
    Ok(parser.body(&[])?.0)
}

struct Parser {
    pieces: std::vec::IntoIter<TemplatePiece>,
    /// The tokens of the tag that is being parsed.
    tokens: Vec<(usize, Token)>,
    at: usize,
    line: usize,
    depth: u32,
    /// The number of enclosing loops that `break` can leave.
    loops: u32,
    /// Whether the parser is inside a branch: names of filters and tests are then resolved at run time.
    soft: bool,
    /// Whether the tag has an `if`.
    has_if: bool,
    /// The special names that the enclosing macros use.
    named: Vec<[bool; 3]>,
}

const NESTED: &str = "the template is nested too deeply";

fn node(kind: TemplateExprKind) -> ParseResult<Expr> {
    let one = |args: &CallArgs| {
        let all = args.positional.iter().chain(args.named.iter().map(|(_, value)| value));
        all.chain(args.star.as_deref()).chain(args.stars.as_deref()).map(|e| e.height).max().unwrap_or(0)
    };
    let below = match &kind {
        TemplateExprKind::None
        | TemplateExprKind::Bool(_)
        | TemplateExprKind::Int(_)
        | TemplateExprKind::Float(_)
        | TemplateExprKind::Str(_)
        | TemplateExprKind::Name(_) => 0,
        TemplateExprKind::List(all) | TemplateExprKind::Tuple(all) | TemplateExprKind::Concat(all) => {
            all.iter().map(|e| e.height).max().unwrap_or(0)
        }
        TemplateExprKind::Dict(all) => all.iter().map(|(k, v)| k.height.max(v.height)).max().unwrap_or(0),
        TemplateExprKind::Negate(a)
        | TemplateExprKind::Plus(a)
        | TemplateExprKind::Not(a)
        | TemplateExprKind::Attr(a, _) => a.height,
        TemplateExprKind::And(a, b)
        | TemplateExprKind::Or(a, b)
        | TemplateExprKind::Binary(_, a, b)
        | TemplateExprKind::Item(a, b) => a.height.max(b.height),
        TemplateExprKind::Compare(a, all) => all.iter().map(|(_, e)| e.height).max().unwrap_or(0).max(a.height),
        TemplateExprKind::Cond { test, yes, no } => {
            no.as_ref().map_or(0, |e| e.height).max(test.height).max(yes.height)
        }
        TemplateExprKind::Slice(a, parts) => parts.iter().flatten().map(|e| e.height).max().unwrap_or(0).max(a.height),
        TemplateExprKind::Call(a, args) | TemplateExprKind::Test(a, _, args) => one(args).max(a.height),
        TemplateExprKind::Filter(a, _, args) => one(args).max(a.as_ref().map_or(0, |e| e.height)),
    };
    if below >= HEIGHT {
        return Err(Fault {
            line: 0,
            what: format!("an expression has more than {HEIGHT} levels, which is the limit"),
        });
    }
    Ok(Expr { height: below + 1, kind })
}

impl Parser {
    fn fault<T>(&self, what: impl Into<String>) -> ParseResult<T> {
        let line = self.tokens.get(self.at).map_or(self.line, |token| token.0);
        Err(Fault { line, what: what.into() })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.1)
    }

    fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Some(Token::Op(found)) if *found == op)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if found == name)
    }

    fn take_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    fn found(&self) -> String {
        match self.peek() {
            None => "the end of the tag".into(),
            Some(Token::Name(name)) => format!("`{name}`"),
            Some(Token::Op(op)) => format!("`{op}`"),
            Some(Token::Str(_)) => "a string".into(),
            Some(Token::Int(_) | Token::Float(_)) => "a number".into(),
        }
    }

    fn expect_op(&mut self, op: &str) -> ParseResult<()> {
        if self.take_op(op) { Ok(()) } else { self.fault(format!("expected `{op}`, found {}", self.found())) }
    }

    fn expect_name(&mut self, name: &str) -> ParseResult<()> {
        if self.take_name(name) { Ok(()) } else { self.fault(format!("expected `{name}`, found {}", self.found())) }
    }

    fn name(&mut self) -> ParseResult<String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.fault(format!("expected a name, found {}", self.found())),
        }
    }

    fn end(&self) -> ParseResult<()> {
        if self.peek().is_none() { Ok(()) } else { self.fault(format!("unexpected {}", self.found())) }
    }

    /// Runs a function one level deeper.
    fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= SOURCE_DEPTH {
            return self.fault(format!("{NESTED}: the limit is {SOURCE_DEPTH} levels"));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn load(&mut self, line: usize, tokens: Vec<(usize, Token)>) {
        self.has_if = tokens.iter().any(|(_, token)| matches!(token, Token::Name(name) if name == "if"));
        (self.line, self.tokens, self.at) = (line, tokens, 0);
    }

    /// Parses statements up to one of these tags, which is consumed to its name; or up to the end of the source.
    fn body(&mut self, ends: &[&str]) -> ParseResult<(Vec<Stmt>, String)> {
        let begin = self.line;
        let mut body = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (line, kind) = match piece {
                TemplatePiece::Text(text) => (self.line, StmtKind::Text(text)),
                TemplatePiece::Output(line, tokens) => {
                    self.load(line, tokens);
                    let value = self.tuple(true, &[]).map_err(|e| e.at(line))?;
                    self.end()?;
                    (line, StmtKind::Output(value))
                }
                TemplatePiece::Tag(line, tokens) => {
                    self.load(line, tokens);
                    if let Some(end) = ends.iter().find(|end| self.is_name(end)) {
                        self.at = 1;
                        return Ok((body, end.to_string()));
                    }
                    (line, self.nested(Parser::statement).map_err(|e| e.at(line))?)
                }
            };
            body.push(Stmt { line, kind });
        }
        match ends.last() {
            None => Ok((body, String::new())),
            Some(end) => Err(Fault { line: begin, what: format!("this has no end: `{{% {end} %}}`") }),
        }
    }

    /// Parses the body of a statement and its end tag.
    fn block(&mut self, ends: &[&str]) -> ParseResult<(Vec<Stmt>, String)> {
        self.take_op(":");
        self.end()?;
        self.body(ends)
    }

    fn block_until(&mut self, end: &str) -> ParseResult<Vec<Stmt>> {
        let body = self.block(&[end])?.0;
        self.end()?;
        Ok(body)
    }

    /// Runs a function in which the names of filters and tests must be known; for a macro, outside of enclosing loops.
    fn with_strict_names<T>(
        &mut self,
        function: bool,
        run: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let before = (self.soft, self.loops);
        self.soft = false;
        self.loops = if function { 0 } else { self.loops };
        let result = run(self);
        (self.soft, self.loops) = before;
        result
    }

    fn statement(&mut self) -> ParseResult<StmtKind> {
        let tag = self.name()?;
        Ok(match tag.as_str() {
            "if" => return self.if_statement(),
            "for" => return self.for_loop(),
            "set" => {
                let target = self.target(true, &[])?;
                if self.take_op("=") {
                    let value = self.tuple(true, &[])?;
                    self.end()?;
                    return Ok(StmtKind::Set { target, value });
                }
                let filter = if self.is_op("|") { Some(self.filters(None, false)?) } else { None };
                let body = self.with_strict_names(false, |p| p.block_until("endset"))?;
                StmtKind::SetBlock { target, filter, body }
            }
            "macro" => {
                let name = self.plain_target()?;
                StmtKind::Macro(Rc::new(self.function(Some(name), "endmacro", |_| Ok(()))?.0))
            }
            "call" => {
                let (def, call) = self.function(None, "endcall", |p| {
                    let call = p.expression()?;
                    if matches!(call.kind, TemplateExprKind::Call(..)) {
                        Ok(call)
                    } else {
                        p.fault("`call` needs a call")
                    }
                })?;
                StmtKind::Call { call, def: Rc::new(def) }
            }
            "filter" => {
                let filter = self.filters(None, true)?;
                StmtKind::Filter { filter, body: self.with_strict_names(false, |p| p.block_until("endfilter"))? }
            }
            "with" => {
                let mut values = Vec::new();
                while self.peek().is_some() && !self.is_op(":") {
                    if !values.is_empty() {
                        self.expect_op(",")?;
                    }
                    let target = self.target(false, &[])?;
                    self.expect_op("=")?;
                    values.push((target, self.expression()?));
                }
                StmtKind::With { values, body: self.with_strict_names(false, |p| p.block_until("endwith"))? }
            }
            "generation" => StmtKind::Generation(self.with_strict_names(true, |p| p.block_until("endgeneration"))?),
            "print" => {
                let mut values = Vec::new();
                while self.peek().is_some() {
                    if !values.is_empty() {
                        self.expect_op(",")?;
                    }
                    values.push(self.expression()?);
                }
                StmtKind::Output(node(TemplateExprKind::Concat(values))?)
            }
            "break" | "continue" => {
                self.end()?;
                if self.loops == 0 {
                    return self.fault(format!("`{tag}` outside of a loop"));
                }
                if tag == "break" { StmtKind::Break } else { StmtKind::Continue }
            }
            "include" | "import" | "from" | "extends" | "block" | "autoescape" => {
                return self.fault(format!("chat templates can't use `{tag}`"));
            }
            _ => return self.fault(format!("unknown tag `{tag}`")),
        })
    }

    fn if_statement(&mut self) -> ParseResult<StmtKind> {
        let soft = std::mem::replace(&mut self.soft, true);
        let (mut branches, mut otherwise) = (Vec::new(), Vec::new());
        loop {
            let test = self.tuple(false, &[])?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            if end == "else" {
                otherwise = self.block_until("endif")?;
            } else if end == "endif" {
                self.end()?;
            } else {
                continue;
            }
            self.soft = soft;
            return Ok(StmtKind::If { branches, otherwise });
        }
    }

    fn for_loop(&mut self) -> ParseResult<StmtKind> {
        let target = self.target(false, &["in"])?;
        self.expect_name("in")?;
        let iter = self.tuple(false, &["recursive"])?;
        let only = if self.take_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.take_name("recursive");
        let loops = self.loops;
        let (body, otherwise) = self.with_strict_names(recursive, |p| {
            p.loops += 1;
            let (body, end) = p.block(&["else", "endfor"])?;
            p.loops = loops;
            let otherwise = if end == "else" { p.block(&["endfor"])?.0 } else { Vec::new() };
            p.end()?;
            Ok((body, otherwise))
        })?;
        if assigns_loop(&target) || body.iter().any(sets_loop) {
            return self.fault("`loop` can't be assigned to in a loop");
        }
        Ok(StmtKind::For(Rc::new(For { target, iter, filter: only, body, else_body: otherwise, recursive })))
    }

    /// Parses the parameters and the body of a macro or a `call` block, and what comes between them.
    fn function<T>(
        &mut self,
        name: Option<Rc<str>>,
        end: &str,
        head: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<(MacroDef, T)> {
        let mut params: Vec<(Rc<str>, Option<Expr>)> = Vec::new();
        self.named.push([false; 3]);
        let inner = self.with_strict_names(true, |p| {
            if name.is_some() || p.is_op("(") {
                p.expect_op("(")?;
                while !p.is_op(")") {
                    if !params.is_empty() {
                        p.expect_op(",")?;
                    }
                    let param = p.plain_target()?;
                    let default = if p.take_op("=") { Some(p.expression()?) } else { None };
                    if default.is_none() && params.last().is_some_and(|(_, default)| default.is_some()) {
                        return p.fault("a parameter without a default follows one with a default");
                    }
                    params.push((param, default));
                }
                p.at += 1;
            }
            let head = head(p)?;
            let before = p.named.last_mut().map(std::mem::take).unwrap_or_default();
            Ok((p.block_until(end)?, head, before))
        });
        let named = self.named.pop().unwrap_or_default();
        let (body, head, before) = inner?;
        if let Some(outer) = self.named.last_mut() {
            (0..3).for_each(|i| outer[i] |= named[i] || before[i]);
        }
        if named[0] && params.iter().any(|(param, default)| &**param == "caller" && default.is_none()) {
            return self.fault("a parameter `caller` needs a default");
        }
        Ok((MacroDef { name, params, body, named }, head))
    }

    fn plain_target(&mut self) -> ParseResult<Rc<str>> {
        let name = self.name()?;
        match name.as_str() {
            "true" | "True" | "false" | "False" | "none" | "None" => self.fault(format!("can't assign to `{name}`")),
            _ => Ok(name.into()),
        }
    }

    fn target(&mut self, attributes: bool, ends: &[&str]) -> ParseResult<Target> {
        let (mut all, mut tuple) = (Vec::new(), false);
        loop {
            let over = self.peek().is_none() || self.is_op(")") || self.is_op("=");
            if over || ends.iter().any(|end| self.is_name(end)) {
                break;
            }
            all.push(self.nested(|p| {
                if p.take_op("(") {
                    let target = p.target(attributes, &[])?;
                    p.expect_op(")")?;
                    return Ok(target);
                }
                let name = p.plain_target()?;
                if attributes && p.take_op(".") {
                    return Ok(Target::Attr(name, p.name()?.into()));
                }
                Ok(Target::Name(name))
            })?);
            if !self.take_op(",") {
                break;
            }
            tuple = true;
        }
        match (tuple, all.pop()) {
            (false, Some(target)) => Ok(target),
            (_, None) => self.fault(format!("expected a name to assign to, found {}", self.found())),
            (true, Some(last)) => {
                all.push(last);
                Ok(Target::Tuple(all))
            }
        }
    }

    fn expression(&mut self) -> ParseResult<Expr> {
        self.nested(Parser::conditional)
    }

    /// Parses expressions separated by commas.
    fn tuple(&mut self, conditional: bool, ends: &[&str]) -> ParseResult<Expr> {
        let (mut all, mut tuple) = (Vec::new(), false);
        loop {
            if self.peek().is_none() || self.is_op(")") || ends.iter().any(|end| self.is_name(end)) {
                break;
            }
            all.push(if conditional { self.expression()? } else { self.nested(Parser::or)? });
            if !self.take_op(",") {
                break;
            }
            tuple = true;
        }
        match all.pop() {
            Some(one) if !tuple => Ok(one),
            Some(last) => {
                all.push(last);
                node(TemplateExprKind::Tuple(all))
            }
            None => self.fault(format!("expected an expression, found {}", self.found())),
        }
    }

    fn conditional(&mut self) -> ParseResult<Expr> {
        // A condition may follow: names in it and before it are resolved at run time.
        let soft = self.soft;
        self.soft |= self.has_if;
        let mut expr = self.or()?;
        while self.take_name("if") {
            let test = self.or()?;
            let no = if self.take_name("else") { Some(Box::new(self.expression()?)) } else { None };
            expr = node(TemplateExprKind::Cond { test: Box::new(test), yes: Box::new(expr), no })?;
        }
        self.soft = soft;
        Ok(expr)
    }

    fn or(&mut self) -> ParseResult<Expr> {
        let mut left = self.and()?;
        while self.take_name("or") {
            left = node(TemplateExprKind::Or(Box::new(left), Box::new(self.and()?)))?;
        }
        Ok(left)
    }

    fn and(&mut self) -> ParseResult<Expr> {
        let mut left = self.not()?;
        while self.take_name("and") {
            left = node(TemplateExprKind::And(Box::new(left), Box::new(self.not()?)))?;
        }
        Ok(left)
    }

    fn not(&mut self) -> ParseResult<Expr> {
        if self.take_name("not") {
            let inner = self.nested(Parser::not)?;
            return node(TemplateExprKind::Not(Box::new(inner)));
        }
        self.compare()
    }

    fn compare(&mut self) -> ParseResult<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let op = match self.peek() {
                Some(Token::Op("==")) => TemplateCompareOp::Eq,
                Some(Token::Op("!=")) => TemplateCompareOp::Ne,
                Some(Token::Op("<")) => TemplateCompareOp::Lt,
                Some(Token::Op("<=")) => TemplateCompareOp::Le,
                Some(Token::Op(">")) => TemplateCompareOp::Gt,
                Some(Token::Op(">=")) => TemplateCompareOp::Ge,
                Some(Token::Name(name)) if name == "in" => TemplateCompareOp::In,
                Some(Token::Name(name)) if name == "not" => match self.tokens.get(self.at + 1) {
                    Some((_, Token::Name(name))) if name == "in" => {
                        self.at += 1;
                        TemplateCompareOp::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.at += 1;
            rest.push((op, self.sum()?));
        }
        if rest.is_empty() { Ok(first) } else { node(TemplateExprKind::Compare(Box::new(first), rest)) }
    }

    fn sum(&mut self) -> ParseResult<Expr> {
        let mut left = self.concat()?;
        loop {
            let op = match self.peek() {
                Some(Token::Op("+")) => TemplateBinaryOp::Add,
                Some(Token::Op("-")) => TemplateBinaryOp::Sub,
                _ => return Ok(left),
            };
            self.at += 1;
            left = node(TemplateExprKind::Binary(op, Box::new(left), Box::new(self.concat()?)))?;
        }
    }

    fn concat(&mut self) -> ParseResult<Expr> {
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.take_op("~") {
            all.push(self.product()?);
        }
        node(TemplateExprKind::Concat(all))
    }

    fn product(&mut self) -> ParseResult<Expr> {
        let mut left = self.power()?;
        loop {
            let op = match self.peek() {
                Some(Token::Op("*")) => TemplateBinaryOp::Mul,
                Some(Token::Op("/")) => TemplateBinaryOp::Div,
                Some(Token::Op("//")) => TemplateBinaryOp::FloorDiv,
                Some(Token::Op("%")) => TemplateBinaryOp::Mod,
                _ => return Ok(left),
            };
            self.at += 1;
            left = node(TemplateExprKind::Binary(op, Box::new(left), Box::new(self.power()?)))?;
        }
    }

    fn power(&mut self) -> ParseResult<Expr> {
        let mut left = self.unary(true)?;
        while self.take_op("**") {
            left = node(TemplateExprKind::Binary(TemplateBinaryOp::Pow, Box::new(left), Box::new(self.unary(true)?)))?;
        }
        Ok(left)
    }

    fn unary(&mut self, filtered: bool) -> ParseResult<Expr> {
        let mut expr = if self.take_op("-") {
            node(TemplateExprKind::Negate(Box::new(self.nested(|p| p.unary(false))?)))?
        } else if self.take_op("+") {
            node(TemplateExprKind::Plus(Box::new(self.nested(|p| p.unary(false))?)))?
        } else {
            self.primary()?
        };
        expr = self.postfix(expr)?;
        while filtered {
            expr = if self.is_op("|") {
                self.filters(Some(expr), false)?
            } else if self.take_name("is") {
                self.test(expr)?
            } else if self.is_op("(") {
                node(TemplateExprKind::Call(Box::new(expr), self.args()?))?
            } else {
                break;
            };
        }
        Ok(expr)
    }

    fn primary(&mut self) -> ParseResult<Expr> {
        let Some(token) = self.peek().cloned() else {
            return self.fault("expected an expression, found the end of the tag");
        };
        let wrong = self.at;
        self.at += 1;
        node(match token {
            Token::Name(name) => match name.as_str() {
                "true" | "True" => TemplateExprKind::Bool(true),
                "false" | "False" => TemplateExprKind::Bool(false),
                "none" | "None" => TemplateExprKind::None,
                _ => {
                    if let (Some(i), Some(named)) =
                        (IMPLICIT_NAMES.iter().position(|s| *s == name), self.named.last_mut())
                    {
                        named[i] = true;
                    }
                    TemplateExprKind::Name(name.into())
                }
            },
            Token::Int(n) => TemplateExprKind::Int(n),
            Token::Float(x) => TemplateExprKind::Float(x),
            Token::Str(mut text) => {
                while let Some(Token::Str(more)) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                TemplateExprKind::Str(Str::new(text)?)
            }
            Token::Op("(") => {
                let inner =
                    if self.is_op(")") { node(TemplateExprKind::Tuple(Vec::new()))? } else { self.tuple(true, &[])? };
                self.expect_op(")")?;
                return Ok(inner);
            }
            Token::Op("[") => {
                let mut all = Vec::new();
                while !self.take_op("]") {
                    if !all.is_empty() {
                        self.expect_op(",")?;
                        if self.take_op("]") {
                            break;
                        }
                    }
                    all.push(self.expression()?);
                }
                TemplateExprKind::List(all)
            }
            Token::Op("{") => {
                let mut all = Vec::new();
                while !self.take_op("}") {
                    if !all.is_empty() {
                        self.expect_op(",")?;
                        if self.take_op("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect_op(":")?;
                    all.push((key, self.expression()?));
                }
                TemplateExprKind::Dict(all)
            }
            Token::Op(_) => {
                self.at = wrong;
                return self.fault(format!("expected an expression, found {}", self.found()));
            }
        })
    }

    fn postfix(&mut self, mut expr: Expr) -> ParseResult<Expr> {
        loop {
            expr = if self.take_op(".") {
                let token = self.peek().cloned();
                self.at += 1;
                match token {
                    Some(Token::Name(name)) => node(TemplateExprKind::Attr(Box::new(expr), name.into()))?,
                    Some(Token::Int(n)) => {
                        node(TemplateExprKind::Item(Box::new(expr), Box::new(node(TemplateExprKind::Int(n))?)))?
                    }
                    _ => return self.fault("expected a name or a number after `.`"),
                }
            } else if self.take_op("[") {
                self.subscript(expr)?
            } else if self.is_op("(") {
                node(TemplateExprKind::Call(Box::new(expr), self.args()?))?
            } else {
                return Ok(expr);
            };
        }
    }

    fn subscript(&mut self, expr: Expr) -> ParseResult<Expr> {
        let mut parts: [Option<Box<Expr>>; 3] = [None, None, None];
        let mut colons = 0;
        while !self.is_op("]") {
            if colons < 2 && self.take_op(":") {
                colons += 1;
                continue;
            }
            if parts[colons].is_some() {
                break;
            }
            parts[colons] = Some(Box::new(self.expression()?));
        }
        if colons > 0 {
            self.expect_op("]")?;
            return node(TemplateExprKind::Slice(Box::new(expr), parts));
        }
        let Some(first) = parts[0].take() else { return self.fault("expected an index before `]`") };
        let mut all = vec![*first];
        while self.take_op(",") {
            all.push(self.expression()?);
        }
        self.expect_op("]")?;
        let index = match (all.len(), all.pop()) {
            (1, Some(one)) => one,
            (_, last) => {
                all.extend(last);
                node(TemplateExprKind::Tuple(all))?
            }
        };
        node(TemplateExprKind::Item(Box::new(expr), Box::new(index)))
    }

    fn args(&mut self) -> ParseResult<CallArgs> {
        self.expect_op("(")?;
        let mut args = CallArgs::default();
        let mut first = true;
        while !self.take_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.take_op(")") {
                    break;
                }
            }
            first = false;
            let named = matches!(self.tokens.get(self.at + 1), Some((_, Token::Op("="))));
            let right = if self.take_op("*") {
                let right = args.star.is_none() && args.stars.is_none();
                args.star = Some(Box::new(self.expression()?));
                right
            } else if self.take_op("**") {
                let right = args.stars.is_none();
                args.stars = Some(Box::new(self.expression()?));
                right
            } else if named && matches!(self.peek(), Some(Token::Name(_))) {
                let name = self.name()?.into();
                self.at += 1;
                let right = args.stars.is_none() && !args.named.iter().any(|(known, _)| *known == name);
                args.named.push((name, self.expression()?));
                right
            } else {
                let right = args.star.is_none() && args.stars.is_none() && args.named.is_empty();
                args.positional.push(self.expression()?);
                right
            };
            if !right {
                return self.fault("the arguments of a call are in a wrong order, or one is given twice");
            }
        }
        Ok(args)
    }

    fn dotted(&mut self) -> ParseResult<String> {
        let mut name = self.name()?;
        while self.take_op(".") {
            name = name + "." + &self.name()?;
        }
        Ok(name)
    }

    fn filters(&mut self, mut value: Option<Expr>, mut inline: bool) -> ParseResult<Expr> {
        loop {
            if !std::mem::take(&mut inline) && !self.take_op("|") {
                return match value {
                    Some(value) => Ok(value),
                    None => self.fault(format!("expected a filter, found {}", self.found())),
                };
            }
            let name = self.dotted()?;
            if !self.soft && !FILTERS.contains(&name.as_str()) {
                return self.fault(format!("there is no filter `{name}`"));
            }
            let args = if self.is_op("(") { self.args()? } else { CallArgs::default() };
            value = Some(node(TemplateExprKind::Filter(value.map(Box::new), name, args))?);
        }
    }

    fn test(&mut self, value: Expr) -> ParseResult<Expr> {
        let negated = self.take_name("not");
        let name = self.dotted()?;
        if !self.soft && !TESTS.contains(&name.as_str()) {
            return self.fault(format!("there is no test `{name}`"));
        }
        let args = match self.peek() {
            Some(Token::Op("(")) => self.args()?,
            Some(Token::Name(name)) if matches!(name.as_str(), "else" | "or" | "and") => CallArgs::default(),
            Some(Token::Name(name)) if name == "is" => return self.fault("tests can't be chained with `is`"),
            Some(Token::Name(_) | Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{")) => {
                let arg = self.nested(Parser::primary)?;
                CallArgs { positional: vec![self.postfix(arg)?], ..CallArgs::default() }
            }
            _ => CallArgs::default(),
        };
        let test = node(TemplateExprKind::Test(Box::new(value), name, args))?;
        if negated { node(TemplateExprKind::Not(Box::new(test))) } else { Ok(test) }
    }
}

fn assigns_loop(target: &Target) -> bool {
    match target {
        Target::Name(name) => &**name == "loop",
        Target::Attr(..) => false,
        Target::Tuple(all) => all.iter().any(assigns_loop),
    }
}

/// Whether a statement assigns to `loop`.
fn sets_loop(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Set { target, .. } => assigns_loop(target),
        StmtKind::SetBlock { target, body, .. } => assigns_loop(target) || body.iter().any(sets_loop),
        StmtKind::If { branches, otherwise } => {
            branches.iter().flat_map(|(_, body)| body).chain(otherwise).any(sets_loop)
        }
        StmtKind::With { values, body } => {
            values.iter().any(|(target, _)| assigns_loop(target)) || body.iter().any(sets_loop)
        }
        StmtKind::Filter { body, .. } | StmtKind::Generation(body) => body.iter().any(sets_loop),
        StmtKind::Call { def, .. } | StmtKind::Macro(def) => def.body.iter().any(sets_loop),
        _ => false,
    }
}
