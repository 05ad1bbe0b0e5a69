//! Values with Python's semantics: formatting, truth and type names.

use super::ast::MacroDef;
use super::budget::{MemoryCharge, VALUE_DEPTH, enter_level, use_bytes, use_steps};
use super::eval::LoopContext;
use serde_json::Value as Json;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

pub(super) type ValueResult<T> = Result<T, String>;

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// An undefined value, and why.
    Undefined(Str),
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Str),
    List(Rc<List>),
    Tuple(Rc<List>),
    Dict(Rc<Dict>),
    View(DictView, Rc<Dict>),
    Range(Rc<Range>),
    /// An iterator, like Python's generators: it can be consumed once.
    Iter(Rc<Iter>),
    Namespace(Rc<Scope>),
    Macro(Rc<Macro>),
    Loop(Rc<LoopContext>),
    Function(BuiltinFunction),
    Method(Rc<(Value, &'static str)>),
}

/// A view of a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DictView {
    Keys,
    Values,
    Items,
}

/// A function that templates can call by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltinFunction {
    Range,
    Dict,
    Namespace,
    RaiseException,
    StrftimeNow,
}

pub(super) const FUNCTIONS: [(&str, BuiltinFunction); 5] = [
    ("range", BuiltinFunction::Range),
    ("dict", BuiltinFunction::Dict),
    ("namespace", BuiltinFunction::Namespace),
    ("raise_exception", BuiltinFunction::RaiseException),
    ("strftime_now", BuiltinFunction::StrftimeNow),
];

/// A shared string.
#[derive(Clone, Debug)]
pub(super) struct Str(Rc<Text>);

#[derive(Debug)]
struct Text {
    text: String,
    /// Whether it is marked as HTML, by `safe` and `escape`.
    safe: bool,
    _charge: MemoryCharge,
}

impl Str {
    pub(super) fn new(text: impl Into<String>) -> ValueResult<Str> {
        Str::marked(text.into(), false)
    }

    pub(super) fn safe(text: impl Into<String>) -> ValueResult<Str> {
        Str::marked(text.into(), true)
    }

    fn marked(text: String, safe: bool) -> ValueResult<Str> {
        use_steps(1)?;
        let charge = MemoryCharge::new(text.len() + 112)?;
        Ok(Str(Rc::new(Text { text, safe, _charge: charge })))
    }

    pub(super) fn is_safe(&self) -> bool {
        self.0.safe
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

/// A string that is being built.
#[derive(Debug, Default)]
pub(super) struct TextBuilder {
    pub(super) text: String,
    charge: MemoryCharge,
}

impl TextBuilder {
    pub(super) fn push(&mut self, text: &str) -> ValueResult<()> {
        let needed = self.text.len() + text.len();
        if needed > self.charge.bytes() {
            self.charge.grow(needed - self.charge.bytes() + 128)?;
        }
        self.text.push_str(text);
        Ok(())
    }

    pub(super) fn push_char(&mut self, c: char) -> ValueResult<()> {
        use_steps(1)?;
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// Appends a text several times.
    pub(super) fn repeat(&mut self, text: &str, times: usize) -> ValueResult<()> {
        super::budget::check_size(times, text.len())?;
        self.push(&text.repeat(if text.is_empty() { 0 } else { times }))
    }

    pub(super) fn finish(self) -> ValueResult<Value> {
        drop(self.charge);
        Ok(Value::Str(Str::new(self.text)?))
    }
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) items: Vec<Value>,
    depth: u32,
    /// Whether it is a pair of the filter `groupby`, with `grouper` and `list`.
    pub(super) group: bool,
    _charge: MemoryCharge,
}

impl List {
    pub(super) fn new(items: Vec<Value>) -> ValueResult<Rc<List>> {
        let depth = nesting_depth(items.iter())?;
        let charge = MemoryCharge::new(items.len() * 2 * size_of::<Value>() + 96)?;
        Ok(Rc::new(List { items, depth, group: false, _charge: charge }))
    }

    pub(super) fn group(key: Value, items: Vec<Value>) -> ValueResult<Value> {
        let items = vec![key, Value::List(List::new(items)?)];
        let (depth, charge) = (nesting_depth(items.iter())?, MemoryCharge::new(128)?);
        Ok(Value::Tuple(Rc::new(List { items, depth, group: true, _charge: charge })))
    }
}

/// One more than the depth of the deepest value.
fn nesting_depth<'v>(values: impl Iterator<Item = &'v Value>) -> ValueResult<u32> {
    let depth = values.map(depth).max().unwrap_or(0) + 1;
    if depth > VALUE_DEPTH {
        return Err(format!("lists and dicts are nested more than {VALUE_DEPTH} deep, which is the limit"));
    }
    Ok(depth)
}

fn depth(value: &Value) -> u32 {
    match value {
        Value::List(list) | Value::Tuple(list) => list.depth,
        Value::Dict(dict) | Value::View(_, dict) => dict.depth,
        Value::Iter(iter) => iter.depth,
        Value::Method(method) => depth(&method.0) + 1,
        _ => 0,
    }
}

/// Keys and values in insertion order. A lookup costs steps by the number of keys.
#[derive(Debug)]
pub(super) struct Dict {
    pub(super) entries: Vec<(Value, Value)>,
    depth: u32,
    _charge: MemoryCharge,
}

impl Dict {
    /// Builds a dict from distinct keys.
    pub(super) fn of_unique(entries: Vec<(Value, Value)>) -> ValueResult<Rc<Dict>> {
        let depth = nesting_depth(entries.iter().flat_map(|(key, value)| [key, value]))?;
        let charge = MemoryCharge::new(entries.len() * 4 * size_of::<Value>() + 96)?;
        Ok(Rc::new(Dict { entries, depth, _charge: charge }))
    }

    /// Builds a dict; a later value replaces that of an earlier equal key.
    pub(super) fn new(entries: Vec<(Value, Value)>) -> ValueResult<Rc<Dict>> {
        let mut unique: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            match find(&unique, &key)? {
                Some(at) => unique[at].1 = value,
                None => unique.push((key, value)),
            }
        }
        Dict::of_unique(unique)
    }

    pub(super) fn get(&self, key: &Value) -> ValueResult<Option<&Value>> {
        Ok(find(&self.entries, key)?.map(|at| &self.entries[at].1))
    }

    pub(super) fn text(&self, key: &str) -> ValueResult<Option<&Value>> {
        use_steps(self.entries.len() as u64 / 8)?;
        let is = |entry: &&(Value, Value)| matches!(&entry.0, Value::Str(text) if **text == *key);
        Ok(self.entries.iter().find(is).map(|entry| &entry.1))
    }
}

fn find(entries: &[(Value, Value)], key: &Value) -> ValueResult<Option<usize>> {
    hashable(key)?;
    use_steps(entries.len() as u64 / 8)?;
    for (at, (known, _)) in entries.iter().enumerate() {
        let same = match (known, key) {
            (Value::Str(a), Value::Str(b)) if a.len() == b.len() => {
                use_bytes(a.len())?;
                **a == **b
            }
            (Value::Str(_), _) | (_, Value::Str(_)) => false,
            _ => super::ops::equal(known, key)?,
        };
        if same {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Fails if a value is not hashable.
pub(super) fn hashable(value: &Value) -> ValueResult<()> {
    match value {
        Value::List(_) | Value::Dict(_) | Value::View(..) => Err(format!("unhashable type: '{}'", type_name(value))),
        Value::Tuple(list) => {
            let _level = enter_level()?;
            list.items.iter().try_for_each(hashable)
        }
        _ => Ok(()),
    }
}

/// `range(start, stop, step)`; its numbers are computed on demand.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) start: i64,
    pub(super) stop: i64,
    pub(super) step: i64,
    pub(super) len: usize,
}

impl Range {
    pub(super) fn at(&self, i: usize) -> Value {
        Value::Int(self.start + self.step * i as i64)
    }
}

/// The state of an iterator, and the error that it raises at its end.
#[derive(Debug)]
pub(super) struct Iter {
    state: RefCell<(IterSource, Option<String>)>,
    depth: u32,
}

impl Iter {
    /// An iterator over the values that precede an error. The error is raised when the iterator reaches it.
    pub(super) fn new(items: Vec<Value>, fault: Option<String>) -> ValueResult<Value> {
        let list = List::new(items)?;
        let depth = list.depth;
        Ok(Value::Iter(Rc::new(Iter { state: RefCell::new((IterSource::List(list, 0), fault)), depth })))
    }

    pub(super) fn next(&self) -> ValueResult<Option<Value>> {
        let mut state = self.state.borrow_mut();
        match state.0.next()? {
            Some(item) => Ok(Some(item)),
            None => state.1.take().map_or(Ok(None), Err),
        }
    }
}

/// The source of an iterator's items.
#[derive(Debug)]
pub(super) enum IterSource {
    Empty,
    Chars(Str, usize),
    List(Rc<List>, usize),
    Dict(DictView, Rc<Dict>, usize),
    Range(Rc<Range>, usize),
    Iter(Rc<Iter>),
    Loop,
}

impl IterSource {
    pub(super) fn of(value: &Value) -> ValueResult<IterSource> {
        Ok(match value {
            Value::Undefined(_) => IterSource::Empty,
            Value::Str(text) => IterSource::Chars(text.clone(), 0),
            Value::List(list) | Value::Tuple(list) => IterSource::List(list.clone(), 0),
            Value::Dict(dict) => IterSource::Dict(DictView::Keys, dict.clone(), 0),
            Value::View(view, dict) => IterSource::Dict(*view, dict.clone(), 0),
            Value::Range(range) => IterSource::Range(range.clone(), 0),
            Value::Iter(iter) => IterSource::Iter(iter.clone()),
            Value::Loop(_) => IterSource::Loop,
            _ => return Err(format!("'{}' object is not iterable", type_name(value))),
        })
    }

    pub(super) fn next(&mut self) -> ValueResult<Option<Value>> {
        use_steps(1)?;
        Ok(match self {
            IterSource::Empty => None,
            IterSource::Chars(text, at) => {
                let next = text[*at..].chars().next();
                *at += next.map_or(0, char::len_utf8);
                next.map(|c| Str::new(c).map(Value::Str)).transpose()?
            }
            IterSource::List(list, at) => {
                *at += 1;
                list.items.get(*at - 1).cloned()
            }
            IterSource::Dict(view, dict, at) => {
                *at += 1;
                match (dict.entries.get(*at - 1), view) {
                    (None, _) => None,
                    (Some((key, _)), DictView::Keys) => Some(key.clone()),
                    (Some((_, value)), DictView::Values) => Some(value.clone()),
                    (Some((key, value)), DictView::Items) => {
                        Some(Value::Tuple(List::new(vec![key.clone(), value.clone()])?))
                    }
                }
            }
            IterSource::Range(range, at) => {
                *at += 1;
                (*at <= range.len).then(|| range.at(*at - 1))
            }
            IterSource::Iter(iter) => iter.next()?,
            IterSource::Loop => return Err("a loop can't be gone through".into()),
        })
    }

    pub(super) fn rest(mut self) -> ValueResult<Vec<Value>> {
        let mut items = Vec::new();
        while let Some(item) = self.next()? {
            items.push(item);
        }
        Ok(items)
    }
}

/// Collects all items of a value.
pub(super) fn items(value: &Value) -> ValueResult<Vec<Value>> {
    IterSource::of(value)?.rest()
}

/// The variables of a block, or the attributes of a namespace.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) vars: RefCell<Vec<(Rc<str>, Value)>>,
    pub(super) parent: Option<Rc<Scope>>,
    pub(super) registered: Cell<bool>,
}

impl Scope {
    pub(super) fn child(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { vars: RefCell::default(), parent: Some(parent.clone()), registered: Cell::new(false) })
    }

    pub(super) fn own(&self, name: &str) -> ValueResult<Option<Value>> {
        let vars = self.vars.borrow();
        use_steps(vars.len() as u64 / 8)?;
        Ok(vars.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.clone()))
    }

    pub(super) fn get(&self, name: &str) -> ValueResult<Option<Value>> {
        let mut at = Some(self);
        while let Some(scope) = at {
            if let Some(value) = scope.own(name)? {
                return Ok(Some(value));
            }
            at = scope.parent.as_deref();
        }
        Ok(None)
    }

    pub(super) fn set(&self, name: &Rc<str>, value: Value) -> ValueResult<()> {
        let mut vars = self.vars.borrow_mut();
        use_steps(vars.len() as u64 / 8)?;
        let old = match vars.iter_mut().find(|(known, _)| known == name) {
            Some(found) => Some(std::mem::replace(&mut found.1, value)),
            None => {
                vars.push((name.clone(), value));
                None
            }
        };
        drop(vars);
        drop(old);
        Ok(())
    }
}

thread_local! {
    /// Values of dropped scopes. They are dropped iteratively: scopes can hold each other in long chains.
    static DROPPED_VALUES: RefCell<(bool, Vec<Value>)> = const { RefCell::new((false, Vec::new())) };
}

impl Drop for Scope {
    fn drop(&mut self) {
        let vars = std::mem::take(self.vars.get_mut());
        if vars.is_empty() {
            return;
        }
        let busy = DROPPED_VALUES.with_borrow_mut(|gone| {
            gone.1.extend(vars.into_iter().map(|(_, value)| value));
            std::mem::replace(&mut gone.0, true)
        });
        if busy {
            return;
        }
        while let Some(value) = DROPPED_VALUES.with_borrow_mut(|gone| gone.1.pop()) {
            drop(value);
        }
        DROPPED_VALUES.with_borrow_mut(|gone| gone.0 = false);
    }
}

/// A macro, or the `caller` of a `call` block.
#[derive(Debug)]
pub(super) struct Macro {
    pub(super) def: Rc<MacroDef>,
    pub(super) scope: Rc<Scope>,
}

/// An undefined value. The memory of its reason is counted: it contains names from the template.
pub(super) fn undefined(why: impl Into<String>) -> ValueResult<Value> {
    Str::new(why).map(Value::Undefined)
}

pub(super) fn text(value: impl Into<String>) -> ValueResult<Value> {
    Str::new(value).map(Value::Str)
}

pub(super) fn list(items: Vec<Value>) -> ValueResult<Value> {
    List::new(items).map(Value::List)
}

pub(super) fn tuple(items: Vec<Value>) -> ValueResult<Value> {
    List::new(items).map(Value::Tuple)
}

pub(super) fn from_json(json: &Json) -> ValueResult<Value> {
    let _level = enter_level()?;
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(x) => Value::Bool(*x),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Value::Int(n),
            (_, Some(x)) if n.is_f64() => Value::Float(x),
            _ => return Err(format!("the number {n} has more than 64 bits")),
        },
        Json::String(s) => text(s.as_str())?,
        Json::Array(all) => list(all.iter().map(from_json).collect::<ValueResult<_>>()?)?,
        Json::Object(map) => {
            let entries = map.iter().map(|(key, value)| Ok((text(key.as_str())?, from_json(value)?)));
            Value::Dict(Dict::of_unique(entries.collect::<ValueResult<_>>()?)?)
        }
    })
}

/// The name of the type in Python.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Undefined(_) => "Undefined",
        Value::None => "NoneType",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float",
        Value::Str(_) => "str",
        Value::List(_) => "list",
        Value::Tuple(_) => "tuple",
        Value::Dict(_) => "dict",
        Value::View(DictView::Keys, _) => "dict_keys",
        Value::View(DictView::Values, _) => "dict_values",
        Value::View(DictView::Items, _) => "dict_items",
        Value::Range(_) => "range",
        Value::Iter(_) => "generator",
        Value::Namespace(_) => "Namespace",
        Value::Macro(_) => "Macro",
        Value::Loop(_) => "LoopContext",
        Value::Function(_) => "function",
        Value::Method(_) => "builtin_function_or_method",
    }
}

pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Undefined(_) | Value::None => false,
        Value::Bool(x) => *x,
        Value::Int(n) => *n != 0,
        Value::Float(x) => *x != 0.0,
        Value::Str(text) => !text.is_empty(),
        _ => length(value).is_none_or(|n| n > 0),
    }
}

/// The number of items of a value that has a length.
pub(super) fn length(value: &Value) -> Option<usize> {
    Some(match value {
        Value::Undefined(_) => 0,
        Value::Str(text) => {
            // If this exceeds the limit, the next step fails.
            let _ = use_bytes(text.len());
            text.chars().count()
        }
        Value::List(list) | Value::Tuple(list) => list.items.len(),
        Value::Dict(dict) | Value::View(_, dict) => dict.entries.len(),
        Value::Range(range) => range.len,
        _ => return None,
    })
}

/// `str(value)`.
pub(super) fn string(value: &Value) -> ValueResult<Str> {
    if let Value::Str(text) = value {
        return Ok(text.clone());
    }
    let mut out = TextBuilder::default();
    print(value, &mut out)?;
    Str::new(out.text)
}

/// Appends `str(value)`.
pub(super) fn print(value: &Value, out: &mut TextBuilder) -> ValueResult<()> {
    match value {
        Value::Str(text) => out.push(text),
        Value::Undefined(_) => Ok(()),
        other => repr(other, out),
    }
}

/// Appends `repr(value)`.
pub(super) fn repr(value: &Value, out: &mut TextBuilder) -> ValueResult<()> {
    let _level = enter_level()?;
    match value {
        Value::Undefined(_) => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(x) => out.push(if *x { "True" } else { "False" }),
        Value::Int(n) => out.push(&n.to_string()),
        Value::Float(x) => out.push(&super::format::float_repr(*x)),
        Value::Str(text) if text.is_safe() => {
            out.push("Markup(")?;
            quoted(text, out)?;
            out.push(")")
        }
        Value::Str(text) => quoted(text, out),
        Value::List(list) => sequence("[", &list.items, "]", out),
        Value::Tuple(list) => sequence("(", &list.items, if list.items.len() == 1 { ",)" } else { ")" }, out),
        Value::Dict(dict) => entries(&dict.entries, out),
        Value::View(..) => {
            out.push(type_name(value))?;
            sequence("([", &items(value)?, "])", out)
        }
        Value::Range(range) => {
            let tail = if range.step == 1 { String::new() } else { format!(", {}", range.step) };
            out.push(&format!("range({}, {}{tail})", range.start, range.stop))
        }
        Value::Namespace(scope) => {
            out.push("<Namespace ")?;
            let vars = scope.vars.borrow().clone();
            let vars =
                vars.into_iter().map(|(name, value)| Ok((text(&*name)?, value))).collect::<ValueResult<Vec<_>>>()?;
            entries(&vars, out)?;
            out.push(">")
        }
        Value::Macro(m) => match &m.def.name {
            Some(name) => {
                out.push("<Macro ")?;
                quoted(name, out)?;
                out.push(">")
            }
            None => out.push("<Macro anonymous>"),
        },
        other => out.push(&format!("<{} object>", type_name(other))),
    }
}

fn sequence(open: &str, items: &[Value], close: &str, out: &mut TextBuilder) -> ValueResult<()> {
    out.push(open)?;
    for (i, item) in items.iter().enumerate() {
        out.push(if i > 0 { ", " } else { "" })?;
        repr(item, out)?;
    }
    out.push(close)
}

fn entries(entries: &[(Value, Value)], out: &mut TextBuilder) -> ValueResult<()> {
    out.push("{")?;
    for (i, (key, value)) in entries.iter().enumerate() {
        out.push(if i > 0 { ", " } else { "" })?;
        repr(key, out)?;
        out.push(": ")?;
        repr(value, out)?;
    }
    out.push("}")
}

/// Appends a quoted string as Python writes it.
fn quoted(text: &str, out: &mut TextBuilder) -> ValueResult<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            c if c == quote => {
                out.push("\\")?;
                out.push_char(c)?;
            }
            ' '..='~' => out.push_char(c)?,
            c if super::methods::is_printable(c) => out.push_char(c)?,
            c => out.push(&match u32::from(c) {
                code @ ..=0xff => format!("\\x{code:02x}"),
                code @ ..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            })?,
        }
    }
    out.push_char(quote)
}
