//! Single ops as programs: what runs outside compiled regions.
//!
//! The key is an op with its operands' dense types and views: first by address (most equal ops and types are one, see
//! `intern`), then by value. A program for new sizes is lowered anew, which is cheap; its kernels take sizes as arguments, so
//! that their machine code is made once (`Backend::load_general`).

use crate::intern::Ty;
use crate::lru::{Lru, hash_of};
use crate::pool::Pool;
use crate::storage::{Stored, Values, Views};
use compiler::{Bindings, Executable, Options, Result};
use ir::{Graph, Loc, Op, Value};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::Hasher;
use std::sync::{Arc, Mutex};

/// Programs kept.
const CAPACITY: usize = 4096;

struct Key {
    what: What,
    args: SmallVec<[(Ty, Views); 2]>,
}

/// What a program does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// Makes its one operand dense.
    Dense,
    /// An op.
    Op(Arc<Op>),
    /// An op whose result may take an operand's place.
    Over(Arc<Op>, usize),
}

impl What {
    fn op(&self) -> Option<&Arc<Op>> {
        match self {
            What::Dense => None,
            What::Op(op) | What::Over(op, _) => Some(op),
        }
    }

    fn over(&self) -> Option<usize> {
        match self {
            What::Over(_, operand) => Some(*operand),
            _ => None,
        }
    }

    fn is_at(&self, other: &What) -> bool {
        self.op().map(Arc::as_ptr) == other.op().map(Arc::as_ptr) && self.over() == other.over()
    }
}

impl Key {
    fn new(what: &What, args: &[Stored]) -> Key {
        Key { what: what.clone(), args: args.iter().map(|a| (a.ty.clone(), a.views.clone())).collect() }
    }

    /// Equal values.
    fn is(&self, what: &What, args: &[Stored]) -> bool {
        let equal = |(k, a): (&(Ty, Views), &Stored)| k.0 == a.ty && k.1 == a.views;
        self.what == *what && self.args.len() == args.len() && self.args.iter().zip(args).all(equal)
    }

    /// The same allocations, which is quicker to see.
    fn is_at(&self, what: &What, args: &[Stored]) -> bool {
        let same = |(k, a): (&(Ty, Views), &Stored)| {
            Arc::ptr_eq(&k.0, &a.ty)
                && k.1.len() == a.views.len()
                && k.1.iter().zip(&a.views).all(|(x, y)| Arc::ptr_eq(x, y))
        };
        self.what.is_at(what) && self.args.len() == args.len() && self.args.iter().zip(args).all(same)
    }
}

/// A program of a single op.
pub(crate) struct Kernel {
    pub(crate) exe: Arc<dyn Executable>,
    /// Types of its results.
    pub(crate) types: SmallVec<[Ty; 1]>,
}

type Cache = Mutex<Lru<Key, Arc<Kernel>>>;

/// The programs of one device.
pub(crate) struct Kernels {
    /// By the op's address, which is quick.
    by_address: Cache,
    /// By the op's value: an op may be made anew.
    by_value: Cache,
}

fn hash_by_value(what: &What, args: &[Stored]) -> u64 {
    args.iter().fold(hash_of(what), |hash, a| hash_of(&(hash, &a.ty, &a.views)))
}

fn hash_by_address(what: &What, args: &[Stored]) -> u64 {
    let mut h = FxHasher::default();
    h.write_usize(what.op().map_or(0, |op| Arc::as_ptr(op).addr()));
    h.write_usize(what.over().map_or(0, |i| i + 1));
    for a in args {
        h.write_usize(Arc::as_ptr(&a.ty).addr());
        a.views.iter().for_each(|v| h.write_usize(Arc::as_ptr(v).addr()));
    }
    h.finish()
}

impl Kernels {
    pub(crate) fn new() -> Kernels {
        Kernels { by_address: Mutex::new(Lru::new(CAPACITY)), by_value: Mutex::new(Lru::new(CAPACITY)) }
    }

    /// Forgets all programs.
    pub(crate) fn clear(&self) {
        self.by_address.lock().unwrap_or_else(|e| e.into_inner()).clear();
        self.by_value.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }

    /// How many programs there are.
    pub(crate) fn len(&self) -> usize {
        self.by_value.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    /// The program of an op on values.
    pub(crate) fn program(&self, pool: &Arc<Pool>, what: &What, args: &[Stored]) -> Result<Arc<Kernel>> {
        let address = hash_by_address(what, args);
        let known = self.by_address.lock().unwrap_or_else(|e| e.into_inner()).get(address, |k| k.is_at(what, args));
        if let Some(kernel) = known {
            return Ok(kernel);
        }
        let value = hash_by_value(what, args);
        let known = self.by_value.lock().unwrap_or_else(|e| e.into_inner()).get(value, |k| k.is(what, args));
        let kernel = match known {
            Some(kernel) => kernel,
            None => {
                let graph = single(what.op().map(|op| &**op), args)?;
                let types = graph.output_types().into_iter().map(Ty::new).collect();
                let donate = what.over().map(|operand| (operand, 0)).into_iter().collect();
                let program = compiler::compile(&graph, &*pool.backend, &Options { donate, ..Options::default() })?;
                let kernel = Arc::new(Kernel { exe: pool.backend.load_shape_generic(program)?, types });
                let mut cache = self.by_value.lock().unwrap_or_else(|e| e.into_inner());
                cache.insert(value, Key::new(what, args), kernel.clone());
                kernel
            }
        };
        let mut cache = self.by_address.lock().unwrap_or_else(|e| e.into_inner());
        cache.insert(address, Key::new(what, args), kernel.clone());
        Ok(kernel)
    }
}

/// The graph of one op whose operands are read through their views.
fn single(op: Option<&Op>, args: &[Stored]) -> Result<Graph> {
    let mut g = Graph::new();
    let dense: Vec<Value> = args.iter().map(|a| g.input((*a.ty).clone())).collect();
    let mut operands = Vec::with_capacity(args.len());
    for (a, mut v) in args.iter().zip(dense) {
        for view in &a.views {
            v = g.push((**view).clone(), &[v], Loc::Unknown)?[0];
        }
        operands.push(v);
    }
    let outs = match op {
        Some(op) => g.push(op.clone(), &operands, Loc::Unknown)?.to_vec(),
        None => operands,
    };
    g.set_outputs(outs);
    Ok(g)
}

/// An operand and the result that takes its place.
pub(crate) type Over = SmallVec<[(usize, usize); 4]>;

/// Runs a program on operands into fresh memory for results of these types, but for those that take an operand's place.
/// `bindings` are empty before and after; they are the caller's so that a long plan allocates them once.
pub(crate) fn launch(
    exe: &dyn Executable,
    pool: &Arc<Pool>,
    types: &[Ty],
    args: &[Stored],
    over: &[(usize, usize)],
    bindings: &mut Bindings,
) -> Result<Values> {
    let outs = bind(pool, types, args, over, bindings)?;
    let done = exe.run(bindings);
    unbind(bindings);
    done.map(|()| outs)
}

/// Memory for a program's outputs, bound with its inputs.
pub(crate) fn bind(
    pool: &Arc<Pool>,
    types: &[Ty],
    args: &[Stored],
    over: &[(usize, usize)],
    bindings: &mut Bindings,
) -> Result<Values> {
    let mut outs = Values::new();
    for (o, ty) in types.iter().enumerate() {
        let storage = match over.iter().find(|(_, out)| *out == o) {
            Some((i, _)) => args[*i].storage.clone(),
            None => pool.acquire(ty.bytes())?,
        };
        outs.push(Stored::dense(storage, ty.clone()));
    }
    bindings.inputs.extend(args.iter().map(|a| a.storage.buffer().clone()));
    bindings.outputs.extend(outs.iter().map(|o| o.storage.buffer().clone()));
    Ok(outs)
}

/// Empties bindings.
pub(crate) fn unbind(bindings: &mut Bindings) {
    bindings.inputs.clear();
    bindings.outputs.clear();
}
