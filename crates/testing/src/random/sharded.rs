//! Random bodies of a `shard_map`: local ops and collectives over a random mesh.
//!
//! The generator tracks itself over which axes a value varies, independently of `ir::varying_axes`, so that each checks the
//! other.

use crate::{FillKind, Rng};
use ir::ops::{Call, CollectiveKind as Kind, Remat, Scan, ShardMap};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Mesh, MeshAxis, Spec, Unary, Value};
use std::collections::BTreeSet;

/// A graph of one `shard_map` with inputs.
pub struct ShardedSample {
    /// The seed, which reproduces it.
    pub seed: u64,
    /// The graph.
    pub graph: Graph,
    /// Its inputs.
    pub inputs: Vec<Literal>,
    /// The names of its collectives.
    pub collectives: Vec<&'static str>,
}

type Axes = BTreeSet<usize>;

struct ShardMapGenerator<'a> {
    rng: &'a mut Rng,
    mesh: &'a Mesh,
    b: Builder,
    pool: Vec<(Value, Axes)>,
}

/// A random sample.
pub fn sharded_sample(seed: u64) -> ShardedSample {
    let mut rng = Rng::new(seed);
    let meshes: [&[(&str, usize)]; 5] =
        [&[("x", 2)], &[("x", 3)], &[("x", 2), ("y", 2)], &[("x", 2), ("y", 1)], &[("x", 3), ("y", 2)]];
    let mesh = Mesh::new(meshes[rng.below(meshes.len())]).expect("a mesh");
    let all: usize = mesh.ranks();
    let mut b = Builder::new();
    let (mut pool, mut ins, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 + rng.below(2) {
        let rank = rng.below(3);
        let local: Vec<usize> = (0..rank).map(|_| *rng.pick(&[all, all, 2 * all])).collect();
        let mut spec = vec![Vec::new(); rank];
        let mut set = Axes::new();
        for (i, a) in mesh.axes().iter().enumerate() {
            if rank > 0 && rng.bernoulli(0.6) {
                spec[rng.below(rank)].push(a.name.clone());
                set.insert(i);
            }
        }
        let spec = Spec(spec);
        let v = b.input(DType::F64, &local);
        whole.push(spec.global_type(&mesh, &b.ty(v)).expect("small"));
        ins.push(spec);
        pool.push((v, set));
    }
    let mut g = ShardMapGenerator { rng: &mut rng, mesh: &mesh, b, pool };
    for _ in 0..g.rng.below(8) + 3 {
        g.step();
    }
    let (mut outs, mut specs) = (Vec::new(), Vec::new());
    for k in 0..2 {
        let (v, set) = g.pool[g.pool.len() - 1 - k].clone();
        let axes: Vec<MeshAxis> = set.iter().map(|&i| g.mesh.axes()[i].clone()).collect();
        if axes.is_empty() {
            outs.push(v);
            specs.push(Spec::replicated());
        } else if g.b.ty(v).rank() == 0 {
            outs.push(g.b.psum(v, &axes).expect("a sum"));
            specs.push(Spec::replicated());
        } else {
            outs.push(v);
            specs.push(Spec(vec![axes.into_iter().map(|a| a.name).collect()]));
        }
    }
    let body = g.b.finish(&outs);
    let mut collectives: Vec<&'static str> = body.nodes().iter().map(|n| n.op.name()).collect();
    collectives.retain(|n| n.starts_with('p') || n.starts_with("all_") || *n == "axis_index");
    let map = ShardMap::new(mesh.clone(), ins, specs, body).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut b = Builder::new();
    let args: Vec<Value> = whole.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(map.into(), &args).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let inputs = whole.iter().map(|t| FillKind::Uniform(-1.5, 1.5).random_tensor(t, &mut rng)).collect();
    ShardedSample { seed, graph: b.finish(&outs), inputs, collectives }
}

impl ShardMapGenerator<'_> {
    fn any(&mut self) -> (Value, Axes) {
        // Recent values with higher probability, so that graphs are deep.
        let n = self.pool.len();
        let at = (self.rng.below(n)).max(self.rng.below(n));
        self.pool[at].clone()
    }

    fn axes(&self, set: &Axes) -> Vec<MeshAxis> {
        set.iter().map(|&i| self.mesh.axes()[i].clone()).collect()
    }

    /// A random subset of the axes, in any order.
    fn some(&mut self, set: &Axes) -> (Axes, Vec<MeshAxis>) {
        let list: Vec<usize> = set.iter().copied().collect();
        let mut chosen: Vec<usize> = list.iter().copied().filter(|_| self.rng.bernoulli(0.6)).collect();
        if chosen.is_empty() {
            chosen.push(*self.rng.pick(&list));
        }
        let order = self.rng.permutation(chosen.len());
        let axes = order.iter().map(|&i| self.mesh.axes()[chosen[i]].clone()).collect();
        (chosen.into_iter().collect(), axes)
    }

    fn step(&mut self) {
        let (x, set) = self.any();
        let ty = self.b.ty(x);
        let everything: Axes = (0..self.mesh.axes().len()).collect();
        let shared: Axes = everything.difference(&set).copied().collect();
        let made: ir::Result<(Value, Axes)> = match self.rng.below(16) {
            0 => {
                let op = *self.rng.pick(&[Unary::Tanh, Unary::Sin, Unary::Logistic]);
                self.b.unary(op, x).map(|v| (v, set))
            }
            1 | 2 => {
                let (y, other) = self.any();
                let both: Axes = set.union(&other).copied().collect();
                let (shape, of_y) = (ty.shape.clone(), self.b.ty(y));
                let y = match of_y.shape == shape {
                    true => Ok(y),
                    false => self.b.sum_all(y).and_then(|s| self.b.scale(s, 0.1)).and_then(|s| self.b.splat(s, &shape)),
                };
                let add = self.rng.bernoulli(0.5);
                y.and_then(|y| if add { self.b.add(x, y) } else { self.b.mul(x, y) }).map(|v| (v, both))
            }
            3 if ty.rank() == 2 => {
                let (y, other) = self.any();
                let both: Axes = set.union(&other).copied().collect();
                if self.b.ty(y).shape.first() != Some(&ty.shape[1]) || self.b.ty(y).rank() != 2 {
                    return;
                }
                self.b.matmul(x, y).and_then(|v| self.b.scale(v, 0.3)).map(|v| (v, both))
            }
            4 if ty.rank() > 0 => {
                let axis = self.rng.below(ty.rank());
                self.b.sum(x, &[axis]).map(|v| (v, set))
            }
            5 if !set.is_empty() => {
                let (gone, axes) = self.some(&set);
                let left = set.difference(&gone).copied().collect();
                self.b.psum(x, &axes).map(|v| (v, left))
            }
            6 if !set.is_empty() => {
                let (gone, axes) = self.some(&set);
                let left = set.difference(&gone).copied().collect();
                let kind = if self.rng.bernoulli(0.5) { Kind::Max } else { Kind::Min };
                // The values of ranks are far apart, because finite differences cannot check ties.
                let far = self.b.axis_index(&axes).and_then(|i| self.b.cast(i, DType::F64));
                let far = far.and_then(|i| self.b.scale(i, 1000.0)).and_then(|i| self.b.splat(i, &ty.shape));
                let apart = far.and_then(|i| self.b.add(i, x));
                let picked = apart.and_then(|x| self.b.collective(kind, x, &axes));
                picked.and_then(|v| self.b.scale(v, 1e-3)).map(|v| (v, left))
            }
            7 if !set.is_empty() && ty.rank() > 0 && ty.numel() < 200 => {
                let (gone, axes) = self.some(&set);
                let same = self.rng.bernoulli(0.5);
                let left = if same { set.difference(&gone).copied().collect() } else { set };
                let dim = self.rng.below(ty.rank());
                self.b.collective(Kind::AllGather { dim, same, turn: 0 }, x, &axes).map(|v| (v, left))
            }
            8 | 9 if !set.is_empty() && ty.rank() > 0 => {
                let (_, axes) = self.some(&set);
                let n: usize = axes.iter().map(|a| a.size).product();
                let dim = self.rng.below(ty.rank());
                if ty.shape[dim] % n != 0 {
                    return;
                }
                let join = self.rng.below(ty.rank());
                let kind = if self.rng.bernoulli(0.5) {
                    Kind::ReduceScatter { dim }
                } else {
                    Kind::AllToAll { split: dim, join }
                };
                self.b.collective(kind, x, &axes).map(|v| (v, set))
            }
            10 if !set.is_empty() => {
                let (_, axes) = self.some(&set);
                let n: usize = axes.iter().map(|a| a.size).product();
                let (from, to) = (self.rng.permutation(n), self.rng.permutation(n));
                let pairs = from.into_iter().zip(to).take(1 + self.rng.below(n)).collect();
                self.b.collective(Kind::Permute { pairs }, x, &axes).map(|v| (v, set))
            }
            11 if !shared.is_empty() && ty.rank() > 0 => {
                let (more, axes) = self.some(&shared);
                let n: usize = axes.iter().map(|a| a.size).product();
                let dim = self.rng.below(ty.rank());
                if ty.shape[dim] % n != 0 {
                    return;
                }
                let wide = set.union(&more).copied().collect();
                self.b.collective(Kind::ShardSlice { dim }, x, &axes).map(|v| (v, wide))
            }
            12 => {
                let (who, axes) = self.some(&everything);
                let wide = set.union(&who).copied().collect();
                let made = self.b.axis_index(&axes).and_then(|i| self.b.cast(i, DType::F64));
                let made = made.and_then(|i| self.b.splat(i, &ty.shape));
                made.and_then(|i| self.b.offset(i, 0.5)).and_then(|i| self.b.mul(i, x)).map(|v| (v, wide))
            }
            13 => self.looped(x, &set).map(|v| (v, set)),
            14 => {
                let axes = self.axes(&set);
                let body = self.inner(x, &axes);
                let op = if self.rng.bernoulli(0.5) {
                    body.map(|g| Call::new(g).into())
                } else {
                    body.map(|g| Remat::new(g).into())
                };
                op.and_then(|op| self.b.one(op, &[x])).map(|v| (v, Axes::new()))
            }
            _ => return,
        };
        let (v, set) = made.expect("the generator writes what fits");
        if self.b.ty(v).numel() <= 400 {
            self.pool.push((v, set));
        }
    }

    /// `sin(psum(x))`.
    fn inner(&mut self, x: Value, axes: &[MeshAxis]) -> ir::Result<Graph> {
        let mut b = Builder::new();
        let v = b.graph.input(self.b.ty(x));
        let y = if axes.is_empty() { v } else { b.psum(v, axes)? };
        let y = b.unary(Unary::Sin, y)?;
        Ok(b.finish(&[y]))
    }

    /// Three rounds of `h ← tanh(h + psum(h)/4)`.
    fn looped(&mut self, x: Value, set: &Axes) -> ir::Result<Value> {
        let axes = self.axes(set);
        let mut b = Builder::new();
        let h = b.graph.input(self.b.ty(x));
        let s = if axes.is_empty() { h } else { b.psum(h, &axes)? };
        let s = b.scale(s, 0.25)?;
        let y = b.add(h, s)?;
        let y = b.unary(Unary::Tanh, y)?;
        self.b.one(Scan::over(0, 1, 3, b.finish(&[y])).into(), &[x])
    }
}
