//! `loom compile DIR --emit c-library` writes a trained model as a C library with its header.
//!
//! The output is the program with its parameters (`NAME.loom`), the wrappers `NAME.c` and `NAME.h`, a `CMakeLists.txt`, and the
//! library itself if a C compiler and the runtime (`libtensorloom_c.a`) are found.

use crate::ExitStatus;
use crate::command::{self, UsageError};
use crate::compile::ModelArgs;
use crate::output::{errln, outln};
use crate::run::usage_error;
use cpu::Cpu;
use models::{Model, Tokenizer, files};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `--emit c-library`.
#[derive(clap::Args)]
#[command(next_help_heading = "C library")]
pub(crate) struct CLibraryArgs {
    /// Output folder of the library
    #[arg(long, value_name = "DIR", value_parser = command::non_empty_name)]
    out: Option<String>,
    /// Name of the library in C; default: the name of the model's folder
    #[arg(long, value_name = "NAME", value_parser = identifier)]
    name: Option<String>,
    /// The runtime library, libtensorloom_c.a; default: searched for next to loom
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    runtime: Option<String>,
}

fn identifier(text: &str) -> Result<String, String> {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && text.chars().all(rest) {
        true => Ok(text.to_string()),
        false => Err("must be a C identifier: letters, digits and _".into()),
    }
}

/// Makes a C identifier from the name of a folder.
fn identifier_from_dir(dir: &Path) -> String {
    let stem = dir.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match name.chars().next() {
        Some(c) if c.is_ascii_alphabetic() || c == '_' => name,
        _ => format!("model{name}"),
    }
}

pub(crate) fn write(chosen: &ModelArgs, options: &CLibraryArgs) -> Result<ExitStatus, UsageError> {
    let dir = Path::new(&chosen.file);
    if !dir.is_dir() && !models::gguf::is_gguf(dir) {
        return Err(UsageError(format!(
            "{}: a C library needs a trained model: give a HuggingFace model directory or a .gguf file",
            chosen.file
        )));
    }
    let Some(out) = &options.out else {
        return Err(UsageError("`--out DIR` is missing: give the output folder of the library".into()));
    };
    let (out, name) = (Path::new(out), options.name.clone().unwrap_or_else(|| identifier_from_dir(dir)));
    let (batch, seq) = (chosen.batch_size.unwrap_or(1), chosen.seq_len.unwrap_or(64));
    let model = Model::load(dir, chosen.dtype).map_err(usage_error)?;
    if let Some(most) = model.max_sequence().filter(|most| seq > *most && !model.can_extrapolate()) {
        return Err(UsageError(format!(
            "`--seq-len {seq}` exceeds the model's maximum sequence length of {most}: give a smaller value"
        )));
    }
    let graph = model.frozen(batch, seq).map_err(usage_error)?;
    let vocabulary = graph.output_types()[0].shape.last().copied().unwrap_or(0);
    // The program is compiled for the CPU, whichever device is used here. The number of threads is chosen when it runs.
    let cpu = Cpu::new(1);
    let program = compiler::compile(&graph, &cpu, &compiler::Options::default()).and_then(|p| p.to_bytes());
    let program = program.map_err(|e| UsageError(e.to_string()))?;
    let tokens = Tokenizer::from_dir(dir).map(|t| t.token_bytes()).unwrap_or_default();

    files::create_dir_all(out).map_err(usage_error)?;
    let put = |file: &str, bytes: &[u8]| files::write(&out.join(file), bytes).map_err(usage_error);
    put(&format!("{name}.loom"), &program)?;
    put("tensorloom.h", c::HEADER.as_bytes())?;
    put(&format!("{name}.h"), c_header(&name, batch, seq, vocabulary).as_bytes())?;
    put(&format!("{name}.c"), c_source(&name, &tokens).as_bytes())?;
    // Only these symbols are exported; the linker removes code that they don't reach.
    put(&format!("{name}.map"), format!("{{ global: loom_*; {name}_*; local: *; }};\n").as_bytes())?;
    put("CMakeLists.txt", cmake(&name).as_bytes())?;
    let parts = format!("{name}.loom, {name}.h, {name}.c, tensorloom.h, CMakeLists.txt");
    outln!("{}: {parts} ({} parameters, token IDs [{batch}, {seq}])", out.display(), model.parameter_count());
    match runtime(options) {
        Some(runtime) => match link(out, &name, &runtime) {
            Ok(library) => {
                let size = std::fs::metadata(&library).map_or(0.0, |m| m.len() as f64 / 1e6);
                outln!("{}: {size:.1} MB", library.display());
            }
            Err(why) if options.runtime.is_some() => return Err(UsageError(why)),
            Err(why) => errln!("note: the shared library was not linked: {why}"),
        },
        None if options.runtime.is_some() => return Err(UsageError("`--runtime`: no such file".into())),
        None => errln!(
            "note: the shared library was not linked because libtensorloom_c.a was not found next to loom: build it \
             with `cargo xtask install-c PREFIX` and give it with `--runtime FILE`, or use CMakeLists.txt"
        ),
    }
    Ok(ExitStatus::Success)
}

/// Returns the runtime given by `--runtime`, or one next to this program.
fn runtime(options: &CLibraryArgs) -> Option<PathBuf> {
    let file = "libtensorloom_c.a";
    let places = match &options.runtime {
        Some(given) => vec![PathBuf::from(given)],
        None => {
            let exe = std::env::current_exe().ok()?;
            let beside = exe.parent()?;
            vec![beside.join(file), beside.join("../lib").join(file)]
        }
    };
    places.into_iter().find(|p| p.is_file())
}

/// Links the library and returns its path.
fn link(out: &Path, name: &str, runtime: &Path) -> Result<PathBuf, String> {
    let library = out.join(format!("lib{name}.so"));
    let runtime = std::path::absolute(runtime).map_err(|e| format!("{}: {e}", runtime.display()))?;
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&cc);
    command.current_dir(out).args(["-shared", "-fPIC", "-O2", "-s", "-Wl,--gc-sections"]);
    command.args(c::FUNCTIONS.map(|f| format!("-Wl,-u,{f}")));
    command.arg(format!("-Wl,--version-script={name}.map"));
    command.arg(format!("-Wl,-soname,lib{name}.so")).arg(format!("{name}.c")).arg(runtime);
    command.args(["-lm", "-lpthread", "-ldl", "-o"]).arg(format!("lib{name}.so"));
    let done = command.output().map_err(|e| format!("cannot run the C compiler `{cc}`: {e}"))?;
    match done.status.success() {
        true => Ok(library),
        false => Err(format!("`{cc}` failed: {}", String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or(""))),
    }
}

fn c_header(name: &str, batch: usize, seq: usize, vocabulary: usize) -> String {
    let upper = name.to_uppercase();
    format!(
        "/* A trained model: ids [{batch}, {seq}] (int32_t) to logits [{batch}, {seq}, {vocabulary}] (float).
 *
 *   loom_program *p;
 *   if ({name}_open(0, &p)) puts(loom_last_error());
 *   const void *in[] = {{ids}};
 *   void *out[] = {{logits}};
 *   loom_program_run(p, in, out, NULL, 0);
 */
#ifndef {upper}_H
#define {upper}_H

#include \"tensorloom.h\"

#define {upper}_BATCH {batch}
#define {upper}_SEQ {seq}
#define {upper}_VOCABULARY {vocabulary}

#ifdef __cplusplus
extern \"C\" {{
#endif

/* The model, ready to run; 0 threads are all cores. loom_program_free frees it. */
loom_status {name}_open(uint32_t threads, loom_program **out);
/* The text that an id adds, which may be a part of a character, and its length; NULL and 0 for ids that are no text. */
const char *{name}_token(int32_t id, size_t *length);

#ifdef __cplusplus
}}
#endif

#endif /* {upper}_H */
"
    )
}

/// Returns bytes as a C string literal.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for b in bytes {
        match b {
            b'"' | b'\\' => write!(text, "\\{}", *b as char).unwrap_or_default(),
            // Question marks are escaped, since two of them could start a trigraph.
            b' '..=b'~' if *b != b'?' => text.push(*b as char),
            b => write!(text, "\\{b:03o}").unwrap_or_default(),
        }
    }
    text.push('"');
    text
}

fn c_source(name: &str, tokens: &[Option<Vec<u8>>]) -> String {
    let rows: Vec<String> = tokens
        .iter()
        .map(|t| t.as_ref().map_or("{0, 0}".to_string(), |t| format!("{{{}, {}}}", quoted(t), t.len())))
        .collect();
    let table = if rows.is_empty() { "{0, 0}".to_string() } else { rows.join(",\n  ") };
    let count = rows.len();
    format!(
        "/* A trained model as a library; {name}.loom is a part of it. */
#include \"{name}.h\"

__asm__(
    \".section .rodata\\n\"
    \".balign 64\\n\"
    \".globl {name}_program_begin\\n\"
    \".hidden {name}_program_begin\\n\"
    \"{name}_program_begin:\\n\"
    \".incbin \\\"{name}.loom\\\"\\n\"
    \".globl {name}_program_end\\n\"
    \".hidden {name}_program_end\\n\"
    \"{name}_program_end:\\n\"
    \".byte 0\\n\"
    \".previous\\n\");
extern const unsigned char {name}_program_begin[] __attribute__((visibility(\"hidden\")));
extern const unsigned char {name}_program_end[] __attribute__((visibility(\"hidden\")));

loom_status {name}_open(uint32_t threads, loom_program **out) {{
  return loom_program_load({name}_program_begin, (size_t)({name}_program_end - {name}_program_begin), threads, out);
}}

static const struct {{
  const char *text;
  size_t length;
}} tokens[] = {{
  {table}
}};

const char *{name}_token(int32_t id, size_t *length) {{
  int known = id >= 0 && id < {count};
  if (length) *length = known ? tokens[id].length : 0;
  return known ? tokens[id].text : 0;
}}
"
    )
}

fn cmake(name: &str) -> String {
    let kept: Vec<String> = c::FUNCTIONS.map(|f| format!("-Wl,-u,{f}")).to_vec();
    format!(
        "# The model as a library: cmake -DCMAKE_PREFIX_PATH=PREFIX, where `cargo xtask install-c PREFIX` put the runtime.
cmake_minimum_required(VERSION 3.13)
project({name} C)
find_package(tensorloom_c 0.1 REQUIRED)
add_library({name} SHARED {name}.c)
set_source_files_properties({name}.c PROPERTIES COMPILE_OPTIONS \"-Wa,-I${{CMAKE_CURRENT_SOURCE_DIR}}\" OBJECT_DEPENDS ${{CMAKE_CURRENT_SOURCE_DIR}}/{name}.loom)
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_link_options({name} PRIVATE -Wl,--gc-sections -Wl,--version-script=${{CMAKE_CURRENT_SOURCE_DIR}}/{name}.map {})
target_link_libraries({name} PRIVATE tensorloom_c::static)
",
        kept.join(" ")
    )
}
