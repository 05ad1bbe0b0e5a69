//! `loom eval`, `loom generate`, `loom export` and `loom merge`: HuggingFace directories.

use crate::Outcome;
use crate::args::{Args, Flag, Usage};
use crate::compile::dtype;
use crate::output::{errln, out, outln};
use cpu::Cpu;
use lang::resolve::Program;
use models::train::Lock;
use models::{Adapter, Error, Model, NamedTensor, Sampling, Tokenizer};
use std::io::Write;
use std::path::Path;

pub(crate) const EVAL: &[Flag] =
    &[("ids", true), ("labels", true), ("out", true), ("dtype", true), ("threads", true), ("probes", false)];
pub(crate) const GENERATE: &[Flag] = &[
    ("ids", true),
    ("prompt", true),
    ("max-new", true),
    ("greedy", false),
    ("temperature", true),
    ("top-k", true),
    ("top-p", true),
    ("seed", true),
    ("json", false),
    ("dtype", true),
    ("threads", true),
];
pub(crate) const MERGE: &[Flag] = &[("out", true), ("base", true), ("dtype", true)];
pub(crate) const EXPORT: &[Flag] = &[("out", true), ("dtype", true)];

pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A program of the language from a file or the library.
pub(crate) fn load_program(name: &str) -> Result<Program, Usage> {
    models::load_program(name).map_err(usage)
}

/// The model of a directory; of an adapter's directory, the adapter merged into its base.
fn load(args: &Args) -> Result<Model, Usage> {
    let dir = args.word("the directory")?;
    if !Path::new(dir).is_dir() {
        return Err(Usage(format!("{dir}: not a directory; give a HuggingFace model directory")));
    }
    let (dir, dtype) = (Path::new(dir), dtype(args)?);
    if dir.join("adapter_config.json").is_file() {
        return adapted(dir, None, dtype);
    }
    Model::load(dir, dtype).map_err(usage)
}

/// An adapter's base with the adapter merged into it.
fn adapted(dir: &Path, base: Option<&str>, dtype: ir::DType) -> Result<Model, Usage> {
    let base = match base {
        Some(base) => base.to_string(),
        None => Adapter::base_of(dir).map_err(usage)?,
    };
    if !Path::new(&base).is_dir() {
        return Err(Usage(format!("{base}: the adapter's model is not there; name its directory with `--base`")));
    }
    let mut model = Model::load(Path::new(&base), dtype).map_err(usage)?;
    let adapter = Adapter::read(dir, &model).map_err(usage)?;
    model.merge(&adapter).map_err(usage)?;
    Ok(model)
}

/// One line, whatever went wrong.
pub(crate) fn usage(error: Error) -> Usage {
    Usage(error.to_string().trim_end().to_string())
}

pub(crate) fn backend(args: &Args) -> Result<Cpu, Usage> {
    Ok(Cpu::new(args.at_most("threads", threads(), models::MOST_THREADS)?))
}

pub(crate) fn eval(args: &Args) -> Result<Outcome, Usage> {
    args.required("ids")?;
    let (ids, labels) = (args.ids("ids")?, args.ids("labels")?);
    let out = args.required("out")?.to_string();
    let model = load(args)?;
    let labels = (!labels.is_empty()).then_some(&labels[..]);
    let backend = backend(args)?;
    let found = model.evaluate(&ids, labels, &backend).map_err(usage)?;
    let mut tensors: Vec<NamedTensor> = vec![found.logits];
    if let Some(loss) = found.loss {
        outln!("loss {}", loss.floats()[0]);
        tensors.push(loss);
    }
    tensors.extend(found.gradients);
    if args.has("probes") {
        for probed in model.probe(&ids, labels, &backend).map_err(usage)? {
            let name = format!("probe.{}.{}", probed.path, probed.capture);
            tensors.push(NamedTensor { name, ..probed.value });
        }
    }
    models::write_tensors(Path::new(&out), &tensors).map_err(usage)?;
    Ok(Outcome::Clean)
}

/// How tokens are chosen: the most probable one unless a temperature, a number or a share is given.
fn sampling(args: &Args) -> Result<Sampling, Usage> {
    let number = |name: &str, default: f64, valid: fn(f64) -> bool| match args.value(name) {
        None => Ok(default),
        Some(text) => match text.parse::<f64>() {
            Ok(x) if valid(x) => Ok(x),
            _ => Err(Usage(format!("`--{name} {text}` is out of range: temperatures are above 0, shares from 0 to 1"))),
        },
    };
    let seed = match args.value("seed") {
        None => 1,
        Some(text) => text.parse().map_err(|_| Usage(format!("`--seed` needs a whole number, got `{text}`")))?,
    };
    let asked = ["temperature", "top-k", "top-p"].iter().any(|name| args.has(name));
    if args.has("greedy") && asked {
        return Err(Usage("`--greedy` always takes the best token: leave out temperature, top-k and top-p".into()));
    }
    if !asked && (args.has("greedy") || !args.has("prompt")) {
        return Ok(Sampling::GREEDY);
    }
    Ok(Sampling {
        temperature: number("temperature", 0.8, |t| t > 0.0 && t.is_finite())?,
        top_k: args.number("top-k", 0)?,
        top_p: number("top-p", if asked { 1.0 } else { 0.95 }, |p| p > 0.0 && p <= 1.0)?,
        seed,
    })
}

/// More new tokens than this are a mistake.
const MOST_NEW: usize = 1 << 24;

pub(crate) fn generate(args: &Args) -> Result<Outcome, Usage> {
    let ids = args.ids("ids")?;
    let sampling = sampling(args)?;
    let (prompt, tokenizer) = match (&ids[..], args.value("prompt")) {
        ([ids], None) => (ids.clone(), None),
        ([], Some(text)) => {
            let dir = Path::new(args.word("the directory")?);
            if !dir.is_dir() {
                return Err(Usage(format!("{}: not a directory; give a HuggingFace model directory", dir.display())));
            }
            let tokenizer = Tokenizer::of_dir(dir).map_err(usage)?;
            let mut ids = tokenizer.encode(text).map_err(usage)?;
            if ids.is_empty() {
                ids.extend(tokenizer.end());
            }
            (ids, Some(tokenizer))
        }
        ([], None) => return Err(Usage("`--prompt TEXT` or `--ids 1,5,7` is missing".into())),
        _ => return Err(Usage("one prompt at a time: `--prompt` or `--ids`, once".into())),
    };
    let model = load(args)?;
    let room = model.max_sequence().unwrap_or(usize::MAX).saturating_sub(prompt.len());
    let most = match (args.has("max-new"), &tokenizer) {
        (false, Some(_)) => 256.min(room.max(1)),
        _ => args.at_most("max-new", 32, MOST_NEW)?,
    };
    if let Some(known) =
        model.max_sequence().filter(|known| model.goes_on() && prompt.len().saturating_add(most) > *known)
    {
        let length = prompt.len().saturating_add(most);
        errln!("warning: up to {length} ids, but the model was made for {known}: what lies beyond may be nonsense");
    }
    let backend = backend(args)?;
    let end = tokenizer.as_ref().and_then(Tokenizer::end);
    let mut stream = tokenizer.as_ref().map(Tokenizer::stream);
    let show = !args.has("json");
    if let (true, Some(text)) = (show, args.value("prompt")) {
        out!("{text}");
    }
    if let Some(why) = model.runs_whole() {
        eprintln!("note: each token runs the whole sequence again, since the model mixes positions: {why}");
    }
    let mut heard = |id: i32| {
        if Some(id) == end {
            return false;
        }
        if let (true, Some(stream)) = (show, &mut stream) {
            out!("{}", stream.push(id).unwrap_or_default());
            let _ = std::io::stdout().flush();
        }
        true
    };
    let found = model.generate_with(&prompt, most, &sampling, &backend, &mut heard).map_err(usage)?;
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    match (args.has("json"), &tokenizer) {
        (true, _) => outln!("[{}]", text.join(", ")),
        (false, None) => outln!("{}", text.join(",")),
        (false, Some(_)) => outln!(),
    }
    let rest = found.ids.len().saturating_sub(1) as f64 / found.rest.as_secs_f64().max(1e-9);
    let first = found.first.as_secs_f64();
    if found.ids.len() > 1 {
        errln!("first token after {first:.3} s, then {rest:.0} tokens/s");
    } else {
        errln!("first token after {first:.3} s");
    }
    Ok(Outcome::Clean)
}

pub(crate) fn merge(args: &Args) -> Result<Outcome, Usage> {
    let out = args.required("out")?.to_string();
    let dir = Path::new(args.word("the adapter's directory")?);
    let _lock = Lock::of_run(Path::new(&out)).map_err(usage)?;
    if !dir.join("adapter_config.json").is_file() {
        return Err(Usage(format!("{}: no adapter_config.json here; give the directory of an adapter", dir.display())));
    }
    let model = adapted(dir, args.value("base"), dtype(args)?)?;
    model.export(Path::new(&out)).map_err(usage)?;
    let base = args.value("base").map_or_else(|| Adapter::base_of(dir).map_err(usage), |base| Ok(base.to_string()))?;
    models::copy_companions(Path::new(&base), Path::new(&out)).map_err(usage)?;
    // An adapter's own tokenizer, where it has one, is the newer.
    models::copy_companions(dir, Path::new(&out)).map_err(usage)?;
    outln!("{out}: {} parameters, the adapter merged into them", model.parameter_count());
    Ok(Outcome::Clean)
}

pub(crate) fn export(args: &Args) -> Result<Outcome, Usage> {
    let out = args.required("out")?.to_string();
    let dir = args.word("the directory")?;
    let same = |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if same(Path::new(dir), Path::new(&out)) {
        return Err(Usage(format!("{out}: the model itself is there; choose another `--out`")));
    }
    let _lock = Lock::of_run(Path::new(&out)).map_err(usage)?;
    let model = load(args)?;
    model.export(Path::new(&out)).map_err(usage)?;
    models::copy_companions(Path::new(dir), Path::new(&out)).map_err(usage)?;
    outln!("{out}: {} parameters", model.parameter_count());
    Ok(Outcome::Clean)
}
