//! Trees of Python: tuples, lists, dicts, named tuples and objects of registered classes, with arrays and numbers as leaves.

use crate::creation::{is_array, tensor_from};
use crate::tensor::PyTensor;
use pyo3::exceptions::{PyRecursionError, PyTypeError, PyValueError};
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
    Tuple(Vec<Node>, Option<HashedObject>),
    List(Vec<Node>),
    /// Keys in the order of their names.
    Dict(Vec<(HashedObject, Node)>),
    /// `None`, a static argument, and in trees of `Role::Aside` anything that is no leaf.
    Static(HashedObject),
}

/// What a tree is read for. It decides what becomes of an object that is neither an array, a number nor a tree.
#[derive(Clone, Copy)]
pub(crate) enum TreeRole<'a> {
    /// An argument of a compiled function, by its place or name: such an object is an error.
    Compiled(&'a dyn std::fmt::Display),
    /// Arguments of another transform: an error too.
    Argument,
    /// What a function gives: an error too.
    Result,
    /// What a transform only passes on: the object stays what it is.
    PassThrough,
}

impl TreeRole<'_> {
    /// The error for an object that can't be in the tree.
    fn unsupported_object_error(self, path: &str, x: &Bound<'_, PyAny>) -> PyErr {
        let kind = x.get_type().name().map_or_else(|_| "object".to_string(), |n| n.to_string());
        let plain = if x.is_instance_of::<PyDict>() {
            " or convert it to a dict,"
        } else if x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>() {
            " or convert it to a list or tuple,"
        } else {
            ""
        };
        let (what, remedy) = match self {
            TreeRole::Compiled(place) => (
                format!("argument {place}{path} of a compiled function"),
                "name the argument in static_argnums or static_argnames if it is a part of the program,",
            ),
            TreeRole::Argument => {
                (format!("an argument of a transform{}", at_path(path)), "let the function capture it instead,")
            }
            TreeRole::Result => {
                (format!("the result of a function{}", at_path(path)), "return only arrays and numbers,")
            }
            TreeRole::PassThrough => (format!("an argument{}", at_path(path)), ""),
        };
        PyTypeError::new_err(format!(
            "{what} is of type {kind}, which is not an array, a number or a tree of them; {remedy}{plain} or register \
             the class with tree_util.register_pytree_node"
        ))
    }
}

fn at_path(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at {path}") }
}

/// Why a tree was not read.
enum TreeReadError {
    Error(PyErr),
    /// An object that can't be in it, and the path to it, the last step first.
    Object(Py<PyAny>, Vec<String>),
}

impl From<PyErr> for TreeReadError {
    fn from(e: PyErr) -> TreeReadError {
        TreeReadError::Error(e)
    }
}

impl TreeReadError {
    fn below(self, step: impl FnOnce() -> String) -> TreeReadError {
        match self {
            TreeReadError::Object(x, mut path) => {
                path.push(step());
                TreeReadError::Object(x, path)
            }
            error => error,
        }
    }
}

/// An object with what tells it apart from others: equal objects of one type have the same (`_static.py`).
#[derive(Clone)]
pub(crate) struct HashedObject {
    at: Arc<Py<PyAny>>,
    number: u64,
}

impl HashedObject {
    fn new(x: &Bound<'_, PyAny>) -> PyResult<HashedObject> {
        Ok(HashedObject { at: Arc::new(x.clone().unbind()), number: number(x)? })
    }
}

/// How deep trees may be: what walks over them needs some stack for each level.
const MAX_DEPTH: usize = 256;

/// Keys that are remembered.
const MAX_CACHED_KEYS: usize = 8192;

thread_local! {
    /// Keys of dicts that were read, by address: calls come with the same ones again and again. They are kept, so an address stays
    /// one key's, and none is let go where Python's lock is not held, which would have to wait for it.
    static SEEN: RefCell<FxHashMap<usize, (Arc<str>, HashedObject)>> = RefCell::default();
}

/// The items of a dict whose keys were all seen before, and stand in order.
fn cached_items<'py>(d: &Bound<'py, PyDict>) -> Option<Vec<(HashedObject, Bound<'py, PyAny>)>> {
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

/// A key of a dict that is a string, with its text.
fn key(k: &Bound<'_, PyAny>) -> PyResult<(Arc<str>, HashedObject)> {
    let at = k.as_ptr() as usize;
    if let Some(found) = SEEN.with(|seen| seen.borrow().get(&at).cloned()) {
        return Ok(found);
    }
    let made: (Arc<str>, HashedObject) = (k.cast::<PyString>()?.to_str()?.into(), HashedObject::new(k)?);
    let old = SEEN.with(|seen| {
        let mut seen = seen.borrow_mut();
        let old = (seen.len() >= MAX_CACHED_KEYS).then(|| std::mem::take(&mut *seen));
        seen.insert(at, made.clone());
        old
    });
    // Outside of the borrow: what is dropped may run Python's code.
    drop(old);
    Ok(made)
}

/// The items of a dict in the order of its keys, as `tree.py` has them.
fn sorted<'py>(d: &Bound<'py, PyDict>) -> PyResult<Vec<(HashedObject, Bound<'py, PyAny>)>> {
    static SORTED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let mut items = Vec::with_capacity(d.len());
    if d.iter().all(|(k, _)| k.is_exact_instance_of::<PyString>()) {
        for (k, v) in d.iter() {
            let (name, k) = key(&k)?;
            items.push((name, k, v));
        }
        items.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        return Ok(items.into_iter().map(|(_, k, v)| (k, v)).collect());
    }
    let keys = SORTED.import(d.py(), "tensorloom.tree", "_sorted")?.call1((d,))?;
    let pair = |k: PyResult<Bound<'py, PyAny>>| -> PyResult<_> {
        let k = k?;
        Ok((HashedObject::new(&k)?, d.as_any().get_item(&k)?))
    };
    keys.try_iter()?.map(pair).collect()
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
fn registered<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, HashedObject)>> {
    static CLASSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = x.py();
    let classes = CLASSES.import(py, "tensorloom.tree", "_classes")?.cast::<PyDict>()?;
    if classes.is_empty() || !classes.contains(x.get_type())? {
        return Ok(None);
    }
    let (items, maker, number) =
        py.import("tensorloom.tree")?.call_method1("_parts", (x,))?.extract::<(Bound<'_, PyAny>, Py<PyAny>, u64)>()?;
    Ok(Some((items, HashedObject { at: Arc::new(maker), number })))
}

/// The number of what has no hash (`_static.py`).
const NO_HASH: u64 = u64::MAX;

fn unhashed(x: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    Ok(PyTypeError::new_err(format!(
        "the static part of a {} is not hashable, but compiled functions are cached by its hash; use tuples instead \
         of lists and dicts there, and children for arrays",
        x.get_type().name()?
    )))
}

/// `None`, of which one is enough.
fn none_object(x: &Bound<'_, PyAny>) -> HashedObject {
    static NONE: PyOnceLock<HashedObject> = PyOnceLock::new();
    NONE.get_or_init(x.py(), || HashedObject { at: Arc::new(x.clone().unbind()), number: 0 }).clone()
}

/// Reads trees.
struct TreeReader {
    /// Whether objects that are neither arrays, numbers nor trees are kept.
    keeps: bool,
    /// Whether static parts of registered classes need a hash.
    compiled: bool,
    /// For each leaf, whether it is a number of Python's, whose type is not decided yet; if somebody asks.
    loose: Option<Vec<bool>>,
}

impl TreeReader {
    fn leaf(&mut self, loose: bool) {
        if let Some(list) = &mut self.loose {
            list.push(loose);
        }
    }

    fn list<'py>(
        &mut self,
        items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> Result<Vec<Node>, TreeReadError> {
        let mut nodes = Vec::with_capacity(items.len());
        for (i, x) in items.enumerate() {
            nodes.push(self.node(&x, depth + 1).map_err(|e| e.below(|| format!("[{i}]")))?);
        }
        Ok(nodes)
    }

    fn dict(&mut self, d: &Bound<'_, PyDict>, depth: usize) -> Result<Node, TreeReadError> {
        let items = match cached_items(d) {
            Some(items) => items,
            None => sorted(d)?,
        };
        let mut nodes = Vec::with_capacity(items.len());
        for (k, x) in items {
            let shown = || k.at.bind(d.py()).repr().map_or_else(|_| "[..]".to_string(), |r| format!("[{r}]"));
            let node = self.node(&x, depth + 1).map_err(|e| e.below(shown))?;
            nodes.push((k, node));
        }
        Ok(Node::Dict(nodes))
    }

    fn node(&mut self, x: &Bound<'_, PyAny>, depth: usize) -> Result<Node, TreeReadError> {
        if let Ok(t) = x.cast::<PyTensor>() {
            self.leaf(false);
            return Ok(Node::Leaf(t.get().0.clone()));
        }
        if x.is_none() {
            return Ok(Node::Static(none_object(x)));
        }
        if depth > MAX_DEPTH {
            return Err(PyRecursionError::new_err("the tree is too deep or contains itself").into());
        }
        if let Ok(t) = x.cast_exact::<PyTuple>() {
            return Ok(Node::Tuple(self.list(t.iter(), depth)?, None));
        }
        if let Ok(l) = x.cast_exact::<PyList>() {
            return Ok(Node::List(self.list(l.iter(), depth)?));
        }
        if let Ok(d) = x.cast_exact::<PyDict>() {
            return self.dict(d, depth);
        }
        if x.is_instance_of::<PyFloat>() || x.is_instance_of::<PyInt>() {
            self.leaf(x.is_exact_instance_of::<PyFloat>() || x.is_instance_of::<PyInt>());
            return Ok(Node::Leaf(tensor_from(x)?));
        }
        if let Some((items, maker)) = registered(x)? {
            if self.compiled && maker.number == NO_HASH {
                return Err(unhashed(x)?.into());
            }
            return Ok(Node::Tuple(
                self.list(items.cast::<PyTuple>().map_err(PyErr::from)?.iter(), depth)?,
                Some(maker),
            ));
        }
        if let Ok(t) = x.cast::<PyTuple>()
            && t.hasattr("_fields")?
        {
            return Ok(Node::Tuple(self.list(t.iter(), depth)?, Some(HashedObject::new(t.get_type().as_any())?)));
        }
        if is_array(x)? {
            self.leaf(false);
            return Ok(Node::Leaf(tensor_from(x)?));
        }
        if self.keeps {
            return Ok(Node::Static(HashedObject::new(x)?));
        }
        Err(TreeReadError::Object(x.clone().unbind(), Vec::new()))
    }
}

impl Node {
    /// Reads a tree. Numbers and arrays become tensors.
    pub(crate) fn read(x: &Bound<'_, PyAny>, role: TreeRole<'_>) -> PyResult<Node> {
        Node::read_by(x, role, None).map(|(node, _)| node)
    }

    /// The same, and which leaves are numbers of Python's, whose types are not decided yet.
    pub(crate) fn read_loose(x: &Bound<'_, PyAny>, role: TreeRole<'_>) -> PyResult<(Node, Vec<bool>)> {
        Node::read_by(x, role, Some(Vec::new())).map(|(node, loose)| (node, loose.unwrap_or_default()))
    }

    fn read_by(
        x: &Bound<'_, PyAny>,
        role: TreeRole<'_>,
        loose: Option<Vec<bool>>,
    ) -> PyResult<(Node, Option<Vec<bool>>)> {
        let (keeps, compiled) = (matches!(role, TreeRole::PassThrough), matches!(role, TreeRole::Compiled(_)));
        let mut reader = TreeReader { keeps, compiled, loose };
        match reader.node(x, 0) {
            Ok(node) => Ok((node, reader.loose)),
            Err(TreeReadError::Error(e)) => Err(e),
            Err(TreeReadError::Object(object, mut path)) => {
                path.reverse();
                Err(role.unsupported_object_error(&path.concat(), object.bind(x.py())))
            }
        }
    }

    /// A static argument.
    pub(crate) fn fixed(x: &Bound<'_, PyAny>) -> PyResult<Node> {
        if x.is_instance_of::<PyTensor>() {
            return Err(PyValueError::new_err(
                "a static argument is a tensor, whose elements may change; pass it as an ordinary argument",
            ));
        }
        if let Err(e) = x.hash() {
            let text = format!("a static argument must be hashable, but {} is not", x.get_type().name()?);
            let error = PyValueError::new_err(text);
            error.set_cause(x.py(), Some(e));
            return Err(error);
        }
        HashedObject::new(x).map(Node::Static)
    }

    /// The children of a registered object, if it is one.
    pub(crate) fn children<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(registered(x)?.map(|(items, _)| items))
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
    pub(crate) fn into_py<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = |list: Vec<Node>| -> PyResult<Vec<_>> {
            let mut made = Vec::with_capacity(list.len());
            for n in list {
                made.push(n.into_py(py)?);
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
                    d.set_item(k.at.bind(py), v.into_py(py)?)?;
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

impl HashedObject {
    /// The object.
    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.at.bind(py).clone()
    }
}
