//! Ops and composites that are recorded again and again, made once.
//!
//! An op is large and a composite carries graphs: recording one should neither build nor copy them. Equal ops are one
//! allocation, so a kernel is found by the op's address.

use crate::lru::hash_of;
use ir::ops::Composite;
use ir::{Binary, Op, Type, Unary};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

/// Ops kept; a program has few different ones.
const LIMIT: usize = 8192;

/// The one allocation of a unary op.
pub(crate) fn unary(op: Unary) -> Arc<Op> {
    static ALL: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    ALL.get_or_init(|| Unary::ALL.iter().map(|&u| Arc::new(u.into())).collect())[op as usize].clone()
}

/// The one allocation of a binary op.
pub(crate) fn binary(op: Binary) -> Arc<Op> {
    static ALL: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    ALL.get_or_init(|| Binary::ALL.iter().map(|&x| Arc::new(x.into())).collect())[op as usize].clone()
}

/// Ops by value.
#[derive(Default)]
pub(crate) struct Ops {
    known: FxHashMap<u64, Vec<Arc<Op>>>,
    len: usize,
}

impl Ops {
    /// The one allocation of an op.
    pub(crate) fn get(&mut self, op: Op) -> Arc<Op> {
        let hash = match &op {
            Op::Unary(u) => return unary(*u),
            Op::Binary(x) => return binary(*x),
            // Large, or different every time.
            Op::Const(_) | Op::Call(_) | Op::Remat(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_) => {
                return Arc::new(op);
            }
            // Composites from the cache below share their body.
            Op::Composite(c) => hash_of(&(&c.name, Arc::as_ptr(&c.body))),
            op => hash_of(op),
        };
        if self.len > LIMIT {
            *self = Ops::default();
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

/// Equality that does not look into graphs.
fn same(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Composite(a), Op::Composite(b)) => {
            a.name == b.name && Arc::ptr_eq(&a.body, &b.body) && a.params == b.params && a.public == b.public
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
        if known.len() > LIMIT {
            known.clear();
        }
        let c = make()?;
        known.insert(key, c.clone());
        Ok(c)
    })
}
