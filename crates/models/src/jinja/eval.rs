//! Evaluates the syntax tree of a template.

use super::ast::{self, Expr, For, Stmt, StmtKind, Target, TemplateExprKind};
use super::budget::{MemoryCharge, enter_level, use_steps};
use super::methods::METHODS;
use super::ops::{attribute, binary, compare, equal, int, item, method, negate, plus, slice};
use super::value::{
    BuiltinFunction, Dict, FUNCTIONS, IterSource, Macro, Range, Scope, TextBuilder, Value, ValueResult as Text,
    from_json, is_truthy, items, list, print, string, text, tuple, type_name, undefined,
};
use super::{Fault, Rendered, filters, predicates};
use serde_json::{Map, Value as Json};
use std::cell::RefCell;
use std::rc::{Rc, Weak};

type EvalResult<T> = Result<T, Fault>;

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct EvaluatedArgs {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Rc<str>, Value)>,
}

impl EvaluatedArgs {
    /// Binds the arguments to these parameters, in their order.
    pub(super) fn bind<const N: usize>(&self, what: &str, params: [&str; N]) -> Text<[Option<Value>; N]> {
        if self.positional.len() > N {
            return Err(format!("{what} takes at most {N} arguments, and got {}", self.positional.len()));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(&self.positional) {
            *place = Some(value.clone());
        }
        for (name, value) in &self.named {
            let at = params.iter().position(|param| **param == **name).filter(|at| bound[*at].is_none());
            let at = at.ok_or_else(|| format!("{what} got an unexpected keyword argument '{name}'"))?;
            bound[at] = Some(value.clone());
        }
        Ok(bound)
    }
}

/// The control flow result of a list of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlFlow {
    Next,
    Break,
    Continue,
}

/// The state of `loop`.
#[derive(Debug)]
pub(super) struct LoopContext {
    def: Rc<For>,
    scope: Rc<Scope>,
    depth: i64,
    state: RefCell<LoopState>,
}

#[derive(Debug)]
struct LoopState {
    source: Option<IterSource>,
    index: i64,
    length: Option<i64>,
    /// Items that were fetched in advance.
    lookahead: std::collections::VecDeque<Value>,
    previous: Option<Value>,
    current: Option<Value>,
    changed: Option<Value>,
}

struct Evaluator {
    /// The output, and the texts of the blocks that are being captured.
    out: Vec<TextBuilder>,
    rendered: Rendered,
    /// Scopes that values may refer to: they are cleared at the end, to break reference cycles.
    scopes: Vec<Weak<Scope>>,
    charge: MemoryCharge,
}

/// Renders a template.
pub(super) fn run(body: &[Stmt], variables: &Map<String, Json>) -> EvalResult<Rendered> {
    let (out, scopes) = (vec![TextBuilder::default()], Vec::new());
    let mut machine = Evaluator { out, rendered: Rendered::default(), scopes, charge: MemoryCharge::default() };
    let root = Rc::new(Scope::default());
    for (name, function) in FUNCTIONS {
        root.set(&name.into(), Value::Function(function))?;
    }
    for (name, value) in variables {
        root.set(&name.as_str().into(), from_json(value)?)?;
    }
    let result = machine.body(body, &root);
    for scope in machine.scopes.iter().filter_map(Weak::upgrade) {
        drop(scope.vars.take());
    }
    result?;
    Ok(Rendered { text: machine.out.pop().unwrap_or_default().text, ..machine.rendered })
}

impl Evaluator {
    /// Registers a scope that a value refers to.
    fn register(&mut self, scope: &Rc<Scope>) -> EvalResult<()> {
        if !scope.registered.replace(true) {
            self.charge.grow(256)?;
            self.scopes.push(Rc::downgrade(scope));
        }
        Ok(())
    }

    fn body(&mut self, body: &[Stmt], scope: &Rc<Scope>) -> EvalResult<ControlFlow> {
        let _level = enter_level()?;
        for stmt in body {
            use_steps(1)?;
            let flow = match &stmt.kind {
                StmtKind::Text(text) => self.write(text).map(|()| ControlFlow::Next),
                StmtKind::Output(expr) => self.output(expr, scope).map(|()| ControlFlow::Next),
                _ => self.statement(stmt, scope),
            };
            let flow = flow.map_err(|fault| fault.at(stmt.line))?;
            if flow != ControlFlow::Next {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Next)
    }

    fn write(&mut self, text: &str) -> EvalResult<()> {
        Ok(self.out.last_mut().map_or(Ok(()), |out| out.push(text))?)
    }

    fn output(&mut self, expr: &Expr, scope: &Rc<Scope>) -> EvalResult<()> {
        let value = self.eval(expr, scope)?;
        Ok(self.out.last_mut().map_or(Ok(()), |out| print(&value, out))?)
    }

    fn statement(&mut self, stmt: &Stmt, scope: &Rc<Scope>) -> EvalResult<ControlFlow> {
        match &stmt.kind {
            StmtKind::Text(_) | StmtKind::Output(_) => {}
            StmtKind::If { branches, otherwise } => {
                for (test, body) in branches {
                    if is_truthy(&self.eval(test, scope)?) {
                        return self.body(body, scope);
                    }
                }
                return self.body(otherwise, scope);
            }
            StmtKind::For(def) => {
                let all = self.eval(&def.iter, scope)?;
                if !def.recursive {
                    return self.for_loop(def, &all, scope, 0);
                }
                let text = self.loop_recursive(def, &all, scope, 0)?;
                self.write(&string(&text)?)?;
            }
            StmtKind::Set { target, value } => {
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope)?;
            }
            StmtKind::SetBlock { target, filter, body } => {
                let inner = Scope::child(scope);
                let (text, flow) = self.capture(|m| m.body(body, &inner))?;
                if flow != ControlFlow::Next {
                    return Ok(flow);
                }
                let value = match filter {
                    Some(filter) => self.apply_filter(filter, text, &inner)?,
                    None => text,
                };
                self.assign(target, value, scope)?;
            }
            StmtKind::Macro(def) => {
                self.register(scope)?;
                let value = Value::Macro(Rc::new(Macro { def: def.clone(), scope: scope.clone() }));
                if let Some(name) = &def.name {
                    scope.set(name, value)?;
                }
            }
            StmtKind::Call { call, def } => {
                self.register(scope)?;
                let caller = Value::Macro(Rc::new(Macro { def: def.clone(), scope: scope.clone() }));
                let TemplateExprKind::Call(callee, args) = &call.kind else { return Ok(ControlFlow::Next) };
                let value = self.call(callee, args, Some(caller), scope)?;
                self.write(&string(&value)?)?;
            }
            StmtKind::Filter { filter, body } => {
                let inner = Scope::child(scope);
                let (text, flow) = self.capture(|m| m.body(body, &inner))?;
                if flow != ControlFlow::Next {
                    return Ok(flow);
                }
                let value = self.apply_filter(filter, text, &inner)?;
                self.write(&string(&value)?)?;
            }
            StmtKind::With { values, body } => {
                let inner = Scope::child(scope);
                for (target, value) in values {
                    let value = self.eval(value, scope)?;
                    self.assign(target, value, &inner)?;
                }
                return self.body(body, &inner);
            }
            StmtKind::Generation(body) => {
                let start = self.out[0].text.len();
                let inner = Scope::child(scope);
                let (text, _) = self.capture(|m| m.body(body, &inner))?;
                self.write(&string(&text)?)?;
                if self.out.len() > 1 {
                    // It is inside a captured block: the position of its text is unknown.
                    self.rendered.lost = true;
                } else {
                    self.rendered.generated.push(start..self.out[0].text.len());
                }
            }
            StmtKind::Break => return Ok(ControlFlow::Break),
            StmtKind::Continue => return Ok(ControlFlow::Continue),
        }
        Ok(ControlFlow::Next)
    }

    /// Captures the output of a function.
    fn capture(&mut self, run: impl FnOnce(&mut Self) -> EvalResult<ControlFlow>) -> EvalResult<(Value, ControlFlow)> {
        use_steps(2)?;
        self.out.push(TextBuilder::default());
        let flow = run(self);
        let text = self.out.pop().unwrap_or_default();
        Ok((text.finish()?, flow?))
    }

    fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> EvalResult<()> {
        match target {
            Target::Name(name) => Ok(scope.set(name, value)?),
            Target::Attr(name, attr) => match self.lookup(name, scope)? {
                Value::Namespace(namespace) => {
                    check_attribute(attr)?;
                    Ok(namespace.set(attr, value)?)
                }
                _ => Err(format!("cannot assign attribute on non-namespace object `{name}`").into()),
            },
            Target::Tuple(targets) => {
                let all =
                    items(&value).map_err(|_| format!("cannot unpack non-iterable {} object", type_name(&value)))?;
                if all.len() != targets.len() {
                    return Err(format!("expected {} values to unpack, got {}", targets.len(), all.len()).into());
                }
                targets.iter().zip(all).try_for_each(|(target, value)| self.assign(target, value, scope))
            }
        }
    }

    fn lookup(&self, name: &str, scope: &Rc<Scope>) -> EvalResult<Value> {
        match scope.get(name)? {
            Some(value) => Ok(value),
            None => Ok(undefined(format!("'{name}' is undefined"))?),
        }
    }

    fn loop_recursive(&mut self, def: &Rc<For>, all: &Value, scope: &Rc<Scope>, depth: i64) -> EvalResult<Value> {
        Ok(self.capture(|m| m.for_loop(def, all, scope, depth))?.0)
    }

    fn for_loop(&mut self, def: &Rc<For>, all: &Value, scope: &Rc<Scope>, depth: i64) -> EvalResult<ControlFlow> {
        let length = super::value::length(all).filter(|_| def.filter.is_none()).map(|n| n as i64);
        let state = RefCell::new(LoopState {
            source: Some(IterSource::of(all)?),
            index: -1,
            length,
            lookahead: Default::default(),
            previous: None,
            current: None,
            changed: None,
        });
        let state = Rc::new(LoopContext { def: def.clone(), scope: scope.clone(), depth, state });
        let mut whole = false;
        loop {
            let ahead = state.state.borrow_mut().lookahead.pop_front();
            let next = match ahead {
                Some(item) => Some(item),
                None => self.next_item(&state)?,
            };
            let Some(item) = next else { break };
            use_steps(2)?;
            let inner = Scope::child(scope);
            {
                let mut progress = state.state.borrow_mut();
                progress.index += 1;
                progress.previous = progress.current.replace(item.clone());
            }
            inner.set(&"loop".into(), Value::Loop(state.clone()))?;
            self.assign(&def.target, item, &inner)?;
            match self.body(&def.body, &inner)? {
                ControlFlow::Break => break,
                ControlFlow::Continue => {}
                ControlFlow::Next => whole = true,
            }
        }
        if !whole && !def.else_body.is_empty() {
            return self.body(&def.else_body, &Scope::child(scope));
        }
        Ok(ControlFlow::Next)
    }

    /// The next item of a loop that passes its condition.
    fn next_item(&mut self, of: &LoopContext) -> EvalResult<Option<Value>> {
        loop {
            // The source is taken out, because its condition may access the loop.
            let Some(mut source) = of.state.borrow_mut().source.take() else { return Ok(None) };
            let next = source.next();
            of.state.borrow_mut().source = Some(source);
            let Some(next) = next? else { return Ok(None) };
            let Some(only) = &of.def.filter else { return Ok(Some(next)) };
            let inner = Scope::child(&of.scope);
            self.assign(&of.def.target, next.clone(), &inner)?;
            if is_truthy(&self.eval(only, &inner)?) {
                return Ok(Some(next));
            }
        }
    }

    /// Returns an attribute of `loop`.
    fn loop_attribute(&mut self, of: &Rc<LoopContext>, name: &str) -> EvalResult<Value> {
        let index = of.state.borrow().index;
        Ok(match name {
            "index0" => Value::Int(index),
            "index" => Value::Int(index + 1),
            "first" => Value::Bool(index == 0),
            "depth0" => Value::Int(of.depth),
            "depth" => Value::Int(of.depth + 1),
            "previtem" => {
                let before = of.state.borrow().previous.clone();
                before.map_or_else(|| undefined("there is no previous item"), Ok)?
            }
            "last" | "nextitem" => {
                if of.state.borrow().lookahead.is_empty()
                    && let Some(item) = self.next_item(of)?
                {
                    of.state.borrow_mut().lookahead.push_back(item);
                }
                let next = of.state.borrow().lookahead.front().cloned();
                match name {
                    "last" => Value::Bool(next.is_none()),
                    _ => next.map_or_else(|| undefined("there is no next item"), Ok)?,
                }
            }
            "length" | "revindex" | "revindex0" => {
                let known = of.state.borrow().length;
                let length = match known {
                    Some(length) => length,
                    None => {
                        while let Some(item) = self.next_item(of)? {
                            self.charge.grow(size_of::<Value>())?;
                            of.state.borrow_mut().lookahead.push_back(item);
                        }
                        let mut progress = of.state.borrow_mut();
                        let length = index + 1 + progress.lookahead.len() as i64;
                        progress.length = Some(length);
                        length
                    }
                };
                Value::Int(match name {
                    "length" => length,
                    "revindex" => length - index,
                    _ => length - index - 1,
                })
            }
            _ => attribute(&Value::Loop(of.clone()), name, false)?,
        })
    }

    fn apply_filter(&mut self, filter: &Expr, text: Value, scope: &Rc<Scope>) -> EvalResult<Value> {
        let _level = enter_level()?;
        match &filter.kind {
            TemplateExprKind::Filter(inner, name, args) => {
                let value = match inner {
                    Some(inner) => self.apply_filter(inner, text, scope)?,
                    None => text,
                };
                let args = self.args(args, scope)?;
                Ok(filters::apply(name, &value, &args)?)
            }
            _ => Ok(text),
        }
    }

    fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> EvalResult<Value> {
        let _level = enter_level()?;
        match &expr.kind {
            TemplateExprKind::None => Ok(Value::None),
            TemplateExprKind::Bool(x) => Ok(Value::Bool(*x)),
            TemplateExprKind::Int(n) => Ok(Value::Int(*n)),
            TemplateExprKind::Float(x) => Ok(Value::Float(*x)),
            TemplateExprKind::Str(s) => Ok(Value::Str(s.clone())),
            TemplateExprKind::Name(name) => self.lookup(name, scope),
            TemplateExprKind::Attr(of, name) => match self.eval(of, scope)? {
                Value::Loop(of) => self.loop_attribute(&of, name),
                of => Ok(attribute(&of, name, true)?),
            },
            TemplateExprKind::Item(of, key) => {
                let of = self.eval(of, scope)?;
                let key = self.eval(key, scope)?;
                match (&of, &key) {
                    (Value::Loop(of), Value::Str(name)) => self.loop_attribute(of, name),
                    _ => Ok(item(&of, &key)?),
                }
            }
            TemplateExprKind::Binary(op, a, b) => {
                let a = self.eval(a, scope)?;
                let b = self.eval(b, scope)?;
                Ok(binary(*op, &a, &b)?)
            }
            TemplateExprKind::Call(callee, args) => self.call(callee, args, None, scope),
            TemplateExprKind::Filter(value, name, args) => {
                let value = value.as_ref().map_or(Ok(Value::None), |value| self.eval(value, scope))?;
                let args = self.args(args, scope)?;
                Ok(filters::apply(name, &value, &args)?)
            }
            TemplateExprKind::Test(value, name, args) => {
                let value = self.eval(value, scope)?;
                let args = self.args(args, scope)?;
                Ok(Value::Bool(predicates::test(name, &value, &args)?))
            }
            TemplateExprKind::And(a, b) | TemplateExprKind::Or(a, b) => {
                let first = self.eval(a, scope)?;
                let decided = is_truthy(&first) == matches!(expr.kind, TemplateExprKind::Or(..));
                if decided { Ok(first) } else { self.eval(b, scope) }
            }
            TemplateExprKind::Not(a) => Ok(Value::Bool(!is_truthy(&self.eval(a, scope)?))),
            _ => self.eval_compound(expr, scope),
        }
    }

    /// Evaluates the other kinds of expressions.
    fn eval_compound(&mut self, expr: &Expr, scope: &Rc<Scope>) -> EvalResult<Value> {
        match &expr.kind {
            TemplateExprKind::Negate(a) => Ok(negate(&self.eval(a, scope)?)?),
            TemplateExprKind::Plus(a) => Ok(plus(&self.eval(a, scope)?)?),
            TemplateExprKind::List(all) => {
                let all = all.iter().map(|e| self.eval(e, scope)).collect::<EvalResult<_>>()?;
                Ok(list(all)?)
            }
            TemplateExprKind::Tuple(all) => {
                let all = all.iter().map(|e| self.eval(e, scope)).collect::<EvalResult<_>>()?;
                Ok(tuple(all)?)
            }
            TemplateExprKind::Dict(all) => {
                let all = all.iter().map(|(k, v)| Ok((self.eval(k, scope)?, self.eval(v, scope)?)));
                let all = all.collect::<EvalResult<_>>()?;
                Ok(Value::Dict(Dict::new(all)?))
            }
            TemplateExprKind::Concat(all) => {
                let mut out = TextBuilder::default();
                for part in all {
                    print(&self.eval(part, scope)?, &mut out)?;
                }
                Ok(out.finish()?)
            }
            TemplateExprKind::Compare(first, rest) => {
                let mut left = self.eval(first, scope)?;
                for (op, right) in rest {
                    let right = self.eval(right, scope)?;
                    if !compare(*op, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            TemplateExprKind::Cond { test, yes, no } => match (is_truthy(&self.eval(test, scope)?), no) {
                (true, _) => self.eval(yes, scope),
                (false, Some(no)) => self.eval(no, scope),
                (false, None) => {
                    Ok(undefined("the inline if-expression evaluated to false and no else section was defined.")?)
                }
            },
            TemplateExprKind::Slice(of, parts) => {
                let of = self.eval(of, scope)?;
                let mut bounds = [None; 3];
                for (bound, part) in bounds.iter_mut().zip(parts) {
                    let Some(part) = part else { continue };
                    *bound = match self.eval(part, scope)? {
                        Value::None => None,
                        n => Some(int(&n).map_err(|_| "slice indices must be integers or None".to_string())?),
                    };
                }
                Ok(slice(&of, bounds)?)
            }
            _ => Ok(Value::None),
        }
    }

    fn args(&mut self, args: &ast::CallArgs, scope: &Rc<Scope>) -> EvalResult<EvaluatedArgs> {
        let mut positional = Vec::with_capacity(args.positional.len());
        for arg in &args.positional {
            positional.push(self.eval(arg, scope)?);
        }
        let mut named = Vec::with_capacity(args.named.len());
        for (name, arg) in &args.named {
            named.push((name.clone(), self.eval(arg, scope)?));
        }
        if let Some(star) = &args.star {
            let all = self.eval(star, scope)?;
            positional.extend(items(&all)?);
        }
        if let Some(stars) = &args.stars {
            let Value::Dict(dict) = self.eval(stars, scope)? else {
                return Err("argument after ** must be a mapping".to_string().into());
            };
            for (key, value) in &dict.entries {
                let Value::Str(key) = key else { return Err("keywords must be strings".to_string().into()) };
                use_steps(named.len() as u64 / 8)?;
                if named.iter().any(|(name, _)| **name == **key) {
                    return Err(format!("got multiple values for keyword argument '{}'", &**key).into());
                }
                named.push(((&**key).into(), value.clone()));
            }
        }
        Ok(EvaluatedArgs { positional, named })
    }

    fn call(
        &mut self,
        callee: &Expr,
        args: &ast::CallArgs,
        caller: Option<Value>,
        scope: &Rc<Scope>,
    ) -> EvalResult<Value> {
        let _level = enter_level()?;
        // A method that is called directly needs no bound value.
        let (value, method) = match &callee.kind {
            TemplateExprKind::Attr(of, name) => match self.eval(of, scope)? {
                Value::Loop(of) => (self.loop_attribute(&of, name)?, None),
                of => match method(&of, name, METHODS) {
                    Some(name) => (of, Some(name)),
                    None => (attribute(&of, name, true)?, None),
                },
            },
            _ => (self.eval(callee, scope)?, None),
        };
        let mut args = self.args(args, scope)?;
        args.named.extend(caller.map(|caller| ("caller".into(), caller)));
        match (method, &value) {
            (Some(method), _) => Ok(super::methods::call(&value, method, &args)?),
            (None, Value::Macro(m)) => self.call_macro(m, args),
            (None, Value::Function(function)) => self.call_function(*function, &args),
            (None, Value::Method(method)) => match &method.0 {
                Value::Loop(of) => self.loop_method(of, method.1, &args),
                of => Ok(super::methods::call(of, method.1, &args)?),
            },
            (None, Value::Loop(of)) if of.def.recursive => {
                let [all] = args.bind("loop", ["iterable"])?;
                let (def, scope) = (of.def.clone(), of.scope.clone());
                let all = all.ok_or_else(|| "loop() takes an iterable".to_string())?;
                self.loop_recursive(&def, &all, &scope, of.depth + 1)
            }
            (None, Value::Loop(_)) => {
                Err("The loop must have the 'recursive' marker to be called recursively.".to_string().into())
            }
            (None, Value::Undefined(why)) => Err(why.to_string().into()),
            (None, other) => Err(format!("'{}' object is not callable", type_name(other)).into()),
        }
    }

    fn loop_method(&mut self, of: &LoopContext, name: &str, args: &EvaluatedArgs) -> EvalResult<Value> {
        let mut progress = of.state.borrow_mut();
        if name == "cycle" {
            let at = usize::try_from(progress.index).unwrap_or(0).checked_rem(args.positional.len());
            let at = at.ok_or_else(|| "no items for cycling given".to_string())?;
            return Ok(args.positional[at].clone());
        }
        let now = tuple(args.positional.clone())?;
        let same = match &progress.changed {
            Some(before) => equal(before, &now)?,
            None => false,
        };
        progress.changed = Some(now);
        Ok(Value::Bool(!same))
    }

    fn call_macro(&mut self, called: &Rc<Macro>, mut args: EvaluatedArgs) -> EvalResult<Value> {
        let _level = enter_level()?;
        let def = &called.def;
        let title = def.name.as_deref().unwrap_or("caller");
        let scope = Scope::child(&called.scope);
        let given = def.params.len().min(args.positional.len());
        let rest = args.positional.split_off(given);
        let mut named = args.named;
        let mut take = |name: &str| named.iter().position(|(known, _)| **known == *name).map(|at| named.remove(at).1);
        let mut values: Vec<Option<Value>> = args.positional.into_iter().map(Some).collect();
        values.extend(def.params[given..].iter().map(|(name, _)| take(name)));
        let explicit = def.params.iter().any(|(name, _)| &**name == "caller");
        if def.named[0] && !explicit {
            let caller = take("caller").map_or_else(|| undefined("No caller defined"), Ok)?;
            scope.set(&"caller".into(), caller)?;
        }
        if def.named[1] && !def.params.iter().any(|(name, _)| &**name == "kwargs") {
            let all = named.drain(..).map(|(name, value)| Ok((text(&*name)?, value)));
            let all = all.collect::<Text<_>>()?;
            scope.set(&"kwargs".into(), Value::Dict(Dict::of_unique(all)?))?;
        } else if let Some((name, _)) = named.first() {
            return Err(format!("macro '{title}' takes no keyword argument '{name}'").into());
        }
        if def.named[2] && !def.params.iter().any(|(name, _)| &**name == "varargs") {
            scope.set(&"varargs".into(), tuple(rest)?)?;
        } else if !rest.is_empty() {
            return Err(format!("macro '{title}' takes not more than {} argument(s)", def.params.len()).into());
        }
        for ((name, default), value) in def.params.iter().zip(values) {
            let value = match (value, default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default, &scope)?,
                (None, None) => undefined(format!("parameter '{name}' was not provided"))?,
            };
            scope.set(name, value)?;
        }
        Ok(self.capture(|m| m.body(&def.body, &scope))?.0)
    }

    fn call_function(&mut self, function: BuiltinFunction, args: &EvaluatedArgs) -> EvalResult<Value> {
        match function {
            BuiltinFunction::Range => Ok(range(args)?),
            BuiltinFunction::Dict => Ok(Value::Dict(Dict::new(entries(args)?)?)),
            BuiltinFunction::Namespace => {
                let scope = Rc::new(Scope::default());
                for (name, value) in entries(args)? {
                    let name = string(&name)?;
                    check_attribute(&name)?;
                    self.charge.grow(64)?;
                    scope.set(&(&*name).into(), value)?;
                }
                self.register(&scope)?;
                Ok(Value::Namespace(scope))
            }
            BuiltinFunction::RaiseException => {
                let [message] = args.bind("raise_exception", ["message"])?;
                Err(message
                    .map_or(Ok("the template refuses these messages".into()), |m| string(&m).map(|m| m.to_string()))?
                    .into())
            }
            BuiltinFunction::StrftimeNow => {
                let [format] = args.bind("strftime_now", ["format"])?;
                let format = string(&format.ok_or_else(|| "strftime_now needs a format".to_string())?)?;
                super::budget::check_size(format.len(), 8)?;
                Ok(text(super::date::now(&format))?)
            }
        }
    }
}

fn check_attribute(name: &str) -> Text<()> {
    match name.starts_with('_') {
        true => Err(format!("a namespace can't have the attribute '{name}': it begins with an underscore")),
        false => Ok(()),
    }
}

/// Keys and values of `dict(..)`.
fn entries(args: &EvaluatedArgs) -> Text<Vec<(Value, Value)>> {
    let mut all = Vec::new();
    match args.positional.as_slice() {
        [] => {}
        [Value::Dict(dict)] => all.extend(dict.entries.iter().cloned()),
        [pairs] => {
            for pair in items(pairs)? {
                match <[Value; 2]>::try_from(items(&pair)?) {
                    Ok([key, value]) => all.push((key, value)),
                    Err(_) => return Err("dictionary update sequence needs pairs".into()),
                }
            }
        }
        _ => return Err("dict expected at most 1 argument".into()),
    }
    for (name, value) in &args.named {
        all.push((text(&**name)?, value.clone()));
    }
    Ok(all)
}

/// Maximum length of a range, as in Jinja's sandbox.
const MAX_RANGE: u64 = 100_000;

fn range(args: &EvaluatedArgs) -> Text<Value> {
    if !args.named.is_empty() {
        return Err("range() takes no keyword arguments".into());
    }
    let all = args.positional.iter().map(int).collect::<Text<Vec<_>>>()?;
    let (start, stop, by) = match *all.as_slice() {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, by] => (start, stop, by),
        _ => return Err(format!("range expected 1 to 3 arguments, got {}", all.len())),
    };
    if by == 0 {
        return Err("range() arg 3 must not be zero".into());
    }
    let len = match by > 0 {
        true if start < stop => start.abs_diff(stop).div_ceil(by.unsigned_abs()),
        false if start > stop => start.abs_diff(stop).div_ceil(by.unsigned_abs()),
        _ => 0,
    };
    if len > MAX_RANGE {
        return Err(format!("a range has more than {MAX_RANGE} numbers, which is the limit"));
    }
    Ok(Value::Range(Rc::new(Range { start, stop, step: by, len: len as usize })))
}
