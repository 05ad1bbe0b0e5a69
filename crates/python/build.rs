//! Writes `calls.rs` from the table of public functions: each one whose arguments and result Python has, under a number.

use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Arguments that are no operands beside the others, so that a number there has a dtype of its own.
const ALONE: [&str; 11] =
    ["at", "condition", "index", "indices", "key", "labels", "mask", "n", "pred", "start", "where"];

/// How an argument of a Rust type is read, with `$` for its place; none if Python has nothing for it.
fn read(module: &str, name: &str, ty: &str) -> Option<String> {
    let plain = match ty {
        "&Tensor" if !ALONE.contains(&name) => "&a.meeting($)?",
        "&Tensor" => "&a.tensor($)?",
        "impl Into<Operand>" => "a.operand($)?",
        "f64" | "usize" | "isize" | "i64" | "i32" | "u64" | "u32" | "bool" => {
            return Some(format!("a.get::<{ty}>($)?"));
        }
        "Option<usize>" | "Option<f64>" | "Option<(f64, f64)>" | "[usize; 2]" => {
            return Some(format!("a.get::<{ty}>($)?"));
        }
        "impl Into<ReduceAxes>" => "a.along($)?",
        "DType" => "a.dtype($)?",
        "&[usize]" => "&a.list::<usize>($)?",
        "&[isize]" => "&a.list::<isize>($)?",
        "impl Dims" => "a.list::<isize>($)?",
        "&[bool]" => "&a.list::<bool>($)?",
        "&[&Tensor]" => "&refs(&a.tensors($)?)",
        "&[Tensor]" => "&a.tensors($)?",
        "Option<&Tensor>" => "a.maybe_tensor($)?.as_ref()",
        "Option<Operand>" => "a.maybe_operand($)?",
        "Option<&[usize]>" => "a.maybe_list::<usize>($)?.as_deref()",
        "&[(usize, usize)]" => "&a.list::<(usize, usize)>($)?",
        "&[&[usize]]" => "&slices(&a.list::<Vec<usize>>($)?)",
        "&str" => "&a.get::<String>($)?",
        "impl Into<Number>" => "a.number($)?",
        "impl Into<Complex>" => "a.complex($)?",
        "Norm" if module == "fft" => "a.fft_norm($)?",
        "impl Into<Norm>" if module == "linalg" => "a.norm($)?",
        "PadMode" => "a.pad_mode($)?",
        _ => return None,
    };
    Some(plain.to_string())
}

const RESULTS: [&str; 14] = [
    "Tensor",
    "(Tensor, Tensor)",
    "(Tensor, Tensor, Tensor)",
    "(Tensor, Tensor, Tensor, Tensor)",
    "Vec<Tensor>",
    "(Tensor, Vec<Tensor>)",
    "Complex",
    "bool",
    "Result<bool>",
    "usize",
    "Vec<usize>",
    "Option<Vec<usize>>",
    "Option<DType>",
    "Option<(i128, i128)>",
];

const MODULES: [&str; 8] = ["np", "nn", "random", "linalg", "special", "lax", "fft", ""];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = root.join("../../docs/functions.json");
    println!("cargo::rerun-if-changed={}", table.display());
    println!("cargo::rerun-if-changed=build.rs");
    let text = std::fs::read_to_string(&table).expect("docs/functions.json");
    let functions: Vec<Value> = serde_json::from_str(&text).expect("the table is JSON");
    let (mut arms, mut rows, mut id) = (String::new(), String::new(), 0);
    for f in &functions {
        let word = |key: &str| f[key].as_str().unwrap_or_default();
        let (module, name) = (word("module"), word("name"));
        if !MODULES.contains(&module) || !RESULTS.contains(&word("returns")) || f.get("generics").is_some() {
            continue;
        }
        let args: Vec<(&str, &str)> =
            f["args"].as_array().into_iter().flatten().filter_map(|a| Some((a[0].as_str()?, a[1].as_str()?))).collect();
        let reads: Option<Vec<String>> = args
            .iter()
            .enumerate()
            .map(|(i, (name, ty))| Some(read(module, name, ty)?.replace('$', &i.to_string())))
            .collect();
        let Some(reads) = reads else { continue };
        // Pairs of borrowed lists need names, and no function has more than one.
        let path = if module.is_empty() { name.to_string() } else { format!("{module}::{name}") };
        let n = args.len();
        writeln!(arms, "        {id} => {{ a.count({n})?; give(py, tensorloom::{path}({})) }}", reads.join(", "))
            .unwrap();
        let list: Vec<String> = args.iter().map(|(n, t)| format!("({n:?}, {t:?})")).collect();
        let (returns, doc) = (word("returns"), word("doc"));
        writeln!(rows, "    ({module:?}, {name:?}, &[{}], {returns:?}, {doc:?}),", list.join(", ")).unwrap();
        id += 1;
    }
    let out = format!(
        "/// Calls a function by its number.\n#[expect(clippy::too_many_lines, reason = \"made by the build\")]\n\
         pub(crate) fn call(py: Python<'_>, id: usize, a: &Args<'_>) -> PyResult<Py<PyAny>> {{\n    match id {{\n{arms}        \
         _ => Err(pyo3::exceptions::PyIndexError::new_err(\"no function has this number\")),\n    }}\n}}\n\n\
         /// Module, name, arguments with their types, its result, and what it does.\npub(crate) static TABLE: \
         &[(&str, &str, &[(&str, &str)], &str, &str)] = &[\n{rows}];\n"
    );
    let to = Path::new(&std::env::var("OUT_DIR").expect("cargo sets it")).join("calls.rs");
    std::fs::write(to, out).expect("calls.rs");
}
