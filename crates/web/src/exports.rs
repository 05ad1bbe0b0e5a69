//! What JavaScript calls.

use crate::function::{JsFunction, Leaves, threw};
use crate::loops::Places;
use crate::objects::{Object, drop_handle, find, hold, tensor, tensors};
use crate::value::{Value, numpy_name, read};
use crate::{loops, table};
use std::cell::RefCell;
use std::rc::Rc;
use tensorloom::{DType, Literal, Tensor, Type, engine, jit};

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    safe fn now() -> f64;
    /// This program is about to stop for good; the text says why.
    safe fn panicked(text: *const u8, bytes: usize);
    /// Prints a text of `tensorloom::debug`.
    safe fn print(text: *const u8, bytes: usize);
}

thread_local! {
    static WORDS: RefCell<Vec<f64>> = RefCell::new(vec![0.0; 1 << 12]);
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The words of messages.
pub(crate) fn words<R>(f: impl FnOnce(&mut Vec<f64>) -> R) -> R {
    WORDS.with_borrow_mut(f)
}

pub(crate) fn say(text: String) {
    TEXT.with_borrow_mut(|t| *t = text);
}

/// The bytes as a text.
pub(crate) fn taken_bytes() -> String {
    BYTES.with_borrow(|b| String::from_utf8_lossy(b).into_owned())
}

/// Makes these the bytes.
pub(crate) fn give_bytes(bytes: Vec<u8>) {
    BYTES.with_borrow_mut(|b| *b = bytes);
}

/// Must be called first.
#[unsafe(no_mangle)]
pub extern "C" fn start() {
    compiler::clock::set(|| now());
    compiler::debug::set_output(|text| print(text.as_ptr(), text.len()));
    std::panic::set_hook(Box::new(|e| {
        let text = e.to_string();
        panicked(text.as_ptr(), text.len());
    }));
}

/// The address of the words, at least so many.
#[unsafe(no_mangle)]
pub extern "C" fn room(n: u32) -> *mut f64 {
    words(|w| {
        if w.len() < n as usize {
            w.resize(n as usize, 0.0);
        }
        w.as_mut_ptr()
    })
}

/// The address of the bytes, exactly so many.
#[unsafe(no_mangle)]
pub extern "C" fn bytes(n: u32) -> *mut u8 {
    BYTES.with_borrow_mut(|b| {
        // What was large once need not stay so.
        if b.capacity() > 1 << 20 && (n as usize) < b.capacity() / 4 {
            *b = Vec::new();
        }
        b.resize(n as usize, 0);
        b.as_mut_ptr()
    })
}

/// The address of the last text; its length in bytes is that of [`text_bytes`].
#[unsafe(no_mangle)]
pub extern "C" fn text() -> *const u8 {
    TEXT.with_borrow(|t| t.as_ptr())
}

/// See [`text`].
#[unsafe(no_mangle)]
pub extern "C" fn text_bytes() -> u32 {
    TEXT.with_borrow(|t| t.len() as u32)
}

/// Makes the text a list of the functions, as JSON: module, name, name in JavaScript, arguments with defaults.
#[unsafe(no_mangle)]
pub extern "C" fn functions() {
    say(table::NAMES.to_string());
}

/// Makes the text a list of dtypes by their numbers.
#[unsafe(no_mangle)]
pub extern "C" fn dtypes() {
    say(DType::ALL.map(numpy_name).join(" "));
}

/// Gives a handle back.
#[unsafe(no_mangle)]
pub extern "C" fn release(handle: u32) {
    drop_handle(handle);
}

/// How many tensors have handles.
#[unsafe(no_mangle)]
pub extern "C" fn live() -> u32 {
    tensors() as u32
}

/// A tensor of the bytes, of a dtype and a shape in the first words; its handle, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn make(dtype: u32, rank: u32) -> i32 {
    let shape: Vec<usize> = words(|w| w[..rank as usize].iter().map(|x| *x as usize).collect());
    let made = BYTES.with_borrow(|b| Literal::from_bytes(Type::new(DType::ALL[dtype as usize], &shape), b));
    match made {
        Some(l) => hold(Object::Tensor(engine().literal(&l))) as i32,
        None => {
            say(format!("the data don't fill a tensor of shape {shape:?}"));
            -1
        }
    }
}

/// Puts a tensor's dtype and shape into the words; gives its rank, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn describe(handle: u32) -> i32 {
    match tensor(handle) {
        Ok(t) => {
            let d = DType::ALL.iter().position(|d| *d == t.dtype()).unwrap_or(0);
            words(|w| {
                w[0] = d as f64;
                t.shape().iter().enumerate().for_each(|(i, n)| w[i + 1] = *n as f64);
            });
            t.shape().len() as i32
        }
        Err(e) => {
            say(e);
            -1
        }
    }
}

/// Computes a tensor and makes its elements the bytes; gives their number, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn fetch(handle: u32) -> i32 {
    let got = tensor(handle).and_then(|t| t.to_literal().map_err(|e| e.to_string()));
    match got {
        Ok(l) => {
            BYTES.with_borrow_mut(|b| {
                b.clear();
                b.extend_from_slice(l.bytes());
            });
            l.bytes().len() as i32
        }
        Err(e) => {
            say(e);
            -1
        }
    }
}

/// Where [`fetch`] has put the elements.
#[unsafe(no_mangle)]
pub extern "C" fn fetched() -> *const u8 {
    BYTES.with_borrow(|b| b.as_ptr())
}

fn values(n: u32) -> Result<Vec<Value>, String> {
    let given = words(|w| w[..n as usize].to_vec());
    let (mut at, mut all) = (0, Vec::new());
    while at < given.len() {
        all.push(read(&given, &mut at)?);
    }
    Ok(all)
}

/// Says how a call went: puts its result into the words, or its error into the text.
fn finish(result: Result<(), String>, out: Vec<f64>) -> i32 {
    // An exception of a function of JavaScript says more than what followed from it.
    let bad = if threw() { Some(String::new()) } else { result.err().or_else(|| invalid(&out)) };
    match bad {
        None => words(|w| {
            if w.len() < out.len() {
                w.resize(out.len(), 0.0);
            }
            w[..out.len()].copy_from_slice(&out);
            out.len() as i32
        }),
        Some(text) => {
            handles(&out).into_iter().for_each(drop_handle);
            say(text);
            -1
        }
    }
}

/// The handles in a result.
fn handles(out: &[f64]) -> Vec<u32> {
    fn collect(v: &Value, all: &mut Vec<u32>) {
        match v {
            Value::Handle(h) => all.push(*h),
            Value::List(l) => l.iter().for_each(|v| collect(v, all)),
            Value::Pairs(p) => p.iter().for_each(|(_, v)| collect(v, all)),
            _ => {}
        }
    }
    let (mut at, mut all) = (0, Vec::new());
    while at < out.len() {
        match read(out, &mut at) {
            Ok(v) => collect(&v, &mut all),
            Err(_) => break,
        }
    }
    all
}

/// Why a result can't be used.
fn invalid(out: &[f64]) -> Option<String> {
    handles(out).into_iter().find_map(|h| match find(h) {
        Ok(Object::Tensor(t)) => t.error().map(|e| e.to_string()),
        _ => None,
    })
}

/// Calls the function of a number with the values in the first `n` words.
#[unsafe(no_mangle)]
pub extern "C" fn call(function: u32, n: u32) -> i32 {
    let mut out = Vec::new();
    let result = values(n).and_then(|args| table::call(function as usize, &args, &mut out));
    finish(result, out)
}

/// Calls what has a name of its own: transforms, loops, optimisers. The first value is the name.
#[unsafe(no_mangle)]
pub extern "C" fn special(n: u32) -> i32 {
    let mut out = Vec::new();
    let result = values(n).and_then(|args| loops::special(&args, &mut out));
    finish(result, out)
}

/// A compiled function of a function of JavaScript; its handle. Its results may take the memory of the arguments whose places are the
/// first words.
#[unsafe(no_mangle)]
pub extern "C" fn jit_new(function: u32, donated: u32) -> u32 {
    let places: Vec<usize> = words(|w| w[..donated as usize].iter().map(|p| *p as usize).collect());
    let own = jit(JsFunction(function));
    let own = if places.is_empty() { own } else { own.donate(Places(places)) };
    hold(Object::Jit(Rc::new(own)))
}

/// As [`jit_call`]; the handles of the last words are given up with it, so that nobody else holds those tensors.
#[unsafe(no_mangle)]
pub extern "C" fn jit_call_giving(handle: u32, n: u32, given: u32) -> i32 {
    jit_call_of(handle, n, given)
}

/// Calls a compiled function with the tensors whose handles are the first words; gives the number of results, whose
/// handles are then the first words, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn jit_call(handle: u32, n: u32) -> i32 {
    jit_call_of(handle, n, 0)
}

fn jit_call_of(handle: u32, n: u32, given: u32) -> i32 {
    let called = || -> Result<Vec<Tensor>, String> {
        let Object::Jit(f) = find(handle)? else { return Err("expected a compiled function".into()) };
        let args: Vec<Tensor> = words(|w| w[..n as usize].iter().map(|h| tensor(*h as u32)).collect::<Result<_, _>>())?;
        let gone: Vec<u32> = words(|w| w[n as usize..(n + given) as usize].iter().map(|h| *h as u32).collect());
        gone.into_iter().for_each(drop_handle);
        let outs = f.call(Leaves(args));
        if threw() {
            return Err(String::new());
        }
        // Work is done when it is asked for, so that loops don't pile it up; inside of a trace there is none.
        match outs.0.iter().find_map(|t| t.engine()) {
            Some(engine) => engine.force(&outs).map_err(|e| e.to_string())?,
            None => outs.0.iter().try_for_each(|t| t.check()).map_err(|e| e.to_string())?,
        }
        Ok(outs.0)
    };
    match called() {
        Ok(outs) => {
            let handles: Vec<f64> = outs.into_iter().map(|t| f64::from(hold(Object::Tensor(t)))).collect();
            words(|w| {
                if w.len() < handles.len() {
                    w.resize(handles.len(), 0.0);
                }
                w[..handles.len()].copy_from_slice(&handles);
            });
            handles.len() as i32
        }
        Err(e) => {
            say(e);
            -1
        }
    }
}
