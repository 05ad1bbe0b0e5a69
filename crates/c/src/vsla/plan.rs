//! Planning, binding, running, linking and profiles (§5, §6, §10, §12).

use crate::vsla::backend::vsla_backend_t;
use crate::vsla::device::vsla_segment_t;
use crate::vsla::error::{Code, guard};
use crate::vsla::graph::vsla_program_t;
use crate::vsla::handles::{Object, lock, put, want};
use crate::vsla::pointers::{memory, set, slice, slice_mut, writable};
use crate::vsla::stream::{Job, keep, vsla_stream_t};
use smallvec::SmallVec;
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use vsla::{ArenaClass, Bindings, Error, Link, Plan, Profile, Result, Stream, ValueId};

/// A program's schedule and memory on a backend.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_plan_t;

/// Memory that runs of a plan read and write.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_bindings_t;

/// A program planned and bound for one family of shapes.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_profile_t;

/// Classes of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ArenaClassC {
    /// Weights.
    VslaArenaParams = 0,
    /// Values inside a forward run, and what it keeps for backward.
    VslaArenaActivations,
    /// Scratch of kernels, products and routines, and the addresses of values.
    VslaArenaWorkspace,
    /// Gradients.
    VslaArenaGrads,
    /// Inputs and outputs.
    VslaArenaExternal,
}

/// Dense row-major data of several values. `data[i]` holds `bytes[i]` bytes of value `values[i]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vsla_io_t {
    /// How many.
    pub count: usize,
    /// Which values.
    pub values: *const u32,
    /// Where their data is.
    pub data: *const *mut c_void,
    /// Sizes of the data.
    pub bytes: *const usize,
}

/// A caller's list of values and their data.
#[expect(clippy::large_enum_variant, reason = "a box would allocate in every run")]
pub(crate) enum Io {
    /// Null.
    None,
    /// For a run that ends before the call does.
    There(vsla_io_t),
    /// For a run that comes later, when the list may be gone.
    Copied(SmallVec<[(u32, *mut c_void, usize); 16]>),
}

impl Io {
    /// # Safety
    /// The pointer is null or good.
    pub(crate) unsafe fn at(io: *const vsla_io_t) -> Result<Io> {
        if io.is_null() {
            return Ok(Io::None);
        }
        // SAFETY: not null, and the caller's promise.
        let Some(io) = (unsafe { slice(io, 1, "the data list")?.first().copied() }) else { return Ok(Io::None) };
        // SAFETY: as above. Null lists are found here, before anything runs.
        let _ = unsafe { lists(&io)? };
        Ok(Io::There(io))
    }

    /// The same list, no longer the caller's.
    ///
    /// # Safety
    /// The lists are still good.
    pub(crate) unsafe fn copied(self) -> Result<Io> {
        let Io::There(io) = &self else { return Ok(self) };
        // SAFETY: the caller's promise.
        Ok(Io::Copied(unsafe { lists(io)? }.collect()))
    }

    /// Calls `f` with each value and its data.
    ///
    /// # Safety
    /// The lists are still good, and so is what they point at.
    pub(crate) unsafe fn each(&self, mut f: impl FnMut(ValueId, *mut u8, usize) -> Result<()>) -> Result<()> {
        let mut call = |(v, at, n): (u32, *mut c_void, usize)| f(ValueId(v), at.cast(), n);
        match self {
            Io::None => Ok(()),
            // SAFETY: the caller's promise.
            Io::There(io) => unsafe { lists(io)? }.try_for_each(call),
            Io::Copied(list) => list.iter().copied().try_for_each(&mut call),
        }
    }
}

unsafe fn lists(io: &vsla_io_t) -> Result<impl Iterator<Item = (u32, *mut c_void, usize)>> {
    // SAFETY: the list's promise, which the header states.
    let (values, data, bytes) = unsafe {
        (slice(io.values, io.count, "values")?, slice(io.data, io.count, "data")?, slice(io.bytes, io.count, "bytes")?)
    };
    Ok(values.iter().zip(data).zip(bytes).map(|((v, d), n)| (*v, *d, *n)))
}

/// Sets values from lists.
pub(crate) unsafe fn write_all(io: &Io, b: &mut Bindings) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { io.each(|v, at, n| b.write_bytes(v, slice(at, n, "data")?)) }
}

/// Reads values into lists.
pub(crate) unsafe fn read_all(io: &Io, b: &Bindings) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { io.each(|v, at, n| b.read_bytes(v, slice_mut(at, n, "data")?)) }
}

/// Runs a program on lists of data, where it lies if it can be used there.
pub(crate) unsafe fn run_on(plan: &Plan, b: &mut Bindings, inputs: &Io, outputs: &Io) -> Result<()> {
    let mut lent = b.lend();
    // SAFETY: the caller's promise: the data is there, and only this run uses it, until the run has ended.
    unsafe {
        inputs.each(|v, at, n| {
            check_data(at, n)?;
            lent.input(v, at, n)
        })?;
        outputs.each(|v, at, n| {
            check_data(at, n)?;
            lent.output(v, at, n)
        })?;
    }
    plan.execute(lent.bindings(), &Stream::default())?;
    // SAFETY: as above.
    unsafe { outputs.each(|v, at, n| lent.settle(v, slice_mut(at, n, "data")?)) }
}

fn check_data(at: *mut u8, n: usize) -> Result<()> {
    if at.is_null() && n > 0 || n > isize::MAX as usize {
        return Err(Error::InvalidArg("data is null or too long".into()));
    }
    Ok(())
}

/// Plans a program for a backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_plan(
    program: *const vsla_program_t,
    backend: *const vsla_backend_t,
    out: *mut *mut vsla_plan_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(program, Program, program);
        want!(backend, Backend, backend);
        let plan = Plan::new(program, backend)?;
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Plan(plan))) }
    })
}

/// The bytes of one arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_plan_arena_size(plan: *const vsla_plan_t, class: u32, bytes: *mut u64) -> Code {
    guard(|| {
        want!(plan, Plan, plan);
        if class as usize >= ArenaClass::ALL.len() {
            return Err(Error::InvalidArg(format!("{class} is no class of memory")));
        }
        // SAFETY: the caller's promise.
        unsafe { set(bytes, plan.arena_sizes()[class as usize] as u64) }
    })
}

/// Writes where an input, parameter or output lies: its arena, the offset inside of it, and its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_plan_value(
    plan: *const vsla_plan_t,
    id: u32,
    class: *mut u32,
    offset: *mut u64,
    bytes: *mut u64,
) -> Code {
    guard(|| {
        writable(class)?;
        writable(offset)?;
        want!(plan, Plan, plan);
        let place = plan.place(ValueId(id))?;
        // SAFETY: the caller's promise.
        unsafe {
            set(bytes, place.bytes as u64)?;
            set(class, place.class as u32)?;
            set(offset, place.offset as u64)
        }
    })
}

/// Writes a segment of the schedule; its `count` is that of all segments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_plan_segment(plan: *const vsla_plan_t, index: usize, out: *mut vsla_segment_t) -> Code {
    guard(|| {
        want!(plan, Plan, plan);
        let all = plan.segments();
        if index >= all.len() {
            return Err(Error::InvalidArg(format!("segment {index}; the schedule has {}", all.len())));
        }
        // SAFETY: the caller's promise.
        unsafe { set(out, vsla_segment_t::new(all, index)) }
    })
}

/// Writes the memory report as text: `needed` gets its length with the final zero; `text` gets as much as there is room
/// for, always ended by a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_plan_report(
    plan: *const vsla_plan_t,
    text: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Code {
    guard(|| {
        want!(plan, Plan, plan);
        // SAFETY: the caller's promise.
        unsafe { write_text(&plan.to_string(), text, room, needed) }
    })
}

/// Writes text into a caller's room.
pub(crate) unsafe fn write_text(report: &str, text: *mut c_char, room: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { set(needed, report.len() + 1)? };
    // SAFETY: as above.
    let to = unsafe { slice_mut(text.cast::<u8>(), room, "text")? };
    if let Some(n) = room.checked_sub(1) {
        let n = n.min(report.len());
        to[..n].copy_from_slice(&report.as_bytes()[..n]);
        to[n] = 0;
    }
    Ok(())
}

/// The bytes of one block for all that runs of a plan touch: parameters, inputs, outputs, activations and workspace. With
/// `sharing`, the parameters are those of other bindings and not counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_plan_memory_bytes(plan: *const vsla_plan_t, sharing: u32, bytes: *mut usize) -> Code {
    guard(|| {
        want!(plan, Plan, plan);
        // SAFETY: the caller's promise.
        unsafe { set(bytes, plan.memory_bytes(sharing != 0)?) }
    })
}

/// Binds a plan in one block of the caller's: `vsla_plan_memory_bytes` at least, from an address that is a multiple of 64.
/// The block becomes all zero; it must stay, and nothing else may use it, until the bindings and what is linked to them
/// or shares their parameters is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_bind_in(
    plan: *const vsla_plan_t,
    params: *const vsla_bindings_t,
    block: *mut c_void,
    bytes: usize,
    out: *mut *mut vsla_bindings_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(plan, Plan, plan);
        let needed = plan.memory_bytes(!params.is_null())?;
        // SAFETY: the caller's promise.
        let block = unsafe { memory(block, bytes, needed)? };
        let bound = if params.is_null() {
            plan.bind_in(block, None)?
        } else {
            want!(params, Bindings, params);
            plan.bind_in(block, Some(&lock(params)))?
        };
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Bindings(Mutex::new(bound)))) }
    })
}

/// Memory for all that runs of a plan touch, all zero, from the backend. With `params`, parameters are those of other bindings
/// of a program that declares the same ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_bind(
    plan: *const vsla_plan_t,
    params: *const vsla_bindings_t,
    out: *mut *mut vsla_bindings_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(plan, Plan, plan);
        let bound = if params.is_null() {
            plan.bind()?
        } else {
            want!(params, Bindings, params);
            plan.bind_sharing(&lock(params))?
        };
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Bindings(Mutex::new(bound)))) }
    })
}

/// Sets an input or parameter from dense data of exactly its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_bindings_write(
    bindings: *const vsla_bindings_t,
    id: u32,
    data: *const c_void,
    bytes: usize,
) -> Code {
    guard(|| {
        want!(bindings, Bindings, bindings);
        // SAFETY: the caller's promise.
        let data = unsafe { slice(data.cast::<u8>(), bytes, "data")? };
        lock(bindings).write_bytes(ValueId(id), data)
    })
}

/// Copies an input, parameter or output to dense data of exactly its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_bindings_read(
    bindings: *const vsla_bindings_t,
    id: u32,
    data: *mut c_void,
    bytes: usize,
) -> Code {
    guard(|| {
        want!(bindings, Bindings, bindings);
        // SAFETY: the caller's promise.
        let data = unsafe { slice_mut(data.cast::<u8>(), bytes, "data")? };
        lock(bindings).read_bytes(ValueId(id), data)
    })
}

/// Seeds the random operations of the next runs.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_bindings_seed(bindings: *const vsla_bindings_t, seed: u64) -> Code {
    guard(|| {
        want!(bindings, Bindings, bindings);
        lock(bindings).seed(seed)
    })
}

/// Runs a program. Inputs listed are read where they lie and outputs listed are written there, for this run alone, if their
/// data is aligned to its elements and overlaps nothing else; else they are copied. Parameters listed are copied, and stay.
/// What isn't listed is what `vsla_bindings_write` set, or a link; an input that was only lent to an earlier run is
/// `VSLA_ERR_INVALID_ARG`. Either list may be null. On an asynchronous stream that happens later. Allocates nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_execute(
    plan: *const vsla_plan_t,
    bindings: *const vsla_bindings_t,
    inputs: *const vsla_io_t,
    outputs: *const vsla_io_t,
    stream: *const vsla_stream_t,
) -> Code {
    guard(|| {
        want!(stream, Stream, stream);
        // SAFETY: the caller's promise.
        let (inputs, outputs) = unsafe { (Io::at(inputs)?, Io::at(outputs)?) };
        stream.start(Job::Program {
            plan: keep(plan, "plan", |o| matches!(o, Object::Plan(_)))?,
            bindings: keep(bindings, "bindings", |o| matches!(o, Object::Bindings(_)))?,
            inputs,
            outputs,
        })
    })
}

/// Makes an input of one program the output of another: nothing is copied. The caller runs the source first, on one stream
/// or on two with an event between them; runs of both at once would be a race.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_link(
    source: *const vsla_bindings_t,
    source_value: u32,
    destination: *const vsla_bindings_t,
    destination_value: u32,
) -> Code {
    guard(|| {
        if source.addr() == destination.addr() {
            return Err(Error::InvalidArg("a program can't be linked to itself".into()));
        }
        want!(source, Bindings, source);
        want!(destination, Bindings, destination);
        let link = Link { source: ValueId(source_value), destination: ValueId(destination_value) };
        link.check(lock(source).program(), lock(destination).program())?;
        // One lock at a time: two threads that link in opposite directions don't wait for each other.
        let from = lock(source).export(link.source)?;
        lock(destination).accept(link.destination, from)
    })
}

/// Plans and binds a program for repeated runs. With `params`, parameters are those of another profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_profile_compile(
    program: *const vsla_program_t,
    backend: *const vsla_backend_t,
    params: *const vsla_profile_t,
    out: *mut *mut vsla_profile_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(program, Program, program);
        want!(backend, Backend, backend);
        let profile = if params.is_null() {
            Profile::compile(program, backend)?
        } else {
            want!(params, Profile, params);
            Profile::compile_sharing(program, backend, &lock(params))?
        };
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Profile(Mutex::new(profile)))) }
    })
}

/// The most axes of data that is routed or promoted.
const AXES: usize = 16;

/// A shape without an allocation.
unsafe fn short_shape(at: *const u64, rank: usize, to: &mut [usize; AXES]) -> Result<&[usize]> {
    // SAFETY: the caller's promise.
    let from = unsafe { slice(at, rank, "the shape")? };
    let to = to.get_mut(..rank).ok_or_else(|| Error::InvalidArg(format!("{rank} axes; at most {AXES} are routed")))?;
    for (t, n) in to.iter_mut().zip(from) {
        *t = usize::try_from(*n).map_err(|_| Error::InvalidArg(format!("{n} is too large a size")))?;
    }
    Ok(to)
}

/// Writes the index of the first of some profiles whose input `id` takes data of this shape: order them by size. None is
/// `VSLA_ERR_INVALID_SHAPE`. Allocates nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_profile_route(
    profiles: *const *const vsla_profile_t,
    count: usize,
    id: u32,
    rank: usize,
    shape: *const u64,
    index: *mut usize,
) -> Code {
    guard(|| {
        writable(index)?;
        let mut space = [0; AXES];
        // SAFETY: the caller's promise.
        let (profiles, shape) = unsafe { (slice(profiles, count, "profiles")?, short_shape(shape, rank, &mut space)?) };
        for (i, &profile) in profiles.iter().enumerate() {
            want!(profile, Profile, profile);
            if lock(profile).holds(ValueId(id), shape) {
                // SAFETY: as above.
                return unsafe { set(index, i) };
            }
        }
        let text = format!("no profile takes {shape:?} as input {id}; add a larger one");
        Err(Error::InvalidShape { op: "route".into(), text })
    })
}

/// Sets an input or parameter of a profile from dense data of a shape that its own holds; the rest becomes zero.
/// Allocates nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_profile_write(
    profile: *const vsla_profile_t,
    id: u32,
    rank: usize,
    shape: *const u64,
    data: *const c_void,
    bytes: usize,
) -> Code {
    guard(|| {
        want!(profile, Profile, profile);
        let mut space = [0; AXES];
        // SAFETY: the caller's promise.
        let (shape, data) =
            unsafe { (short_shape(shape, rank, &mut space)?, slice(data.cast::<u8>(), bytes, "data")?) };
        lock(profile).bindings_mut().write_part(ValueId(id), shape, data)
    })
}

/// Runs a profile on the values listed, as `vsla_program_execute` does. Allocates nothing.
/// Data of another profile's size is `VSLA_ERR_INVALID_ARG`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_profile_run(
    profile: *const vsla_profile_t,
    inputs: *const vsla_io_t,
    outputs: *const vsla_io_t,
    stream: *const vsla_stream_t,
) -> Code {
    guard(|| {
        want!(stream, Stream, stream);
        // SAFETY: the caller's promise.
        let (inputs, outputs) = unsafe { (Io::at(inputs)?, Io::at(outputs)?) };
        let profile = keep(profile, "profile", |o| matches!(o, Object::Profile(_)))?;
        stream.start(Job::Profile { profile, inputs, outputs })
    })
}

/// Seeds the random operations of the next runs of a profile.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_profile_seed(profile: *const vsla_profile_t, seed: u64) -> Code {
    guard(|| {
        want!(profile, Profile, profile);
        lock(profile).bindings_mut().seed(seed)
    })
}

/// Lets the backend's `record_graph` record the schedule of a profile; its runs then go through `replay_graph`. Without
/// those functions it is `VSLA_ERR_NOT_IMPLEMENTED`: a plan on the processor already is a schedule with every address
/// known, and there is nothing to gain.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_profile_record(profile: *const vsla_profile_t) -> Code {
    guard(|| {
        want!(profile, Profile, profile);
        lock(profile).record()
    })
}
