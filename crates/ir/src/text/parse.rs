//! The parser: text → Graph. Every op is checked when it is added, so a parsed graph is valid.

use super::lex::{SourcePos, Token, lex};
use crate::attr::{Attr, AttrReader};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Loc, Value};
use crate::literal::Literal;
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::types::{Shape, Type};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The maximum nesting of graphs and lists, so that malicious input cannot overflow the stack.
const MAX_DEPTH: usize = 64;

/// Parses a graph; errors contain line and column.
pub fn parse(text: &str) -> Result<Graph> {
    let mut p = Parser { tokens: lex(text)?, at: 0, depth: 0 };
    let graph = p.graph()?;
    match p.peek() {
        Token::End => Ok(graph),
        _ => p.place().error("text after the end of the graph"),
    }
}

struct Parser {
    tokens: Vec<(Token, SourcePos)>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn place(&self) -> SourcePos {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let t = self.tokens[self.at].0.clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        t
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = *self.peek() == Token::Symbol(c);
        if hit {
            self.next();
        }
        hit
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) { Ok(()) } else { self.place().error(format!("expected `{c}`, found {}", show(self.peek()))) }
    }

    fn word(&mut self) -> Result<String> {
        let place = self.place();
        match self.next() {
            Token::Word(w) => Ok(w),
            other => place.error(format!("expected a word, found {}", show(&other))),
        }
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return self.place().error(format!("nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    fn graph(&mut self) -> Result<Graph> {
        let place = self.place();
        if self.word()? != "graph" {
            return place.error("a graph starts with `graph`");
        }
        let mut graph = Graph::new();
        let mut names: FxHashMap<String, Value> = FxHashMap::default();
        self.expect('(')?;
        while !self.eat(')') {
            let place = self.place();
            let name = self.name()?;
            self.expect(':')?;
            let ty = self.ty()?;
            let v = graph.input(ty);
            if names.insert(name.clone(), v).is_some() {
                return place.error(format!("%{name} is defined twice"));
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        self.expect('{')?;
        loop {
            if *self.peek() == Token::Word("return".into()) {
                self.next();
                break;
            }
            self.node(&mut graph, &mut names)?;
        }
        let mut outputs = Vec::new();
        while let Token::Name(_) = self.peek() {
            outputs.push(self.value(&names)?);
            if !self.eat(',') {
                break;
            }
        }
        graph.set_outputs(outputs);
        self.expect('}')?;
        Ok(graph)
    }

    fn node(&mut self, graph: &mut Graph, names: &mut FxHashMap<String, Value>) -> Result<()> {
        let mut outs = Vec::new();
        while let Token::Name(_) = self.peek() {
            outs.push((self.place(), self.name()?));
            if !self.eat(',') {
                break;
            }
        }
        if !outs.is_empty() {
            self.expect('=')?;
        }
        let place = self.place();
        let name = self.word()?;
        self.expect('(')?;
        let mut args = Vec::new();
        while !self.eat(')') {
            args.push(self.value(names)?);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        let mut attrs = Vec::new();
        if self.eat('{') {
            while !self.eat('}') {
                let key = self.word()?;
                self.expect('=')?;
                attrs.push((key, self.nested(Parser::attr)?));
                if !self.eat(',') {
                    self.expect('}')?;
                    break;
                }
            }
        }
        let mut reader = AttrReader::new(attrs);
        let op = match Op::parse(&name, &mut reader) {
            Ok(op) => op,
            Err(message) => return place.error(format!("{name}: {message}")),
        };
        if let Some(extra) = reader.leftover() {
            return place.error(format!("{name} has no attribute `{extra}`"));
        }
        let results = match graph.push(op, &args, Loc::Unknown) {
            Ok(r) => r,
            Err(Error::Type(e)) => return place.error(e.to_string()),
            Err(e) => return place.error(e.to_string()),
        };
        if results.len() != outs.len() {
            return place.error(format!("{name} has {} results, but {} are named", results.len(), outs.len()));
        }
        for (i, v) in results.iter().enumerate() {
            self.expect(if i == 0 { ':' } else { ',' })?;
            let place = self.place();
            let declared = self.ty()?;
            if declared != *graph.ty(*v) {
                return place.error(format!("declared {declared}, but {name} returns {}", graph.ty(*v)));
            }
        }
        for ((place, name), v) in outs.into_iter().zip(results) {
            if names.insert(name.clone(), v).is_some() {
                return place.error(format!("%{name} is defined twice"));
            }
        }
        Ok(())
    }

    fn name(&mut self) -> Result<String> {
        let place = self.place();
        match self.next() {
            Token::Name(n) => Ok(n),
            other => place.error(format!("expected a value like %0, found {}", show(&other))),
        }
    }

    fn value(&mut self, names: &FxHashMap<String, Value>) -> Result<Value> {
        let place = self.place();
        let name = self.name()?;
        match names.get(&name) {
            Some(v) => Ok(*v),
            None => place.error(format!("%{name} is not defined")),
        }
    }

    fn ty(&mut self) -> Result<Type> {
        let place = self.place();
        let word = self.word()?;
        match word.parse::<DType>() {
            Ok(d) => self.shape_of(d),
            Err(()) => place.error(format!("`{word}` is not a dtype")),
        }
    }

    fn shape_of(&mut self, dtype: DType) -> Result<Type> {
        let start = self.place();
        self.expect('[')?;
        let mut shape = Shape::new();
        while !self.eat(']') {
            let place = self.place();
            match self.next() {
                Token::Number(n) => match n.parse::<usize>() {
                    Ok(d) => shape.push(d),
                    Err(_) => return place.error(format!("`{n}` is not an axis size")),
                },
                other => return place.error(format!("expected an axis size, found {}", show(&other))),
            }
            if !self.eat(',') {
                self.expect(']')?;
                break;
            }
        }
        match Type::checked(dtype, &shape) {
            Ok(ty) => Ok(ty),
            Err(p) => start.error(p.to_string()),
        }
    }

    fn attr(&mut self) -> Result<Attr> {
        let place = self.place();
        match self.peek().clone() {
            Token::Number(n) => {
                self.next();
                match n.parse::<i64>() {
                    Ok(i) => Ok(Attr::Int(i)),
                    Err(_) => place.error(format!("`{n}` is not an integer; a float is written with its dtype")),
                }
            }
            Token::Str(s) => {
                self.next();
                Ok(Attr::Str(s))
            }
            Token::Symbol('[') => {
                self.next();
                let mut items = Vec::new();
                while !self.eat(']') {
                    items.push(self.nested(Parser::attr)?);
                    if !self.eat(',') {
                        self.expect(']')?;
                        break;
                    }
                }
                Ok(Attr::List(items))
            }
            Token::Word(w) if w == "graph" => Ok(Attr::Graph(Arc::new(self.nested(Parser::graph)?))),
            Token::Word(w) if w == "true" || w == "false" => {
                self.next();
                Ok(Attr::Bool(w == "true"))
            }
            Token::Word(w) => {
                self.next();
                match (w.parse::<DType>(), self.peek()) {
                    (Ok(d), Token::Symbol('[')) => self.literal(d),
                    (Ok(d), Token::Number(_) | Token::Word(_)) => Ok(Attr::Scalar(self.scalar(d)?)),
                    _ => Ok(Attr::Word(w)),
                }
            }
            other => place.error(format!("expected an attribute value, found {}", show(&other))),
        }
    }

    fn literal(&mut self, dtype: DType) -> Result<Attr> {
        let place = self.place();
        let ty = self.shape_of(dtype)?;
        self.expect('[')?;
        let mut items = Vec::new();
        while !self.eat(']') {
            items.push(self.scalar(dtype)?);
            if !self.eat(',') {
                self.expect(']')?;
                break;
            }
        }
        if items.len() != ty.numel() {
            return place.error(format!("{ty} needs {} elements, got {}", ty.numel(), items.len()));
        }
        Ok(Attr::Literal(Literal::from_fn(ty, |i| items[i])))
    }

    fn scalar(&mut self, dtype: DType) -> Result<Scalar> {
        let place = self.place();
        let text = match self.next() {
            Token::Number(n) => n,
            Token::Word(w) => w,
            other => return place.error(format!("expected a {dtype}, found {}", show(&other))),
        };
        let parsed = if let Some(hex) = text.strip_prefix("0x") {
            u64::from_str_radix(hex, 16).ok().map(|b| Scalar::from_bits(dtype, b))
        } else if dtype == DType::Bool {
            text.parse::<bool>().ok().map(Scalar::bool)
        } else if dtype == DType::U64 {
            text.parse::<u64>().ok().map(|x| Scalar::from_bits(dtype, x))
        } else if dtype.is_int() {
            text.parse::<i64>()
                .ok()
                .filter(|&x| Scalar::from_i64(dtype, x).to_i64() == x)
                .map(|x| Scalar::from_i64(dtype, x))
        } else if dtype == DType::F64 {
            text.parse::<f64>().ok().map(|x| Scalar::from_f64(dtype, x))
        } else {
            // Printed through f32, so parsed through f32: one rounding each way.
            text.parse::<f32>().ok().map(|x| Scalar::from_f64(dtype, x as f64))
        };
        match parsed {
            Some(s) => Ok(s),
            None => place.error(format!("`{text}` is not a {dtype}")),
        }
    }
}

fn show(t: &Token) -> String {
    match t {
        Token::Word(w) => format!("`{w}`"),
        Token::Number(n) => format!("`{n}`"),
        Token::Str(s) => format!("{s:?}"),
        Token::Name(n) => format!("`%{n}`"),
        Token::Symbol(c) => format!("`{c}`"),
        Token::End => "the end".into(),
    }
}
