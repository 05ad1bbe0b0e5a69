//! Autotuning of matrix products on an adapter: runs on request, never while a program is loaded; results are stored on disk by
//! adapter, driver and shape.
//!
//! The results of each variant are first compared with those of the default one on the shape itself: a variant with other
//! results is rejected. The best ones are then timed in turn, many times, and one is selected only if it is clearly faster than
//! the default.

use super::backend::Wgpu;
use super::load::LoadedProgram;
use super::pipelines::folder;
use super::product::{MatmulTiling, candidate_tilings};
use compiler::program::{
    Buffer, BufferId, BufferKind, BufferSlice, Matmul, MatmulOperand, Program, ProgramParts, Step,
};
use compiler::{Bindings, Error, Executable, Result, UncheckedProgram};
use ir::{Scalar, Type};
use rustc_hash::FxHashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The measurement of one variant.
#[derive(Clone, Debug)]
pub struct Trial {
    /// A description of the variant.
    pub way: String,
    /// The time of a run on the device; none if it gave other results.
    pub time: Option<Duration>,
}

/// The properties of a shape that affect the choice.
type Key = String;

fn key(s: &Matmul) -> Key {
    let along = |k: isize, other: isize| k.unsigned_abs() <= other.unsigned_abs();
    let (a, b) = (along(s.a[2], s.a[1]) as u8, along(s.b[1], s.b[2]) as u8);
    format!("{} {} {} {} {} {} {a}{b}", s.dtype, s.out, s.batch, s.m, s.n, s.k)
}

/// The cache of the best variants.
pub(super) struct AutotuneCache {
    ways: Mutex<FxHashMap<Key, MatmulTiling>>,
    path: Option<PathBuf>,
    /// The variant that is being measured, regardless of the cache; the default one if none.
    forced: Mutex<Option<Option<MatmulTiling>>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl AutotuneCache {
    /// Reads the cache of an adapter.
    pub(super) fn read(info: &wgpu::AdapterInfo) -> AutotuneCache {
        let name: String = format!("{} {} {}", info.name, info.driver, info.driver_info);
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = folder().map(|f| f.join(format!("products-{name}.txt")));
        let text = path.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
        AutotuneCache { ways: Mutex::new(text.lines().filter_map(parse).collect()), path, forced: Mutex::new(None) }
    }

    /// The best known variant.
    pub(super) fn way(&self, shape: &Matmul) -> Option<MatmulTiling> {
        let forced = *lock(&self.forced);
        forced.unwrap_or_else(|| lock(&self.ways).get(&key(shape)).copied())
    }

    /// Stores the best variant, the default one if none.
    fn keep(&self, shape: &Matmul, way: Option<MatmulTiling>) {
        let mut ways = lock(&self.ways);
        match way {
            Some(way) => ways.insert(key(shape), way),
            None => ways.remove(&key(shape)),
        };
        let Some(path) = &self.path else { return };
        let mut lines: Vec<String> = ways.iter().map(|(k, w)| line(k, w)).collect();
        lines.sort();
        // A failure only costs time in the next process.
        let folder = path.parent().map(std::fs::create_dir_all);
        let own = path.with_extension(format!("{}.new", std::process::id()));
        if matches!(folder, Some(Ok(()))) && std::fs::write(&own, lines.concat()).is_ok() {
            let _ = std::fs::rename(&own, path);
        }
    }
}

fn line(key: &str, w: &MatmulTiling) -> String {
    let (ahead, units) = (w.prefetch as u8, w.coop_matrix as u8);
    format!(
        "{key} = {} {} {} {} {} {ahead} {} {units}\n",
        w.tile.0, w.tile.1, w.thread_tile.0, w.thread_tile.1, w.k_tile, w.split_k
    )
}

/// Parses a line of the file; invalid lines are ignored.
fn parse(line: &str) -> Option<(Key, MatmulTiling)> {
    let (key, rest) = line.split_once(" = ")?;
    let n: Vec<usize> = rest.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [t0, t1, e0, e1, depth, ahead, splits, units] = n[..] else { return None };
    let way = MatmulTiling {
        tile: (t0, t1),
        thread_tile: (e0, e1),
        k_tile: depth,
        prefetch: ahead == 1,
        split_k: splits,
        coop_matrix: units == 1,
    };
    let tiles = [t0, t1].iter().all(|t| matches!(t, 32 | 64 | 128)) && [e0, e1].iter().all(|e| matches!(e, 4 | 8));
    let fits = 4 * depth * (t0 + t1) <= 16 << 10 && matches!(depth, 8 | 16 | 32);
    let by_threads = units == 0 && tiles && fits && (t0 / e0) * (t1 / e1) <= 256;
    let known = (by_threads || way.uses_coop_matrix()) && ahead <= 1 && units <= 1 && (1..=1024).contains(&splits);
    known.then(|| (key.to_string(), way))
}

/// A program with a single product, over dense memory of the operands' extents.
fn program(s: &Matmul) -> Program {
    let extent = |strides: [isize; 3], sizes: [usize; 3]| {
        let far: usize = (0..3).map(|d| strides[d].unsigned_abs() * sizes[d].saturating_sub(1)).sum();
        far + 1
    };
    let a = Type::new(s.dtype, &[extent(s.a, [s.batch, s.m, s.k])]);
    let b = Type::new(s.dtype, &[extent(s.b, [s.batch, s.k, s.n])]);
    let c = Type::new(s.out, &[extent(s.c, [s.batch, s.m, s.n])]);
    let buffer = |ty: &Type, class| Buffer { ty: ty.clone(), kind: class, offset: 0, lifetime: Some((0, 0)) };
    let place = |n| BufferSlice::of(BufferId(n));
    let parts = ProgramParts {
        buffers: vec![
            buffer(&a, BufferKind::Input(0)),
            buffer(&b, BufferKind::Input(1)),
            buffer(&c, BufferKind::Output(0)),
        ],
        inputs: vec![a, b],
        outputs: vec![c],
        steps: vec![Step::Matmul {
            shape: Box::new(s.clone()),
            a: MatmulOperand::Memory(place(0)),
            b: MatmulOperand::Memory(place(1)),
            c: Some(place(2)),
            epilogue: None,
        }],
        arena_bytes: 0,
        max_loop_depth: 0,
        donated: Vec::new(),
    };
    // SAFETY: the buffers have the extents of the product.
    unsafe { UncheckedProgram::new(parts).assume_verified() }
}

/// Numbers of ±1, quantized so that products are nearly exact.
fn numbers(ty: &Type) -> Vec<u8> {
    let mut state = 1u32;
    let mut all = Vec::with_capacity(ty.bytes());
    for _ in 0..ty.numel() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = (state >> 27) as f64 / 16.0 - 1.0;
        all.extend_from_slice(&Scalar::from_f64(ty.dtype, x).bits().to_le_bytes()[..ty.dtype.size()]);
    }
    all
}

fn results(ty: &Type, bytes: &[u8]) -> Vec<f64> {
    let size = ty.dtype.size();
    let one = |raw: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(raw);
        Scalar::from_bits(ty.dtype, u64::from_le_bytes(word)).to_f64()
    };
    bytes.chunks_exact(size).map(one).collect()
}

/// The number of measurements of each variant, and of the comparisons between the best ones.
const LOOKS: usize = 3;
const ROUNDS: usize = 9;
/// The number of best variants that are compared again.
const FINALISTS: usize = 4;
/// The required ratio to the default's time; smaller differences are measurement noise.
const GAIN: f64 = 0.97;

/// A variant on its shape: its results, ready to be timed.
struct Candidate {
    way: Option<MatmulTiling>,
    loaded: LoadedProgram,
    time: Duration,
}

impl Candidate {
    /// Times it once; without timestamps there is no measurement.
    fn time_once(&mut self, bindings: &mut Bindings) -> Result<()> {
        let total: Duration = self.loaded.run_timed(bindings)?.iter().map(|t| t.time).sum();
        self.time = self.time.min(if total.is_zero() { Duration::MAX } else { total });
        Ok(())
    }
}

fn name(way: Option<MatmulTiling>) -> String {
    let Some(w) = way else { return "usual".into() };
    let (ahead, units) = (if w.prefetch { " ahead" } else { "" }, if w.coop_matrix { " units" } else { "" });
    let (tile, each) = (w.tile, w.thread_tile);
    format!("{}x{} {}x{} {}{ahead}{units} /{}", tile.0, tile.1, each.0, each.1, w.k_tile, w.split_k)
}

pub(super) fn tune(device: &Wgpu, shape: &Matmul) -> Result<Vec<Trial>> {
    let inner = device.inner();
    if [shape.a, shape.b, shape.c].iter().flatten().any(|s| *s < 0) {
        return Err(Error::Backend("products with negative strides are not tuned".into()));
    }
    let program = program(shape);
    let mut bindings = Bindings::for_program(&program, device)?;
    for (b, t) in bindings.inputs.iter().zip(&program.inputs) {
        b.write(0, &numbers(t))?;
    }
    let out = program.outputs[0].clone();
    let run = |way: Option<MatmulTiling>, bindings: &mut Bindings| -> Result<(Vec<f64>, Candidate)> {
        *lock(&inner.tuned.forced) = Some(way);
        let loaded = LoadedProgram::new(inner, program.clone());
        *lock(&inner.tuned.forced) = None;
        let mut candidate = Candidate { way, loaded: loaded?, time: Duration::MAX };
        bindings.outputs[0].write(0, &vec![0xff; out.bytes()])?;
        candidate.loaded.run(bindings)?;
        let mut bytes = vec![0; out.bytes()];
        bindings.outputs[0].read(0, &mut bytes)?;
        (0..LOOKS).try_for_each(|_| candidate.time_once(bindings))?;
        Ok((results(&out, &bytes), candidate))
    };
    let (want, usual) = run(None, &mut bindings)?;
    let largest = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let tolerance = if out.dtype == ir::DType::F32 { 1e-5 } else { 1e-2 };
    let mut trials = Vec::new();
    let mut finalists: Vec<Candidate> = Vec::new();
    for way in candidate_tilings(shape, inner.device.squares()) {
        let (got, candidate) = run(Some(way), &mut bindings)?;
        let right = got.len() == want.len() && got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= tolerance * largest);
        trials.push(Trial { way: name(Some(way)), time: right.then_some(candidate.time) });
        if right {
            finalists.push(candidate);
            finalists.sort_by_key(|c| c.time);
            finalists.truncate(FINALISTS);
        }
    }
    // The best ones in turn, including the default, so that other load on the machine affects all of them.
    finalists.insert(0, usual);
    finalists.iter_mut().for_each(|c| c.time = Duration::MAX);
    for _ in 0..ROUNDS {
        finalists.iter_mut().try_for_each(|c| c.time_once(&mut bindings))?;
    }
    trials.retain(|t| t.time.is_none() || finalists.iter().all(|c| name(c.way) != t.way));
    trials.extend(finalists.iter().map(|c| Trial { way: name(c.way), time: Some(c.time) }));
    // Without timestamps no variant is selected.
    let best = finalists.iter().min_by_key(|c| c.time);
    match best.map(|c| (c.way, c.time)) {
        Some((Some(way), time)) if time < finalists[0].time.mul_f64(GAIN) => inner.tuned.keep(shape, Some(way)),
        Some((_, time)) if time < Duration::MAX => inner.tuned.keep(shape, None),
        _ => {}
    }
    Ok(trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_nonsense_is_not() {
        let way = MatmulTiling {
            tile: (64, 128),
            thread_tile: (8, 8),
            k_tile: 16,
            prefetch: true,
            split_k: 4,
            coop_matrix: false,
        };
        let on_units = MatmulTiling { tile: (128, 128), thread_tile: (64, 32), k_tile: 32, coop_matrix: true, ..way };
        for way in [way, on_units] {
            let text = line("f32 f32 1 512 768 768 10", &way);
            assert_eq!(parse(text.trim_end()), Some(("f32 f32 1 512 768 768 10".into(), way)));
        }
        for bad in [
            "",
            "f32",
            "x = 1 2 3",
            "x = 64 64 8 8 16 1 1",
            "x = 64 64 8 8 16 1 0 0",
            "x = 128 128 4 4 16 1 1 0",
            "x = 128 128 8 8 64 1 1 0",
            "x = 128 128 8 8 16 1 1 1",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
