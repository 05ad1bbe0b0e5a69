//! How products are computed best on an adapter: measured when somebody asks for it, never while a program is loaded; kept on disk by
//! adapter, driver and shape.
//!
//! Each way is first compared with the plain one on the shape itself: one that gives other numbers is never timed.

use super::backend::Wgpu;
use super::load::Loaded;
use super::pipelines::folder;
use super::product::{Way, ways};
use compiler::program::{Buffer, BufferId, Class, Factor, Matmul, Place, Program, Step};
use compiler::{Bindings, Error, Executable, Result};
use ir::{Scalar, Type};
use rustc_hash::FxHashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// What was measured of one way to compute a product.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The way, for people.
    pub way: String,
    /// Time of a run on the device; none if it gave other numbers.
    pub time: Option<Duration>,
}

/// A shape, as far as ways differ by it.
type Key = String;

fn key(s: &Matmul) -> Key {
    let along = |k: isize, other: isize| k.unsigned_abs() <= other.unsigned_abs();
    let (a, b) = (along(s.a[2], s.a[1]) as u8, along(s.b[1], s.b[2]) as u8);
    format!("{} {} {} {} {} {} {a}{b}", s.dtype, s.out, s.batch, s.m, s.n, s.k)
}

/// The best ways that are known.
pub(super) struct Tuned {
    ways: Mutex<FxHashMap<Key, Way>>,
    path: Option<PathBuf>,
    /// Tried now, whatever is known.
    forced: Mutex<Option<Way>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl Tuned {
    /// What is known of an adapter.
    pub(super) fn read(info: &wgpu::AdapterInfo) -> Tuned {
        let name: String = format!("{} {} {}", info.name, info.driver, info.driver_info);
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = folder().map(|f| f.join(format!("products-{name}.txt")));
        let text = path.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
        Tuned { ways: Mutex::new(text.lines().filter_map(parse).collect()), path, forced: Mutex::new(None) }
    }

    /// The best way that is known.
    pub(super) fn way(&self, shape: &Matmul) -> Option<Way> {
        lock(&self.forced).or_else(|| lock(&self.ways).get(&key(shape)).copied())
    }

    fn keep(&self, shape: &Matmul, way: Way) {
        let mut ways = lock(&self.ways);
        ways.insert(key(shape), way);
        let Some(path) = &self.path else { return };
        let mut lines: Vec<String> = ways.iter().map(|(k, w)| line(k, w)).collect();
        lines.sort();
        // Failing that costs time, nothing else.
        let folder = path.parent().map(std::fs::create_dir_all);
        let own = path.with_extension(format!("{}.new", std::process::id()));
        if matches!(folder, Some(Ok(()))) && std::fs::write(&own, lines.concat()).is_ok() {
            let _ = std::fs::rename(&own, path);
        }
    }
}

fn line(key: &str, w: &Way) -> String {
    let (ahead, units) = (w.ahead as u8, w.units as u8);
    format!("{key} = {} {} {} {} {} {ahead} {} {units}\n", w.tile.0, w.tile.1, w.each.0, w.each.1, w.depth, w.splits)
}

/// A line of the file; what makes no sense is as good as not there.
fn parse(line: &str) -> Option<(Key, Way)> {
    let (key, rest) = line.split_once(" = ")?;
    let n: Vec<usize> = rest.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [t0, t1, e0, e1, depth, ahead, splits, units] = n[..] else { return None };
    let way = Way { tile: (t0, t1), each: (e0, e1), depth, ahead: ahead == 1, splits, units: units == 1 };
    let tiles = [t0, t1].iter().all(|t| matches!(t, 32 | 64 | 128)) && [e0, e1].iter().all(|e| matches!(e, 4 | 8));
    let fits = 4 * depth * (t0 + t1) <= 16 << 10 && matches!(depth, 8 | 16 | 32);
    let by_threads = units == 0 && tiles && fits && (t0 / e0) * (t1 / e1) <= 256;
    let known = (by_threads || way.is_on_units()) && ahead <= 1 && units <= 1 && (1..=1024).contains(&splits);
    known.then(|| (key.to_string(), way))
}

/// A program that is one product, over dense memory of the operands' extents.
fn program(s: &Matmul) -> Program {
    let extent = |strides: [isize; 3], sizes: [usize; 3]| {
        let far: usize = (0..3).map(|d| strides[d].unsigned_abs() * sizes[d].saturating_sub(1)).sum();
        far + 1
    };
    let a = Type::new(s.dtype, &[extent(s.a, [s.batch, s.m, s.k])]);
    let b = Type::new(s.dtype, &[extent(s.b, [s.batch, s.k, s.n])]);
    let c = Type::new(s.out, &[extent(s.c, [s.batch, s.m, s.n])]);
    let buffer = |ty: &Type, class| Buffer { ty: ty.clone(), class, offset: 0, live: Some((0, 0)) };
    let place = |n| Place::of(BufferId(n));
    Program {
        buffers: vec![buffer(&a, Class::Input(0)), buffer(&b, Class::Input(1)), buffer(&c, Class::Output(0))],
        inputs: vec![a, b],
        outputs: vec![c],
        steps: vec![Step::Matmul {
            shape: Box::new(s.clone()),
            a: Factor::Memory(place(0)),
            b: Factor::Memory(place(1)),
            c: Some(place(2)),
            epilogue: None,
        }],
        arena: 0,
        levels: 0,
        donated: Vec::new(),
    }
}

/// Numbers of ±1, in steps so that products are nearly exact.
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
    let mut run = |way: Option<Way>| -> Result<(Vec<f64>, Duration)> {
        *lock(&inner.tuned.forced) = way;
        let loaded = Loaded::new(inner, program.clone());
        *lock(&inner.tuned.forced) = None;
        let loaded = loaded?;
        bindings.outputs[0].write(0, &vec![0xff; out.bytes()])?;
        loaded.run(&mut bindings)?;
        let mut bytes = vec![0; out.bytes()];
        bindings.outputs[0].read(0, &mut bytes)?;
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let timings = loaded.run_timed(&mut bindings)?;
            let total: Duration = timings.iter().map(|t| t.time).sum();
            best = best.min(if total.is_zero() { Duration::MAX } else { total });
        }
        Ok((results(&out, &bytes), best))
    };
    let (want, usual) = run(None)?;
    let largest = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let mut trials = vec![Trial { way: "usual".into(), time: Some(usual) }];
    let mut best: (Option<Way>, Duration) = (None, usual);
    for way in ways(shape, inner.device.squares()) {
        let (got, time) = run(Some(way))?;
        let tolerance = if out.dtype == ir::DType::F32 { 1e-5 } else { 1e-2 };
        let right = got.len() == want.len() && got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= tolerance * largest);
        let mut name = String::new();
        let _ = write!(
            name,
            "{}x{} {}x{} {}{}{} /{}",
            way.tile.0,
            way.tile.1,
            way.each.0,
            way.each.1,
            way.depth,
            if way.ahead { " ahead" } else { "" },
            if way.units { " units" } else { "" },
            way.splits
        );
        trials.push(Trial { way: name, time: right.then_some(time) });
        if right && time < best.1 {
            best = (Some(way), time);
        }
    }
    // Where there are no timestamps nothing is known.
    if let (Some(way), true) = (best.0, best.1 < Duration::MAX) {
        inner.tuned.keep(shape, way);
    }
    Ok(trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_nonsense_is_not() {
        let way = Way { tile: (64, 128), each: (8, 8), depth: 16, ahead: true, splits: 4, units: false };
        let on_units = Way { tile: (128, 128), each: (64, 32), depth: 32, units: true, ..way };
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
