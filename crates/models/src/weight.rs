//! Weights of a model: in the files that they came in until they are needed, or in memory.
//!
//! A model that was read keeps its files open. What computes gets its weights by [`Model::upload`], converted from the
//! file to the parameter's dtype on their way, by all threads; what trains gets them as f32 that nobody has rounded.

use crate::error::{Error, Result};
use crate::mapping::Function;
use crate::model::{Model, Piece};
use crate::packed::PackedWeight;
use crate::session::Buffer;
use compiler::Backend;
use cpu::HostBuffer;
use ir::DType;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use train::named_tensor::{from_bytes, to_bytes};

/// Where the elements of a parameter are.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    /// In the checkpoint, as the parameter's pieces say.
    Stored,
    /// Here.
    Held(DType, Vec<u8>),
    /// Here, in few bits.
    Packed(Arc<PackedWeight>),
}

/// Elements that are converted at once: a few fit in a cache.
const RUN: usize = 1 << 16;

/// Bytes of a parameter from which it is used where the file has it: smaller ones are faster read than mapped.
const IN_PLACE: usize = 1 << 18;

impl Model {
    /// The elements of a parameter, as exact as they are held.
    pub(crate) fn values(&self, param: usize) -> Result<Vec<f32>> {
        let checkpoint = match (&self.weights[param], &self.checkpoint) {
            (Weight::Held(dtype, bytes), _) => return Ok(from_bytes(bytes, *dtype)),
            (Weight::Packed(packed), _) => return Ok(packed.values()),
            (Weight::Stored, None) => return Ok(Vec::new()),
            (Weight::Stored, Some(checkpoint)) => checkpoint,
        };
        let shape = &self.params[param].ty.shape;
        let mut data = vec![0f32; shape.iter().product()];
        for piece in &self.pieces[param] {
            let stored = checkpoint.found(&piece.tensor)?;
            let values = stored.floats(&piece.tensor)?;
            if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                return Err(stored.not_finite(&piece.tensor, at, values[at]));
            }
            piece.place(shape, &mut data, &values);
        }
        Ok(data)
    }

    /// The elements of a parameter as the model computes with them.
    pub(crate) fn rounded(&self, param: usize) -> Result<Vec<f32>> {
        let (values, dtype) = (self.values(param)?, self.params[param].ty.dtype);
        Ok(if dtype == DType::F32 { values } else { from_bytes(&to_bytes(&values, dtype), dtype) })
    }

    /// Gives the parameter of a path other elements, rounded to its dtype.
    pub fn set_parameter(&mut self, path: &str, values: &[f32]) -> Result<()> {
        let Some(param) = self.params.iter().position(|p| p.path == path) else {
            let paths = self.params.iter().map(|p| p.path.as_str());
            let close = lang::suggest::closest(path, paths).map_or(String::new(), |c| format!(": did you mean `{c}`?"));
            return Err(Error::Input(format!("the model has no parameter `{path}`{close}")));
        };
        let ty = &self.params[param].ty;
        if ty.numel() != values.len() {
            return Err(Error::Input(format!("parameter `{path}` is {ty}, {} elements were given", values.len())));
        }
        self.set_values(param, values);
        Ok(())
    }

    /// Gives a parameter other elements.
    pub(crate) fn set_values(&mut self, param: usize, values: &[f32]) {
        let dtype = self.params[param].ty.dtype;
        self.weights[param] = Weight::Held(dtype, to_bytes(values, dtype));
    }

    /// All parameters in the dtypes that they are computed in; packed ones as their parts.
    pub(crate) fn upload(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let all: Vec<usize> = (0..self.params.len()).collect();
        self.upload_some(&all, backend)
    }

    /// The same for one run that begins soon: large parameters that a file has as the host computes with them are used where they
    /// are, which copies nothing. Who runs with them calls [`Model::check_whole`] before results are believed.
    pub(crate) fn upload_in_place(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let all: Vec<usize> = (0..self.params.len()).collect();
        let buffers = self.upload_where(&all, backend, backend.target().host_memory)?;
        self.check_whole()?;
        Ok(buffers)
    }

    /// Nothing was missing of what was used where it is.
    pub(crate) fn check_whole(&self) -> Result<()> {
        self.checkpoint.as_ref().map_or(Ok(()), |checkpoint| checkpoint.check_whole())
    }

    /// Some parameters, likewise.
    pub(crate) fn upload_some(&self, chosen: &[usize], backend: &dyn Backend) -> Result<Vec<Buffer>> {
        self.upload_where(chosen, backend, false)
    }

    fn upload_where(&self, chosen: &[usize], backend: &dyn Backend, in_place: bool) -> Result<Vec<Buffer>> {
        let mut buffers: Vec<Option<Buffer>> = Vec::new();
        let (mut sizes, mut wide, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        for &i in chosen {
            if let Some(found) = self.packed(i) {
                for part in &found.parts {
                    packed.push((buffers.len(), part));
                    sizes.push(part.len());
                    buffers.push(None);
                }
                continue;
            }
            let ty = &self.params[i].ty;
            let bytes = ty.numel() * ty.dtype.size();
            let there = if in_place && bytes >= IN_PLACE { self.in_place(i, ty.dtype) } else { None };
            wide.push(Slot { slot: buffers.len(), param: i, dtype: ty.dtype, there: there.is_some() });
            if there.is_none() {
                sizes.push(bytes);
            }
            buffers.push(there.map(|buffer| -> Buffer { Arc::new(buffer) }));
        }
        let mut new = backend.alloc_together(&sizes)?.into_iter();
        let buffers: Vec<Buffer> = buffers.into_iter().filter_map(|there| there.or_else(|| new.next())).collect();
        self.fill(&buffers, &wide)?;
        for (slot, bytes) in packed {
            buffers[slot].write(0, bytes)?;
        }
        Ok(buffers)
    }

    /// Some parameters in dtypes of the caller's, each in memory of its own.
    pub(crate) fn upload_as(&self, chosen: &[(usize, DType)], backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let (mut buffers, mut slots) = (Vec::new(), Vec::new());
        for (slot, &(param, dtype)) in chosen.iter().enumerate() {
            buffers.push(backend.alloc(self.params[param].ty.numel() * dtype.size())?);
            slots.push(Slot { slot, param, dtype, there: false });
        }
        self.fill(&buffers, &slots)?;
        Ok(buffers)
    }

    /// Writes parameters into buffers, or looks at those that are there, by all threads.
    fn fill(&self, buffers: &[Buffer], slots: &[Slot]) -> Result<()> {
        let mut jobs = Vec::new();
        for &Slot { slot, param, dtype, there } in slots {
            if there {
                let bytes = self.params[param].ty.numel() * dtype.size();
                let parts = (0..bytes).step_by(16 * RUN);
                let looks = parts.map(|from| From::InPlace(from, (bytes - from).min(16 * RUN)));
                jobs.extend(looks.map(|from| Job { slot, param, dtype, from }));
            } else {
                self.jobs(slot, param, dtype, &mut jobs);
            }
        }
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            let mut scratch = Scratch::default();
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.run_job(job, &buffers[job.slot], &mut scratch) {
                    *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                    next.store(jobs.len(), Ordering::Relaxed);
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// What fills a buffer, cut into parts that threads can share.
    fn jobs<'a>(&'a self, slot: usize, param: usize, dtype: DType, jobs: &mut Vec<Job<'a>>) {
        let whole = |from| Job { slot, param, dtype, from };
        if !matches!(self.weights[param], Weight::Stored) {
            jobs.push(whole(From::Values));
            return;
        }
        let straight = |piece: &&Piece| {
            let known = crate::checkpoint::dtype_of(piece.stored).is_some();
            known && !piece.transposed && piece.function == Function::Identity
        };
        if self.pieces[param].iter().filter(straight).count() < self.pieces[param].len() {
            jobs.push(whole(From::Values));
            return;
        }
        for piece in &self.pieces[param] {
            let (starts, length) = piece.runs(&self.params[param].ty.shape);
            // Short runs go together, long ones are cut.
            let many = (RUN / length.max(1)).max(1);
            let starts: Vec<usize> = starts.collect();
            for (i, group) in starts.chunks(many).enumerate() {
                for from in (0..length).step_by(16 * RUN) {
                    let length_here = (length - from).min(16 * RUN);
                    let read = i * many * length + from;
                    jobs.push(whole(From::Runs(piece, group.to_vec(), read, from, length_here, length)));
                }
            }
        }
    }

    /// A parameter where the file has it, if its pieces stand there one behind the other in its own dtype.
    fn in_place(&self, param: usize, dtype: DType) -> Option<HostBuffer> {
        let (Weight::Stored, Some(checkpoint)) = (&self.weights[param], &self.checkpoint) else { return None };
        let shape = &self.params[param].ty.shape;
        let mut found = Vec::new();
        for piece in &self.pieces[param] {
            let (mut starts, length) = piece.runs(shape);
            let start = starts.next()?;
            let straight = !piece.transposed && piece.function == Function::Identity;
            // Runs of one piece that follow each other are one.
            let runs = starts.try_fold(1, |n, next| (next == start + n * length).then_some(n + 1))?;
            let stored = checkpoint.get(&piece.tensor)?;
            if !straight || crate::checkpoint::dtype_of(stored.dtype) != Some(dtype) {
                return None;
            }
            let (file, from, to) = stored.place();
            (to - from == runs * length * dtype.size()).then_some(())?;
            found.push((start * dtype.size(), from, to, std::ptr::from_ref(file), piece));
        }
        found.sort_by_key(|(start, ..)| *start);
        let (_, first, _, file, piece) = *found.first()?;
        let (mut at, mut end) = (0, first);
        for (start, from, to, of, _) in &found {
            ((*start, *from) == (at, end) && std::ptr::eq(*of, file)).then_some(())?;
            (at, end) = (at + to - from, *to);
        }
        let whole = at == shape.iter().product::<usize>() * dtype.size() && first.is_multiple_of(dtype.size());
        let stored = checkpoint.get(&piece.tensor).filter(|_| whole)?;
        stored.place().0.in_place(first, end)
    }

    /// Looks at elements that are used where they are.
    fn look(&self, job: &Job<'_>, buffer: &Buffer, from: usize, count: usize, scratch: &mut Scratch) -> Result<()> {
        for at in (from..from + count).step_by(4 * RUN) {
            scratch.read.resize((from + count - at).min(4 * RUN), 0);
            buffer.read(at, &mut scratch.read)?;
            if !all_finite(&scratch.read, job.dtype) {
                // Which tensor, and where, is said by who reads the values.
                self.values(job.param)?;
                return Err(Error::Input(format!("`{}` changed while it was being read", self.params[job.param].path)));
            }
        }
        Ok(())
    }

    fn run_job(&self, job: &Job<'_>, buffer: &Buffer, scratch: &mut Scratch) -> Result<()> {
        if let From::InPlace(from, count) = job.from {
            return self.look(job, buffer, from, count, scratch);
        }
        let From::Runs(piece, starts, read, skip, length, stride) = &job.from else {
            return Ok(buffer.write(0, &to_bytes(&self.values(job.param)?, job.dtype))?);
        };
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        let stored = checkpoint.found(&piece.tensor)?;
        let Some(from) = crate::checkpoint::dtype_of(stored.dtype) else { return Ok(()) };
        let (size, to) = (from.size(), job.dtype.size());
        for (i, start) in starts.iter().enumerate() {
            for part in (0..*length).step_by(RUN) {
                let n = (length - part).min(RUN);
                let at = (read + i * stride + part) * size;
                let Scratch { read: bytes, written } = scratch;
                bytes.resize(n * size, 0);
                stored.read(at, bytes)?;
                if !all_finite(bytes, from) {
                    let values = from_bytes(bytes, from);
                    let bad = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
                    return Err(stored.not_finite(&piece.tensor, at / size + bad, values[bad]));
                }
                let place = (start + skip + part) * to;
                if from == job.dtype {
                    buffer.write(place, bytes)?;
                } else {
                    written.clear();
                    convert(bytes, from, job.dtype, written);
                    buffer.write(place, written)?;
                }
            }
        }
        Ok(())
    }
}

/// A parameter and its buffer.
#[derive(Clone, Copy)]
struct Slot {
    slot: usize,
    param: usize,
    dtype: DType,
    /// Whether its elements are there already.
    there: bool,
}

/// Bytes on their way.
#[derive(Default)]
struct Scratch {
    read: Vec<u8>,
    written: Vec<u8>,
}

/// A part of a buffer to fill.
struct Job<'a> {
    slot: usize,
    param: usize,
    dtype: DType,
    from: From<'a>,
}

enum From<'a> {
    /// Nothing: it is there. So many bytes from here on are to be looked at.
    InPlace(usize, usize),
    /// The whole parameter, by its values.
    Values,
    /// Runs of a piece: where they begin in the parameter, where the first begins in the piece, how many elements of each to
    /// skip and to take, how many each has.
    Runs(&'a Piece, Vec<usize>, usize, usize, usize, usize),
}

/// Whether no exponent says infinity or NaN.
fn all_finite(bytes: &[u8], dtype: DType) -> bool {
    let halves = |ones: u16| {
        // Without an early end, so that it is done many at a time.
        let bad = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]) & ones == ones;
        !bytes.chunks_exact(2).fold(false, |found, b| found | bad(b))
    };
    match dtype {
        DType::F32 => {
            let bad = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x7F80_0000 == 0x7F80_0000;
            !bytes.chunks_exact(4).fold(false, |found, b| found | bad(b))
        }
        DType::BF16 => halves(0x7F80),
        DType::F16 => halves(0x7C00),
        _ if !dtype.is_float() => true,
        _ => from_bytes(bytes, dtype).iter().all(|x| x.is_finite()),
    }
}

fn convert(bytes: &[u8], from: DType, to: DType, out: &mut Vec<u8>) {
    match (from, to) {
        (DType::BF16, DType::F32) => {
            out.extend(bytes.chunks_exact(2).flat_map(|b| [0, 0, b[0], b[1]]));
        }
        _ => out.extend(to_bytes(&from_bytes(bytes, from), to)),
    }
}
