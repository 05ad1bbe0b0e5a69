//! Transforms of Python functions. A function is called with tensors of a trace; what it raises is kept, and raised when the
//! transform is back.

use crate::creation::tensor_from;
use crate::interrupt::without_gil;
use crate::to_py_err;
use crate::tree::{Node, TreeRole};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use tensorloom::lax::Scan;
use tensorloom::{DType, Function, Jit, LinearMap, Tensor, Tree, Vjp, np};

thread_local! {
    /// The first exception of the functions that run now.
    static PENDING: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether compiled functions are called as they were written.
    static PLAIN: Cell<bool> = const { Cell::new(false) };
    /// How many derivatives are taken of what this thread traces: functions with rules of their own need as many of them.
    static DERIVATIVES: Cell<u32> = const { Cell::new(0) };
}

/// How many derivatives are taken of what this thread traces.
pub(crate) fn derivatives() -> u32 {
    DERIVATIVES.get()
}

/// Sets how many derivatives are taken, until it is dropped.
pub(crate) struct DerivativeOrderGuard(u32);

impl DerivativeOrderGuard {
    pub(crate) fn set(n: u32) -> DerivativeOrderGuard {
        DerivativeOrderGuard(DERIVATIVES.replace(n))
    }

    /// One more, for the function of a transform that differentiates.
    fn increment() -> DerivativeOrderGuard {
        DerivativeOrderGuard::set(derivatives() + 1)
    }
}

impl Drop for DerivativeOrderGuard {
    fn drop(&mut self) {
        DERIVATIVES.set(self.0);
    }
}

/// Says whether compiled functions of this thread are called as they were written, and gives what held before.
#[pyfunction]
fn _disable_jit(plain: bool) -> bool {
    PLAIN.replace(plain)
}

pub(crate) fn keep_exception(e: PyErr) {
    PENDING.with(|p| {
        p.borrow_mut().get_or_insert(e);
    });
}

/// What was kept.
pub(crate) fn take_exception() -> Option<PyErr> {
    PENDING.take()
}

/// Raises what was kept.
pub(crate) fn raise_pending<T>(x: T) -> PyResult<T> {
    match take_exception() {
        Some(e) => Err(e),
        None => Ok(x),
    }
}

/// A function of Python's, from positional arguments to a tree.
#[derive(Clone)]
pub(crate) struct PyFn(Arc<Py<PyAny>>);

impl PyFn {
    pub(crate) fn new(f: &Bound<'_, PyAny>) -> PyResult<PyFn> {
        if !f.is_callable() {
            return Err(PyTypeError::new_err(format!("{f} is not callable")));
        }
        Ok(PyFn(Arc::new(f.clone().unbind())))
    }

    /// Shows it to who looks for cycles.
    pub(crate) fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&*self.0)
    }

    /// Calls it; an exception is kept, and nothing given.
    pub(crate) fn call(&self, args: &[Node], named: &[(String, Node)]) -> Node {
        self.call_for(args, named, TreeRole::Result)
    }

    /// The same, with a result that is read for something else.
    fn call_for(&self, args: &[Node], named: &[(String, Node)], role: TreeRole<'_>) -> Node {
        Python::attach(|py| {
            let run = || -> PyResult<Node> {
                let args: Vec<_> = args.iter().map(|n| n.write(py)).collect::<PyResult<_>>()?;
                let dict = PyDict::new(py);
                for (k, v) in named {
                    dict.set_item(k, v.write(py)?)?;
                }
                let dict = (!named.is_empty()).then_some(&dict);
                Node::read(&self.0.bind(py).call(PyTuple::new(py, args)?, dict)?, role)
            };
            run().unwrap_or_else(|e| {
                keep_exception(e);
                Node::none()
            })
        })
    }

    /// One result that is a tensor; anything else is an exception.
    pub(crate) fn scalar(&self, args: &[Node], named: &[(String, Node)], what: &str) -> Tensor {
        let out = self.call(args, named);
        match out.leaf() {
            Some(t) => t.clone(),
            None => {
                keep_exception(PyTypeError::new_err(format!("{what} needs a function that returns one tensor")));
                tensorloom::engine().zeros(tensorloom::DType::F32, &[])
            }
        }
    }
}

/// Arguments of a call: those in order, then those by name, in the order of their names. `role` says what those at each place
/// are for; those by name are for `other`.
fn arguments<'a>(
    args: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
    role: impl Fn(usize) -> TreeRole<'a>,
    other: TreeRole<'a>,
) -> PyResult<(Vec<Node>, Vec<(String, Node)>)> {
    let args = args.iter().enumerate().map(|(i, x)| Node::read(&x, role(i))).collect::<PyResult<_>>()?;
    let mut by_name = Vec::new();
    for (k, v) in named.into_iter().flatten() {
        by_name.push((k.extract::<String>()?, Node::read(&v, other)?));
    }
    by_name.sort_by(|a, b| a.0.cmp(&b.0));
    Ok((args, by_name))
}

/// What a compiled function is called with.
///
/// Its structure has the number of derivatives too: what was traced for fewer has rules for fewer.
struct JitCall {
    args: Vec<Node>,
    named: Vec<(String, Node)>,
}

impl Tree for JitCall {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.args.iter().for_each(|n| n.visit(f));
        self.named.iter().for_each(|(_, n)| n.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> JitCall {
        JitCall {
            args: self.args.iter().map(|n| n.rebuild(next)).collect(),
            named: self.named.iter().map(|(k, n)| (k.clone(), n.rebuild(next))).collect(),
        }
    }

    fn structure(&self, into: &mut dyn std::hash::Hasher) {
        into.write_u32(derivatives());
        into.write_usize(self.args.len());
        self.args.iter().for_each(|n| n.structure(into));
        for (k, n) in &self.named {
            into.write(k.as_bytes());
            n.structure(into);
        }
    }
}

impl Function<JitCall> for PyFn {
    type Out = Node;

    fn apply(&self, args: JitCall) -> Node {
        self.call(&args.args, &args.named)
    }
}

/// A compiled function. Made by `jit`.
#[pyclass(module = "tensorloom", frozen, weakref, dict)]
pub(crate) struct Jitted {
    inner: Jit<JitCall, PyFn>,
    /// The same function as inside, for who looks for cycles.
    f: PyFn,
    fixed: Vec<usize>,
    fixed_names: Vec<String>,
}

#[pymethods]
impl Jitted {
    #[new]
    #[pyo3(signature = (f, static_argnums=Vec::new(), static_argnames=Vec::new()))]
    fn new(f: &Bound<'_, PyAny>, static_argnums: Vec<usize>, static_argnames: Vec<String>) -> PyResult<Jitted> {
        let f = PyFn::new(f)?;
        Ok(Jitted { inner: tensorloom::jit(f.clone()), f, fixed: static_argnums, fixed_names: static_argnames })
    }

    /// A function often refers to the object that holds the compiled one.
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        self.f.traverse(&visit)
    }

    /// By its name where it stands in a module, as functions are; else by what it was made of.
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let this = slf.get();
        let parts = (slf, this.f.0.bind(slf.py()), this.fixed.clone(), this.fixed_names.clone());
        slf.py().import("tensorloom._static")?.call_method1("pickled", parts).map(Bound::unbind)
    }

    #[pyo3(signature = (*args, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if PLAIN.get() {
            return self.f.0.bind(py).call(args, named);
        }
        let mut call = JitCall { args: Vec::with_capacity(args.len()), named: Vec::new() };
        for (i, x) in args.iter().enumerate() {
            let fixed = self.fixed.contains(&i);
            call.args.push(if fixed { Node::fixed(&x)? } else { Node::read(&x, TreeRole::Compiled(&i))? });
        }
        for (k, v) in named.into_iter().flatten() {
            let k: String = k.extract()?;
            let fixed = self.fixed_names.contains(&k);
            let v = if fixed { Node::fixed(&v)? } else { Node::read(&v, TreeRole::Compiled(&k))? };
            call.named.push((k, v));
        }
        call.named.sort_by(|a, b| a.0.cmp(&b.0));
        // Running needs no lock of Python's; tracing takes it back.
        let out = without_gil(py, || self.inner.call(call));
        raise_pending(out)?.into_py(py)
    }

    /// Lets it be a method.
    fn __get__(
        slf: Bound<'_, Self>,
        object: Bound<'_, PyAny>,
        _owner: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        if object.is_none() {
            return Ok(slf.into_any().unbind());
        }
        slf.py().import("types")?.getattr("MethodType")?.call1((slf, object)).map(Bound::unbind)
    }

    /// Calls that found their signature, and calls that traced.
    fn stats(&self) -> (u64, u64) {
        let s = self.inner.stats();
        (s.hits, s.misses)
    }

    /// Forgets all traces.
    fn clear_cache(&self) {
        self.inner.clear();
    }
}

/// Which arguments a derivative is for.
fn selected_argnums(argnums: &Bound<'_, PyAny>, count: usize) -> PyResult<(Vec<usize>, bool)> {
    let one = argnums.extract::<isize>().ok();
    let list = match one {
        Some(i) => vec![i],
        None => argnums.extract::<Vec<isize>>()?,
    };
    let place = |i: isize| {
        let at = if i < 0 { i + count as isize } else { i };
        usize::try_from(at).ok().filter(|a| *a < count).ok_or_else(|| {
            PyValueError::new_err(format!(
                "argnums has {i}, but the function was called with {count} positional arguments"
            ))
        })
    };
    Ok((list.into_iter().map(place).collect::<PyResult<_>>()?, one.is_some()))
}

/// Arguments with some of them replaced.
fn replace_args(args: &[Node], at: &[usize], by: Node) -> Vec<Node> {
    let mut all = args.to_vec();
    for (i, n) in at.iter().zip(by.items()) {
        all[*i] = n;
    }
    all
}

fn pair(out: Node) -> Option<(Tensor, Node)> {
    let [first, aux]: [Node; 2] = out.items().try_into().ok()?;
    Some((first.leaf()?.clone(), aux))
}

/// The value of a function and its gradient: `((value, aux), gradient)`, with `None` for what there is none of.
#[pyfunction]
fn _value_and_grad<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    argnums: &Bound<'py, PyAny>,
    has_aux: bool,
    args: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let (at, single) = selected_argnums(argnums, args.len())?;
    let role = |i| if at.contains(&i) { TreeRole::Argument } else { TreeRole::PassThrough };
    let (args, named) = arguments(args, named, role, TreeRole::PassThrough)?;
    let _more = DerivativeOrderGuard::increment();
    let over = Node::tuple(at.iter().map(|&i| args[i].clone()).collect());
    let (value, aux, grads) = if has_aux {
        let run = |x: Node| -> (Tensor, Node) {
            pair(f.call_for(&replace_args(&args, &at, x), &named, TreeRole::PassThrough)).unwrap_or_else(|| {
                keep_exception(PyTypeError::new_err(
                    "with has_aux, the function must return a pair of a tensor and auxiliary data",
                ));
                (tensorloom::engine().zeros(tensorloom::DType::F32, &[]), Node::none())
            })
        };
        let ((value, aux), grads) = tensorloom::value_and_grad(run).has_aux().call(over);
        (value, Some(aux), grads)
    } else {
        let run = |x: Node| f.scalar(&replace_args(&args, &at, x), &named, "grad");
        let (value, grads) = tensorloom::value_and_grad(run).call(over);
        (value, None, grads)
    };
    raise_pending(())?;
    let aux = aux.map_or_else(|| Ok(py.None().into_bound(py)), |a| a.write(py))?;
    let grads = if single { grads.items().swap_remove(0) } else { grads };
    let value = (crate::calls::tensor(py, value)?, aux);
    Ok((value, grads.write(py)?).into_pyobject(py)?.into_any())
}

/// Axes of a tree: one for all leaves below, or a tree of them.
fn axes_of(axes: &Bound<'_, PyAny>, tree: &Node, into: &mut Vec<Option<isize>>) -> PyResult<()> {
    if axes.is_none() || axes.extract::<isize>().is_ok() {
        let axis: Option<isize> = axes.extract()?;
        tree.visit(&mut |_| into.push(axis));
        return Ok(());
    }
    let misfit = || {
        PyValueError::new_err("in_axes and out_axes must be a number, None, or a tree of the structure of the values")
    };
    match tree {
        Node::Tuple(items, _) | Node::List(items) => {
            let children = Node::children(axes)?;
            let axes = children.as_ref().unwrap_or(axes);
            if axes.len()? != items.len() {
                return Err(misfit());
            }
            for (a, n) in axes.try_iter()?.zip(items) {
                axes_of(&a?, n, into)?;
            }
            Ok(())
        }
        Node::Dict(items) => {
            for (k, n) in items {
                axes_of(&axes.get_item(k.object(axes.py()))?, n, into)?;
            }
            Ok(())
        }
        _ => Err(misfit()),
    }
}

/// Calls a function over an axis of its arguments.
#[pyfunction]
fn _vmap<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    in_axes: &Bound<'py, PyAny>,
    out_axes: &Bound<'py, PyAny>,
    axis_size: Option<usize>,
    args: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    // An argument that the batch shares is only passed on.
    let shared = |i: usize| match in_axes.cast::<PyTuple>() {
        Ok(each) => each.get_item(i).is_ok_and(|a| a.is_none()),
        Err(_) => in_axes.is_none(),
    };
    let role = |i| if shared(i) { TreeRole::PassThrough } else { TreeRole::Argument };
    let (args, named) = arguments(args, named, role, TreeRole::Argument)?;
    let all = Node::tuple(args);
    let mut axes = Vec::new();
    axes_of(in_axes, &all, &mut axes)?;
    let leaves = all.leaves();
    let mut mapped: Vec<Tensor> = Vec::new();
    for (t, a) in leaves.iter().zip(&axes) {
        if let Some(a) = a {
            mapped.push(if *a == 0 { t.clone() } else { np::moveaxis(t, &[*a], &[0]) });
        }
    }
    // Arguments by name are mapped over their first axis, as in JAX.
    let by_name: Vec<Tensor> = named.iter().flat_map(|(_, n)| n.leaves()).collect();
    mapped.extend(by_name.iter().cloned());
    if mapped.is_empty() && axis_size.is_none() {
        return Err(PyValueError::new_err("vmap needs an argument with an axis, or axis_size"));
    }
    for t in &mapped {
        t.check().map_err(|e| to_py_err(&e))?;
    }
    // The structure of the result, and the axis of the batch in each leaf.
    let seen = RefCell::new((Node::none(), Vec::new()));
    // Leaves that have the batch, and those that the batch shares.
    let run = |mapped: Vec<Tensor>| -> (Vec<Tensor>, Vec<Tensor>) {
        let mut next = mapped.into_iter();
        let mut k = 0;
        let args = all.rebuild(&mut || {
            k += 1;
            match axes[k - 1] {
                Some(_) => next.next().unwrap_or_else(|| leaves[k - 1].clone()),
                None => leaves[k - 1].clone(),
            }
        });
        let named: Vec<(String, Node)> = named
            .iter()
            .map(|(k, n)| (k.clone(), n.rebuild(&mut || next.next().expect("one for each leaf"))))
            .collect();
        let out = f.call(&args.items(), &named);
        let mut to = Vec::new();
        if let Err(e) = axes_of(out_axes, &out, &mut to) {
            keep_exception(e);
            to = vec![Some(0); out.leaves().len()];
        }
        let (mut batched, mut rest) = (Vec::new(), Vec::new());
        for (t, a) in out.leaves().into_iter().zip(&to) {
            if a.is_some() { batched.push(t) } else { rest.push(t) }
        }
        seen.replace((out, to));
        (batched, rest)
    };
    let mut v = tensorloom::vmap(run).out_axes([Some(0), None]);
    if let Some(n) = axis_size {
        v = v.axis_size(n);
    }
    let (batched, rest) = raise_pending(v.call(mapped))?;
    let (out, to) = seen.into_inner();
    let (mut batched, mut rest, mut to) = (batched.into_iter(), rest.into_iter(), to.into_iter());
    let out = out.rebuild(&mut || match to.next().flatten() {
        Some(0) => batched.next().expect("one for each leaf"),
        Some(a) => np::moveaxis(&batched.next().expect("one for each leaf"), &[0], &[a]),
        None => rest.next().expect("one for each leaf"),
    });
    out.write(py)
}

/// Value and directional derivative.
#[pyfunction]
fn _jvp<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    primals: &Bound<'py, PyTuple>,
    tangents: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let (x, dx) = (Node::read(primals, TreeRole::Argument)?, Node::read(tangents, TreeRole::Argument)?);
    let _more = DerivativeOrderGuard::increment();
    let (y, dy) = raise_pending(tensorloom::jvp(|x: Node| f.call(&x.items(), &[]), x, dx))?;
    Ok((y.write(py)?, dy.write(py)?).into_pyobject(py)?.into_any())
}

/// From cotangents of results to those of arguments.
#[pyclass(module = "tensorloom", frozen)]
pub(crate) struct Pullback(Vjp<Node, Node>);

#[pymethods]
impl Pullback {
    fn __call__<'py>(&self, py: Python<'py>, ct: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        raise_pending(self.0.call(Node::read(ct, TreeRole::Argument)?))?.write(py)
    }
}

/// Value and the function from cotangents to gradients.
#[pyfunction]
#[pyo3(signature = (f, *args))]
fn vjp<'py>(py: Python<'py>, f: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let args = Node::read(args, TreeRole::Argument)?;
    let _more = DerivativeOrderGuard::increment();
    let (y, back) = raise_pending(tensorloom::vjp(|x: Node| f.call(&x.items(), &[]), args))?;
    Ok((y.write(py)?, Py::new(py, Pullback(back))?).into_pyobject(py)?.into_any())
}

/// From tangents of arguments to those of results.
#[pyclass(module = "tensorloom", frozen)]
pub(crate) struct Pushforward(LinearMap<Node, Node>);

#[pymethods]
impl Pushforward {
    #[pyo3(signature = (*tangents))]
    fn __call__<'py>(&self, py: Python<'py>, tangents: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        raise_pending(self.0.call(Node::read(tangents, TreeRole::Argument)?))?.write(py)
    }
}

/// Value and the linear function of tangents at these arguments.
#[pyfunction]
#[pyo3(signature = (f, *args))]
fn linearize<'py>(py: Python<'py>, f: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let args = Node::read(args, TreeRole::Argument)?;
    let _more = DerivativeOrderGuard::increment();
    let (y, map) = raise_pending(tensorloom::linearize(|x: Node| f.call(&x.items(), &[]), args))?;
    Ok((y.write(py)?, Py::new(py, Pushforward(map))?).into_pyobject(py)?.into_any())
}

/// The Jacobian of a function of one tensor, forward or in reverse.
#[pyfunction]
fn _jacobian<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    reverse: bool,
    argnum: usize,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let role = |i| if i == argnum { TreeRole::Argument } else { TreeRole::PassThrough };
    let (args, _) = arguments(args, None, role, TreeRole::PassThrough)?;
    let Some(x) = args.get(argnum).and_then(Node::leaf).cloned() else {
        return Err(PyTypeError::new_err("jacfwd and jacrev need an argument that is one tensor"));
    };
    let _more = DerivativeOrderGuard::increment();
    let run = |x: Tensor| f.call(&replace_args(&args, &[argnum], Node::tuple(vec![Node::Leaf(x)])), &[]);
    let out = if reverse { tensorloom::jacrev(run).call(x) } else { tensorloom::jacfwd(run).call(x) };
    raise_pending(out)?.write(py)
}

/// Computes a function again in backward instead of keeping what is inside.
#[pyfunction]
fn _checkpoint<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (args, named) = arguments(args, named, |_| TreeRole::Argument, TreeRole::Argument)?;
    raise_pending(tensorloom::checkpoint(PyFn::new(f)?).call(JitCall { args, named }))?.write(py)
}

fn result_pair(out: Node, what: &str) -> (Node, Node) {
    match <[Node; 2]>::try_from(out.items()) {
        Ok([a, b]) => (a, b),
        Err(_) => {
            keep_exception(PyTypeError::new_err(what.to_string()));
            (Node::none(), Node::none())
        }
    }
}

/// A loop with a carry: `f(carry, x) -> (carry, y)` over the first axis of `xs`.
#[pyfunction]
#[pyo3(signature = (f, init, xs=None, length=None, reverse=false))]
fn scan<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    init: &Bound<'py, PyAny>,
    xs: Option<&Bound<'py, PyAny>>,
    length: Option<usize>,
    reverse: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let none = py.None().into_bound(py);
    let xs = Node::read(xs.unwrap_or(&none), TreeRole::Argument)?;
    let (c, y) = run_with_carry("scan", init, |init, carry| {
        let mut loop_ = Scan::new();
        if let Some(n) = length {
            loop_ = loop_.length(n);
        }
        if reverse {
            loop_ = loop_.reverse();
        }
        let body = |(c, x): (Node, Node)| {
            let (next, y) = result_pair(
                f.call(&[c.clone(), x], &[]),
                "scan needs a function that returns a pair of a carry and a result",
            );
            (carry.cast_to_carry(&c, next), y)
        };
        loop_.run(body, init, xs.clone())
    })?;
    Ok((c.write(py)?, y.write(py)?).into_pyobject(py)?.into_any())
}

/// The types of a loop's carry, and what its body made of them.
#[derive(Default)]
struct LoopCarry {
    /// For each leaf, a type that doesn't fit into that of the beginning: a float for an integer, a number for a bool.
    wider: RefCell<Vec<Option<DType>>>,
}

impl LoopCarry {
    /// A carry keeps its types, where no more than digits are lost by it.
    fn cast_to_carry(&self, old: &Node, new: Node) -> Node {
        let types: Vec<DType> = old.leaves().iter().map(Tensor::dtype).collect();
        if new.leaves().len() != types.len() {
            return new;
        }
        let rank = |d: DType| match d {
            DType::Bool => 0,
            d if d.is_float() => 2,
            _ => 1,
        };
        let mut wider = self.wider.borrow_mut();
        wider.resize(types.len(), None);
        let mut k = 0;
        new.map(|t| {
            let to = types[k];
            k += 1;
            if t.check().is_err() || t.dtype() == to {
                return t.clone();
            }
            if rank(t.dtype()) > rank(to) {
                wider[k - 1] = Some(t.dtype());
            }
            t.cast(to)
        })
    }
}

/// Runs a loop. Where the body makes floats of integers, numbers of Python's that it begins with become floats, as in JAX; tensors
/// have decided, and that is an error.
fn run_with_carry<T>(what: &str, init: &Bound<'_, PyAny>, run: impl Fn(Node, &LoopCarry) -> T) -> PyResult<T> {
    let (mut start, loose) = Node::read_loose(init, TreeRole::Argument)?;
    // A float makes floats of other leaves, so that one more round may be needed for each.
    loop {
        let carry = LoopCarry::default();
        let out = raise_pending(run(start.clone(), &carry))?;
        let wider = carry.wider.into_inner();
        if wider.iter().all(Option::is_none) {
            return Ok(out);
        }
        let leaves = start.leaves();
        for (k, to) in wider.iter().enumerate().filter_map(|(k, w)| Some((k, (*w)?))) {
            if !loose.get(k).copied().unwrap_or(false) {
                let (from, to) = (crate::dtype::name(leaves[k].dtype()), crate::dtype::name(to));
                return Err(PyTypeError::new_err(format!(
                    "{what}: leaf {k} of the carry starts as {from}, but the body returns {to}; start with \
                     x.astype(\"{to}\"), or cast the result of the body"
                )));
            }
        }
        let mut k = 0;
        start = start.map(|t| {
            k += 1;
            wider[k - 1].map_or_else(|| t.clone(), |d| t.cast(d))
        });
    }
}

/// `body(i, carry)` for i from `lower` to `upper`.
#[pyfunction]
fn fori_loop<'py>(
    py: Python<'py>,
    lower: i32,
    upper: i32,
    body: &Bound<'py, PyAny>,
    init: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(body)?;
    let out = run_with_carry("fori_loop", init, |init, carry| {
        let run = |(i, c): (Tensor, Node)| {
            let next = f.call(&[Node::Leaf(i), c.clone()], &[]);
            carry.cast_to_carry(&c, next)
        };
        tensorloom::lax::fori_loop(lower, upper, run, init)
    })?;
    out.write(py)
}

/// `body(carry)` while `cond(carry)`.
#[pyfunction]
fn while_loop<'py>(
    py: Python<'py>,
    cond: &Bound<'py, PyAny>,
    body: &Bound<'py, PyAny>,
    init: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (cond, body) = (PyFn::new(cond)?, PyFn::new(body)?);
    let test = |c: Node| cond.scalar(&[c], &[], "while_loop's condition");
    let out = run_with_carry("while_loop", init, |init, carry| {
        let run = |c: Node| {
            let next = body.call(std::slice::from_ref(&c), &[]);
            carry.cast_to_carry(&c, next)
        };
        tensorloom::lax::while_loop(test, run, init)
    })?;
    out.write(py)
}

/// `on_true(*operands)` or `on_false(*operands)`.
#[pyfunction]
#[pyo3(signature = (pred, on_true, on_false, *operands))]
fn cond<'py>(
    py: Python<'py>,
    pred: &Bound<'py, PyAny>,
    on_true: &Bound<'py, PyAny>,
    on_false: &Bound<'py, PyAny>,
    operands: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let pred = tensor_from(pred)?;
    let (yes, no) = (PyFn::new(on_true)?, PyFn::new(on_false)?);
    let (yes, no) = (|x: Node| yes.call(&x.items(), &[]), |x: Node| no.call(&x.items(), &[]));
    raise_pending(tensorloom::lax::cond(&pred, yes, no, Node::read(operands, TreeRole::Argument)?))?.write(py)
}

/// A running reduction by an associative function of two trees.
#[pyfunction]
#[pyo3(signature = (f, elems, reverse=false, axis=0))]
fn associative_scan<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    elems: &Bound<'py, PyAny>,
    reverse: bool,
    axis: isize,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let run = |(a, b): (Node, Node)| f.call(&[a, b], &[]);
    raise_pending(tensorloom::lax::associative_scan(run, Node::read(elems, TreeRole::Argument)?, reverse, axis))?
        .write(py)
}

/// `f` for each entry of the first axis, one after the other.
#[pyfunction]
fn map<'py>(py: Python<'py>, f: &Bound<'py, PyAny>, xs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    raise_pending(tensorloom::lax::map(|x: Node| f.call(&[x], &[]), Node::read(xs, TreeRole::Argument)?))?.write(py)
}

/// The program of a function as text.
#[pyfunction]
#[pyo3(signature = (f, *args))]
fn make_graph(f: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<String> {
    let f = PyFn::new(f)?;
    let graph = raise_pending(tensorloom::make_graph(
        |x: Node| f.call(&x.items(), &[]),
        Node::read(args, TreeRole::Argument)?,
    ))?;
    Ok(graph.map_err(|e| to_py_err(&e))?.to_string())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_disable_jit, m)?)?;
    m.add_function(wrap_pyfunction!(_value_and_grad, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap, m)?)?;
    m.add_function(wrap_pyfunction!(_jvp, m)?)?;
    m.add_function(wrap_pyfunction!(vjp, m)?)?;
    m.add_function(wrap_pyfunction!(linearize, m)?)?;
    m.add_function(wrap_pyfunction!(_jacobian, m)?)?;
    m.add_function(wrap_pyfunction!(_checkpoint, m)?)?;
    m.add_function(wrap_pyfunction!(scan, m)?)?;
    m.add_function(wrap_pyfunction!(fori_loop, m)?)?;
    m.add_function(wrap_pyfunction!(while_loop, m)?)?;
    m.add_function(wrap_pyfunction!(cond, m)?)?;
    m.add_function(wrap_pyfunction!(associative_scan, m)?)?;
    m.add_function(wrap_pyfunction!(map, m)?)?;
    m.add_function(wrap_pyfunction!(make_graph, m)?)
}
