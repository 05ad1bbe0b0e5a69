//! Ops, types and composites that are recorded again and again, made once.
//!
//! An op is large and a composite carries graphs: recording one should neither build nor copy them. Equal ops are one
//! allocation, equal types mostly too, so what an op gives for operands of some types, and its program, are found by their
//! addresses.

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

/// Ops kept; a program has few different ones.
const MAX_INTERNED_OPS: usize = 8192;

/// The type of a value. Equal types of one engine are one allocation, unless a compiled region gave them.
pub(crate) type Ty = Arc<Type>;

/// The one allocation of a unary op.
pub(crate) fn unary(op: Unary) -> &'static Arc<Op> {
    static ALL: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    &ALL.get_or_init(|| Unary::ALL.iter().map(|&u| Arc::new(u.into())).collect())[op as usize]
}

/// The one allocation of a binary op.
pub(crate) fn binary(op: Binary) -> &'static Arc<Op> {
    static ALL: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    &ALL.get_or_init(|| Binary::ALL.iter().map(|&x| Arc::new(x.into())).collect())[op as usize]
}

/// Ops by value.
#[derive(Default)]
pub(crate) struct OpInterner {
    known: FxHashMap<u64, Vec<Arc<Op>>>,
    len: usize,
}

impl OpInterner {
    /// The one allocation of an op.
    pub(crate) fn get(&mut self, op: Op) -> Arc<Op> {
        if !is_shared(&op) {
            return Arc::new(op);
        }
        let hash = match &op {
            Op::Unary(u) => return unary(*u).clone(),
            Op::Binary(x) => return binary(*x).clone(),
            // Composites from the cache below share their body.
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

/// Whether equal ops are one: not if they are large, or different every time.
fn is_shared(op: &Op) -> bool {
    match op {
        Op::Const(c) => c.0.ty().rank() == 0,
        Op::Call(_) | Op::Remat(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_) | Op::ShardMap(_) => false,
        _ => true,
    }
}

/// An op on operands of some types: what all nodes that do the same share.
pub(crate) struct OpSignature {
    pub(crate) op: Arc<Op>,
    args: SmallVec<[Ty; 2]>,
    /// Types of the results.
    pub(crate) types: SmallVec<[Ty; 1]>,
    /// What backward would keep.
    pub(crate) saved_for_backward: SavedForBackward,
    /// Gradients can flow through it.
    pub(crate) differentiable: bool,
    /// It needs no kernel.
    pub(crate) view: bool,
    /// Its program for dense operands on the first device.
    pub(crate) program: OnceLock<Arc<Kernel>>,
}

impl OpSignature {
    /// Whether it is of an op that is kept anyway.
    pub(crate) fn is_shared(&self) -> bool {
        is_shared(&self.op)
    }

    /// Whether values have just the types that the op was recorded for, so that its program fits.
    pub(crate) fn accepts_types<'a>(&self, types: impl ExactSizeIterator<Item = &'a Ty>) -> bool {
        self.args.len() == types.len() && self.args.iter().zip(types).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

/// Types and signatures by address.
#[derive(Default)]
pub(crate) struct SignatureInterner {
    types: FxHashSet<Ty>,
    known: FxHashMap<u64, SmallVec<[Arc<OpSignature>; 1]>>,
    len: usize,
}

impl SignatureInterner {
    /// The one allocation of a type.
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

    /// What an op gives for operands.
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

/// Equality that does not look into graphs.
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

/// Name, parameters and operand types.
type Key = (&'static str, Vec<u64>, Vec<Type>);

thread_local! {
    static COMPOSITES: RefCell<FxHashMap<Key, Composite>> = RefCell::default();
}

/// A composite for operand types and numbers, which are all that `make` may depend on.
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
