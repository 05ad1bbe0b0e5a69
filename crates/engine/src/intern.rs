//! Interning of ops, types and composites that are recorded repeatedly.
//!
//! An op is large and a composite contains graphs, so recording should not build or copy them each time. Equal ops share one
//! allocation, and so do most equal types, so the result types and the program of an op are looked up by
//! the addresses of the op and its operand types.

use crate::execute::is_free_view;
use crate::kernels::Kernel;
use crate::lru::hash_of;
use crate::node::ValueRef;
use ir::ops::{Composite, SavedForBackward};
use ir::{Binary, InferError, Op, Type, Unary};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

/// The maximum number of interned ops; a program uses few different ones.
const MAX_INTERNED_OPS: usize = 8192;

/// The type of a value. Equal types of one engine share one allocation, except the types of a compiled region's results.
pub(crate) type Ty = Arc<Type>;

/// The shared allocation of a unary op.
pub(crate) fn unary(op: Unary) -> &'static Arc<Op> {
    static ALL: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    &ALL.get_or_init(|| Unary::ALL.iter().map(|&u| Arc::new(u.into())).collect())[op as usize]
}

/// The shared allocation of a binary op.
pub(crate) fn binary(op: Binary) -> &'static Arc<Op> {
    static ALL: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    &ALL.get_or_init(|| Binary::ALL.iter().map(|&x| Arc::new(x.into())).collect())[op as usize]
}

/// Interned ops, looked up by value.
#[derive(Default)]
pub(crate) struct OpInterner {
    known: FxHashMap<u64, Vec<Arc<Op>>>,
    len: usize,
}

impl OpInterner {
    /// Returns the shared allocation of an op.
    pub(crate) fn get(&mut self, op: Op) -> Arc<Op> {
        if !is_shared(&op) {
            return Arc::new(op);
        }
        let hash = match &op {
            Op::Unary(u) => return unary(*u).clone(),
            Op::Binary(x) => return binary(*x).clone(),
            // Composites from the cache below share their body, so its address identifies it.
            Op::Composite(c) => hash_of(&(&c.name, Arc::as_ptr(&c.body))),
            op => hash_of(op),
        };
        if self.len > MAX_INTERNED_OPS {
            *self = OpInterner::default();
        }
        let list = self.known.entry(hash).or_default();
        if let Some(known) = list.iter().find(|k| same(k, &op)) {
            return known.clone();
        }
        let op = Arc::new(op);
        list.push(op.clone());
        self.len += 1;
        op
    }
}

/// Whether equal ops are interned: not if they are large or differ at every recording.
fn is_shared(op: &Op) -> bool {
    match op {
        Op::Const(c) => c.0.ty().rank() == 0,
        Op::Call(_) | Op::Remat(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_) | Op::ShardMap(_) => false,
        _ => true,
    }
}

/// An op with its operand types; all nodes with the same op and operand types share it.
pub(crate) struct OpSignature {
    pub(crate) op: Arc<Op>,
    args: SmallVec<[Ty; 2]>,
    /// The types of the results.
    pub(crate) types: SmallVec<[Ty; 1]>,
    /// The values that backward would need.
    pub(crate) saved_for_backward: SavedForBackward,
    /// Whether gradients can flow through the op.
    pub(crate) differentiable: bool,
    /// Whether the op is a view that needs no kernel.
    pub(crate) view: bool,
    /// The program for dense operands on the first device.
    pub(crate) program: OnceLock<Arc<Kernel>>,
}

impl OpSignature {
    /// Whether the op is interned.
    pub(crate) fn is_shared(&self) -> bool {
        is_shared(&self.op)
    }

    /// Whether values have exactly the types that the op was recorded with, so that its program can be used.
    pub(crate) fn accepts_types<'a>(&self, types: impl ExactSizeIterator<Item = &'a Ty>) -> bool {
        self.args.len() == types.len() && self.args.iter().zip(types).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

/// Types and signatures, looked up by address.
#[derive(Default)]
pub(crate) struct SignatureInterner {
    types: FxHashSet<Ty>,
    known: FxHashMap<u64, SmallVec<[Arc<OpSignature>; 1]>>,
    len: usize,
}

impl SignatureInterner {
    /// Returns the shared allocation of a type.
    pub(crate) fn intern_type(&mut self, ty: &Type) -> Ty {
        if let Some(known) = self.types.get(ty) {
            return known.clone();
        }
        if self.types.len() > MAX_INTERNED_OPS {
            self.types.clear();
        }
        let ty = Arc::new(ty.clone());
        self.types.insert(ty.clone());
        ty
    }

    /// Returns the signature of an op on operands; infers the result types if it is new.
    pub(crate) fn get(&mut self, op: &Arc<Op>, args: &[ValueRef]) -> Result<Arc<OpSignature>, InferError> {
        let mut h = FxHasher::default();
        h.write_usize(Arc::as_ptr(op).addr());
        args.iter().for_each(|a| h.write_usize(Arc::as_ptr(a.ty()).addr()));
        let hash = h.finish();
        let same = |s: &&Arc<OpSignature>| {
            Arc::ptr_eq(&s.op, op)
                && s.args.len() == args.len()
                && s.args.iter().zip(args).all(|(t, a)| Arc::ptr_eq(t, a.ty()))
        };
        if let Some(known) = self.known.get(&hash).and_then(|list| list.iter().find(same)) {
            return Ok(known.clone());
        }
        let types: Vec<Type> = args.iter().map(|a| (**a.ty()).clone()).collect();
        let outs = op.infer(&types)?;
        let sig = Arc::new(OpSignature {
            op: op.clone(),
            args: args.iter().map(|a| a.ty().clone()).collect(),
            types: outs.iter().map(|t| self.intern_type(t)).collect(),
            saved_for_backward: op.saves(),
            differentiable: outs.iter().any(|t| t.dtype.is_float()) && !matches!(**op, Op::StopGradient(_)),
            view: is_free_view(op),
            program: OnceLock::new(),
        });
        if is_shared(op) {
            if self.len > MAX_INTERNED_OPS {
                (self.known, self.len) = (FxHashMap::default(), 0);
            }
            self.len += 1;
            self.known.entry(hash).or_default().push(sig.clone());
        }
        Ok(sig)
    }
}

/// Compares ops without comparing the graphs inside.
fn same(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Composite(a), Op::Composite(b)) => {
            a.name == b.name
                && Arc::ptr_eq(&a.body, &b.body)
                && a.params == b.params
                && a.num_public_outputs == b.num_public_outputs
        }
        _ => a == b,
    }
}

/// The name, the parameters and the operand types.
type Key = (&'static str, Vec<u64>, Vec<Type>);

thread_local! {
    static COMPOSITES: RefCell<FxHashMap<Key, Composite>> = RefCell::default();
}

/// Returns a cached composite for a name, parameters and operand types. `make` must depend on nothing else.
pub fn composite(
    name: &'static str,
    types: &[Type],
    numbers: &[f64],
    make: impl FnOnce() -> ir::Result<Composite>,
) -> ir::Result<Composite> {
    let key = (name, numbers.iter().map(|x| x.to_bits()).collect(), types.to_vec());
    COMPOSITES.with_borrow_mut(|known| {
        if let Some(c) = known.get(&key) {
            return Ok(c.clone());
        }
        if known.len() > MAX_INTERNED_OPS {
            known.clear();
        }
        let c = make()?;
        known.insert(key, c.clone());
        Ok(c)
    })
}
