//! `jit`: traced once per signature, compiled as one program.

use super::{Function, Select, placeholders};
use crate::{Engine, Error, Tensor, Tree, Type};
use compiler::clock::Instant;
use engine::CompiledProgram;
use engine::extension::Arguments;
use engine::lru::LruCache;
use ir::ops::Call;
use ir::{Graph, Op};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Signatures that a compiled function remembers, unless told otherwise.
const SIGNATURES: usize = 256;
/// Bytes that their graphs may hold.
const BYTES: usize = 256 << 20;

/// A function that is compiled. Made by [`jit`].
pub struct Jit<A, F: Function<A>> {
    f: F,
    donated: Option<Donated<A>>,
    entries: Mutex<Entries<F::Out>>,
    hits: AtomicU64,
    misses: AtomicU64,
    nanos: AtomicU64,
}

type Entries<R> = LruCache<Signature, Arc<Entry<R>>>;

/// Which leaves of the arguments a call may use up.
type Donated<A> = Box<dyn Fn(&A) -> Vec<usize> + Send + Sync>;

/// How often a compiled function was called, and what compiling cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitStats {
    /// Calls that found their signature.
    pub hits: u64,
    /// Calls that traced.
    pub misses: u64,
    /// Time spent on tracing and compiling.
    pub compile_time: Duration,
}

/// What a compiled function tells its calls apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// The types of the arguments' tensors.
    pub types: Vec<Type>,
    /// A hash of all else that a trace depends on: how the arguments nest, their static parts, `no_grad`, `autocast`.
    pub structure: u64,
}

/// What was made for one signature.
struct Entry<R> {
    graph: Arc<Graph>,
    /// Which leaves of the arguments the graph uses.
    used: Vec<bool>,
    captures: Vec<Tensor>,
    /// Inputs of the graph, and the outputs that may take their memory.
    donate: Vec<(usize, usize)>,
    /// The structure of the result; its tensors are of no use.
    result: R,
    /// One for each engine that it ran in.
    programs: Mutex<SmallVec<[(Engine, crate::Result<CompiledProgram>); 1]>>,
}

/// Compiles a function: it is traced once for each signature (dtypes, shapes, structure), and its calls run one fused
/// program. Tensors that it captures are inputs of the program, read anew at each call; numbers that it captures are
/// part of the program.
///
/// ```
/// use tensorloom::{Tensor, jit, tensor};
///
/// let w = tensor(&[2.0f32, 3.0], &[2]);
/// let f = jit(|x: Tensor| (&x * &w).tanh().sum());
/// let y = f.call(tensor(&[0.0f32, 0.0], &[2]));
/// f.call(tensor(&[1.0f32, 1.0], &[2]));
/// assert_eq!(y.item::<f32>()?, 0.0);
/// assert_eq!((f.stats().hits, f.stats().misses), (1, 1));
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn jit<A: Tree, F: Function<A>>(f: F) -> Jit<A, F>
where
    F::Out: Tree,
{
    let (hits, misses, nanos) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let entries = Mutex::new(LruCache::with_byte_limit(SIGNATURES, BYTES));
    Jit { f, donated: None, entries, hits, misses, nanos }
}

impl<A: Tree, F: Function<A>> Jit<A, F>
where
    F::Out: Tree,
{
    /// Lets results take the memory of these arguments: state that is replaced step by step is then updated in place. A
    /// result takes the place of the first such argument of its type. An argument that somebody else still holds is left
    /// alone, so hand it over; nothing else changes.
    ///
    /// ```
    /// use tensorloom::{Arg, Tensor, jit, ones, zeros};
    ///
    /// let step = jit(|(state, x): (Tensor, Tensor)| &state * 0.9 + x).donate(Arg::<0>);
    /// let (mut state, x) = (zeros(&[1000]), ones(&[1000]));
    /// for _ in 0..100 {
    ///     state = step.call((state, x.clone()));
    /// }
    /// assert!((state.mean().item::<f32>()? - 10.0).abs() < 1e-3);
    /// # Ok::<(), tensorloom::Error>(())
    /// ```
    pub fn donate<S: Select<A> + Send + Sync + 'static>(mut self, which: S) -> Jit<A, F>
    where
        A: 'static,
    {
        self.donated = Some(Box::new(move |args| which.positions(args)));
        self
    }

    /// Remembers at most this many signatures, instead of 256; those that were not called for longest are forgotten, with
    /// their programs, and traced again when they come back.
    pub fn capacity(self, signatures: usize) -> Jit<A, F> {
        self.entries().set_limits(signatures, BYTES);
        self
    }

    /// The signatures that it remembers, the least recently called first.
    ///
    /// ```
    /// use tensorloom::{Tensor, jit, zeros};
    ///
    /// let f = jit(|x: Tensor| x.exp());
    /// f.call(zeros(&[2]));
    /// f.call(zeros(&[3]));
    /// assert_eq!(f.signatures()[1].types[0].to_string(), "f32[3]");
    /// f.clear();
    /// assert!(f.signatures().is_empty());
    /// ```
    pub fn signatures(&self) -> Vec<Signature> {
        self.entries().entries().into_iter().map(|(s, _, _)| s.clone()).collect()
    }

    /// Forgets all signatures and their programs.
    pub fn clear(&self) {
        self.entries().clear();
    }

    fn entries(&self) -> MutexGuard<'_, Entries<F::Out>> {
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Calls the function. It runs at once if its arguments are there, else when a result is read.
    #[track_caller]
    pub fn call(&self, args: A) -> F::Out {
        let _here = crate::record::here();
        let at = crate::record::place();
        let mut hasher = FxHasher::default();
        args.structure(&mut hasher);
        engine::extension::recording_mode().hash(&mut hasher);
        let structure = hasher.finish();
        args.visit(&mut |t| t.ty().hash(&mut hasher));
        let hash = hasher.finish();
        let entry = match self.find(&args, structure, hash) {
            Some(e) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                e
            }
            None => match self.trace(&args, structure, hash) {
                Ok(e) => e,
                Err(result) => return result,
            },
        };
        // A cached call allocates only what its results are.
        let mut used = entry.used.iter();
        let mut inputs = Arguments::new();
        args.visit(&mut |t| {
            if used.next() == Some(&true) {
                inputs.push(t.clone());
            }
        });
        inputs.extend(entry.captures.iter().cloned());
        let outs = if engine::extension::is_tracing() {
            let body = entry.graph.clone();
            let inputs: SmallVec<[&Tensor; 8]> = inputs.iter().collect();
            Tensor::apply(Call { body }, &inputs, entry.graph.outputs().len()).into()
        } else {
            match self.program(&entry, &inputs) {
                Ok(p) => {
                    drop(args);
                    p.call(&at, inputs)
                }
                Err(e) => return super::fail_like(&entry.result, e),
            }
        };
        let mut outs = outs.into_iter();
        entry.result.rebuild(&mut || outs.next().expect("one for each result"))
    }

    /// Hits, misses and the time spent on compiling so far.
    pub fn stats(&self) -> JitStats {
        JitStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            compile_time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }

    fn find(&self, args: &A, structure: u64, hash: u64) -> Option<Arc<Entry<F::Out>>> {
        self.entries().get(hash, |s| {
            let mut expected = s.types.iter();
            let mut equal = s.structure == structure;
            args.visit(&mut |t| equal = equal && expected.next() == Some(t.ty()) && t.error().is_none());
            equal && expected.next().is_none()
        })
    }

    #[track_caller]
    fn trace(&self, args: &A, structure: u64, hash: u64) -> Result<Arc<Entry<F::Out>>, F::Out> {
        let start = Instant::now();
        let leaves = args.leaves();
        let types: Vec<Type> = leaves.iter().map(|t| t.ty().clone()).collect();
        let staged = placeholders(&self.f, args, &types).map_err(|e| e.result)?;
        let (graph, used) = staged.graph.without_dead_inputs();
        let captures = (staged.inputs[leaves.len()..].iter())
            .zip(&used[leaves.len()..])
            .filter(|(_, u)| **u)
            .map(|(t, _)| t.clone())
            .collect();
        let donated = self.donated.as_ref().map_or(Vec::new(), |which| which(args));
        // What the trace gave holds the whole trace.
        let nothing = Tensor::from_error(Error::InvalidTraceTensorEscape { at: ir::Loc::Unknown });
        let entry = Arc::new(Entry {
            donate: pairs(&graph, &donated, &used[..leaves.len()]),
            graph: Arc::new(graph),
            used: used[..leaves.len()].to_vec(),
            captures,
            result: staged.result.map(|_| nothing.clone()),
            programs: Mutex::default(),
        });
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.spent(start);
        let bytes = graph_bytes(&entry.graph);
        self.entries().insert_sized(hash, Signature { types, structure }, entry.clone(), bytes);
        Ok(entry)
    }

    fn program(&self, entry: &Entry<F::Out>, inputs: &[Tensor]) -> crate::Result<CompiledProgram> {
        let engine = inputs.iter().find_map(|t| t.engine()).unwrap_or_else(|| crate::engine());
        let mut programs = entry.programs.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, program)) = programs.iter().find(|(e, _)| e == engine) {
            return program.clone();
        }
        let start = Instant::now();
        let program = engine.program((*entry.graph).clone(), &entry.donate);
        self.spent(start);
        programs.push((engine.clone(), program.clone()));
        program
    }

    fn spent(&self, start: Instant) {
        self.nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// About what a graph and its program hold: constants and, for each op, types, steps and code.
fn graph_bytes(graph: &Graph) -> usize {
    const AN_OP: usize = 4096;
    let bytes = |op: &Op| match op {
        Op::Const(c) => c.0.bytes().len(),
        _ => 0,
    };
    graph.nodes().iter().map(|n| AN_OP + bytes(&n.op)).sum()
}

/// Pairs of a donated input and an output of its type, each output for one input. `used` says which leaves are inputs.
fn pairs(graph: &Graph, donated: &[usize], used: &[bool]) -> Vec<(usize, usize)> {
    let mut taken = vec![false; graph.outputs().len()];
    let mut pairs = Vec::new();
    for &leaf in donated.iter().filter(|&&leaf| used[leaf]) {
        let input = used[..leaf].iter().filter(|u| **u).count();
        let ty = graph.ty(graph.inputs()[input]);
        if let Some(o) = (0..taken.len()).find(|&o| !taken[o] && graph.ty(graph.outputs()[o]) == ty) {
            taken[o] = true;
            pairs.push((input, o));
        }
    }
    pairs
}

impl<A: Tree, F: Function<A>> Function<A> for Jit<A, F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, args: A) -> F::Out {
        self.call(args)
    }
}
