//! Trees of Python: tuples, lists and dicts of tensors, and whatever else stands in them, which is static.

use crate::make::tensor_from;
use crate::tensor::PyTensor;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::hash::Hasher;
use std::sync::Arc;
use tensorloom::{Tensor, Tree};

/// A tree. Objects of Python are behind `Arc`, so that it is cloned without Python's lock.
#[derive(Clone)]
pub(crate) enum Node {
    Leaf(Tensor),
    /// With the type to make it again, if it is a named tuple, or what makes an object of a registered class.
    Tuple(Vec<Node>, Option<Object>),
    List(Vec<Node>),
    /// Keys in the order of their names.
    Dict(Vec<(Object, Node)>),
    /// Anything else: `None`, strings, functions.
    Static(Object),
}

/// An object with what tells it apart from others: equal objects of one type have the same (`_static.py`).
#[derive(Clone)]
pub(crate) struct Object {
    at: Arc<Py<PyAny>>,
    number: u64,
}

impl Object {
    fn new(x: &Bound<'_, PyAny>) -> PyResult<Object> {
        Ok(Object { at: Arc::new(x.clone().unbind()), number: number(x)? })
    }
}

/// How deep trees may be: what walks over them needs some stack for each level.
const DEEPEST: usize = 256;

/// Keys that are remembered.
const KEYS: usize = 8192;

thread_local! {
    /// Keys of dicts that were read, by address: calls come with the same ones again and again. They are kept, so an address stays
    /// one key's, and none is let go where Python's lock is not held, which would have to wait for it.
    static SEEN: RefCell<FxHashMap<usize, (Arc<str>, Object)>> = RefCell::default();
}

/// The items of a dict whose keys were all seen before, and stand in order.
fn known<'py>(d: &Bound<'py, PyDict>) -> Option<Vec<(Object, Bound<'py, PyAny>)>> {
    SEEN.with(|seen| {
        let seen = seen.borrow();
        let mut items = Vec::with_capacity(d.len());
        let mut last: &str = "";
        for (k, v) in d.iter() {
            let (name, object) = seen.get(&(k.as_ptr() as usize))?;
            if **name < *last {
                return None;
            }
            last = name;
            items.push((object.clone(), v));
        }
        Some(items)
    })
}

/// A key of a dict, with the text that it is sorted by.
fn key(k: &Bound<'_, PyAny>) -> PyResult<(Arc<str>, Object)> {
    if !k.is_exact_instance_of::<PyString>() {
        return Ok((k.str()?.to_str()?.into(), Object::new(k)?));
    }
    let at = k.as_ptr() as usize;
    if let Some(found) = SEEN.with(|seen| seen.borrow().get(&at).cloned()) {
        return Ok(found);
    }
    let made: (Arc<str>, Object) = (k.cast::<PyString>()?.to_str()?.into(), Object::new(k)?);
    let old = SEEN.with(|seen| {
        let mut seen = seen.borrow_mut();
        let old = (seen.len() >= KEYS).then(|| std::mem::take(&mut *seen));
        seen.insert(at, made.clone());
        old
    });
    // Outside of the borrow: what is dropped may run Python's code.
    drop(old);
    Ok(made)
}

fn number(x: &Bound<'_, PyAny>) -> PyResult<u64> {
    static NUMBER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // Most are keys of dicts, whose hashes Python keeps; they have 64 bits that nobody chooses.
    if x.is_exact_instance_of::<PyString>() {
        return Ok(x.hash()? as u64);
    }
    if x.is_none() {
        return Ok(0);
    }
    NUMBER.import(x.py(), "tensorloom._static", "number")?.call1((x,))?.extract()
}

/// The parts of an object of a registered class, and what makes one of them again (`tree.py`).
fn registered<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, Object)>> {
    static CLASSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = x.py();
    let classes = CLASSES.import(py, "tensorloom.tree", "_classes")?.cast::<PyDict>()?;
    if classes.is_empty() || !classes.contains(x.get_type())? {
        return Ok(None);
    }
    let (items, maker, number) =
        py.import("tensorloom.tree")?.call_method1("_parts", (x,))?.extract::<(Bound<'_, PyAny>, Py<PyAny>, u64)>()?;
    Ok(Some((items, Object { at: Arc::new(maker), number })))
}

/// `None`, of which one is enough.
fn nothing(x: &Bound<'_, PyAny>) -> Object {
    static NONE: PyOnceLock<Object> = PyOnceLock::new();
    NONE.get_or_init(x.py(), || Object { at: Arc::new(x.clone().unbind()), number: 0 }).clone()
}

impl Node {
    /// Reads a tree. Numbers and arrays become tensors, unless they are `fixed`.
    pub(crate) fn read(x: &Bound<'_, PyAny>, fixed: bool) -> PyResult<Node> {
        Node::at_depth(x, fixed, 0)
    }

    fn at_depth(x: &Bound<'_, PyAny>, fixed: bool, depth: usize) -> PyResult<Node> {
        if let Ok(t) = x.cast::<PyTensor>() {
            return Ok(Node::Leaf(t.get().0.clone()));
        }
        if fixed {
            if let Err(e) = x.hash() {
                let text = format!("a static argument has to have a hash, and {} has none", x.get_type().name()?);
                let error = PyValueError::new_err(text);
                error.set_cause(x.py(), Some(e));
                return Err(error);
            }
            return Object::new(x).map(Node::Static);
        }
        if x.is_none() {
            return Ok(Node::Static(nothing(x)));
        }
        if depth > DEEPEST {
            return Err(PyRecursionError::new_err("a tree that is too deep, or has itself inside"));
        }
        if let Ok(t) = x.cast::<PyTuple>() {
            let mut items = Vec::with_capacity(t.len());
            for e in t.iter() {
                items.push(Node::at_depth(&e, false, depth + 1)?);
            }
            let named = !t.is_exact_instance_of::<PyTuple>() && t.hasattr("_fields")?;
            let ty = named.then(|| Object::new(t.get_type().as_any())).transpose()?;
            return Ok(Node::Tuple(items, ty));
        }
        if let Ok(l) = x.cast::<PyList>() {
            let mut items = Vec::with_capacity(l.len());
            for e in l.iter() {
                items.push(Node::at_depth(&e, false, depth + 1)?);
            }
            return Ok(Node::List(items));
        }
        if let Ok(d) = x.cast::<PyDict>() {
            if let Some(items) = known(d) {
                let items = items.into_iter().map(|(k, v)| Ok((k, Node::at_depth(&v, false, depth + 1)?)));
                return items.collect::<PyResult<_>>().map(Node::Dict);
            }
            let mut items = Vec::with_capacity(d.len());
            for (k, v) in d.iter() {
                let (name, k) = key(&k)?;
                items.push((name, k, v));
            }
            if !items.is_sorted_by(|(a, ..), (b, ..)| a <= b) {
                items.sort_by(|(a, ..), (b, ..)| a.cmp(b));
            }
            let items = items.into_iter().map(|(_, k, v)| Ok((k, Node::at_depth(&v, false, depth + 1)?)));
            return items.collect::<PyResult<_>>().map(Node::Dict);
        }
        let number = x.is_instance_of::<PyFloat>() || x.is_instance_of::<PyInt>();
        if number || (!x.is_instance_of::<PyString>() && x.hasattr("__array_interface__")?) {
            return tensor_from(x).map(Node::Leaf);
        }
        if let Some((items, maker)) = registered(x)? {
            let Node::Tuple(items, _) = Node::at_depth(&items, false, depth + 1)? else {
                return Object::new(x).map(Node::Static);
            };
            return Ok(Node::Tuple(items, Some(maker)));
        }
        Object::new(x).map(Node::Static)
    }

    /// Which leaves of a tree are numbers of Python's, whose types are not decided yet.
    pub(crate) fn loose(x: &Bound<'_, PyAny>, into: &mut Vec<bool>) -> PyResult<()> {
        if let Ok(d) = x.cast::<PyDict>() {
            let mut items = d.iter().map(|(k, v)| Ok((key(&k)?.0, v))).collect::<PyResult<Vec<_>>>()?;
            items.sort_by(|a, b| a.0.cmp(&b.0));
            items.iter().try_for_each(|(_, v)| Node::loose(v, into))
        } else if x.is_instance_of::<PyTuple>() || x.is_instance_of::<PyList>() {
            x.try_iter()?.try_for_each(|e| Node::loose(&e?, into))
        } else if let Some((items, _)) = registered(x)? {
            Node::loose(&items, into)
        } else if x.is_instance_of::<PyTensor>() {
            into.push(false);
            Ok(())
        } else {
            let number = x.is_exact_instance_of::<PyFloat>() || x.is_instance_of::<PyInt>();
            Node::read(x, false)?.visit(&mut |_| into.push(number));
            Ok(())
        }
    }

    /// The same as an object of Python's. Tensors that carry errors raise them.
    pub(crate) fn write<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = |list: &[Node]| list.iter().map(|n| n.write(py)).collect::<PyResult<Vec<_>>>();
        Ok(match self {
            Node::Leaf(t) => crate::calls::tensor(py, t.clone())?.into_bound(py),
            Node::Tuple(items, None) => PyTuple::new(py, all(items)?)?.into_any(),
            Node::Tuple(items, Some(ty)) => ty.at.bind(py).call1(PyTuple::new(py, all(items)?)?)?,
            Node::List(items) => PyList::new(py, all(items)?)?.into_any(),
            Node::Dict(items) => {
                let d = PyDict::new(py);
                for (k, v) in items {
                    d.set_item(k.at.bind(py), v.write(py)?)?;
                }
                d.into_any()
            }
            Node::Static(x) => x.at.bind(py).clone(),
        })
    }

    /// The same where nobody needs the tree any more.
    pub(crate) fn give<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = |list: Vec<Node>| -> PyResult<Vec<_>> {
            let mut made = Vec::with_capacity(list.len());
            for n in list {
                made.push(n.give(py)?);
            }
            Ok(made)
        };
        Ok(match self {
            Node::Leaf(t) => crate::calls::tensor(py, t)?.into_bound(py),
            Node::Tuple(items, None) => PyTuple::new(py, all(items)?)?.into_any(),
            Node::List(items) => PyList::new(py, all(items)?)?.into_any(),
            Node::Dict(items) => {
                let d = PyDict::new(py);
                for (k, v) in items {
                    d.set_item(k.at.bind(py), v.give(py)?)?;
                }
                d.into_any()
            }
            other => other.write(py)?,
        })
    }

    /// The one tensor, if it is nothing else.
    pub(crate) fn leaf(&self) -> Option<&Tensor> {
        match self {
            Node::Leaf(t) => Some(t),
            _ => None,
        }
    }

    /// Nothing.
    pub(crate) fn none() -> Node {
        Node::Tuple(Vec::new(), None)
    }

    /// A tuple.
    pub(crate) fn tuple(items: Vec<Node>) -> Node {
        Node::Tuple(items, None)
    }

    /// The items of a tuple or list.
    pub(crate) fn items(self) -> Vec<Node> {
        match self {
            Node::Tuple(items, _) | Node::List(items) => items,
            other => vec![other],
        }
    }
}

impl Tree for Node {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        match self {
            Node::Leaf(t) => f(t),
            Node::Tuple(items, _) | Node::List(items) => items.iter().for_each(|n| n.visit(f)),
            Node::Dict(items) => items.iter().for_each(|(_, n)| n.visit(f)),
            Node::Static(_) => {}
        }
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Node {
        match self {
            Node::Leaf(_) => Node::Leaf(next()),
            Node::Tuple(items, ty) => Node::Tuple(items.iter().map(|n| n.rebuild(next)).collect(), ty.clone()),
            Node::List(items) => Node::List(items.iter().map(|n| n.rebuild(next)).collect()),
            Node::Dict(items) => Node::Dict(items.iter().map(|(k, n)| (k.clone(), n.rebuild(next))).collect()),
            Node::Static(x) => Node::Static(x.clone()),
        }
    }

    fn structure(&self, into: &mut dyn Hasher) {
        let (kind, items): (u8, &[Node]) = match self {
            Node::Leaf(_) => (0, &[]),
            Node::Tuple(items, None) => (1, items),
            Node::Tuple(items, Some(ty)) => {
                into.write_u64(ty.number);
                (2, items)
            }
            Node::List(items) => (3, items),
            Node::Dict(items) => {
                into.write_u8(4);
                into.write_usize(items.len());
                for (k, n) in items {
                    into.write_u64(k.number);
                    n.structure(into);
                }
                return;
            }
            Node::Static(x) => {
                into.write_u8(5);
                into.write_u64(x.number);
                return;
            }
        };
        into.write_u8(kind);
        into.write_usize(items.len());
        items.iter().for_each(|n| n.structure(into));
    }
}

impl Object {
    /// The object.
    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.at.bind(py).clone()
    }
}
