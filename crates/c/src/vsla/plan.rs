//! Planning, binding, running, linking and profiles (§5, §6, §10, §12).

use crate::vsla::backend::vsla_backend_t;
use crate::vsla::device::vsla_segment_t;
use crate::vsla::error::{Code, guard};
use crate::vsla::graph::vsla_program_t;
use crate::vsla::handles::{Object, insert, lock, want};
use crate::vsla::pointers::{check_writable, memory, slice, slice_mut, write_out};
use crate::vsla::stream::{StreamJob, retain_handle, vsla_stream_t};
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
pub(crate) enum IoList {
    /// Null.
    None,
    /// For a run that ends before the call does.
    Borrowed(vsla_io_t),
    /// For a run that comes later, when the list may be gone.
    Copied(SmallVec<[(u32, *mut c_void, usize); 16]>),
}

impl IoList {
    /// # Safety
    /// `io` is null, or valid for a read, with lists that are valid for their counts.
    pub(crate) unsafe fn at(io: *const vsla_io_t) -> Result<IoList> {
        if io.is_null() {
            return Ok(IoList::None);
        }
        // SAFETY: `io` is not null, and valid for a read.
        let Some(io) = (unsafe { slice(io, 1, "the data list")?.first().copied() }) else { return Ok(IoList::None) };
        // SAFETY: as above. Null lists are found here, before anything runs.
        let _ = unsafe { lists(&io)? };
        Ok(IoList::Borrowed(io))
    }

    /// The same list, no longer the caller's.
    ///
    /// # Safety
    /// The lists are valid.
    pub(crate) unsafe fn into_owned(self) -> Result<IoList> {
        let IoList::Borrowed(io) = &self else { return Ok(self) };
        // SAFETY: the lists have been valid since `Io::at` read them, in the same call.
        Ok(IoList::Copied(unsafe { lists(io)? }.collect()))
    }

    /// Calls `f` with each value and its data.
    ///
    /// # Safety
    /// The lists are valid, and so are the addresses in them for their bytes.
    pub(crate) unsafe fn for_each_value(&self, mut f: impl FnMut(ValueId, *mut u8, usize) -> Result<()>) -> Result<()> {
        let mut call = |(v, at, n): (u32, *mut c_void, usize)| f(ValueId(v), at.cast(), n);
        match self {
            IoList::None => Ok(()),
            // SAFETY: the lists are valid for their counts, and their addresses for the bytes of the values.
            IoList::Borrowed(io) => unsafe { lists(io)? }.try_for_each(call),
            IoList::Copied(list) => list.iter().copied().try_for_each(&mut call),
        }
    }
}

/// # Safety
/// The lists of `io` are null or valid for `count` entries, for as long as the iterator is used.
unsafe fn lists(io: &vsla_io_t) -> Result<impl Iterator<Item = (u32, *mut c_void, usize)>> {
    // SAFETY: the header requires each list to be valid for its count.
    let (values, data, bytes) = unsafe {
        (slice(io.values, io.count, "values")?, slice(io.data, io.count, "data")?, slice(io.bytes, io.count, "bytes")?)
    };
    Ok(values.iter().zip(data).zip(bytes).map(|((v, d), n)| (*v, *d, *n)))
}

/// Sets values from lists.
///
/// # Safety
/// The lists are valid, and each address for reads of its bytes.
pub(crate) unsafe fn write_all(io: &IoList, b: &mut Bindings) -> Result<()> {
    // SAFETY: the lists are valid, and each address for reads of its bytes.
    unsafe { io.for_each_value(|v, at, n| b.write_bytes(v, slice(at, n, "data")?)) }
}

/// Reads values into lists.
///
/// # Safety
/// The lists are valid, and each address for writes of its bytes.
pub(crate) unsafe fn read_all(io: &IoList, b: &Bindings) -> Result<()> {
    // SAFETY: the lists are valid, and each address for writes of its bytes.
    unsafe { io.for_each_value(|v, at, n| b.read_bytes(v, slice_mut(at, n, "data")?)) }
}

/// Runs a program on lists of data, where it lies if it can be used there.
///
/// # Safety
/// Each address is valid for its bytes, which nothing else uses until the run has ended.
pub(crate) unsafe fn run_on(plan: &Plan, b: &mut Bindings, inputs: &IoList, outputs: &IoList) -> Result<()> {
    let mut lent = b.borrow_data();
    // SAFETY: each address is valid for its bytes, which nothing else uses until the run has ended.
    unsafe {
        inputs.for_each_value(|v, at, n| {
            check_data(at, n)?;
            lent.input(v, at, n)
        })?;
        outputs.for_each_value(|v, at, n| {
            check_data(at, n)?;
            lent.output(v, at, n)
        })?;
    }
    plan.execute(lent.bindings(), &Stream::default())?;
    // SAFETY: as above.
    unsafe { outputs.for_each_value(|v, at, n| lent.copy_back(v, slice_mut(at, n, "data")?)) }
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
        check_writable(out)?;
        want!(program, Program, program);
        want!(backend, Backend, backend);
        let plan = Plan::new(program, backend)?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Plan(plan))) }
    })
}

/// The bytes of one arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_plan_arena_size(plan: *const vsla_plan_t, class: u32, bytes: *mut u64) -> Code {
    guard(|| {
        want!(plan, Plan, plan);
        if class as usize >= ArenaClass::ALL.len() {
            return Err(Error::InvalidArg(format!("{class} is not a memory class")));
        }
        // SAFETY: the header requires `bytes` to be valid for a write; null is refused.
        unsafe { write_out(bytes, plan.arena_sizes()[class as usize] as u64) }
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
        check_writable(class)?;
        check_writable(offset)?;
        want!(plan, Plan, plan);
        let place = plan.place(ValueId(id))?;
        // SAFETY: the header requires `bytes`, `class` and `offset` to be valid for writes; null is refused.
        unsafe {
            write_out(bytes, place.bytes as u64)?;
            write_out(class, place.class as u32)?;
            write_out(offset, place.offset as u64)
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
            return Err(Error::InvalidArg(format!("segment {index} is out of range; the schedule has {}", all.len())));
        }
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, vsla_segment_t::new(all, index)) }
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
        // SAFETY: the header requires the text to be valid for writes of `room` bytes and `needed` for a write; null is
        // refused.
        unsafe { write_text(&plan.to_string(), text, room, needed) }
    })
}

/// Writes text into a caller's room.
///
/// # Safety
/// `text` is null or valid for writes of `room` bytes, and `needed` is null or valid for a write.
pub(crate) unsafe fn write_text(report: &str, text: *mut c_char, room: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: `needed` is valid for a write and `text` for writes of `room` bytes; null is refused.
    unsafe { write_out(needed, report.len() + 1)? };
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
        // SAFETY: the header requires `bytes` to be valid for a write; null is refused.
        unsafe { write_out(bytes, plan.memory_bytes(sharing != 0)?) }
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
        check_writable(out)?;
        want!(plan, Plan, plan);
        let needed = plan.memory_bytes(!params.is_null())?;
        // SAFETY: the header requires the block to be valid for `bytes` bytes for as long as the bindings exist;
        // `memory` checks address and size.
        let block = unsafe { memory(block, bytes, needed)? };
        let bound = if params.is_null() {
            plan.bind_in(block, None)?
        } else {
            want!(params, Bindings, params);
            plan.bind_in(block, Some(&lock(params)))?
        };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Bindings(Mutex::new(bound)))) }
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
        check_writable(out)?;
        want!(plan, Plan, plan);
        let bound = if params.is_null() {
            plan.bind()?
        } else {
            want!(params, Bindings, params);
            plan.bind_sharing(&lock(params))?
        };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Bindings(Mutex::new(bound)))) }
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
        // SAFETY: the header requires `data` to be valid for reads of that many elements; null is refused.
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
        // SAFETY: the header requires `data` to be valid for writes of that many elements; null is refused.
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
        // SAFETY: the header requires `inputs` and `outputs` to be null or to point to valid lists.
        let (inputs, outputs) = unsafe { (IoList::at(inputs)?, IoList::at(outputs)?) };
        stream.start(StreamJob::Program {
            plan: retain_handle(plan, "plan", |o| matches!(o, Object::Plan(_)))?,
            bindings: retain_handle(bindings, "bindings", |o| matches!(o, Object::Bindings(_)))?,
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
            return Err(Error::InvalidArg("a program cannot be linked to itself".into()));
        }
        want!(source, Bindings, source);
        want!(destination, Bindings, destination);
        let link = Link { source: ValueId(source_value), destination: ValueId(destination_value) };
        link.check(lock(source).program(), lock(destination).program())?;
        // One lock at a time: two threads that link in opposite directions don't wait for each other.
        let from = lock(source).export(link.source)?;
        lock(destination).import(link.destination, from)
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
        check_writable(out)?;
        want!(program, Program, program);
        want!(backend, Backend, backend);
        let profile = if params.is_null() {
            Profile::compile(program, backend)?
        } else {
            want!(params, Profile, params);
            Profile::compile_sharing(program, backend, &lock(params))?
        };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Profile(Mutex::new(profile)))) }
    })
}

/// The most axes of data that is routed or promoted.
const AXES: usize = 16;

/// A shape without an allocation.
///
/// # Safety
/// `at` is null or valid for reads of `rank` sizes.
unsafe fn short_shape(at: *const u64, rank: usize, to: &mut [usize; AXES]) -> Result<&[usize]> {
    // SAFETY: `at` is valid for reads of `rank` sizes; `slice` refuses null.
    let from = unsafe { slice(at, rank, "the shape")? };
    let to = to
        .get_mut(..rank)
        .ok_or_else(|| Error::InvalidArg(format!("{rank} axes are too many; at most {AXES} are supported")))?;
    for (t, n) in to.iter_mut().zip(from) {
        *t = usize::try_from(*n).map_err(|_| Error::InvalidArg(format!("the size {n} is too large")))?;
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
        check_writable(index)?;
        let mut space = [0; AXES];
        // SAFETY: the header requires `profiles` and `shape` to be valid for reads of that many elements; null is
        // refused.
        let (profiles, shape) = unsafe { (slice(profiles, count, "profiles")?, short_shape(shape, rank, &mut space)?) };
        for (i, &profile) in profiles.iter().enumerate() {
            want!(profile, Profile, profile);
            if lock(profile).holds(ValueId(id), shape) {
                // SAFETY: as above.
                return unsafe { write_out(index, i) };
            }
        }
        let text = format!("no profile is large enough for {shape:?} as input {id}; add a larger one");
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
        // SAFETY: the header requires `data` and `shape` to be valid for reads of that many elements; null is refused.
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
        // SAFETY: the header requires `inputs` and `outputs` to be null or to point to valid lists.
        let (inputs, outputs) = unsafe { (IoList::at(inputs)?, IoList::at(outputs)?) };
        let profile = retain_handle(profile, "profile", |o| matches!(o, Object::Profile(_)))?;
        stream.start(StreamJob::Profile { profile, inputs, outputs })
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
