//! `loom eval`, `loom generate`, `loom export` and `loom merge`: HuggingFace directories.

use crate::Outcome;
use crate::command::{self, Ids, Usage};
use crate::compile::dtype;
use crate::device::Machine;
use crate::output::{errln, out, outln};
use ir::DType;
use lang::resolve::Program;
use models::train::Lock;
use models::{Adapter, Error, Model, NamedTensor, Sampling, Tokenizer};
use std::io::Write;
use std::path::Path;

/// A model to read.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// A HuggingFace directory, or that of an adapter
    pub(crate) dir: String,
    /// The dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
}

/// Options of `loom eval`.
#[derive(clap::Args)]
pub(crate) struct Eval {
    #[command(flatten)]
    source: Source,
    /// Ids of a sequence: 1,5,7; again for each further one of the batch
    #[arg(long, value_name = "IDS", value_parser = command::ids, required = true)]
    ids: Vec<Ids>,
    /// Labels, as many as ids; -100 does not count
    #[arg(long, value_name = "IDS", value_parser = command::ids)]
    labels: Vec<Ids>,
    /// The safetensors file to write: logits, and with labels loss and gradients
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    out: String,
    /// Write what the model's `@probe`s capture too
    #[arg(long)]
    probes: bool,
    #[command(flatten)]
    machine: Machine,
}

/// Options of `loom generate`.
#[derive(clap::Args)]
pub(crate) struct Generate {
    #[command(flatten)]
    source: Source,
    /// The text to continue
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Ids to continue: 1,5,7
    #[arg(long, value_name = "IDS", value_parser = command::ids)]
    ids: Vec<Ids>,
    /// New tokens at most; 256 after a prompt, 32 after ids
    #[arg(long, value_name = "N", value_parser = new_tokens)]
    max_new: Option<usize>,
    /// Print ids as JSON
    #[arg(long)]
    json: bool,
    /// Always the most probable token
    #[arg(long, help_heading = "Choosing tokens")]
    greedy: bool,
    /// Below 1 the probable becomes more so; 0.8 after a prompt
    #[arg(long, value_name = "X", value_parser = temperature, help_heading = "Choosing tokens")]
    temperature: Option<f64>,
    /// Only so many of the most probable tokens
    #[arg(long, value_name = "N", value_parser = command::positive, help_heading = "Choosing tokens")]
    top_k: Option<usize>,
    /// Only the most probable tokens that have this share together
    #[arg(long, value_name = "X", value_parser = share, help_heading = "Choosing tokens")]
    top_p: Option<f64>,
    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed, help_heading = "Choosing tokens")]
    seed: u64,
    #[command(flatten)]
    machine: Machine,
}

/// Options of `loom export`.
#[derive(clap::Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) source: Source,
    /// The directory to write
    #[arg(long, value_name = "DIR", value_parser = command::name, required_unless_present = "onnx")]
    out: Option<String>,
    /// The ONNX model to write; then a graph in its text form, an ONNX model or what `loom import` wrote may be read too
    #[arg(long, value_name = "FILE", value_parser = command::name, conflicts_with = "out")]
    pub(crate) onnx: Option<String>,
    /// Sequences in a batch of a HuggingFace model
    #[arg(long, value_name = "N", value_parser = command::size, default_value = "1", help_heading = "ONNX models")]
    pub(crate) batch: usize,
    /// Ids in a sequence of a HuggingFace model
    #[arg(long, value_name = "N", value_parser = command::size, default_value = "16", help_heading = "ONNX models")]
    pub(crate) seq: usize,
    #[command(flatten)]
    pub(crate) open: crate::import::Open,
}

/// Options of `loom merge`.
#[derive(clap::Args)]
pub(crate) struct Merge {
    /// The directory of an adapter
    adapter: String,
    /// The directory to write
    #[arg(long, value_name = "DIR", value_parser = command::name)]
    out: String,
    /// The model that it was trained on; the one it names unless given
    #[arg(long, value_name = "DIR")]
    base: Option<String>,
    /// The dtype of the merged weights: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
}

/// More new tokens than this are a mistake.
const MOST_NEW: usize = 1 << 24;

fn new_tokens(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=MOST_NEW).contains(n));
    n.ok_or_else(|| format!("needs a positive number up to {MOST_NEW}"))
}

fn temperature(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite());
    x.ok_or_else(|| "is out of range: temperatures are above 0".to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x| *x > 0.0 && *x <= 1.0);
    x.ok_or_else(|| "is out of range: shares are above 0 and at most 1".to_string())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "needs a whole number".to_string())
}

/// A program of the language from a file or the library.
pub(crate) fn load_program(name: &str) -> Result<Program, Usage> {
    models::load_program(name).map_err(usage)
}

/// The model of a directory; of an adapter's directory, the adapter merged into its base.
pub(crate) fn load(source: &Source) -> Result<Model, Usage> {
    let dir = &source.dir;
    if !Path::new(dir).is_dir() {
        return Err(Usage(format!("{dir}: not a directory; give a HuggingFace model directory")));
    }
    let (dir, dtype) = (Path::new(dir), source.dtype);
    if dir.join("adapter_config.json").is_file() {
        return adapted(dir, None, dtype);
    }
    Model::load(dir, dtype).map_err(usage)
}

/// An adapter's base with the adapter merged into it.
fn adapted(dir: &Path, base: Option<&str>, dtype: DType) -> Result<Model, Usage> {
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

/// Rows of ids, one for each time the option was given.
fn rows(given: &[Ids]) -> Vec<Vec<i32>> {
    given.iter().map(|Ids(ids)| ids.clone()).collect()
}

pub(crate) fn eval(args: &Eval) -> Result<Outcome, Usage> {
    let (ids, labels) = (rows(&args.ids), rows(&args.labels));
    let model = load(&args.source)?;
    let labels = (!labels.is_empty()).then_some(&labels[..]);
    let backend = args.machine.open()?;
    let found = model.evaluate(&ids, labels, &*backend).map_err(usage)?;
    let mut tensors: Vec<NamedTensor> = vec![found.logits];
    if let Some(loss) = found.loss {
        outln!("loss {}", loss.floats()[0]);
        tensors.push(loss);
    }
    tensors.extend(found.gradients);
    if args.probes {
        for probed in model.probe(&ids, labels, &*backend).map_err(usage)? {
            let name = format!("probe.{}.{}", probed.path, probed.capture);
            tensors.push(NamedTensor { name, ..probed.value });
        }
    }
    models::write_tensors(Path::new(&args.out), &tensors).map_err(usage)?;
    Ok(Outcome::Clean)
}

/// How tokens are chosen: the most probable one unless a temperature, a number or a share is given.
fn sampling(args: &Generate) -> Result<Sampling, Usage> {
    let asked = args.temperature.is_some() || args.top_k.is_some() || args.top_p.is_some();
    if args.greedy && asked {
        return Err(Usage("`--greedy` always takes the best token: leave out temperature, top-k and top-p".into()));
    }
    if !asked && (args.greedy || args.prompt.is_none()) {
        return Ok(Sampling::GREEDY);
    }
    Ok(Sampling {
        temperature: args.temperature.unwrap_or(0.8),
        top_k: args.top_k.unwrap_or(0),
        top_p: args.top_p.unwrap_or(if asked { 1.0 } else { 0.95 }),
        seed: args.seed,
    })
}

pub(crate) fn generate(args: &Generate) -> Result<Outcome, Usage> {
    let ids = rows(&args.ids);
    let sampling = sampling(args)?;
    let (prompt, tokenizer) = match (&ids[..], args.prompt.as_deref()) {
        ([ids], None) => (ids.clone(), None),
        ([], Some(text)) => {
            let dir = Path::new(&args.source.dir);
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
    let model = load(&args.source)?;
    let room = model.max_sequence().unwrap_or(usize::MAX).saturating_sub(prompt.len());
    let most = match (args.max_new, &tokenizer) {
        (Some(most), _) => most,
        (None, Some(_)) => 256.min(room.max(1)),
        (None, None) => 32,
    };
    if let Some(known) =
        model.max_sequence().filter(|known| model.goes_on() && prompt.len().saturating_add(most) > *known)
    {
        let length = prompt.len().saturating_add(most);
        errln!("warning: up to {length} ids, but the model was made for {known}: what lies beyond may be nonsense");
    }
    let backend = args.machine.open()?;
    let end = tokenizer.as_ref().and_then(Tokenizer::end);
    let mut stream = tokenizer.as_ref().map(Tokenizer::stream);
    let show = !args.json;
    if let (true, Some(text)) = (show, &args.prompt) {
        out!("{text}");
    }
    if let Some(why) = model.runs_whole() {
        errln!("note: each token runs the whole sequence again, since the model mixes positions: {why}");
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
    let found = model.generate_with(&prompt, most, &sampling, &*backend, &mut heard).map_err(usage)?;
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    match (args.json, &tokenizer) {
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

pub(crate) fn merge(args: &Merge) -> Result<Outcome, Usage> {
    let (out, dir) = (&args.out, Path::new(&args.adapter));
    let _lock = Lock::of_run(Path::new(out)).map_err(usage)?;
    if !dir.join("adapter_config.json").is_file() {
        return Err(Usage(format!("{}: no adapter_config.json here; give the directory of an adapter", dir.display())));
    }
    let model = adapted(dir, args.base.as_deref(), args.dtype)?;
    model.export(Path::new(&out)).map_err(usage)?;
    let base = args.base.clone().map_or_else(|| Adapter::base_of(dir).map_err(usage), Ok)?;
    models::copy_companions(Path::new(&base), Path::new(&out)).map_err(usage)?;
    // An adapter's own tokenizer, where it has one, is the newer.
    models::copy_companions(dir, Path::new(&out)).map_err(usage)?;
    outln!("{out}: {} parameters, the adapter merged into them", model.parameter_count());
    Ok(Outcome::Clean)
}

pub(crate) fn export(args: &Export) -> Result<Outcome, Usage> {
    if let Some(file) = &args.onnx {
        return crate::onnx_export::export(args, file);
    }
    let (out, dir) = (&args.out.clone().unwrap_or_default(), &args.source.dir);
    let same = |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if same(Path::new(dir), Path::new(&out)) {
        return Err(Usage(format!("{out}: the model itself is there; choose another `--out`")));
    }
    let _lock = Lock::of_run(Path::new(&out)).map_err(usage)?;
    let model = load(&args.source)?;
    model.export(Path::new(&out)).map_err(usage)?;
    models::copy_companions(Path::new(dir), Path::new(&out)).map_err(usage)?;
    outln!("{out}: {} parameters", model.parameter_count());
    Ok(Outcome::Clean)
}
