//! The weights of a model: in the checkpoint files until they are needed, or in memory.
//!
//! A loaded model keeps its files open. [`Model::upload`] converts weights from the file to the parameter's dtype in parallel;
//! training reads them as unrounded f32.

use crate::error::{Error, Result};
use crate::mapping::ElementTransform;
use crate::model::{CheckpointSlice, Model};
use crate::quantized_weight::QuantizedWeight;
use crate::session::Buffer;
use compiler::Backend;
use cpu::HostBuffer;
use ir::DType;
use ir::elements::{all_finite, convert, from_bytes, to_bytes};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The storage of a parameter's elements.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    /// In the checkpoint, at the positions of the parameter's pieces.
    Stored,
    /// In memory.
    InMemory(DType, Vec<u8>),
    /// In memory, quantized.
    Packed(Arc<QuantizedWeight>),
}

/// Number of elements that are converted at once: they fit in a cache.
const CONVERT_CHUNK: usize = 1 << 16;

/// Minimum size in bytes of a parameter that is memory-mapped: smaller ones are faster to read.
const MIN_IN_PLACE_BYTES: usize = 1 << 18;

impl Model {
    /// The elements of a parameter in their stored precision.
    pub(crate) fn values(&self, param: usize) -> Result<Vec<f32>> {
        let checkpoint = match (&self.weights[param], &self.checkpoint) {
            (Weight::InMemory(dtype, bytes), _) => return Ok(from_bytes(bytes, *dtype)),
            (Weight::Packed(packed), _) => return Ok(packed.values()),
            (Weight::Stored, None) => return Ok(Vec::new()),
            (Weight::Stored, Some(checkpoint)) => checkpoint,
        };
        let shape = &self.params[param].ty.shape;
        let mut data = vec![0f32; shape.iter().product()];
        for piece in &self.pieces[param] {
            let stored = checkpoint.expect(&piece.tensor)?;
            let values = stored.to_f32_vec(&piece.tensor)?;
            if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                return Err(stored.not_finite(&piece.tensor, at, values[at]));
            }
            piece.write_into(shape, &mut data, &values);
        }
        Ok(data)
    }

    /// The elements of a parameter rounded to the compute dtype.
    pub(crate) fn rounded(&self, param: usize) -> Result<Vec<f32>> {
        let (values, dtype) = (self.values(param)?, self.params[param].ty.dtype);
        Ok(if dtype == DType::F32 { values } else { from_bytes(&to_bytes(&values, dtype), dtype) })
    }

    /// Sets the elements of the parameter with this path, rounded to its dtype.
    pub fn set_parameter(&mut self, path: &str, values: &[f32]) -> Result<()> {
        let Some(param) = self.params.iter().position(|p| p.path == path) else {
            let paths = self.params.iter().map(|p| p.path.as_str());
            let close = lang::suggest::closest(path, paths).map_or(String::new(), |c| format!(": did you mean `{c}`?"));
            return Err(Error::Input(format!("the model has no parameter `{path}`{close}")));
        };
        let ty = &self.params[param].ty;
        if ty.numel() != values.len() {
            return Err(Error::Input(format!("parameter `{path}` is {ty}, but {} elements were given", values.len())));
        }
        self.set_values(param, values);
        Ok(())
    }

    /// Sets the elements of a parameter.
    pub(crate) fn set_values(&mut self, param: usize, values: &[f32]) {
        let dtype = self.params[param].ty.dtype;
        self.weights[param] = Weight::InMemory(dtype, to_bytes(values, dtype));
    }

    /// Uploads all parameters in their compute dtypes; quantized ones as their parts.
    pub(crate) fn upload(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let all: Vec<usize> = (0..self.params.len()).collect();
        self.upload_some(&all, backend)
    }

    /// [`upload`](Self::upload) for a single run: large parameters that the file stores in the host's format are memory-mapped,
    /// without a copy. The caller must call [`Model::check_in_place_reads`] before it uses the results.
    pub(crate) fn upload_in_place(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let all: Vec<usize> = (0..self.params.len()).collect();
        let buffers = self.upload_where(&all, backend, backend.target().host_memory)?;
        self.check_in_place_reads()?;
        Ok(buffers)
    }

    /// Checks that no page of a memory-mapped parameter was missing.
    pub(crate) fn check_in_place_reads(&self) -> Result<()> {
        self.checkpoint.as_ref().map_or(Ok(()), |checkpoint| checkpoint.check_in_place_reads())
    }

    /// Uploads some parameters, memory-mapped where possible.
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
            let there = if in_place && bytes >= MIN_IN_PLACE_BYTES { self.in_place(i, ty.dtype) } else { None };
            wide.push(UploadSlot { slot: buffers.len(), param: i, dtype: ty.dtype, in_place: there.is_some() });
            if there.is_none() {
                sizes.push(bytes);
            }
            buffers.push(there.map(|buffer| -> Buffer { Arc::new(buffer) }));
        }
        let mut new = backend.alloc_group(&sizes)?.into_iter();
        let buffers: Vec<Buffer> = buffers.into_iter().filter_map(|there| there.or_else(|| new.next())).collect();
        self.fill(&buffers, &wide)?;
        for (slot, bytes) in packed {
            buffers[slot].write(0, bytes)?;
        }
        Ok(buffers)
    }

    /// Uploads some parameters in given dtypes, each into its own memory.
    pub(crate) fn upload_as(&self, chosen: &[(usize, DType)], backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let (mut buffers, mut slots) = (Vec::new(), Vec::new());
        for (slot, &(param, dtype)) in chosen.iter().enumerate() {
            buffers.push(backend.alloc(self.params[param].ty.numel() * dtype.size())?);
            slots.push(UploadSlot { slot, param, dtype, in_place: false });
        }
        self.fill(&buffers, &slots)?;
        Ok(buffers)
    }

    /// Fills buffers with parameters, or checks memory-mapped ones, in parallel.
    fn fill(&self, buffers: &[Buffer], slots: &[UploadSlot]) -> Result<()> {
        let mut jobs = Vec::new();
        for &UploadSlot { slot, param, dtype, in_place: there } in slots {
            if there {
                let bytes = self.params[param].ty.numel() * dtype.size();
                let parts = (0..bytes).step_by(16 * CONVERT_CHUNK);
                let looks = parts.map(|from| FillSource::InPlace(from, (bytes - from).min(16 * CONVERT_CHUNK)));
                jobs.extend(looks.map(|from| FillJob { slot, param, dtype, from }));
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

    /// Divides the work of filling a buffer into jobs for threads.
    fn jobs<'a>(&'a self, slot: usize, param: usize, dtype: DType, jobs: &mut Vec<FillJob<'a>>) {
        let whole = |from| FillJob { slot, param, dtype, from };
        if !matches!(self.weights[param], Weight::Stored) {
            jobs.push(whole(FillSource::Values));
            return;
        }
        let straight = |piece: &&CheckpointSlice| {
            let known = crate::checkpoint::dtype_of(piece.stored).is_some();
            known && !piece.transposed && piece.function == ElementTransform::Identity
        };
        if self.pieces[param].iter().filter(straight).count() < self.pieces[param].len() {
            jobs.push(whole(FillSource::Values));
            return;
        }
        for piece in &self.pieces[param] {
            let (starts, length) = piece.contiguous_runs(&self.params[param].ty.shape);
            // Short runs are combined, long ones are split.
            let many = (CONVERT_CHUNK / length.max(1)).max(1);
            let starts: Vec<usize> = starts.collect();
            for (i, group) in starts.chunks(many).enumerate() {
                for from in (0..length).step_by(16 * CONVERT_CHUNK) {
                    let length_here = (length - from).min(16 * CONVERT_CHUNK);
                    let read = i * many * length + from;
                    jobs.push(whole(FillSource::Runs(piece, group.to_vec(), read, from, length_here, length)));
                }
            }
        }
    }

    /// A memory-mapped parameter, if its pieces are contiguous in the file and have its dtype.
    fn in_place(&self, param: usize, dtype: DType) -> Option<HostBuffer> {
        let (Weight::Stored, Some(checkpoint)) = (&self.weights[param], &self.checkpoint) else { return None };
        let shape = &self.params[param].ty.shape;
        let mut found = Vec::new();
        for piece in &self.pieces[param] {
            let (mut starts, length) = piece.contiguous_runs(shape);
            let start = starts.next()?;
            let straight = !piece.transposed && piece.function == ElementTransform::Identity;
            // Adjacent runs of one piece are merged.
            let runs = starts.try_fold(1, |n, next| (next == start + n * length).then_some(n + 1))?;
            let stored = checkpoint.get(&piece.tensor)?;
            if !straight || crate::checkpoint::dtype_of(stored.dtype) != Some(dtype) {
                return None;
            }
            let (file, from, to) = stored.byte_range();
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
        stored.byte_range().0.in_place(first, end)
    }

    /// Checks memory-mapped elements.
    fn check_finite(
        &self,
        job: &FillJob<'_>,
        buffer: &Buffer,
        from: usize,
        count: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        for at in (from..from + count).step_by(4 * CONVERT_CHUNK) {
            scratch.read.resize((from + count - at).min(4 * CONVERT_CHUNK), 0);
            buffer.read(at, &mut scratch.read)?;
            if !all_finite(&scratch.read, job.dtype) {
                // Reading the values gives an error with the tensor and the position.
                self.values(job.param)?;
                return Err(Error::Input(format!("`{}` changed while it was being read", self.params[job.param].path)));
            }
        }
        Ok(())
    }

    fn run_job(&self, job: &FillJob<'_>, buffer: &Buffer, scratch: &mut Scratch) -> Result<()> {
        if let FillSource::InPlace(from, count) = job.from {
            return self.check_finite(job, buffer, from, count, scratch);
        }
        let FillSource::Runs(piece, starts, read, skip, length, stride) = &job.from else {
            return Ok(buffer.write(0, &to_bytes(&self.values(job.param)?, job.dtype))?);
        };
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        let stored = checkpoint.expect(&piece.tensor)?;
        let Some(from) = crate::checkpoint::dtype_of(stored.dtype) else { return Ok(()) };
        let (size, to) = (from.size(), job.dtype.size());
        for (i, start) in starts.iter().enumerate() {
            for part in (0..*length).step_by(CONVERT_CHUNK) {
                let n = (length - part).min(CONVERT_CHUNK);
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
struct UploadSlot {
    slot: usize,
    param: usize,
    dtype: DType,
    /// Whether it is memory-mapped.
    in_place: bool,
}

/// Temporary buffers for conversions.
#[derive(Default)]
struct Scratch {
    read: Vec<u8>,
    written: Vec<u8>,
}

/// A part of a buffer to fill.
struct FillJob<'a> {
    slot: usize,
    param: usize,
    dtype: DType,
    from: FillSource<'a>,
}

enum FillSource<'a> {
    /// Check this many bytes of a memory-mapped parameter, from this offset on.
    InPlace(usize, usize),
    /// Convert the whole parameter from its values.
    Values,
    /// Convert runs of a piece: their starts in the parameter, the start of the first in the piece, the number of elements of
    /// each to skip and to take, and the length of each.
    Runs(&'a CheckpointSlice, Vec<usize>, usize, usize, usize, usize),
}
