//! The scope of a declaration under check: constants, dimensions, and types that use them.

use super::types::{Shape, TensorType};
use crate::ast::{DimExpr, Expr, ExprKind, IoTensor, LetItem, Param, TypeExpr, TypeKind};
use crate::consteval::{ConstValue, EvalError, EvalErrorKind, INDEX, INTRINSICS, NameResolver, Ternary, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::{Dim, Symbol};
use crate::resolve::ModuleView;
use crate::suggest::closest;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Parameters are ordered after the dimensions in shapes, so that sizes print as `B·T·d_model`.
const PARAMETER_RANK: u32 = 1 << 16;

/// Constants and dimensions of a declaration. Scope 0 is the one under check, whose symbols represent any size; other scopes
/// belong to calls, whose symbols are solved for.
#[derive(Clone, Debug)]
pub(super) struct ConstantScope {
    pub(super) id: u32,
    constants: BTreeMap<String, ConstValue>,
    symbols: BTreeMap<String, Symbol>,
    dimensions: u32,
    pub(super) tensors: BTreeSet<String>,
    pub(super) assumptions: BTreeMap<String, bool>,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// A condition that must be decided before shapes are known.
    pub(super) undecided: RefCell<Option<String>>,
}

impl NameResolver for ConstantScope {
    fn value(&self, name: &str) -> Option<ConstValue> {
        let symbol = || self.symbols.get(name).map(|symbol| ConstValue::Int(Dim::symbol(symbol.clone())));
        self.constants.get(name).cloned().or_else(symbol)
    }

    fn is_tensor(&self, name: &str) -> bool {
        self.tensors.contains(name)
    }

    fn assumed_truth(&self, condition: &str) -> Option<bool> {
        self.assumptions.get(condition).copied()
    }

    fn request_decision(&self, condition: &str) {
        self.undecided.borrow_mut().get_or_insert_with(|| condition.to_string());
    }
}

impl ConstantScope {
    pub(super) fn empty(id: u32) -> ConstantScope {
        ConstantScope {
            id,
            constants: BTreeMap::new(),
            symbols: BTreeMap::new(),
            dimensions: 0,
            tensors: BTreeSet::new(),
            assumptions: BTreeMap::new(),
            diagnostics: Vec::new(),
            undecided: RefCell::new(None),
        }
    }

    /// An empty scope with constants.
    pub(super) fn with_constants(id: u32, constants: BTreeMap<String, ConstValue>) -> ConstantScope {
        ConstantScope { constants, ..ConstantScope::empty(id) }
    }

    /// The scope of a declaration with some arguments; the other parameters are symbols.
    pub(super) fn for_module(
        view: &ModuleView<'_>,
        id: u32,
        given: BTreeMap<String, ConstValue>,
        assumptions: BTreeMap<String, bool>,
    ) -> ConstantScope {
        let mut scope = ConstantScope { constants: given, assumptions, ..ConstantScope::empty(id) };
        for word in view.words() {
            scope.constants.entry(word.to_string()).or_insert_with(|| ConstValue::Identifier(word.to_string()));
        }
        for param in &view.header {
            let Param::Named { name, ty, default, .. } = param else {
                continue;
            };
            if scope.constants.contains_key(&name.name) {
                continue;
            }
            let value = scope.symbolic_value(&name.name, ty.as_ref(), default.as_ref());
            scope.constants.insert(name.name.clone(), value);
        }
        scope.tensors.extend(view.params.iter().filter_map(|entry| entry.path.as_name()).map(|n| n.name.clone()));
        scope.tensors.extend(view.constants.iter().map(|entry| entry.name.name.clone()));
        let io = view.forward.inputs.iter().chain(&view.forward.outputs);
        scope.tensors.extend(io.filter_map(|t| t.name.as_ref()).map(|name| name.name.clone()));
        scope.tensors.extend(["in".to_string(), "out".to_string()]);
        for item in &view.lets {
            match item {
                LetItem::Bind { name, value: expr } => {
                    let mut value = scope.constant(expr);
                    if let Some(n) = value.as_int().filter(|n| i32::try_from(*n).is_err()) {
                        let message = format!("`{}` does not fit in 32 bits", name.name);
                        let found = Diagnostic::new(Code::E003, expr.span, message).with_label(format!("this is {n}"));
                        scope.diagnostics.push(found.with_hint("the largest int is 2147483647"));
                        value = ConstValue::Unknown;
                    }
                    scope.constants.insert(name.name.clone(), value);
                }
                LetItem::Dim { name, role } => {
                    const ROLES: &[&str] = &["batch_dim", "seq_dim"];
                    if !ROLES.contains(&role.name.as_str()) {
                        let message = format!("unknown dimension role `{}`", role.name);
                        let label = format!("known are {}", ROLES.join(", "));
                        let mut found = Diagnostic::new(Code::E002, role.span, message).with_label(label);
                        if let Some(close) = closest(&role.name, ROLES.iter().copied()) {
                            found = found.with_hint(format!("did you mean `{close}`?"));
                        }
                        scope.diagnostics.push(found);
                    }
                    scope.declare_dimension(&name.name);
                }
                LetItem::Constraints(..) => {}
            }
        }
        scope
    }

    /// The symbolic value of a parameter without an argument.
    fn symbolic_value(&mut self, name: &str, ty: Option<&TypeExpr>, default: Option<&Expr>) -> ConstValue {
        let word = match ty.map(|ty| &ty.kind) {
            Some(TypeKind::Named { path, args: None }) => path.as_name().map(|name| name.name.as_str()),
            Some(_) => Some("other"),
            None => match default.map(|expr| &expr.peel().kind) {
                Some(ExprKind::Bool(_)) => Some("bool"),
                Some(ExprKind::Float(_)) => Some("float"),
                Some(ExprKind::Int(_)) | None => Some("int"),
                Some(_) => Some("other"),
            },
        };
        match word {
            Some("int") => {
                let rank = PARAMETER_RANK + self.symbols.len() as u32;
                let symbol = Symbol { scope: self.id, rank, name: name.into() };
                self.symbols.insert(name.to_string(), symbol.clone());
                ConstValue::Int(Dim::symbol(symbol))
            }
            Some("float") => ConstValue::Float(None),
            Some("bool") => ConstValue::Bool(Ternary::Undecided(name.to_string())),
            _ => ConstValue::Unknown,
        }
    }

    /// A dimension that occurs only in shapes, such as `B`; it has the same symbol in all of them.
    pub(super) fn declare_dimension(&mut self, name: &str) -> Symbol {
        if let Some(symbol) = self.symbols.get(name) {
            return symbol.clone();
        }
        let symbol = Symbol { scope: self.id, rank: self.dimensions, name: name.into() };
        self.dimensions += 1;
        self.symbols.insert(name.to_string(), symbol.clone());
        symbol
    }

    /// Enters an array's element, whose index is arbitrary.
    pub(super) fn enter_array(&mut self) {
        let index = self.declare_dimension(INDEX);
        self.constants.insert(INDEX.to_string(), ConstValue::Int(Dim::symbol(index)));
    }

    pub(super) fn leave_array(&mut self) {
        self.constants.remove(INDEX);
        self.symbols.remove(INDEX);
    }

    /// The symbol of a name, if it has one.
    pub(super) fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.symbols.get(name)
    }

    /// The number of dimensions introduced by shapes so far.
    pub(super) fn dimension_count(&self) -> u32 {
        self.dimensions
    }

    /// Whether a dimension was introduced after the first `count` ones.
    pub(super) fn named_since(&self, symbol: &Symbol, count: u32) -> bool {
        (count..PARAMETER_RANK).contains(&symbol.rank)
    }

    pub(super) fn has_constant(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Evaluates a constant expression; a failure is reported and gives an unknown value.
    pub(super) fn constant(&mut self, expr: &Expr) -> ConstValue {
        match eval(expr, self) {
            Ok(value) => value,
            Err(error) => {
                let found = self.eval_diagnostic(error, Code::E003);
                self.diagnostics.push(found);
                ConstValue::Unknown
            }
        }
    }

    /// Converts a failed evaluation to a diagnostic; `code` is for errors other than an undefined name.
    pub(super) fn eval_diagnostic(&self, error: EvalError, code: Code) -> Diagnostic {
        match error.kind {
            EvalErrorKind::Undefined(name) => {
                let mut found = Diagnostic::new(Code::E002, error.span, format!("no value named `{name}`"))
                    .with_label("not a parameter, not bound by `let`");
                let known = self.constants.keys().chain(self.symbols.keys());
                if let Some(close) = closest(&name, known.map(|s| &**s)) {
                    found = found.with_hint(format!("did you mean `{close}`?"));
                }
                found
            }
            EvalErrorKind::Runtime(name) => Diagnostic::new(code, error.span, "not known at compile time")
                .with_label(format!("`{name}` is a tensor"))
                .with_hint("use a parameter or a `let` binding instead"),
            EvalErrorKind::Type(words) => Diagnostic::new(code, error.span, words),
            EvalErrorKind::ZeroDivision => Diagnostic::new(code, error.span, "division by zero"),
            EvalErrorKind::NotAFunction(name) => {
                Diagnostic::new(code, error.span, format!("`{name}` is not a function of constants"))
                    .with_hint(format!("constants may use {}", INTRINSICS.join(", ")))
            }
        }
    }

    /// A dimension. Undefined names introduce new dimensions, unless they look misspelled.
    pub(super) fn dim(&mut self, expr: &Expr) -> Option<Dim> {
        self.introduce_dims(expr);
        match self.constant(expr) {
            ConstValue::Int(dim) => Some(dim),
            ConstValue::Unknown => None,
            other => {
                self.diagnostics.push(
                    Diagnostic::new(Code::E003, expr.span, format!("a size must be an int, found {}", other.kind()))
                        .with_label(format!("this is {other}")),
                );
                None
            }
        }
    }

    fn introduce_dims(&mut self, expr: &Expr) {
        if let ExprKind::Name(name) = &expr.kind {
            let slip = name.starts_with(|c: char| c.is_ascii_lowercase())
                && closest(name, self.constants.keys().map(|s| &**s)).is_some();
            if !self.has_constant(name) && !slip {
                self.declare_dimension(name);
            }
        }
        for child in expr.children() {
            if !matches!(&expr.kind, ExprKind::Call(callee, _) if std::ptr::eq(&**callee, child)) {
                self.introduce_dims(child);
            }
        }
    }

    /// The type of a tensor; `None` for other types and where parts are omitted.
    pub(super) fn tensor(&mut self, ty: &TypeExpr) -> Option<TensorType> {
        match &ty.kind {
            TypeKind::Tensor { dims, dtype, .. } => {
                let mut shape = Some(Shape::fixed(Vec::new()));
                for (index, dim) in dims.iter().enumerate() {
                    match dim {
                        DimExpr::Variadic(span) => {
                            if index > 0 {
                                self.diagnostics.push(
                                    Diagnostic::new(Code::E003, *span, "`*` must come first")
                                        .with_label("it stands for the leading dimensions"),
                                );
                            }
                            let lead = self.declare_dimension("*");
                            if let Some(shape) = &mut shape {
                                shape.variadic = Some(lead);
                            }
                        }
                        DimExpr::Elided(_) => shape = None,
                        DimExpr::Size(expr) => match (self.dim(expr), &mut shape) {
                            (Some(dim), Some(shape)) => shape.dims.push(dim),
                            _ => shape = None,
                        },
                    }
                }
                Some(TensorType { shape, dtype: dtype.as_ref().map(|name| name.name.clone()) })
            }
            TypeKind::Optional(inner) => self.tensor(inner),
            TypeKind::Named { path, args: None } if path.as_name().is_some_and(|n| n.name == "scalar") => {
                Some(TensorType::of(Shape::fixed(Vec::new())))
            }
            _ => None,
        }
    }

    /// The type of an input or output; unknown if it has none.
    pub(super) fn io_tensor(&mut self, tensor: &IoTensor) -> TensorType {
        tensor.ty.as_ref().and_then(|ty| self.tensor(ty)).unwrap_or_default()
    }
}
