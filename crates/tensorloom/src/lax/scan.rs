//! `scan`: a loop that carries values and stacks outputs.

use crate::function::{Function, fail_like};
use crate::{Error, Result, Tensor, Tree, Type, record, trace};
use ir::ops::Scan as ScanOp;
use ir::{DType, Loc};

/// What reverse mode keeps of a scan's iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// Everything, unless that is much: then as `Sqrt`.
    #[default]
    Auto,
    /// Everything that backward needs, for every iteration.
    All,
    /// About √n carries; the iterations between are computed again.
    Sqrt,
    /// The carry of every n-th iteration.
    Every(usize),
}

/// How a scan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanPath {
    /// The whole loop is one step of the program. This is how loops run, unless asked otherwise.
    CompiledLoop,
    /// The body is a program; all its calls are recorded ahead and run together when a result is read.
    Preencoded,
    /// The body is a program that the host calls, waiting for each iteration: an error names it, and no more than one
    /// iteration's memory is in use.
    Fallback,
}

/// Stored carries of more bytes than this make `Checkpoint::Auto` compute again.
const KEEP: usize = 64 << 20;

/// A loop with its options.
///
/// ```
/// use tensorloom::{Tensor, full, lax};
///
/// // xₙ₊₁ = xₙ / 2, five times, without inputs and outputs.
/// let (x, ()) = lax::Scan::new().length(5).run(|(x, ()): (Tensor, ())| (x * 0.5, ()), full(&[], 32.0), ());
/// assert_eq!(x.item::<f32>()?, 1.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scan {
    length: Option<usize>,
    reverse: bool,
    checkpoint: Checkpoint,
    count: Option<Tensor>,
    path: Option<ScanPath>,
    accept: Option<Vec<ScanPath>>,
}

/// Loops over the first axis of `xs`: `f` maps a carry and a slice of `xs` to the next carry and an output; outputs are
/// stacked. All three may be any tree; `()` is none.
///
/// ```
/// use tensorloom::{Tensor, full, lax, tensor};
///
/// let xs = tensor(&[1.0f32, 2.0, 3.0], &[3]);
/// let (sum, partial) = lax::scan(|(c, x): (Tensor, Tensor)| (&c + &x, c), full(&[], 0.0), xs);
/// assert_eq!(sum.item::<f32>()?, 6.0);
/// assert_eq!(partial.to_vec::<f32>()?, [0.0, 1.0, 3.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn scan<C: Tree, X: Tree, Y: Tree>(f: impl Function<(C, X), Out = (C, Y)>, init: C, xs: X) -> (C, Y) {
    let _here = crate::record::here();
    Scan::new().run(f, init, xs)
}

impl Scan {
    /// A forward scan.
    pub fn new() -> Scan {
        Scan::default()
    }

    /// The number of iterations; needed where there are no `xs`.
    pub fn length(mut self, n: usize) -> Scan {
        self.length = Some(n);
        self
    }

    /// From the last slice to the first.
    pub fn reverse(mut self) -> Scan {
        self.reverse = true;
        self
    }

    /// What reverse mode keeps.
    pub fn checkpoint(mut self, what: Checkpoint) -> Scan {
        self.checkpoint = what;
        self
    }

    /// Runs only the first `count` iterations, an i32 of rank 0 known when the program runs; outputs beyond are zero.
    pub fn count(mut self, count: &Tensor) -> Scan {
        self.count = Some(count.clone());
        self
    }

    /// Runs the loop on this path instead of the best one: to find an iteration that fails, or to compare.
    ///
    /// ```
    /// use tensorloom::{Tensor, full, lax, tensor};
    ///
    /// let f = |(c, x): (Tensor, Tensor)| (&c * 0.5 + &x, c);
    /// let run = |scan: lax::Scan| scan.run(f, full(&[], 0.0), tensor(&[1.0f32, 2.0, 3.0], &[3])).0.item::<f32>();
    /// let by_host = run(lax::Scan::new().path(lax::ScanPath::Fallback))?;
    /// assert_eq!(by_host, run(lax::Scan::new())?);
    /// # Ok::<(), tensorloom::Error>(())
    /// ```
    pub fn path(mut self, path: ScanPath) -> Scan {
        self.path = Some(path);
        self
    }

    /// Fails unless the loop runs on one of these paths. An empty list always fails and says which path it is.
    pub fn accept_path(mut self, paths: &[ScanPath]) -> Scan {
        self.accept = Some(paths.to_vec());
        self
    }

    pub(crate) fn bound(&self) -> Option<&Tensor> {
        self.count.as_ref()
    }

    pub(crate) fn is_reverse(&self) -> bool {
        self.reverse
    }

    /// Runs the loop.
    #[track_caller]
    pub fn run<C: Tree, X: Tree, Y: Tree>(&self, f: impl Function<(C, X), Out = (C, Y)>, init: C, xs: X) -> (C, Y) {
        let _here = crate::record::here();
        let at = crate::record::place();
        let types = self.types(&init, &xs, &at);
        let (length, types) = match types {
            Ok(t) => t,
            Err(e) => {
                let args = (fail_like(&init, e.clone()), fail_like(&xs, e.clone()));
                return fail_like(&f.apply(args), e);
            }
        };
        let mut result = None;
        let carries = init.leaves();
        let traced = trace::trace(&types, |t| {
            let mut next = t.iter();
            let mut take = || next.next().expect("one for each").clone();
            let (c, y) = f.apply((init.rebuild(&mut take), xs.rebuild(&mut take)));
            let mut outs = c.leaves();
            outs.extend(y.leaves());
            result = Some((c, y));
            outs
        });
        let result = result.expect("the body was traced");
        let made = traced.map_err(Error::from).and_then(|body| {
            check_carries(&carries, &result.0, &at)?;
            match self.path {
                Some(path @ (ScanPath::Preencoded | ScanPath::Fallback)) => {
                    self.iterate(path, body, &carries, &xs.leaves(), length, &at)
                }
                _ => self.emit(body, &carries, &xs, length, &at),
            }
        });
        match made {
            Ok(outs) => {
                let mut outs = outs.into_iter();
                result.rebuild(&mut || outs.next().expect("one for each result"))
            }
            Err(e) => fail_like(&result, e),
        }
    }

    /// The number of iterations, and the types that the body sees.
    fn types<C: Tree, X: Tree>(&self, init: &C, xs: &X, at: &Loc) -> Result<(usize, Vec<Type>)> {
        let bad = |reason: String| Error::Call { op: "scan", reason, at: at.clone() };
        let path = self.path.unwrap_or(ScanPath::CompiledLoop);
        if let Some(paths) = &self.accept
            && !paths.contains(&path)
        {
            let why = match self.path {
                None => "this device compiles every loop, with bodies of any ops, into the program",
                Some(_) => "it was asked for",
            };
            return Err(bad(format!("the path is {path:?} ({why}), which is not among {paths:?}")));
        }
        if path != ScanPath::CompiledLoop && engine::extension::is_tracing() {
            let text = "inside a traced function a loop is part of the program: its path is CompiledLoop";
            return Err(bad(format!("{text}, not {path:?}; run it outside, or do not request a path")));
        }
        let (carries, slices) = (init.leaves(), xs.leaves());
        if let Some(e) = carries.iter().chain(&slices).find_map(|t| t.error()) {
            return Err(e);
        }
        let mut length = self.length;
        let mut types: Vec<Type> = carries.iter().map(|t| t.ty().clone()).collect();
        for (i, t) in slices.iter().enumerate() {
            let Some(&n) = t.shape().first() else {
                return Err(bad(format!("xs[{i}] is {}, which has no axis to loop over", t.ty())));
            };
            if *length.get_or_insert(n) != n {
                let n = length.unwrap_or(n);
                return Err(bad(format!("xs[{i}] is {}, but the loop has {n} iterations", t.ty())));
            }
            types.push(t.ty().unbatched());
        }
        match length {
            Some(n) => Ok((n, types)),
            None => Err(bad("without xs, give the number of iterations with length".into())),
        }
    }

    #[track_caller]
    fn emit<X: Tree>(
        &self,
        body: trace::TracedFn,
        carries: &[Tensor],
        xs: &X,
        length: usize,
        at: &Loc,
    ) -> Result<Vec<Tensor>> {
        let slices = xs.leaves();
        let consts = body.captures.len();
        // The body takes carries, slices, captures; a scan wants what is constant first.
        let mut graph = ir::Graph::new();
        let types = body.graph.input_types();
        let args = carries.len() + slices.len();
        let constant: Vec<_> = types[args..].iter().map(|t| graph.input(t.clone())).collect();
        let mut inputs: Vec<_> = types[..args].iter().map(|t| graph.input(t.clone())).collect();
        inputs.extend(constant);
        let outs = body.graph.inline(&mut graph, &inputs)?;
        graph.set_outputs(outs);
        let results = graph.outputs().len();
        let bytes: usize = carries.iter().map(|t| t.ty().bytes()).sum::<usize>().saturating_mul(length);
        let op = ScanOp {
            reverse: self.reverse,
            bounded: self.count.is_some(),
            checkpoint: match self.checkpoint {
                Checkpoint::Auto if bytes <= KEEP => ir::ops::ScanCheckpoint::All,
                Checkpoint::All => ir::ops::ScanCheckpoint::All,
                Checkpoint::Auto | Checkpoint::Sqrt => ir::ops::ScanCheckpoint::sqrt(length),
                Checkpoint::Every(n) => ir::ops::ScanCheckpoint::EveryN(n.max(1)),
            },
            ..ScanOp::over(consts, carries.len(), length, graph)
        };
        compiler::debug::say(1, || {
            let (c, x) = (carries.len(), slices.len());
            format!("== scan at {at}: path CompiledLoop, {length} iterations, {c} carries, {x} inputs")
        });
        let count = self.count.as_ref().map(|c| c.cast(DType::I32));
        let operands: Vec<&Tensor> = (count.iter().chain(&body.captures).chain(carries).chain(&slices)).collect();
        let mut outs = record::many(results, &operands, |b, v| b.emit(op.into(), v));
        if let Some(e) = outs.first().and_then(|t| t.error()) {
            return Err(e);
        }
        outs.truncate(results);
        Ok(outs)
    }
}

/// Says which carry changes its type.
pub(crate) fn check_carries<C: Tree>(before: &[Tensor], after: &C, at: &Loc) -> Result<()> {
    let after = after.leaves();
    let bad = |reason: String| Error::Call { op: "a loop", reason, at: at.clone() };
    if before.len() != after.len() {
        return Err(bad(format!("{} carries go in and {} come out", before.len(), after.len())));
    }
    for (i, (b, a)) in before.iter().zip(&after).enumerate() {
        if b.ty() != a.ty() {
            let text = format!("carry {i} goes in as {} and comes out as {}; its type can't change", b.ty(), a.ty());
            return Err(bad(text));
        }
    }
    Ok(())
}
