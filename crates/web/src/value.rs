//! Values on their way between JavaScript and Rust.

use crate::objects::{Object, find, hold};
use ir::ops::ReduceKind;
use std::cell::RefCell;
use std::rc::Rc;
use tensorloom::fft::Complex;
use tensorloom::optim::{Betas, GradientTransformation, Schedule};
use tensorloom::{DType, Literal, Number, Operand, ReduceAxes, Tensor, Type, engine, fft, lax, linalg, nn, np};

/// A value of JavaScript.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    None,
    Number(f64),
    Bool(bool),
    Handle(u32),
    List(Vec<Value>),
    Text(String),
    Pairs(Vec<(String, Value)>),
}

type Taken<T> = Result<T, String>;

/// An error as text.
pub(crate) fn fault(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Reads a value and moves on.
pub(crate) fn read(words: &[f64], at: &mut usize) -> Taken<Value> {
    let short = || "a message ended early".to_string();
    let mut next = || {
        let w = words.get(*at).copied().ok_or_else(short);
        *at += 1;
        w
    };
    Ok(match next()? as u32 {
        0 => Value::None,
        1 => Value::Number(next()?),
        2 => Value::Bool(next()? != 0.0),
        3 => Value::Handle(next()? as u32),
        4 => {
            let n = next()? as usize;
            Value::List((0..n).map(|_| read(words, at)).collect::<Taken<_>>()?)
        }
        5 => Value::Text(chars(words, at)?),
        6 => {
            let n = next()? as usize;
            let pairs = (0..n).map(|_| {
                let key = chars(words, at)?;
                Ok((key, read(words, at)?))
            });
            Value::Pairs(pairs.collect::<Taken<_>>()?)
        }
        tag => return Err(format!("a message has the tag {tag}")),
    })
}

fn chars(words: &[f64], at: &mut usize) -> Taken<String> {
    let short = || "a message ended early".to_string();
    let n = *words.get(*at).ok_or_else(short)? as usize;
    let units = words.get(*at + 1..*at + 1 + n).ok_or_else(short)?;
    *at += 1 + n;
    Ok(String::from_utf16_lossy(&units.iter().map(|u| *u as u16).collect::<Vec<_>>()))
}

/// Something that an argument may be.
pub(crate) trait Take: Sized {
    fn taken(v: &Value) -> Taken<Self>;
}

/// The n-th argument.
pub(crate) fn take<T: Take>(args: &[Value], n: usize) -> Taken<T> {
    T::taken(args.get(n).unwrap_or(&Value::None)).map_err(|e| format!("argument {}: {e}", n + 1))
}

fn expected<T>(what: &str, v: &Value) -> Taken<T> {
    Err(match v {
        Value::None => format!("expected {what}, but it is missing"),
        Value::Number(x) => format!("expected {what}, got {x}"),
        Value::Bool(x) => format!("expected {what}, got {x}"),
        Value::Text(x) => format!("expected {what}, got \"{x}\""),
        Value::List(_) => format!("expected {what}, got a list"),
        Value::Handle(_) => format!("expected {what}, got a tensor or another object"),
        Value::Pairs(_) => format!("expected {what}, got an object"),
    })
}

impl Take for f64 {
    fn taken(v: &Value) -> Taken<f64> {
        match v {
            Value::Number(x) => Ok(*x),
            Value::Bool(x) => Ok(f64::from(*x)),
            Value::Handle(h) => crate::objects::tensor(*h)?.cast(DType::F64).item::<f64>().map_err(fault),
            v => expected("a number", v),
        }
    }
}

impl Take for i64 {
    fn taken(v: &Value) -> Taken<i64> {
        match <f64 as Take>::taken(v)? {
            x if x.fract() == 0.0 && x.abs() < 9e15 => Ok(x as i64),
            x => Err(format!("expected an integer, got {x}")),
        }
    }
}

impl Take for usize {
    fn taken(v: &Value) -> Taken<usize> {
        let x = <i64 as Take>::taken(v)?;
        usize::try_from(x).map_err(|_| format!("expected a size, got {x}"))
    }
}

impl Take for bool {
    fn taken(v: &Value) -> Taken<bool> {
        match v {
            Value::None => Ok(false),
            Value::Bool(x) => Ok(*x),
            Value::Number(x) => Ok(*x != 0.0),
            v => expected("true or false", v),
        }
    }
}

impl Take for String {
    fn taken(v: &Value) -> Taken<String> {
        match v {
            Value::Text(x) => Ok(x.clone()),
            v => expected("a text", v),
        }
    }
}

impl Take for DType {
    fn taken(v: &Value) -> Taken<DType> {
        match v {
            Value::None => Ok(DType::F32),
            Value::Text(name) => dtype(name).ok_or_else(|| format!("there is no dtype \"{name}\"; float32 is one")),
            v => expected("the name of a dtype", v),
        }
    }
}

/// A dtype by NumPy's name, or ours.
pub(crate) fn dtype(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|d| name == d.name() || name == numpy_name(*d))
}

/// NumPy's name of a dtype.
pub(crate) fn numpy_name(d: DType) -> &'static str {
    match d {
        DType::Bool => "bool",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::F8E4M3 => "float8_e4m3fn",
        DType::F8E5M2 => "float8_e5m2",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
    }
}

impl Take for Number {
    fn taken(v: &Value) -> Taken<Number> {
        match v {
            Value::Number(x) if x.fract() == 0.0 && x.abs() < 9e15 && !(*x == 0.0 && x.is_sign_negative()) => {
                Ok(Number::Int(*x as i64))
            }
            Value::Number(x) => Ok(Number::Float(*x)),
            Value::Bool(x) => Ok(Number::Int(i64::from(*x))),
            v => expected("a number", v),
        }
    }
}

impl Take for Tensor {
    fn taken(v: &Value) -> Taken<Tensor> {
        match v {
            Value::Handle(h) => crate::objects::tensor(*h),
            Value::Number(_) => Ok(tensorloom::full((), <f64 as Take>::taken(v)?)),
            Value::Bool(x) => Ok(engine().tensor(&[*x], &[])),
            Value::List(_) => {
                let (mut shape, mut all) = (Vec::new(), Vec::new());
                nested(v, 0, &mut shape, &mut all)?;
                let bools = matches!(innermost(v), Value::Bool(_)) && !all.is_empty();
                let ty = Type::new(if bools { DType::Bool } else { DType::F32 }, &shape);
                let data = Literal::from_fn(ty.clone(), |i| ir::Scalar::from_f64(ty.dtype, all[i]));
                Ok(engine().literal(&data))
            }
            v => expected("a tensor, a number or a list of numbers", v),
        }
    }
}

fn innermost(v: &Value) -> &Value {
    match v {
        Value::List(l) if !l.is_empty() => innermost(&l[0]),
        v => v,
    }
}

fn nested(v: &Value, depth: usize, shape: &mut Vec<usize>, all: &mut Vec<f64>) -> Taken<()> {
    match v {
        Value::List(l) => {
            if shape.len() == depth {
                shape.push(l.len());
            }
            if shape[depth] != l.len() {
                return Err(format!("lists of {} and {} numbers side by side", shape[depth], l.len()));
            }
            l.iter().try_for_each(|v| nested(v, depth + 1, shape, all))
        }
        v if depth == shape.len() => {
            all.push(<f64 as Take>::taken(v)?);
            Ok(())
        }
        _ => Err("numbers and lists side by side".into()),
    }
}

impl Take for Operand {
    fn taken(v: &Value) -> Taken<Operand> {
        match v {
            Value::Number(_) | Value::Bool(_) => Ok(Operand::Number(<Number as Take>::taken(v)?)),
            v => Ok(Operand::Tensor(<Tensor as Take>::taken(v)?)),
        }
    }
}

impl<T: Take> Take for Option<T> {
    fn taken(v: &Value) -> Taken<Option<T>> {
        match v {
            Value::None => Ok(None),
            v => T::taken(v).map(Some),
        }
    }
}

impl<T: Take> Take for Vec<T> {
    fn taken(v: &Value) -> Taken<Vec<T>> {
        match v {
            Value::None => Ok(Vec::new()),
            Value::List(l) => l.iter().map(T::taken).collect(),
            // One stands for itself.
            v => Ok(vec![T::taken(v)?]),
        }
    }
}

impl<A: Take, B: Take> Take for (A, B) {
    fn taken(v: &Value) -> Taken<(A, B)> {
        match v {
            Value::List(l) if l.len() == 2 => Ok((A::taken(&l[0])?, B::taken(&l[1])?)),
            v => expected("two values", v),
        }
    }
}

impl Take for ReduceAxes {
    fn taken(v: &Value) -> Taken<ReduceAxes> {
        match v {
            Value::None => Ok(().into()),
            Value::List(_) => Ok(<Vec<i64> as Take>::taken(v)?.iter().map(|x| *x as isize).collect::<Vec<_>>().into()),
            v => Ok((<i64 as Take>::taken(v)? as isize).into()),
        }
    }
}

/// Two lists.
pub(crate) fn pair(both: &[Vec<usize>]) -> Taken<(&[usize], &[usize])> {
    match both {
        [a, b] => Ok((a, b)),
        _ => Err("expected two lists of axes".into()),
    }
}

impl Take for Schedule {
    fn taken(v: &Value) -> Taken<Schedule> {
        match v {
            Value::Handle(h) => match find(*h)? {
                Object::Schedule(s) => Ok(s),
                _ => Err("expected a schedule or a number".into()),
            },
            v => Ok(<f64 as Take>::taken(v)?.into()),
        }
    }
}

impl Take for GradientTransformation {
    /// A chain goes into another one whole.
    fn taken(v: &Value) -> Taken<GradientTransformation> {
        let Value::Handle(h) = v else { return expected("an optimiser", v) };
        match find(*h)? {
            Object::Chain(c) => c.borrow_mut().take().ok_or_else(|| "this optimiser is part of another one".into()),
            _ => Err("expected an optimiser".into()),
        }
    }
}

impl Take for Complex {
    fn taken(v: &Value) -> Taken<Complex> {
        match v {
            Value::Pairs(p) => {
                let part = |name: &str| {
                    let found = p.iter().find(|(k, _)| k == name).map(|(_, v)| v);
                    <Tensor as Take>::taken(found.unwrap_or(&Value::None))
                };
                Ok(Complex { re: part("re")?, im: part("im")? })
            }
            v => Ok((&<Tensor as Take>::taken(v)?).into()),
        }
    }
}

/// The fields of an object; others than those named are refused.
struct Fields<'a>(&'a [(String, Value)]);

impl<'a> Fields<'a> {
    fn of(v: &'a Value, known: &[&str]) -> Taken<Fields<'a>> {
        let pairs: &[(String, Value)] = match v {
            Value::None => &[],
            Value::Pairs(p) => p,
            v => return expected("an object of options", v),
        };
        match pairs.iter().find(|(k, _)| !known.contains(&k.as_str())) {
            Some((k, _)) => Err(format!("there is no option `{k}`; there are {}", known.join(", "))),
            None => Ok(Fields(pairs)),
        }
    }

    fn get<T: Take>(&self, name: &str) -> Taken<Option<T>> {
        let found = self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v);
        found.map_or(Ok(None), |v| <Option<T> as Take>::taken(v)).map_err(|e| format!("`{name}`: {e}"))
    }
}

impl Take for Betas {
    fn taken(v: &Value) -> Taken<Betas> {
        let f = Fields::of(v, &["b1", "b2", "eps", "epsRoot", "nesterov"])?;
        let d = Betas::default();
        Ok(Betas {
            b1: f.get("b1")?.unwrap_or(d.b1),
            b2: f.get("b2")?.unwrap_or(d.b2),
            eps: f.get("eps")?.unwrap_or(d.eps),
            eps_root: f.get("epsRoot")?.unwrap_or(d.eps_root),
            nesterov: f.get("nesterov")?.unwrap_or(d.nesterov),
        })
    }
}

impl Take for fft::Norm {
    fn taken(v: &Value) -> Taken<fft::Norm> {
        match v {
            Value::None => Ok(fft::Norm::Backward),
            Value::Text(t) if t == "backward" => Ok(fft::Norm::Backward),
            Value::Text(t) if t == "ortho" => Ok(fft::Norm::Ortho),
            Value::Text(t) if t == "forward" => Ok(fft::Norm::Forward),
            v => expected("backward, ortho or forward", v),
        }
    }
}

impl Take for linalg::Norm {
    fn taken(v: &Value) -> Taken<linalg::Norm> {
        match v {
            Value::None => Ok(linalg::Norm::Default),
            Value::Number(x) => Ok(linalg::Norm::P(*x)),
            Value::Text(t) if t == "fro" => Ok(linalg::Norm::Frobenius),
            Value::Text(t) if t == "nuc" => Ok(linalg::Norm::Nuclear),
            v => expected("a number, fro or nuc", v),
        }
    }
}

impl Take for nn::PoolOptions {
    fn taken(v: &Value) -> Taken<nn::PoolOptions> {
        if let Value::Number(_) = v {
            return Ok(nn::PoolOptions::of(<usize as Take>::taken(v)?));
        }
        let f = Fields::of(v, &["window", "stride", "padding"])?;
        let window = f.get("window")?.ok_or("a window is needed")?;
        Ok(nn::PoolOptions {
            window,
            stride: f.get("stride")?.unwrap_or(window),
            padding: f.get("padding")?.unwrap_or(0),
        })
    }
}

impl Take for nn::Sliding {
    fn taken(v: &Value) -> Taken<nn::Sliding> {
        let f = Fields::of(v, &["stride", "padding", "dilation", "groups"])?;
        let mut s = nn::Sliding::default();
        s.stride = f.get("stride")?.unwrap_or(s.stride);
        s.padding = f.get("padding")?.unwrap_or(s.padding);
        s.dilation = f.get("dilation")?.unwrap_or(s.dilation);
        s.groups = f.get("groups")?.unwrap_or(s.groups);
        Ok(s)
    }
}

impl Take for nn::CrossEntropy {
    fn taken(v: &Value) -> Taken<nn::CrossEntropy> {
        let f = Fields::of(v, &["ignoreIndex", "labelSmoothing", "zLoss", "weight", "reduction"])?;
        let reduction = match f.get::<String>("reduction")?.as_deref() {
            None | Some("mean") => nn::Reduction::Mean,
            Some("sum") => nn::Reduction::Sum,
            Some("none") => nn::Reduction::None,
            Some(other) => return Err(format!("there is no reduction \"{other}\"; there are mean, sum, none")),
        };
        Ok(nn::CrossEntropy {
            ignore_index: f.get("ignoreIndex")?,
            label_smoothing: f.get("labelSmoothing")?.unwrap_or(0.0),
            z_loss: f.get("zLoss")?.unwrap_or(0.0),
            weight: f.get("weight")?,
            reduction,
        })
    }
}

impl Take for nn::Attention {
    fn taken(v: &Value) -> Taken<nn::Attention> {
        let f = Fields::of(v, &["causal", "window", "scale", "mask", "bias"])?;
        Ok(nn::Attention {
            causal: f.get("causal")?.unwrap_or(false),
            window: f.get("window")?,
            scale: f.get("scale")?,
            mask: f.get("mask")?,
            bias: f.get("bias")?,
        })
    }
}

impl Take for lax::Padding {
    fn taken(v: &Value) -> Taken<lax::Padding> {
        match v {
            Value::None => Ok(lax::Padding::Valid),
            Value::Text(t) if t.eq_ignore_ascii_case("valid") => Ok(lax::Padding::Valid),
            Value::Text(t) if t.eq_ignore_ascii_case("same") => Ok(lax::Padding::Same),
            Value::List(_) => Ok(lax::Padding::Explicit(<Vec<(i64, i64)> as Take>::taken(v)?)),
            v => expected("VALID, SAME or pairs of numbers", v),
        }
    }
}

impl Take for lax::ConvOptions {
    fn taken(v: &Value) -> Taken<lax::ConvOptions> {
        let f = Fields::of(v, &["strides", "padding", "lhsDilation", "rhsDilation", "featureGroupCount"])?;
        let d = lax::ConvOptions::default();
        Ok(lax::ConvOptions {
            strides: f.get("strides")?.unwrap_or_default(),
            padding: f.get("padding")?.unwrap_or_default(),
            lhs_dilation: f.get("lhsDilation")?.unwrap_or_default(),
            rhs_dilation: f.get("rhsDilation")?.unwrap_or_default(),
            feature_group_count: f.get("featureGroupCount")?.unwrap_or(1),
            ..d
        })
    }
}

impl Take for ReduceKind {
    fn taken(v: &Value) -> Taken<ReduceKind> {
        match <String as Take>::taken(v)?.as_str() {
            "sum" => Ok(ReduceKind::Sum),
            "prod" => Ok(ReduceKind::Prod),
            "max" => Ok(ReduceKind::Max),
            "min" => Ok(ReduceKind::Min),
            other => Err(format!("there is no reduction \"{other}\"; there are sum, prod, max, min")),
        }
    }
}

impl Take for np::PadMode {
    fn taken(v: &Value) -> Taken<np::PadMode> {
        Ok(match v {
            Value::None => np::PadMode::Constant(Operand::Number(Number::Int(0))),
            Value::Text(t) => match t.as_str() {
                "constant" => np::PadMode::Constant(Operand::Number(Number::Int(0))),
                "edge" => np::PadMode::Edge,
                "reflect" => np::PadMode::Reflect,
                "symmetric" => np::PadMode::Symmetric,
                "wrap" => np::PadMode::Wrap,
                other => return Err(format!("there is no mode \"{other}\"")),
            },
            v => np::PadMode::Constant(<Operand as Take>::taken(v)?),
        })
    }
}

/// Something that a call may give.
pub(crate) trait Give {
    fn to(self, out: &mut Vec<f64>);
}

/// Writes a result.
pub(crate) fn give(x: impl Give, out: &mut Vec<f64>) {
    x.to(out);
}

impl Give for Tensor {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([3.0, f64::from(hold(Object::Tensor(self)))]);
    }
}

impl Give for GradientTransformation {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([3.0, f64::from(hold(Object::Chain(Rc::new(RefCell::new(Some(self))))))]);
    }
}

impl Give for Schedule {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([3.0, f64::from(hold(Object::Schedule(self)))]);
    }
}

impl Give for () {
    fn to(self, out: &mut Vec<f64>) {
        out.push(0.0);
    }
}

impl Give for bool {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([2.0, f64::from(self)]);
    }
}

impl Give for usize {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([1.0, self as f64]);
    }
}

impl Give for Complex {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([6.0, 2.0]);
        for (name, part) in [("re", self.re), ("im", self.im)] {
            out.push(2.0);
            out.extend(name.bytes().map(f64::from));
            part.to(out);
        }
    }
}

impl<T: Give> Give for Vec<T> {
    fn to(self, out: &mut Vec<f64>) {
        out.extend([4.0, self.len() as f64]);
        self.into_iter().for_each(|x| x.to(out));
    }
}

macro_rules! tuple {
    ($n:literal, $($name:ident)*) => {
        impl<$($name: Give),*> Give for ($($name,)*) {
            #[expect(non_snake_case, reason = "values by their types' names")]
            fn to(self, out: &mut Vec<f64>) {
                let ($($name,)*) = self;
                out.extend([4.0, $n]);
                $($name.to(out);)*
            }
        }
    };
}
tuple!(2.0, A B);
tuple!(3.0, A B C);
tuple!(4.0, A B C D);

impl Give for String {
    fn to(self, out: &mut Vec<f64>) {
        let units: Vec<f64> = self.encode_utf16().map(f64::from).collect();
        out.extend([5.0, units.len() as f64]);
        out.extend(units);
    }
}

impl Take for tensorloom::Index {
    /// A number, `[start, end]` or `[start, end, step]` with `null` for an end, `null` for a new axis, `"..."`, or a tensor.
    fn taken(v: &Value) -> Taken<tensorloom::Index> {
        use tensorloom::Index;
        Ok(match v {
            Value::None => Index::New,
            Value::Text(t) if t == "..." => Index::Remaining,
            Value::Handle(h) => Index::Gather(crate::objects::tensor(*h)?),
            Value::List(l) if l.len() <= 3 => {
                let end = |i: usize| -> Taken<Option<isize>> {
                    Ok(<Option<i64> as Take>::taken(l.get(i).unwrap_or(&Value::None))?.map(|x| x as isize))
                };
                Index::Range { start: end(0)?, end: end(1)?, step: end(2)?.unwrap_or(1) }
            }
            v => Index::At(<i64 as Take>::taken(v)? as isize),
        })
    }
}
