//! The scope of a module that is lowered: constants with their values, tensors, instances.

use super::checkpoint::SaveLists;
use super::rope_table::RopeTable;
use super::{Result, constraints, fail};
use crate::ast::{DimExpr, Expr, IoTensor, LetItem, Param, TypeExpr, TypeKind};
use crate::consteval::{ConstValue as Const, EvalErrorKind, NameResolver, Ternary, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ItemRef, ModuleView};
use crate::span::Span;
use ir::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The meaning of a name.
#[derive(Clone, Debug)]
pub(super) enum FrameEntry {
    Tensor(Value),
    /// A table of rotary embeddings, built when the number of positions is known.
    Table(Rc<RopeTable>),
    Instance(Rc<LoweredInstance>),
    Array(Vec<Rc<LoweredInstance>>),
    /// A number of blocks whose tensors are stacked along a first axis.
    Stack(usize, Rc<LoweredInstance>),
    /// An optional parameter or input that is absent.
    Absent,
}

/// A module with values of its constants and declared parameters.
#[derive(Clone, Debug)]
pub(super) struct LoweredInstance {
    pub(super) item: ItemRef,
    pub(super) given: BTreeMap<String, Const>,
    pub(super) entries: BTreeMap<String, FrameEntry>,
    /// The path of the instance, such as `blocks[3].attention`.
    pub(super) path: String,
}

/// The names in one module.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleFrame {
    pub(super) file: usize,
    pub(super) constants: BTreeMap<String, Const>,
    /// The dimensions that `*` represents.
    pub(super) variadic_dims: Option<Vec<usize>>,
    pub(super) entries: BTreeMap<String, FrameEntry>,
    /// The save and recompute lists of the module.
    pub(super) lists: SaveLists,
    /// The path of the instance; none for a module that is called with its weights.
    pub(super) path: Option<String>,
    /// The declaration.
    pub(super) item: Option<ItemRef>,
    /// Constants that depend on the number of positions, in decoding; whether they are equal to it.
    pub(super) position_dependent: BTreeMap<String, bool>,
}

impl NameResolver for ModuleFrame {
    fn value(&self, name: &str) -> Option<Const> {
        self.constants.get(name).cloned()
    }

    fn is_tensor(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    fn is_present(&self, name: &str) -> Option<bool> {
        self.entries.get(name).map(|entry| !matches!(entry, FrameEntry::Absent))
    }

    fn assumed_truth(&self, _condition: &str) -> Option<bool> {
        None
    }
}

impl ModuleFrame {
    pub(super) fn new(file: usize, constants: BTreeMap<String, Const>) -> ModuleFrame {
        ModuleFrame { file, constants, ..ModuleFrame::default() }
    }

    /// Evaluates a constant expression.
    pub(super) fn constant(&self, expr: &Expr) -> Result<Const> {
        match eval(expr, self) {
            Ok(Const::Unknown) => fail(Code::E003, expr.span, "a value is not known", "cannot be computed"),
            Ok(value) => Ok(value),
            Err(error) => {
                let (code, message) = match error.kind {
                    EvalErrorKind::Undefined(name) => (Code::E002, format!("no value named `{name}`")),
                    EvalErrorKind::Runtime(name) => (Code::E003, format!("`{name}` is a tensor, not a constant")),
                    EvalErrorKind::Type(words) => (Code::E003, words),
                    EvalErrorKind::ZeroDivision => (Code::E003, "division by zero".to_string()),
                    EvalErrorKind::NotAFunction(name) => {
                        (Code::E003, format!("`{name}` is not a function of constants"))
                    }
                };
                fail(code, error.span, message, "")
            }
        }
    }

    pub(super) fn condition(&self, expr: &Expr) -> Result<bool> {
        match self.constant(expr)? {
            Const::Bool(Ternary::Known(value)) => Ok(value),
            other => fail(Code::E016, expr.span, "expected a condition", format!("this is {other}")),
        }
    }

    /// Evaluates a size to a number.
    pub(super) fn size(&self, expr: &Expr) -> Result<usize> {
        let value = self.constant(expr)?;
        match value.as_int().map(usize::try_from) {
            Some(Ok(size)) => Ok(size),
            _ => fail(Code::E003, expr.span, "a size must be a non-negative number", format!("this is {value}")),
        }
    }

    /// Binds the defaults of parameters without arguments (E012 if there is none).
    pub(super) fn defaults(&mut self, view: &ModuleView<'_>, at: Span) -> Result<()> {
        for word in view.words() {
            self.constants.entry(word.to_string()).or_insert_with(|| Const::Identifier(word.to_string()));
        }
        for param in &view.header {
            let Param::Named { name, default, .. } = param else {
                continue;
            };
            if self.constants.contains_key(&name.name) {
                continue;
            }
            let Some(default) = default else {
                let owner = &view.decl.name.name;
                let missing = Diagnostic::new(Code::E012, at, format!("`{owner}` needs `{}`", name.name))
                    .with_label("missing, and nothing determines it")
                    .with_secondary(name.span, "declared here");
                return Err(Box::new(missing));
            };
            let value = match default.as_name() {
                Some(word) if self.value(word).is_none() => Const::Identifier(word.to_string()),
                _ => self.constant(default)?,
            };
            self.mark_position_dependent(&name.name, default);
            self.constants.insert(name.name.clone(), value);
        }
        Ok(())
    }

    /// Evaluates `let:`. Before the inputs are known, bindings that depend on their sizes are deferred to the second call (`last`).
    pub(super) fn eval_lets(&mut self, view: &ModuleView<'_>, last: bool) -> Result<()> {
        for item in &view.lets {
            if let LetItem::Bind { name, value } = item {
                match self.constant(value) {
                    Ok(found) => {
                        fits_32_bits(&name.name, &found, value.span)?;
                        self.mark_position_dependent(&name.name, value);
                        self.constants.insert(name.name.clone(), found);
                    }
                    // A size of an input is not known yet; other errors would also occur in the second call.
                    Err(found) if last || found.code != Code::E002 => return Err(found),
                    Err(_) => {}
                }
            }
        }
        for (condition, message) in constraints(view) {
            if matches!(eval(condition, self), Ok(Const::Bool(Ternary::Known(false)))) {
                let message = format!("{message}{}", self.parameter_values_text(view, condition));
                return fail(Code::E027, condition.span, message, "is violated by these sizes");
            }
        }
        Ok(())
    }

    /// The values of the parameters in a condition, for messages.
    fn parameter_values_text(&self, view: &ModuleView<'_>, condition: &Expr) -> String {
        let (mut open, mut seen) = (vec![condition], BTreeMap::new());
        while let Some(expr) = open.pop() {
            for name in crate::template::names(expr) {
                let (Some(value), None) = (self.constants.get(name), seen.get(name)) else { continue };
                let bound = view.lets.iter().find_map(|item| match item {
                    LetItem::Bind { name: own, value } if own.name == name => Some(value),
                    _ => None,
                });
                open.extend(bound);
                seen.insert(name, bound.is_none().then(|| format!("{name} is {value}")));
            }
        }
        let given: Vec<String> = seen.into_values().flatten().collect();
        if given.is_empty() { given.concat() } else { format!(" ({})", given.join(", ")) }
    }

    /// Records whether a constant depends on the number of positions.
    fn mark_position_dependent(&mut self, name: &str, value: &Expr) {
        let mut found = BTreeMap::new();
        self.propagate_position_dependence(value, name, &mut found);
        self.position_dependent.extend(found);
    }

    /// The shape of a tensor type with the known constants.
    pub(super) fn shape(&self, ty: &TypeExpr) -> Result<Vec<usize>> {
        let dims = match &ty.kind {
            TypeKind::Tensor { dims, .. } => dims,
            TypeKind::Optional(inner) => return self.shape(inner),
            TypeKind::Named { path, args: None } if path.to_string() == "scalar" => return Ok(Vec::new()),
            _ => return fail(Code::E003, ty.span, "expected the type of a tensor", ""),
        };
        let mut shape = Vec::new();
        for dim in dims {
            match dim {
                DimExpr::Size(expr) => shape.push(self.size(expr)?),
                DimExpr::Variadic(span) => match &self.variadic_dims {
                    Some(lead) => shape.extend(lead),
                    None => return fail(Code::E003, *span, "`*` has no meaning here", "nothing determines it"),
                },
                DimExpr::Elided(span) => return fail(Code::L001, *span, "a shape left out with `...`", ""),
            }
        }
        Ok(shape)
    }

    /// Infers sizes from a tensor: unbound names are bound to the size of their axis.
    pub(super) fn infer_sizes(&mut self, ty: &TypeExpr, shape: &[usize]) {
        let dims = match &ty.kind {
            TypeKind::Tensor { dims, .. } => dims,
            TypeKind::Optional(inner) => return self.infer_sizes(inner, shape),
            _ => return,
        };
        let (skip, dims) = match dims.first() {
            Some(DimExpr::Variadic(_)) => {
                let skip = shape.len().saturating_sub(dims.len() - 1);
                self.variadic_dims.get_or_insert_with(|| shape[..skip].to_vec());
                (skip, &dims[1..])
            }
            _ => (0, &dims[..]),
        };
        for (dim, size) in dims.iter().zip(&shape[skip..]) {
            if let DimExpr::Size(expr) = dim
                && let Some(name) = expr.as_name()
                && !self.constants.contains_key(name)
            {
                self.constants.insert(name.to_string(), Const::int(*size as i64));
            }
        }
    }

    /// Checks that a tensor has its declared shape (E004).
    pub(super) fn check_shape(&self, name: &str, ty: &TypeExpr, shape: &[usize], at: Span) -> Result<()> {
        if matches!(ty.kind, TypeKind::Tuple(_) | TypeKind::Each { .. } | TypeKind::Named { .. }) {
            return Ok(());
        }
        let want = self.shape(ty)?;
        if want == shape {
            return Ok(());
        }
        let found = Diagnostic::new(Code::E004, at, format!("`{name}` does not have its declared shape"))
            .with_label(format!("this is {shape:?}"))
            .with_secondary(ty.span, format!("declared as {want:?}"));
        Err(Box::new(found))
    }
}

/// Checks that an `int` fits into 32 bits (§3.1).
pub(super) fn fits_32_bits(name: &str, value: &Const, span: Span) -> Result<()> {
    match value.as_int() {
        Some(n) if i32::try_from(n).is_err() => {
            fail(Code::E003, span, format!("`{name}` does not fit in 32 bits"), format!("this is {n}"))
        }
        _ => Ok(()),
    }
}

/// The name of an input or output.
pub(super) fn io_name(tensor: &IoTensor, default: &str) -> String {
    tensor.name.as_ref().map_or(default, |name| &name.name).to_string()
}
