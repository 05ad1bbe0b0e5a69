//! Single ops as programs: what runs outside compiled regions.
//!
//! The key is an op, first by its address (most equal ops are one, see `intern`), with its operands' dense types and views. A program
//! for new sizes is lowered anew, which is cheap; its kernels take sizes as arguments, so that their machine code is made
//! once (`Backend::load_general`).

use crate::lru::{Lru, hash_of};
use crate::pool::Pool;
use crate::storage::{Stored, Views};
use compiler::{Bindings, Executable, Options, Result};
use ir::{Graph, Loc, Op, Type, Value};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// Programs kept.
const CAPACITY: usize = 4096;

struct Key {
    op: Option<Arc<Op>>,
    args: SmallVec<[(Type, Views); 2]>,
}

impl Key {
    fn new(op: Option<&Arc<Op>>, args: &[Stored]) -> Key {
        Key { op: op.cloned(), args: args.iter().map(|a| (a.ty.clone(), a.views.clone())).collect() }
    }

    fn fits(&self, args: &[Stored]) -> bool {
        self.args.len() == args.len() && self.args.iter().zip(args).all(|(k, a)| k.0 == a.ty && k.1 == a.views)
    }
}

type Cache = Mutex<Lru<Key, Arc<dyn Executable>>>;

/// The programs of one device.
pub(crate) struct Kernels {
    /// By the op's address, which is quick.
    by_address: Cache,
    /// By the op's value: an op may be made anew.
    by_value: Cache,
}

fn with_args(mut hash: u64, args: &[Stored]) -> u64 {
    for a in args {
        hash = hash_of(&(hash, &a.ty, &a.views));
    }
    hash
}

impl Kernels {
    pub(crate) fn new() -> Kernels {
        Kernels { by_address: Mutex::new(Lru::new(CAPACITY)), by_value: Mutex::new(Lru::new(CAPACITY)) }
    }

    /// How many programs there are.
    pub(crate) fn len(&self) -> usize {
        self.by_value.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    /// Runs an op on values; no op makes its one operand dense.
    pub(crate) fn run(&self, pool: &Arc<Pool>, op: Option<&Arc<Op>>, args: &[Stored]) -> Result<Vec<Stored>> {
        let exe = self.program(pool, op, args)?;
        launch(&*exe, pool, args)
    }

    fn program(&self, pool: &Arc<Pool>, op: Option<&Arc<Op>>, args: &[Stored]) -> Result<Arc<dyn Executable>> {
        let address = with_args(hash_of(&op.map(Arc::as_ptr)), args);
        let here = |k: &Key| k.op.as_ref().map(Arc::as_ptr) == op.map(Arc::as_ptr) && k.fits(args);
        if let Some(exe) = self.by_address.lock().unwrap_or_else(|e| e.into_inner()).get(address, here) {
            return Ok(exe);
        }
        let value = with_args(hash_of(&op), args);
        let equal = |k: &Key| k.op.as_ref() == op && k.fits(args);
        let known = self.by_value.lock().unwrap_or_else(|e| e.into_inner()).get(value, equal);
        let exe = match known {
            Some(exe) => exe,
            None => {
                let graph = single(op.map(|op| &**op), args)?;
                let program = compiler::compile(&graph, &*pool.backend, &Options::default())?;
                let exe = pool.backend.load_general(program)?;
                let mut cache = self.by_value.lock().unwrap_or_else(|e| e.into_inner());
                cache.insert(value, Key::new(op, args), exe.clone());
                exe
            }
        };
        let mut cache = self.by_address.lock().unwrap_or_else(|e| e.into_inner());
        cache.insert(address, Key::new(op, args), exe.clone());
        Ok(exe)
    }
}

/// The graph of one op whose operands are read through their views.
fn single(op: Option<&Op>, args: &[Stored]) -> Result<Graph> {
    let mut g = Graph::new();
    let dense: Vec<Value> = args.iter().map(|a| g.input(a.ty.clone())).collect();
    let mut operands = Vec::with_capacity(args.len());
    for (a, mut v) in args.iter().zip(dense) {
        for view in &a.views {
            v = g.push(view.clone(), &[v], Loc::Unknown)?[0];
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

/// Runs a program on dense operands into fresh memory.
pub(crate) fn launch(exe: &dyn Executable, pool: &Arc<Pool>, args: &[Stored]) -> Result<Vec<Stored>> {
    let (outs, mut bindings) = bind(exe, pool, args)?;
    exe.run(&mut bindings)?;
    Ok(outs)
}

/// Fresh memory for a program's outputs, and its bindings.
pub(crate) fn bind(exe: &dyn Executable, pool: &Arc<Pool>, args: &[Stored]) -> Result<(Vec<Stored>, Bindings)> {
    let types = &exe.program().outputs;
    let mut outs = Vec::with_capacity(types.len());
    for ty in types {
        outs.push(Stored::dense(pool.acquire(ty.bytes())?, ty.clone()));
    }
    let bindings = Bindings {
        inputs: args.iter().map(|a| a.storage.buffer().clone()).collect(),
        outputs: outs.iter().map(|o| o.storage.buffer().clone()).collect(),
    };
    Ok((outs, bindings))
}
