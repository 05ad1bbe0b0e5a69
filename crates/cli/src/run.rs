//! `loom eval`, `loom generate`, `loom export` and `loom merge`: HuggingFace directories.

use crate::Outcome;
use crate::command::{self, Ids, Usage};
use crate::compile::{Precise, dtype};
use crate::device::Machine;
use crate::output::{errln, out, outln};
use crate::ranks;
use compiler::Backend;
use ir::DType;
use lang::resolve::Program;
use models::train::Lock;
use models::{
    Adapter, Beams, ChatTemplate, Constrainer, GenerateOptions, Model, NamedTensor, Sampling, Scheme, SlotSizes, Slots,
    Together, Tokenizer,
};
use serde_json::Value as Json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A model to read.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// A HuggingFace directory, or that of an adapter
    pub(crate) dir: String,
    /// The dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// A .module file with the model, where the library doesn't have it; its `hf_config` reads config.json
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    module: Option<String>,
    #[command(flatten)]
    precise: Precise,
}

impl Source {
    pub(crate) fn dir(&self) -> &Path {
        Path::new(&self.dir)
    }
}

/// Options of `loom eval`.
#[derive(clap::Args)]
pub(crate) struct Eval {
    #[command(flatten)]
    source: Source,
    /// Ids of a sequence: 1,5,7; again for each further one of the batch
    #[arg(long, value_name = "IDS", value_parser = command::ids, required_unless_present = "inputs")]
    ids: Vec<Ids>,
    /// A safetensors file with the model's inputs by name, for models that take more than ids; with `d_NAME` of an output's
    /// shape, gradients of the sum of outputs times these are written too
    #[arg(long, value_name = "FILE", value_parser = command::name, conflicts_with_all = ["ids", "labels", "probes"])]
    inputs: Option<String>,
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
    /// A safetensors file with what a model reads that answers it (Whisper: `input_features`); T5 takes `--prompt` too
    #[arg(long, value_name = "FILE", value_parser = command::name, conflicts_with_all = ["prompt", "ids", "prompts"])]
    inputs: Option<String>,
    /// A file of prompts to continue together: a text on each line, or JSON lines with `prompt` or `messages`
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    prompts: Option<String>,
    /// Where to write what follows the prompts of a file, as JSON lines; standard output unless given
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    out: Option<String>,
    /// Prompts of a file that are continued at once
    #[arg(long, value_name = "N", default_value = "16", value_parser = command::positive)]
    slots: usize,
    /// New tokens at most; 256 after a prompt, 32 after ids
    #[arg(long, value_name = "N", value_parser = new_tokens)]
    max_new: Option<usize>,
    /// Print ids as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    choosing: Choosing,
    /// Follow so many texts, and print the most probable as a whole
    #[arg(long, value_name = "N", value_parser = command::positive, help_heading = "Choosing tokens")]
    beams: Option<usize>,
    /// The text must match a regular expression
    #[arg(long, value_name = "PATTERN", help_heading = "Form of the text")]
    regex: Option<String>,
    /// The text must be JSON of the schema in this file
    #[arg(long, value_name = "FILE", value_parser = command::name, help_heading = "Form of the text")]
    schema: Option<String>,
    /// The directory of a smaller model with the same vocabulary, which guesses tokens ahead; the text stays the same
    #[arg(long, value_name = "DIR", value_parser = command::name, help_heading = "Speed")]
    draft: Option<String>,
    /// Tokens that it guesses at once
    #[arg(long, value_name = "N", default_value = "4", value_parser = command::positive, help_heading = "Speed")]
    guesses: usize,
    /// Ranks that share the model: tp=2; started by `loom launch` or mpirun
    #[arg(long, value_name = "AXES", default_value = "", help_heading = "Speed")]
    mesh: String,
    #[command(flatten)]
    machine: Machine,
}

/// How tokens are chosen.
#[derive(clap::Args)]
#[command(next_help_heading = "Choosing tokens")]
pub(crate) struct Choosing {
    /// Always the most probable token
    #[arg(long)]
    greedy: bool,
    /// Below 1 the probable becomes more so; 0.8 after a prompt
    #[arg(long, value_name = "X", value_parser = temperature)]
    temperature: Option<f64>,
    /// Only so many of the most probable tokens
    #[arg(long, value_name = "N", value_parser = command::positive)]
    top_k: Option<usize>,
    /// Only the most probable tokens that have this share together
    #[arg(long, value_name = "X", value_parser = share)]
    top_p: Option<f64>,
    /// Only tokens that have this share of the best one's probability
    #[arg(long, value_name = "X", value_parser = share)]
    min_p: Option<f64>,
    /// Only tokens about as surprising as is to be expected, that have this share together
    #[arg(long, value_name = "X", value_parser = share)]
    typical: Option<f64>,
    /// Above 1 tokens of the text so far become less probable
    #[arg(long, value_name = "X", value_parser = command::above_zero)]
    repetition: Option<f64>,
    /// Taken off the logits of new tokens that came already
    #[arg(long, value_name = "X", value_parser = penalty)]
    presence: Option<f64>,
    /// Taken off the logits of new tokens each time that they came
    #[arg(long, value_name = "X", value_parser = penalty)]
    frequency: Option<f64>,
    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed)]
    seed: u64,
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

/// Options of `loom quantize`.
#[derive(clap::Args)]
pub(crate) struct Quantize {
    /// A HuggingFace directory, or a GGUF file
    dir: String,
    /// How matrices are stored: q8, q4, nf4, fp8, or a format of docs/ir.md; without it they stay as they are
    #[arg(long, value_name = "FORMAT", value_parser = scheme)]
    format: Option<Scheme>,
    /// The directory to write, or a file that ends in .gguf
    #[arg(long, value_name = "DIR", value_parser = command::name)]
    out: String,
    /// The dtype of what is not quantised: f32, bf16 or f16
    #[arg(long, value_name = "DTYPE", default_value = "bf16", value_parser = stored_dtype)]
    dtype: DType,
    /// A file or folder of text: scales are chosen so that errors are small where the text makes inputs large
    #[arg(long, value_name = "PATH", requires = "format")]
    calibrate: Option<String>,
    /// Ids of that text at most
    #[arg(long, value_name = "N", default_value = "8192", value_parser = command::size)]
    calibrate_ids: usize,
}

/// Ids of a sequence that calibrates.
const CALIBRATED: usize = 128;

/// What a text shows of a model's products.
fn calibration(model: &Model, dir: &Path, args: &Quantize) -> Result<Option<models::Calibration>, Usage> {
    let Some(path) = &args.calibrate else { return Ok(None) };
    let tokenizer = Tokenizer::of_dir(dir).map_err(usage)?;
    let ids = crate::perplexity::ids(Some(path), args.calibrate_ids, &tokenizer)?;
    let seq = model.max_sequence().map_or(CALIBRATED, |most| CALIBRATED.min(most));
    let rows: Vec<Vec<i32>> = ids.chunks_exact(seq).map(<[i32]>::to_vec).collect();
    if rows.is_empty() {
        return Err(Usage(format!("{path}: {} ids are fewer than one sequence of {seq}; give more text", ids.len())));
    }
    let cpu = cpu::Cpu::for_machine();
    model.calibrate(&rows, &cpu).map(Some).map_err(usage)
}

fn stored_dtype(text: &str) -> Result<DType, String> {
    match text {
        "f16" => Ok(DType::F16),
        _ => dtype(text).map_err(|_| "is f32, bf16 or f16".to_string()),
    }
}

fn scheme(text: &str) -> Result<Scheme, String> {
    text.parse()
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
    /// A .module file with the model, where the library doesn't have it
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    module: Option<String>,
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

fn penalty(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x: &f64| x.abs() <= 100.0);
    x.ok_or_else(|| "needs a number from -100 to 100".to_string())
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
    check_source(dir)?;
    let (dir, dtype) = (Path::new(dir), source.dtype);
    let module = source.module.as_deref();
    let recipe = source.precise.recipe()?;
    let model = match dir.join("adapter_config.json").is_file() {
        true => adapted(dir, None, dtype, module)?,
        false => Model::load_by(dir, dtype, module.map(load_program).transpose()?).map_err(usage)?,
    };
    Ok(match recipe {
        Some(recipe) => model.following(recipe),
        None => model,
    })
}

/// Models are directories or GGUF files.
fn check_source(dir: &str) -> Result<(), Usage> {
    let path = Path::new(dir);
    let what = match (path.is_dir(), models::gguf::is_gguf(path)) {
        (_, true) => return Ok(()),
        (true, _) if ["config.json", "adapter_config.json"].iter().any(|file| path.join(file).exists()) => {
            return Ok(());
        }
        (true, _) => "no config.json in it",
        (false, _) => "not a directory",
    };
    Err(Usage(format!("{dir}: {what}; give a HuggingFace model directory, or a .gguf file")))
}

/// An adapter's base with the adapter merged into it.
fn adapted(dir: &Path, base: Option<&str>, dtype: DType, module: Option<&str>) -> Result<Model, Usage> {
    let base = match base {
        Some(base) => base.to_string(),
        None => Adapter::base_of(dir).map_err(usage)?,
    };
    if !Path::new(&base).is_dir() && !models::gguf::is_gguf(Path::new(&base)) {
        return Err(Usage(format!("{base}: the adapter's model is not there; name its directory with `--base`")));
    }
    let module = module.map(load_program).transpose()?;
    let mut model = Model::load_by(Path::new(&base), dtype, module).map_err(usage)?;
    let adapter = Adapter::read(dir, &model).map_err(usage)?;
    model.merge(&adapter).map_err(usage)?;
    Ok(model)
}

/// One line, whatever went wrong.
pub(crate) fn usage(error: impl std::fmt::Display) -> Usage {
    Usage(error.to_string().trim_end().to_string())
}

/// Rows of ids, one for each time the option was given.
fn rows(given: &[Ids]) -> Vec<Vec<i32>> {
    given.iter().map(|Ids(ids)| ids.clone()).collect()
}

pub(crate) fn eval(args: &Eval) -> Result<Outcome, Usage> {
    let (ids, labels) = (rows(&args.ids), rows(&args.labels));
    let model = load(&args.source)?;
    if let Some(file) = &args.inputs {
        let names: Vec<String> = model.architecture.inputs().into_iter().map(|input| input.name).collect();
        let given = models::read_tensors(Path::new(file)).map_err(usage)?;
        let (inputs, cotangents): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|tensor| names.contains(&tensor.name) || !tensor.name.starts_with("d_"));
        let backend = args.machine.open()?;
        let found = model.run(&inputs, &cotangents, &*backend).map_err(usage)?;
        let tensors: Vec<NamedTensor> = found.outputs.into_iter().chain(found.gradients).collect();
        models::write_tensors(Path::new(&args.out), &tensors).map_err(usage)?;
        return Ok(Outcome::Clean);
    }
    let labels = (!labels.is_empty()).then_some(&labels[..]);
    let backend = args.machine.open()?;
    let found = model.evaluate_on(&ids, labels, &*backend).map_err(usage)?;
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

impl Choosing {
    /// Whether something is asked for beside the most probable token.
    fn changes_logits(&self) -> bool {
        let numbers =
            [self.temperature, self.top_p, self.min_p, self.typical, self.repetition, self.presence, self.frequency];
        self.top_k.is_some() || numbers.iter().any(Option::is_some)
    }

    /// The most probable token unless there is a text to continue, or something is asked for that draws.
    pub(crate) fn sampling(&self, text: bool) -> Result<Sampling, Usage> {
        let shares = [self.top_p, self.min_p, self.typical];
        let asked = self.temperature.is_some() || self.top_k.is_some() || shares.iter().any(Option::is_some);
        if self.greedy && asked {
            return Err(Usage("`--greedy` always takes the best token: leave out temperature, top-k and top-p".into()));
        }
        let draws = asked || (!self.greedy && text);
        Ok(Sampling {
            temperature: if draws { self.temperature.unwrap_or(0.8) } else { 0.0 },
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(if asked || !draws { 1.0 } else { 0.95 }),
            min_p: self.min_p.unwrap_or(0.0),
            typical_p: self.typical.unwrap_or(1.0),
            repetition: self.repetition.unwrap_or(1.0),
            presence: self.presence.unwrap_or(0.0),
            frequency: self.frequency.unwrap_or(0.0),
            seed: self.seed,
        })
    }
}

pub(crate) fn generate(args: &Generate) -> Result<Outcome, Usage> {
    let ids = rows(&args.ids);
    if args.prompts.is_some() {
        return generate_all(args);
    }
    if args.out.is_some() {
        return Err(Usage("`--out` is for `--prompts FILE`".into()));
    }
    let sampling = args.choosing.sampling(args.prompt.is_some())?;
    if args.inputs.is_some() {
        return answer(args, load(&args.source)?);
    }
    let (prompt, tokenizer) = match (&ids[..], args.prompt.as_deref()) {
        ([ids], None) => (ids.clone(), None),
        ([], Some(text)) => {
            let dir = Path::new(&args.source.dir);
            check_source(&args.source.dir)?;
            let tokenizer = Tokenizer::of_dir(dir).map_err(usage)?;
            let ids = or_end(tokenizer.prompt(text).map_err(usage)?, &tokenizer);
            (ids, Some(tokenizer))
        }
        ([], None) => return Err(Usage("`--prompt TEXT` or `--ids 1,5,7` is missing".into())),
        _ => return Err(Usage("one prompt at a time: `--prompt` or `--ids`, once".into())),
    };
    let model = load(&args.source)?.stored().map_err(usage)?;
    if model.answers() {
        return answer(args, model);
    }
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
    let ranks = ranks::join(&args.mesh)?;
    let backend = match &ranks {
        None => args.machine.open()?,
        Some(_) if args.beams.is_some() => {
            return Err(Usage("`--beams` runs in one process: leave out `--mesh`".into()));
        }
        Some(comm) => ranks::open(&args.machine.device, args.machine.threads, comm)?,
    };
    let ends = match &tokenizer {
        Some(tokenizer) => models::end_ids(args.source.dir(), Some(tokenizer)).map_err(usage)?,
        None => Vec::new(),
    };
    if let Some(beams) = args.beams {
        return search(args, model, &prompt, beams, most, tokenizer.as_ref(), ends, backend);
    }
    let constraint = constraint(args, tokenizer.as_ref())?;
    let draft = match &args.draft {
        Some(dir) => {
            check_source(dir)?;
            Some(Model::load(Path::new(dir), args.source.dtype).map_err(usage)?)
        }
        None => None,
    };
    let mut stream = tokenizer.as_ref().map(Tokenizer::stream);
    // One rank speaks for all.
    let speaks = ranks.as_ref().is_none_or(|comm| comm.rank() == 0);
    let show = !args.json && speaks;
    if let (true, Some(text)) = (show, &args.prompt) {
        out!("{text}");
    }
    if let Some(why) = model.runs_whole() {
        errln!("note: each token runs the whole sequence again, since the model mixes positions: {why}");
    }
    let mut heard = |id: i32| {
        if ends.contains(&id) {
            return false;
        }
        if let (true, Some(stream)) = (show, &mut stream) {
            out!("{}", stream.push(id).unwrap_or_default());
            let _ = std::io::stdout().flush();
        }
        true
    };
    let writing = GenerateOptions {
        max_new_tokens: most,
        sampling: Some(sampling),
        constraint,
        ends: &ends,
        draft: draft.as_ref().map(|draft| (draft, args.guesses)),
        ranks: ranks.clone(),
    };
    let found = model.generate_with_options(&prompt, &writing, &*backend, &mut heard);
    if let (Some(comm), Err(e)) = (&ranks, &found) {
        comm.abort(&e.to_string());
    }
    if let (true, Some(_), Err(_)) = (show, &args.prompt, &found) {
        outln!();
    }
    let found = found.map_err(usage)?;
    if !speaks {
        return Ok(Outcome::Clean);
    }
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    match (args.json, &tokenizer) {
        (true, _) => outln!("[{}]", text.join(", ")),
        (false, None) => outln!("{}", text.join(",")),
        (false, Some(_)) => outln!(),
    }
    let rest = found.ids.len().saturating_sub(1) as f64 / found.rest.as_secs_f64().max(1e-9);
    let (first, prompt) = (found.first.as_secs_f64(), found.prompt.as_secs_f64());
    if found.ids.len() > 1 {
        let guessed = match found.guessed {
            (_, 0) => String::new(),
            (right, all) => format!(", {right} of {all} guesses right"),
        };
        errln!("first token after {first:.3} s ({prompt:.3} s in the prompt), then {rest:.1} tokens/s{guessed}");
    } else {
        errln!("first token after {first:.3} s ({prompt:.3} s in the prompt)");
    }
    Ok(Outcome::Clean)
}

/// The token IDs to continue. An empty prompt becomes the start token, or the end-of-text token if there is no start token.
fn or_end(ids: Vec<i32>, tokenizer: &Tokenizer) -> Vec<i32> {
    let special = tokenizer.special_tokens();
    if ids.is_empty() { special.start.or(special.eos).into_iter().collect() } else { ids }
}

/// What a model writes that reads one thing and writes another; tokens are drawn only where that is asked for.
fn answer(args: &Generate, model: Model) -> Result<Outcome, Usage> {
    if args.beams.is_some() || args.draft.is_some() || !args.mesh.is_empty() {
        return Err(Usage("a model that answers goes without `--beams`, `--draft` and `--mesh`".into()));
    }
    let tokenizer = Tokenizer::of_dir(args.source.dir());
    let read = match (&args.inputs, &args.prompt, &rows(&args.ids)[..]) {
        (Some(file), None, []) => models::read_tensors(Path::new(file)).map_err(usage)?,
        (None, prompt, ids) => {
            let ids = match (prompt, ids) {
                (Some(text), _) => tokenizer.as_ref().map_err(|e| Usage(e.to_string()))?.whole(text).map_err(usage)?,
                (None, [ids]) => ids.clone(),
                _ => return Err(Usage("one thing to answer at a time: `--prompt`, `--ids` or `--inputs`".into())),
            };
            let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            vec![NamedTensor { name: "input_ids".into(), shape: vec![1, ids.len()], dtype: DType::I32, bytes }]
        }
        _ => return Err(Usage("one thing to answer at a time: `--prompt`, `--ids` or `--inputs`".into())),
    };
    let start = models::start_id(args.source.dir()).map_err(usage)?;
    // Without texts ids are written, and there is no telling which of them end one.
    let tokenizer = if args.ids.is_empty() { tokenizer.ok() } else { None };
    let ends = match &tokenizer {
        Some(tokenizer) => models::end_ids(args.source.dir(), Some(tokenizer)).map_err(usage)?,
        None => Vec::new(),
    };
    let longest = model.max_sequence().unwrap_or(usize::MAX).saturating_sub(1).max(1);
    let most = args.max_new.unwrap_or(if tokenizer.is_some() { 256 } else { 32 }.min(longest));
    let writing = GenerateOptions {
        max_new_tokens: most,
        sampling: Some(args.choosing.sampling(false)?),
        constraint: constraint(args, tokenizer.as_ref())?,
        ends: &ends,
        ..GenerateOptions::default()
    };
    let backend = args.machine.open()?;
    let mut stream = tokenizer.as_ref().filter(|_| !args.json).map(Tokenizer::stream);
    let mut heard = |id: i32| {
        if ends.contains(&id) {
            return false;
        }
        if let Some(stream) = &mut stream {
            out!("{}", stream.push(id).unwrap_or_default());
            let _ = std::io::stdout().flush();
        }
        true
    };
    let found = model.answer(&read, &[start], &writing, &*backend, &mut heard).map_err(usage)?;
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    match (args.json, &tokenizer) {
        (true, _) => outln!("[{}]", text.join(", ")),
        (false, None) => outln!("{}", text.join(",")),
        (false, Some(_)) => outln!(),
    }
    let rest = found.ids.len().saturating_sub(1) as f64 / found.rest.as_secs_f64().max(1e-9);
    errln!("first token after {:.3} s, then {rest:.1} tokens/s", found.first.as_secs_f64());
    Ok(Outcome::Clean)
}

/// The form that a text must have.
fn constraint(args: &Generate, tokenizer: Option<&Tokenizer>) -> Result<Option<models::Constraint>, Usage> {
    let maker = |what: &str| match tokenizer {
        Some(tokenizer) => Ok(Constrainer::new(tokenizer)),
        None => Err(Usage(format!("`{what}` is about text: give a `--prompt`"))),
    };
    match (&args.regex, &args.schema) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Usage("one form at a time: `--regex` or `--schema`".into())),
        (Some(pattern), None) => maker("--regex")?.regex(pattern).map(Some).map_err(usage),
        (None, Some(file)) => {
            let text = models::files::read_text(Path::new(file), models::files::TEXT).map_err(usage)?;
            let schema = serde_json::from_str(&text).map_err(|e| Usage(format!("{file}: not valid JSON: {e}")))?;
            maker("--schema")?.json_schema(&schema).map(Some).map_err(|e| Usage(format!("{file}: {e}")))
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "what `generate` has found out so far")]
fn search(
    args: &Generate,
    model: Model,
    prompt: &[i32],
    beams: usize,
    most: usize,
    tokenizer: Option<&Tokenizer>,
    ends: Vec<i32>,
    backend: Arc<dyn Backend>,
) -> Result<Outcome, Usage> {
    if args.regex.is_some() || args.schema.is_some() || args.draft.is_some() {
        return Err(Usage("`--beams` goes without `--regex`, `--schema` and `--draft`".into()));
    }
    if args.choosing.changes_logits() {
        return Err(Usage(
            "`--beams` follows the texts that are most probable as the model says: leave out temperature, shares and penalties"
                .into(),
        ));
    }
    let sizes = SlotSizes { rows: beams.max(2), context: prompt.len() + most, prefixes: 0, ..SlotSizes::default() };
    let mut slots = Slots::new(Arc::new(model), &[], sizes, backend).map_err(usage)?;
    let wanted = Beams { count: beams, most, length_penalty: 1.0, ends: ends.clone() };
    let found = slots.search(prompt, &wanted).map_err(usage)?;
    let Some(best) = found.first() else { return Err(Usage("nothing was found".into())) };
    match tokenizer {
        Some(tokenizer) if !args.json => {
            let ids: Vec<i32> = best.ids.iter().copied().filter(|id| !ends.contains(id)).collect();
            outln!("{}{}", args.prompt.as_deref().unwrap_or(""), tokenizer.decode(&ids).map_err(usage)?);
        }
        _ => {
            let text: Vec<String> = best.ids.iter().map(i32::to_string).collect();
            if args.json { outln!("[{}]", text.join(", ")) } else { outln!("{}", text.join(",")) }
        }
    }
    errln!("score {:.4}", best.score);
    Ok(Outcome::Clean)
}

/// Prompts of a file, continued together.
fn generate_all(args: &Generate) -> Result<Outcome, Usage> {
    let Some(file) = &args.prompts else { return Err(Usage("`--prompts FILE` is missing".into())) };
    if args.prompt.is_some() || !args.ids.is_empty() || args.beams.is_some() || args.draft.is_some() {
        return Err(Usage("`--prompts` goes without `--prompt`, `--ids`, `--beams` and `--draft`".into()));
    }
    if args.regex.is_some() || args.schema.is_some() {
        return Err(Usage(
            "`--prompts` goes without `--regex` and `--schema`: use `loom serve` for forms of many".into(),
        ));
    }
    let sampling = args.choosing.sampling(true)?;
    let tokenizer = Tokenizer::of_dir(args.source.dir()).map_err(usage)?;
    let template = ChatTemplate::of_dir(args.source.dir()).map_err(usage)?;
    let text = models::files::read_text(Path::new(file), models::files::TEXT).map_err(usage)?;
    let mut prompts = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fault = |what: &str| Usage(format!("{file}, line {}: {what}", n + 1));
        let ids = if file.ends_with(".jsonl") || file.ends_with(".json") {
            let json: Json = serde_json::from_str(line).map_err(|e| fault(&format!("not valid JSON: {e}")))?;
            match (json.get("prompt").and_then(Json::as_str), json.get("messages").and_then(Json::as_array)) {
                (Some(prompt), _) => tokenizer.prompt(prompt),
                (None, Some(messages)) => {
                    let shown = template.render(messages, true, &serde_json::Map::new());
                    shown.and_then(|text| tokenizer.encode(&text))
                }
                _ => return Err(fault("neither `prompt` nor `messages`")),
            }
        } else {
            tokenizer.prompt(line)
        };
        prompts.push(or_end(ids.map_err(|e| fault(&e.to_string()))?, &tokenizer));
    }
    if prompts.is_empty() {
        return Err(Usage(format!("{file}: no prompts in it")));
    }
    let model = load(&args.source)?.stored().map_err(usage)?;
    let most = args.max_new.unwrap_or(256);
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let rows = args.slots.min(prompts.len()).max(2);
    let sizes = SlotSizes { rows, context: longest + most, ..SlotSizes::default() };
    let ends = models::end_ids(args.source.dir(), Some(&tokenizer)).map_err(usage)?;
    let mut slots = Slots::new(Arc::new(model), &[], sizes, args.machine.open()?).map_err(usage)?;
    let wanted = Together { most, sampling, ends };
    let mut texts: Vec<Option<String>> = vec![None; prompts.len()];
    let (mut tokens, started) = (0, std::time::Instant::now());
    let mut done = |index: usize, ids: &[i32]| {
        tokens += ids.len();
        let shown = serde_json::json!({ "index": index, "text": tokenizer.decode(ids)?, "tokens": ids.len() });
        texts[index] = Some(shown.to_string());
        Ok(())
    };
    slots.generate_all(&prompts, &wanted, &mut done).map_err(usage)?;
    let all: Vec<String> = texts.into_iter().flatten().collect();
    match &args.out {
        Some(out) => models::files::write(Path::new(out), (all.join("\n") + "\n").as_bytes()).map_err(usage)?,
        None => all.iter().for_each(|line| outln!("{line}")),
    }
    let seconds = started.elapsed().as_secs_f64();
    errln!("{} texts, {tokens} tokens in {seconds:.1} s, {:.0} a second", all.len(), tokens as f64 / seconds);
    Ok(Outcome::Clean)
}

pub(crate) fn merge(args: &Merge) -> Result<Outcome, Usage> {
    let (out, dir) = (&args.out, Path::new(&args.adapter));
    models::ensure_no_model(Path::new(out)).map_err(usage)?;
    let _lock = Lock::of_run(Path::new(out)).map_err(usage)?;
    if !dir.join("adapter_config.json").is_file() {
        return Err(Usage(format!("{}: no adapter_config.json here; give the directory of an adapter", dir.display())));
    }
    let model = adapted(dir, args.base.as_deref(), args.dtype, args.module.as_deref())?;
    model.export(Path::new(&out)).map_err(usage)?;
    let base = args.base.clone().map_or_else(|| Adapter::base_of(dir).map_err(usage), Ok)?;
    models::merge_companions(Path::new(&base), dir, Path::new(&out)).map_err(usage)?;
    outln!("{out}: {} parameters, the adapter merged into them", model.parameter_count());
    Ok(Outcome::Clean)
}

pub(crate) fn quantize(args: &Quantize) -> Result<Outcome, Usage> {
    let (out, dir) = (Path::new(&args.out), Path::new(&args.dir));
    check_source(&args.dir)?;
    let same = |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if same(dir, out) {
        return Err(Usage(format!("{}: the model itself is there; choose another `--out`", args.out)));
    }
    models::ensure_no_model(out).map_err(usage)?;
    let mut model = Model::load(dir, args.dtype).map_err(usage)?;
    let left = match &args.format {
        Some(scheme) => {
            let calibration = calibration(&model, dir, args)?;
            model.quantize_by(scheme, calibration.as_ref()).map_err(usage)?
        }
        None => Vec::new(),
    };
    if args.out.ends_with(".gguf") {
        let tokenizer = match Tokenizer::of_dir(dir) {
            Ok(tokenizer) => Some(tokenizer),
            Err(why) => {
                errln!("note: the file gets no tokenizer: {why}");
                None
            }
        };
        model.save_gguf(out, tokenizer.as_ref()).map_err(usage)?;
        let left_out = if dir.is_dir() { models::not_in_gguf(dir).map_err(usage)? } else { Vec::new() };
        if !left_out.is_empty() {
            let names: Vec<String> = left_out.iter().map(|name| name.display().to_string()).collect();
            let except = if tokenizer.is_some() { ", except for ids of special tokens" } else { "" };
            errln!("note: not in the file{except}: {}", names.join(", "));
        }
    } else {
        let _lock = Lock::of_run(out).map_err(usage)?;
        model.save_quantized(out).map_err(usage)?;
        models::copy_companions(dir, out).map_err(usage)?;
    }
    let stored: Vec<String> = model.storage().into_iter().map(|(name, n)| format!("{n} as {name}")).collect();
    outln!("{}: {} parameters, {}", args.out, model.parameter_count(), stored.join(", "));
    if !left.is_empty() {
        errln!("note: rows of {} don't divide into groups, so they stay as they are", left.join(", "));
    }
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
    models::ensure_no_model(Path::new(out)).map_err(usage)?;
    let _lock = Lock::of_run(Path::new(&out)).map_err(usage)?;
    let model = load(&args.source)?;
    model.export(Path::new(&out)).map_err(usage)?;
    match Path::new(dir).join("adapter_config.json").is_file() {
        true => {
            let base = Adapter::base_of(Path::new(dir)).map_err(usage)?;
            models::merge_companions(Path::new(&base), Path::new(dir), Path::new(&out)).map_err(usage)?;
        }
        false => models::copy_companions(Path::new(dir), Path::new(&out)).map_err(usage)?,
    }
    outln!("{out}: {} parameters", model.parameter_count());
    Ok(Outcome::Clean)
}
