//! Programs of single ops, for execution outside compiled regions.
//!
//! The key is an op with its operands' dense types and views. It is looked up by address first (most equal ops and types are
//! interned, see `intern`), then by value. New sizes need a new lowering, which is cheap; kernels take sizes as arguments, so
//! their machine code is compiled once (`Backend::load_general`).

use crate::intern::Ty;
use crate::lru::{LruCache, hash_of};
use crate::pool::Pool;
use crate::storage::{StoredValue, Values, Views};
use compiler::{Bindings, Executable, Options, Result};
use ir::{Graph, Loc, Op, Value};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::Hasher;
use std::sync::{Arc, Mutex};

/// The maximum number of cached programs.
const MAX_KERNELS: usize = 4096;

struct KernelKey {
    what: KernelKind,
    args: SmallVec<[(Ty, Views); 2]>,
}

/// The kind of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KernelKind {
    /// Copies its operand to dense memory.
    Dense,
    /// Runs an op.
    Op(Arc<Op>),
    /// Runs an op whose result may reuse an operand's buffer; the number is the operand's index.
    InPlace(Arc<Op>, usize),
}

impl KernelKind {
    fn op(&self) -> Option<&Arc<Op>> {
        match self {
            KernelKind::Dense => None,
            KernelKind::Op(op) | KernelKind::InPlace(op, _) => Some(op),
        }
    }

    fn in_place_operand(&self) -> Option<usize> {
        match self {
            KernelKind::InPlace(_, operand) => Some(*operand),
            _ => None,
        }
    }

    fn is_at(&self, other: &KernelKind) -> bool {
        self.op().map(Arc::as_ptr) == other.op().map(Arc::as_ptr) && self.in_place_operand() == other.in_place_operand()
    }
}

impl KernelKey {
    fn new(what: &KernelKind, args: &[StoredValue]) -> KernelKey {
        KernelKey { what: what.clone(), args: args.iter().map(|a| (a.ty.clone(), a.views.clone())).collect() }
    }

    /// Compares the key by value.
    fn is(&self, what: &KernelKind, args: &[StoredValue]) -> bool {
        let equal = |(k, a): (&(Ty, Views), &StoredValue)| k.0 == a.ty && k.1 == a.views;
        self.what == *what && self.args.len() == args.len() && self.args.iter().zip(args).all(equal)
    }

    /// Compares the key by address, which is faster.
    fn is_at(&self, what: &KernelKind, args: &[StoredValue]) -> bool {
        let same = |(k, a): (&(Ty, Views), &StoredValue)| {
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
    /// The types of the results.
    pub(crate) types: SmallVec<[Ty; 1]>,
}

type Cache = Mutex<LruCache<KernelKey, Arc<Kernel>>>;

/// The program cache of one device.
pub(crate) struct KernelCache {
    /// Programs by the op's address, which is fast.
    by_address: Cache,
    /// Programs by the op's value: an equal op may have another address.
    by_value: Cache,
}

fn hash_by_value(what: &KernelKind, args: &[StoredValue]) -> u64 {
    args.iter().fold(hash_of(what), |hash, a| hash_of(&(hash, &a.ty, &a.views)))
}

fn hash_by_address(what: &KernelKind, args: &[StoredValue]) -> u64 {
    let mut h = FxHasher::default();
    h.write_usize(what.op().map_or(0, |op| Arc::as_ptr(op).addr()));
    h.write_usize(what.in_place_operand().map_or(0, |i| i + 1));
    for a in args {
        h.write_usize(Arc::as_ptr(&a.ty).addr());
        a.views.iter().for_each(|v| h.write_usize(Arc::as_ptr(v).addr()));
    }
    h.finish()
}

impl KernelCache {
    pub(crate) fn new() -> KernelCache {
        KernelCache {
            by_address: Mutex::new(LruCache::new(MAX_KERNELS)),
            by_value: Mutex::new(LruCache::new(MAX_KERNELS)),
        }
    }

    /// Removes all programs.
    pub(crate) fn clear(&self) {
        self.by_address.lock().unwrap_or_else(|e| e.into_inner()).clear();
        self.by_value.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }

    /// The number of programs.
    pub(crate) fn len(&self) -> usize {
        self.by_value.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    /// Returns the program of an op on values; compiles it if it is not cached.
    pub(crate) fn program(&self, pool: &Arc<Pool>, what: &KernelKind, args: &[StoredValue]) -> Result<Arc<Kernel>> {
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
                let graph = single_op_graph(what.op().map(|op| &**op), args)?;
                let types = graph.output_types().into_iter().map(Ty::new).collect();
                let donate = what.in_place_operand().map(|operand| (operand, 0)).into_iter().collect();
                let program = compiler::compile(&graph, &*pool.backend, &Options { donate, ..Options::default() })?;
                let kernel = Arc::new(Kernel { exe: pool.backend.load_shape_generic(program)?, types });
                let mut cache = self.by_value.lock().unwrap_or_else(|e| e.into_inner());
                cache.insert(value, KernelKey::new(what, args), kernel.clone());
                kernel
            }
        };
        let mut cache = self.by_address.lock().unwrap_or_else(|e| e.into_inner());
        cache.insert(address, KernelKey::new(what, args), kernel.clone());
        Ok(kernel)
    }
}

/// A graph of one op whose operands are read through their views.
fn single_op_graph(op: Option<&Op>, args: &[StoredValue]) -> Result<Graph> {
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

/// Pairs of an operand and the result that reuses its buffer.
pub(crate) type InPlacePairs = SmallVec<[(usize, usize); 4]>;

/// Runs a program on operands. Results get new buffers, except those that reuse an operand's buffer.
/// `bindings` must be empty and are empty again afterwards; the caller passes them so that a long plan allocates them once.
pub(crate) fn launch(
    exe: &dyn Executable,
    pool: &Arc<Pool>,
    types: &[Ty],
    args: &[StoredValue],
    over: &[(usize, usize)],
    bindings: &mut Bindings,
) -> Result<Values> {
    let outs = bind(pool, types, args, over, bindings)?;
    let done = exe.run(bindings);
    unbind(bindings);
    done.map(|()| outs)
}

/// Allocates memory for a program's outputs and binds it together with the inputs.
pub(crate) fn bind(
    pool: &Arc<Pool>,
    types: &[Ty],
    args: &[StoredValue],
    over: &[(usize, usize)],
    bindings: &mut Bindings,
) -> Result<Values> {
    let mut outs = Values::new();
    for (o, ty) in types.iter().enumerate() {
        let storage = match over.iter().find(|(_, out)| *out == o) {
            Some((i, _)) => args[*i].storage.clone(),
            None => pool.acquire(ty.bytes())?,
        };
        outs.push(StoredValue::dense(storage, ty.clone()));
    }
    bindings.inputs.extend(args.iter().map(|a| a.storage.buffer().clone()));
    bindings.outputs.extend(outs.iter().map(|o| o.storage.buffer().clone()));
    Ok(outs)
}

/// Clears the bindings.
pub(crate) fn unbind(bindings: &mut Bindings) {
    bindings.inputs.clear();
    bindings.outputs.clear();
}
