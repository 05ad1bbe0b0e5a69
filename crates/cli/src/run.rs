//! Commands that use HuggingFace directories: `loom logits`, `loom generate`, `loom export` and `loom merge`.

use crate::ExitStatus;
use crate::command::{self, TokenIds, UsageError};
use crate::compile::{PrecisionArgs, dtype};
use crate::device::DeviceArgs;
use crate::output::{errln, out, outln};
use crate::ranks;
use compiler::Backend;
use ir::DType;
use lang::resolve::ModuleProgram;
use models::train::DirLock;
use models::{
    Adapter, BatchEngine, BatchGenerateOptions, BatchOptions, BeamSearchOptions, ChatTemplate, Constrainer,
    GenerateOptions, Model, NamedTensor, QuantizationConfig, SamplingOptions, Tokenizer,
};
use serde_json::Value as Json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A model to read.
#[derive(clap::Args)]
pub(crate) struct ModelSource {
    /// A HuggingFace model directory, an adapter directory, or a GGUF file
    pub(crate) dir: String,
    /// Dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// A .module file with the model, if the library does not have it; its `hf_config` block maps config.json
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    module: Option<String>,
    #[command(flatten)]
    precise: PrecisionArgs,
}

impl ModelSource {
    pub(crate) fn dir(&self) -> &Path {
        Path::new(&self.dir)
    }
}

/// Options of `loom logits`.
#[derive(clap::Args)]
pub(crate) struct Eval {
    #[command(flatten)]
    source: ModelSource,
    /// Token IDs of a sequence: 1,5,7; repeat the option for each sequence of the batch
    #[arg(long, alias = "ids", value_name = "IDS", value_parser = command::ids, required_unless_present = "inputs")]
    token_ids: Vec<TokenIds>,
    /// A safetensors file with the model's inputs by name, for models with other inputs than token IDs. Tensors `d_NAME` are
    /// gradients of the outputs; with them, the gradients of the parameters are written too
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name, conflicts_with_all = ["token_ids", "labels", "probes"])]
    inputs: Option<String>,
    /// Labels, one per token ID; -100 is ignored
    #[arg(long, value_name = "IDS", value_parser = command::ids)]
    labels: Vec<TokenIds>,
    /// The safetensors file to write: logits, and with --labels also loss and gradients
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    out: String,
    /// Also write the values captured by the model's `@probe` annotations
    #[arg(long)]
    probes: bool,
    #[command(flatten)]
    machine: DeviceArgs,
}

/// Options of `loom generate`.
#[derive(clap::Args)]
pub(crate) struct Generate {
    #[command(flatten)]
    source: ModelSource,
    /// The prompt
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// The prompt as token IDs: 1,5,7
    #[arg(long, alias = "ids", value_name = "IDS", value_parser = command::ids)]
    token_ids: Vec<TokenIds>,
    /// A safetensors file with the encoder inputs of an encoder-decoder model (Whisper: `input_features`); T5 also takes `--prompt`
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name, conflicts_with_all = ["prompt", "token_ids", "prompts"])]
    inputs: Option<String>,
    /// A file of prompts for batched generation: one prompt per line, or JSON lines with `prompt` or `messages`
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    prompts: Option<String>,
    /// Output file for --prompts, as JSON lines; default: standard output
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    out: Option<String>,
    /// Maximum number of prompts of --prompts to process in one batch
    #[arg(long, alias = "slots", value_name = "N", default_value = "16", value_parser = command::positive)]
    max_batch: usize,
    /// Maximum number of new tokens; default: 256 after a text prompt, 32 after token IDs
    #[arg(long, alias = "max-new", value_name = "N", value_parser = parse_max_new_tokens)]
    max_new_tokens: Option<usize>,
    /// Print token IDs as a JSON list
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    choosing: SamplingArgs,
    /// Beam search with this many beams; prints the most probable sequence
    #[arg(long, alias = "beams", value_name = "N", value_parser = command::positive, help_heading = "Sampling")]
    num_beams: Option<usize>,
    /// Constrain the output to a regular expression
    #[arg(long, value_name = "PATTERN", help_heading = "Structured output")]
    regex: Option<String>,
    /// Constrain the output to JSON that matches the JSON schema in this file
    #[arg(long, alias = "schema", value_name = "FILE", value_parser = command::non_empty_name, help_heading = "Structured output")]
    json_schema_file: Option<String>,
    /// Draft model for speculative decoding: a directory with a smaller model of the same vocabulary
    #[arg(long, alias = "draft", value_name = "DIR", value_parser = command::non_empty_name, help_heading = "Speculative decoding and parallelism")]
    draft_model: Option<String>,
    /// Number of tokens that the draft model proposes per step
    #[arg(long, alias = "guesses", value_name = "N", default_value = "4", value_parser = command::positive, help_heading = "Speculative decoding and parallelism")]
    num_speculative_tokens: usize,
    /// Device mesh for tensor parallelism: tp=2; start the ranks with `loom launch` or mpirun
    #[arg(long, value_name = "AXES", default_value = "", help_heading = "Speculative decoding and parallelism")]
    mesh: String,
    #[command(flatten)]
    machine: DeviceArgs,
}

/// How tokens are chosen.
#[derive(clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Greedy decoding: always take the most probable token
    #[arg(long)]
    greedy: bool,
    /// Sampling temperature; default: 0.8 after a text prompt
    #[arg(long, value_name = "X", value_parser = parse_temperature)]
    temperature: Option<f64>,
    /// Sample from the N most probable tokens
    #[arg(long, value_name = "N", value_parser = command::positive)]
    top_k: Option<usize>,
    /// Sample from the smallest set of tokens whose total probability is at least X
    #[arg(long, value_name = "X", value_parser = parse_fraction)]
    top_p: Option<f64>,
    /// Sample from tokens with at least X times the probability of the most probable token
    #[arg(long, value_name = "X", value_parser = parse_fraction)]
    min_p: Option<f64>,
    /// Locally typical sampling: keep tokens with close to expected information, with total probability X
    #[arg(long, alias = "typical", value_name = "X", value_parser = parse_fraction)]
    typical_p: Option<f64>,
    /// Repetition penalty; above 1 tokens that already occurred become less probable
    #[arg(long, alias = "repetition", value_name = "X", value_parser = command::above_zero)]
    repetition_penalty: Option<f64>,
    /// Presence penalty: subtracted from the logit of each token that was already generated
    #[arg(long, alias = "presence", value_name = "X", value_parser = parse_penalty)]
    presence_penalty: Option<f64>,
    /// Frequency penalty: subtracted from the logit of a token once for each time it was generated
    #[arg(long, alias = "frequency", value_name = "X", value_parser = parse_penalty)]
    frequency_penalty: Option<f64>,
    /// Random seed of sampling
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_seed)]
    seed: u64,
}

/// Options of `loom export`.
#[derive(clap::Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) source: ModelSource,
    /// The output directory
    #[arg(long, value_name = "DIR", value_parser = command::non_empty_name, required_unless_present = "onnx")]
    out: Option<String>,
    /// Write an ONNX model; the input may then also be a graph in text form, an ONNX model or a directory written by `loom import`
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name, conflicts_with = "out")]
    pub(crate) onnx: Option<String>,
    /// Batch size of an exported HuggingFace model
    #[arg(long, alias = "batch", value_name = "N", value_parser = command::size, default_value = "1", help_heading = "ONNX models")]
    pub(crate) batch_size: usize,
    /// Sequence length of an exported HuggingFace model
    #[arg(long, alias = "seq", value_name = "N", value_parser = command::size, default_value = "16", help_heading = "ONNX models")]
    pub(crate) seq_len: usize,
    #[command(flatten)]
    pub(crate) open: crate::import::OnnxArgs,
}

/// Options of `loom quantize`.
#[derive(clap::Args)]
pub(crate) struct Quantize {
    /// A HuggingFace model directory or a GGUF file
    dir: String,
    /// Quantization format of the matrices: q8, q4, nf4, fp8, or a format of docs/ir.md; default: not quantized
    #[arg(long, value_name = "FORMAT", value_parser = parse_scheme)]
    format: Option<QuantizationConfig>,
    /// The output directory, or a file name that ends in .gguf
    #[arg(long, value_name = "DIR", value_parser = command::non_empty_name)]
    out: String,
    /// Dtype of tensors that are not quantized: f32, bf16 or f16
    #[arg(long, value_name = "DTYPE", default_value = "bf16", value_parser = stored_dtype)]
    dtype: DType,
    /// Calibration text, a file or folder: quantization errors are weighted by the activations on it
    #[arg(long, alias = "calibrate", value_name = "PATH", requires = "format")]
    calibration_data: Option<String>,
    /// Maximum number of tokens of the calibration text
    #[arg(long, alias = "calibrate-ids", value_name = "N", default_value = "8192", value_parser = command::size)]
    calibration_tokens: usize,
}

/// The number of tokens in a calibration sequence.
const CALIBRATION_SEQ_LEN: usize = 128;

/// Collects the activation statistics of a model's matrix products on the calibration text.
fn calibration(model: &Model, dir: &Path, args: &Quantize) -> Result<Option<models::Calibration>, UsageError> {
    let Some(path) = &args.calibration_data else { return Ok(None) };
    let tokenizer = Tokenizer::from_dir(dir).map_err(usage_error)?;
    let ids = crate::perplexity::evaluation_tokens(Some(path), args.calibration_tokens, &tokenizer)?;
    let seq = model.max_sequence().map_or(CALIBRATION_SEQ_LEN, |most| CALIBRATION_SEQ_LEN.min(most));
    let rows: Vec<Vec<i32>> = ids.chunks_exact(seq).map(<[i32]>::to_vec).collect();
    if rows.is_empty() {
        return Err(UsageError(format!(
            "{path}: the text has {} tokens, fewer than one sequence of {seq}: give more text",
            ids.len()
        )));
    }
    let cpu = cpu::Cpu::for_machine();
    model.calibrate(&rows, &cpu).map(Some).map_err(usage_error)
}

fn stored_dtype(text: &str) -> Result<DType, String> {
    match text {
        "f16" => Ok(DType::F16),
        _ => dtype(text).map_err(|_| "must be f32, bf16 or f16".to_string()),
    }
}

fn parse_scheme(text: &str) -> Result<QuantizationConfig, String> {
    text.parse()
}

/// Options of `loom merge`.
#[derive(clap::Args)]
pub(crate) struct Merge {
    /// The adapter directory
    adapter: String,
    /// The output directory
    #[arg(long, value_name = "DIR", value_parser = command::non_empty_name)]
    out: String,
    /// The base model; default: the one named in the adapter
    #[arg(long, value_name = "DIR")]
    base: Option<String>,
    /// Dtype of the merged weights: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// A .module file with the model, if the library does not have it
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    module: Option<String>,
}

/// The largest number of new tokens that is accepted; a larger one is taken to be a mistake.
const MAX_NEW_TOKENS: usize = 1 << 24;

fn parse_max_new_tokens(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=MAX_NEW_TOKENS).contains(n));
    n.ok_or_else(|| format!("must be a positive integer up to {MAX_NEW_TOKENS}"))
}

fn parse_temperature(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite());
    x.ok_or_else(|| "is out of range: a temperature must be greater than 0".to_string())
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x| *x > 0.0 && *x <= 1.0);
    x.ok_or_else(|| "is out of range: a probability must be greater than 0 and at most 1".to_string())
}

fn parse_penalty(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x: &f64| x.abs() <= 100.0);
    x.ok_or_else(|| "must be a number from -100 to 100".to_string())
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "must be a non-negative integer".to_string())
}

/// Loads a program of the model language from a file or the library.
pub(crate) fn load_program(name: &str) -> Result<ModuleProgram, UsageError> {
    models::load_program(name).map_err(usage_error)
}

/// Loads the model of a directory. For an adapter directory, loads the base model and merges the adapter.
pub(crate) fn load(source: &ModelSource) -> Result<Model, UsageError> {
    let dir = &source.dir;
    check_source(dir)?;
    let (dir, dtype) = (Path::new(dir), source.dtype);
    let module = source.module.as_deref();
    let recipe = source.precise.recipe()?;
    let model = match dir.join("adapter_config.json").is_file() {
        true => load_adapted(dir, None, dtype, module)?,
        false => Model::load_with_module(dir, dtype, module.map(load_program).transpose()?).map_err(usage_error)?,
    };
    Ok(match recipe {
        Some(recipe) => model.with_recipe(recipe),
        None => model,
    })
}

/// Checks that the source is a directory or a GGUF file.
fn check_source(dir: &str) -> Result<(), UsageError> {
    let path = Path::new(dir);
    let what = match (path.is_dir(), models::gguf::is_gguf(path)) {
        (_, true) => return Ok(()),
        (true, _) if ["config.json", "adapter_config.json"].iter().any(|file| path.join(file).exists()) => {
            return Ok(());
        }
        (true, _) => "no config.json found",
        (false, _) => "not a directory",
    };
    Err(UsageError(format!("{dir}: {what}; give a HuggingFace model directory or a .gguf file")))
}

/// Loads the base model of an adapter and merges the adapter.
fn load_adapted(dir: &Path, base: Option<&str>, dtype: DType, module: Option<&str>) -> Result<Model, UsageError> {
    let base = match base {
        Some(base) => base.to_string(),
        None => Adapter::base_of(dir).map_err(usage_error)?,
    };
    if !Path::new(&base).is_dir() && !models::gguf::is_gguf(Path::new(&base)) {
        return Err(UsageError(format!(
            "{base}: the adapter's base model was not found; give its directory with `--base`"
        )));
    }
    let module = module.map(load_program).transpose()?;
    let mut model = Model::load_with_module(Path::new(&base), dtype, module).map_err(usage_error)?;
    let adapter = Adapter::read(dir, &model).map_err(usage_error)?;
    model.merge(&adapter).map_err(usage_error)?;
    Ok(model)
}

/// Converts an error to a usage error of one line.
pub(crate) fn usage_error(error: impl std::fmt::Display) -> UsageError {
    UsageError(error.to_string().trim_end().to_string())
}

/// Returns the rows of token IDs, one for each occurrence of the option.
fn id_rows(given: &[TokenIds]) -> Vec<Vec<i32>> {
    given.iter().map(|TokenIds(ids)| ids.clone()).collect()
}

pub(crate) fn eval(args: &Eval) -> Result<ExitStatus, UsageError> {
    let (ids, labels) = (id_rows(&args.token_ids), id_rows(&args.labels));
    let model = load(&args.source)?;
    if let Some(file) = &args.inputs {
        let names: Vec<String> = model.architecture.inputs().into_iter().map(|input| input.name).collect();
        let given = models::read_tensors(Path::new(file)).map_err(usage_error)?;
        let (inputs, cotangents): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|tensor| names.contains(&tensor.name) || !tensor.name.starts_with("d_"));
        let backend = args.machine.open()?;
        let found = model.run(&inputs, &cotangents, &*backend).map_err(usage_error)?;
        let tensors: Vec<NamedTensor> = found.outputs.into_iter().chain(found.gradients).collect();
        models::write_tensors(Path::new(&args.out), &tensors).map_err(usage_error)?;
        return Ok(ExitStatus::Success);
    }
    let labels = (!labels.is_empty()).then_some(&labels[..]);
    let backend = args.machine.open()?;
    let found = model.evaluate_on(&ids, labels, &*backend).map_err(usage_error)?;
    let mut tensors: Vec<NamedTensor> = vec![found.logits];
    if let Some(loss) = found.loss {
        outln!("loss {}", loss.to_f32_vec()[0]);
        tensors.push(loss);
    }
    tensors.extend(found.gradients);
    if args.probes {
        for probed in model.capture(&ids, labels, &*backend).map_err(usage_error)? {
            let name = format!("probe.{}.{}", probed.path, probed.capture);
            tensors.push(NamedTensor { name, ..probed.value });
        }
    }
    models::write_tensors(Path::new(&args.out), &tensors).map_err(usage_error)?;
    Ok(ExitStatus::Success)
}

impl SamplingArgs {
    /// Whether an option changes the logits or the choice of the most probable token.
    fn changes_logits(&self) -> bool {
        let numbers = [
            self.temperature,
            self.top_p,
            self.min_p,
            self.typical_p,
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
        ];
        self.top_k.is_some() || numbers.iter().any(Option::is_some)
    }

    /// Returns the sampling options. Decoding is greedy unless the prompt is text or a sampling option is given.
    pub(crate) fn sampling(&self, text: bool) -> Result<SamplingOptions, UsageError> {
        let shares = [self.top_p, self.min_p, self.typical_p];
        let asked = self.temperature.is_some() || self.top_k.is_some() || shares.iter().any(Option::is_some);
        if self.greedy && asked {
            return Err(UsageError(
                "`--greedy` cannot be combined with sampling options: remove `--greedy`, or temperature, top-k, \
                 top-p, min-p and typical-p"
                    .into(),
            ));
        }
        let draws = asked || (!self.greedy && text);
        Ok(SamplingOptions {
            temperature: if draws { self.temperature.unwrap_or(0.8) } else { 0.0 },
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(if asked || !draws { 1.0 } else { 0.95 }),
            min_p: self.min_p.unwrap_or(0.0),
            typical_p: self.typical_p.unwrap_or(1.0),
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            seed: self.seed,
        })
    }
}

pub(crate) fn generate(args: &Generate) -> Result<ExitStatus, UsageError> {
    let ids = id_rows(&args.token_ids);
    if args.prompts.is_some() {
        return generate_batch(args);
    }
    if args.out.is_some() {
        return Err(UsageError("`--out` needs `--prompts FILE`".into()));
    }
    let sampling = args.choosing.sampling(args.prompt.is_some())?;
    if args.inputs.is_some() {
        return generate_seq2seq(args, load(&args.source)?);
    }
    let (prompt, tokenizer) = match (&ids[..], args.prompt.as_deref()) {
        ([ids], None) => (ids.clone(), None),
        ([], Some(text)) => {
            let dir = Path::new(&args.source.dir);
            check_source(&args.source.dir)?;
            let tokenizer = Tokenizer::from_dir(dir).map_err(usage_error)?;
            let ids = start_if_empty(tokenizer.encode_prompt(text).map_err(usage_error)?, &tokenizer);
            (ids, Some(tokenizer))
        }
        ([], None) => return Err(UsageError("no prompt: give `--prompt TEXT` or `--token-ids 1,5,7`".into())),
        _ => {
            return Err(UsageError(
                "more than one prompt: give exactly one of `--prompt` and `--token-ids`, or several prompts with \
             `--prompts FILE`"
                    .into(),
            ));
        }
    };
    let model = load(&args.source)?.with_quantized_params().map_err(usage_error)?;
    if model.is_encoder_decoder() {
        return generate_seq2seq(args, model);
    }
    let room = model.max_sequence().unwrap_or(usize::MAX).saturating_sub(prompt.len());
    let most = match (args.max_new_tokens, &tokenizer) {
        (Some(most), _) => most,
        (None, Some(_)) => 256.min(room.max(1)),
        (None, None) => 32,
    };
    if let Some(known) =
        model.max_sequence().filter(|known| model.can_extrapolate() && prompt.len().saturating_add(most) > *known)
    {
        let length = prompt.len().saturating_add(most);
        errln!(
            "warning: up to {length} tokens, but the model was trained for {known}: quality beyond it is not \
             guaranteed"
        );
    }
    let ranks = ranks::join_ranks(&args.mesh)?;
    let backend = match &ranks {
        None => args.machine.open()?,
        Some(_) if args.num_beams.is_some() => {
            return Err(UsageError("`--num-beams` does not support several ranks: remove `--mesh`".into()));
        }
        Some(comm) => ranks::open(&args.machine.device, args.machine.threads, comm)?,
    };
    let ends = match &tokenizer {
        Some(tokenizer) => models::eos_ids(args.source.dir(), Some(tokenizer)).map_err(usage_error)?,
        None => Vec::new(),
    };
    if let Some(beams) = args.num_beams {
        return generate_beams(args, model, &prompt, beams, most, tokenizer.as_ref(), ends, backend);
    }
    let constraint = constraint(args, tokenizer.as_ref())?;
    let draft = match &args.draft_model {
        Some(dir) => {
            check_source(dir)?;
            Some(Model::load(Path::new(dir), args.source.dtype).map_err(usage_error)?)
        }
        None => None,
    };
    let mut stream = tokenizer.as_ref().map(Tokenizer::stream);
    // Only rank 0 prints.
    let speaks = ranks.as_ref().is_none_or(|comm| comm.rank() == 0);
    let show = !args.json && speaks;
    if let (true, Some(text)) = (show, &args.prompt) {
        out!("{text}");
    }
    if let Some(why) = model.full_recompute_reason() {
        errln!("note: the model recomputes the full sequence for each token (no KV cache): {why}");
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
        eos_ids: &ends,
        draft: draft.as_ref().map(|draft| (draft, args.num_speculative_tokens)),
        ranks: ranks.clone(),
    };
    let found = model.generate_with_options(&prompt, &writing, &*backend, &mut heard);
    if let (Some(comm), Err(e)) = (&ranks, &found) {
        comm.abort(&e.to_string());
    }
    if let (true, Some(_), Err(_)) = (show, &args.prompt, &found) {
        outln!();
    }
    let found = found.map_err(usage_error)?;
    if !speaks {
        return Ok(ExitStatus::Success);
    }
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    match (args.json, &tokenizer) {
        (true, _) => outln!("[{}]", text.join(", ")),
        (false, None) => outln!("{}", text.join(",")),
        (false, Some(_)) => outln!(),
    }
    let rest = found.ids.len().saturating_sub(1) as f64 / found.decode_time.as_secs_f64().max(1e-9);
    let (first, prompt) = (found.time_to_first_token.as_secs_f64(), found.prompt_time.as_secs_f64());
    if found.ids.len() > 1 {
        let guessed = match found.draft_accepted {
            (_, 0) => String::new(),
            (right, all) => format!(", {right} of {all} draft tokens accepted"),
        };
        errln!("time to first token {first:.3} s (prefill {prompt:.3} s), then {rest:.1} tokens/s{guessed}");
    } else {
        errln!("time to first token {first:.3} s (prefill {prompt:.3} s)");
    }
    Ok(ExitStatus::Success)
}

/// Returns the token IDs to continue. An empty prompt becomes the start token, or the end-of-text token if there is no start
/// token.
fn start_if_empty(ids: Vec<i32>, tokenizer: &Tokenizer) -> Vec<i32> {
    let special = tokenizer.special_tokens();
    if ids.is_empty() { special.start.or(special.eos).into_iter().collect() } else { ids }
}

/// Generates with an encoder-decoder model. Decoding is greedy unless a sampling option is given.
fn generate_seq2seq(args: &Generate, model: Model) -> Result<ExitStatus, UsageError> {
    if args.num_beams.is_some() || args.draft_model.is_some() || !args.mesh.is_empty() {
        return Err(UsageError(
            "encoder-decoder models do not support `--num-beams`, `--draft-model` and `--mesh`: remove them".into(),
        ));
    }
    let tokenizer = Tokenizer::from_dir(args.source.dir());
    let read = match (&args.inputs, &args.prompt, &id_rows(&args.token_ids)[..]) {
        (Some(file), None, []) => models::read_tensors(Path::new(file)).map_err(usage_error)?,
        (None, prompt, ids) => {
            let ids = match (prompt, ids) {
                (Some(text), _) => tokenizer
                    .as_ref()
                    .map_err(|e| UsageError(e.to_string()))?
                    .encode_with_special_tokens(text)
                    .map_err(usage_error)?,
                (None, [ids]) => ids.clone(),
                _ => {
                    return Err(UsageError("give exactly one of `--prompt`, `--token-ids` and `--inputs`".into()));
                }
            };
            let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            vec![NamedTensor { name: "input_ids".into(), shape: vec![1, ids.len()], dtype: DType::I32, bytes }]
        }
        _ => return Err(UsageError("give exactly one of `--prompt`, `--token-ids` and `--inputs`".into())),
    };
    let start = models::decoder_start_id(args.source.dir()).map_err(usage_error)?;
    // For token IDs, the output is token IDs too, and no token ends the sequence.
    let tokenizer = if args.token_ids.is_empty() { tokenizer.ok() } else { None };
    let ends = match &tokenizer {
        Some(tokenizer) => models::eos_ids(args.source.dir(), Some(tokenizer)).map_err(usage_error)?,
        None => Vec::new(),
    };
    let longest = model.max_sequence().unwrap_or(usize::MAX).saturating_sub(1).max(1);
    let most = args.max_new_tokens.unwrap_or(if tokenizer.is_some() { 256 } else { 32 }.min(longest));
    let writing = GenerateOptions {
        max_new_tokens: most,
        sampling: Some(args.choosing.sampling(false)?),
        constraint: constraint(args, tokenizer.as_ref())?,
        eos_ids: &ends,
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
    let found = model.generate_seq2seq(&read, &[start], &writing, &*backend, &mut heard).map_err(usage_error)?;
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    match (args.json, &tokenizer) {
        (true, _) => outln!("[{}]", text.join(", ")),
        (false, None) => outln!("{}", text.join(",")),
        (false, Some(_)) => outln!(),
    }
    let rest = found.ids.len().saturating_sub(1) as f64 / found.decode_time.as_secs_f64().max(1e-9);
    errln!("time to first token {:.3} s, then {rest:.1} tokens/s", found.time_to_first_token.as_secs_f64());
    Ok(ExitStatus::Success)
}

/// Returns the constraint on the generated text, if one is given.
fn constraint(args: &Generate, tokenizer: Option<&Tokenizer>) -> Result<Option<models::Constraint>, UsageError> {
    let maker = |what: &str| match tokenizer {
        Some(tokenizer) => Ok(Constrainer::new(tokenizer)),
        None => Err(UsageError(format!("`{what}` needs a text prompt: give `--prompt`"))),
    };
    match (&args.regex, &args.json_schema_file) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(UsageError("give only one of `--regex` and `--json-schema-file`".into())),
        (Some(pattern), None) => maker("--regex")?.regex(pattern).map(Some).map_err(usage_error),
        (None, Some(file)) => {
            let text = models::files::read_text(Path::new(file), models::files::MAX_TEXT_BYTES).map_err(usage_error)?;
            let schema = serde_json::from_str(&text).map_err(|e| UsageError(format!("{file}: not valid JSON: {e}")))?;
            maker("--json-schema-file")?.json_schema(&schema).map(Some).map_err(|e| UsageError(format!("{file}: {e}")))
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "what `generate` has found out so far")]
fn generate_beams(
    args: &Generate,
    model: Model,
    prompt: &[i32],
    beams: usize,
    most: usize,
    tokenizer: Option<&Tokenizer>,
    ends: Vec<i32>,
    backend: Arc<dyn Backend>,
) -> Result<ExitStatus, UsageError> {
    if args.regex.is_some() || args.json_schema_file.is_some() || args.draft_model.is_some() {
        return Err(UsageError(
            "`--num-beams` cannot be combined with `--regex`, `--json-schema-file` or `--draft-model`".into(),
        ));
    }
    if args.choosing.changes_logits() {
        return Err(UsageError(
            "`--num-beams` cannot be combined with sampling options or penalties: beam search uses the unmodified \
             probabilities"
                .into(),
        ));
    }
    let sizes = BatchOptions {
        max_batch: beams.max(2),
        max_seq_len: prompt.len() + most,
        prefix_cache_bytes: 0,
        ..BatchOptions::default()
    };
    let mut slots = BatchEngine::new(Arc::new(model), &[], sizes, backend).map_err(usage_error)?;
    let wanted =
        BeamSearchOptions { num_beams: beams, max_new_tokens: most, length_penalty: 1.0, eos_ids: ends.clone() };
    let found = slots.beam_search(prompt, &wanted).map_err(usage_error)?;
    let Some(best) = found.first() else { return Err(UsageError("beam search found no sequence".into())) };
    match tokenizer {
        Some(tokenizer) if !args.json => {
            let ids: Vec<i32> = best.ids.iter().copied().filter(|id| !ends.contains(id)).collect();
            outln!("{}{}", args.prompt.as_deref().unwrap_or(""), tokenizer.decode(&ids).map_err(usage_error)?);
        }
        _ => {
            let text: Vec<String> = best.ids.iter().map(i32::to_string).collect();
            if args.json { outln!("[{}]", text.join(", ")) } else { outln!("{}", text.join(",")) }
        }
    }
    errln!("score {:.4}", best.score);
    Ok(ExitStatus::Success)
}

/// Generates from the prompts of a file in batches.
fn generate_batch(args: &Generate) -> Result<ExitStatus, UsageError> {
    let Some(file) = &args.prompts else { return Err(UsageError("`--prompts FILE` is missing".into())) };
    if args.prompt.is_some() || !args.token_ids.is_empty() || args.num_beams.is_some() || args.draft_model.is_some() {
        return Err(UsageError(
            "`--prompts` cannot be combined with `--prompt`, `--token-ids`, `--num-beams` or `--draft-model`".into(),
        ));
    }
    if args.regex.is_some() || args.json_schema_file.is_some() {
        return Err(UsageError(
            "`--prompts` cannot be combined with `--regex` or `--json-schema-file`: use `loom serve` for structured \
             output of several prompts"
                .into(),
        ));
    }
    let sampling = args.choosing.sampling(true)?;
    let tokenizer = Tokenizer::from_dir(args.source.dir()).map_err(usage_error)?;
    let template = ChatTemplate::from_dir(args.source.dir()).map_err(usage_error)?;
    let text = models::files::read_text(Path::new(file), models::files::MAX_TEXT_BYTES).map_err(usage_error)?;
    let mut prompts = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fault = |what: &str| UsageError(format!("{file}, line {}: {what}", n + 1));
        let ids = if file.ends_with(".jsonl") || file.ends_with(".json") {
            let json: Json = serde_json::from_str(line).map_err(|e| fault(&format!("not valid JSON: {e}")))?;
            match (json.get("prompt").and_then(Json::as_str), json.get("messages").and_then(Json::as_array)) {
                (Some(prompt), _) => tokenizer.encode_prompt(prompt),
                (None, Some(messages)) => {
                    let shown = template.render(messages, true, &serde_json::Map::new());
                    shown.and_then(|text| tokenizer.encode(&text))
                }
                _ => return Err(fault("the line has neither `prompt` nor `messages`")),
            }
        } else {
            tokenizer.encode_prompt(line)
        };
        prompts.push(start_if_empty(ids.map_err(|e| fault(&e.to_string()))?, &tokenizer));
    }
    if prompts.is_empty() {
        return Err(UsageError(format!("{file}: the file has no prompts")));
    }
    let model = load(&args.source)?.with_quantized_params().map_err(usage_error)?;
    let most = args.max_new_tokens.unwrap_or(256);
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let rows = args.max_batch.min(prompts.len()).max(2);
    let sizes = BatchOptions { max_batch: rows, max_seq_len: longest + most, ..BatchOptions::default() };
    let ends = models::eos_ids(args.source.dir(), Some(&tokenizer)).map_err(usage_error)?;
    let mut slots = BatchEngine::new(Arc::new(model), &[], sizes, args.machine.open()?).map_err(usage_error)?;
    let wanted = BatchGenerateOptions { max_new_tokens: most, sampling, eos_ids: ends };
    let mut texts: Vec<Option<String>> = vec![None; prompts.len()];
    let (mut tokens, started) = (0, std::time::Instant::now());
    let mut done = |index: usize, ids: &[i32]| {
        tokens += ids.len();
        let shown = serde_json::json!({ "index": index, "text": tokenizer.decode(ids)?, "tokens": ids.len() });
        texts[index] = Some(shown.to_string());
        Ok(())
    };
    slots.generate_batch(&prompts, &wanted, &mut done).map_err(usage_error)?;
    let all: Vec<String> = texts.into_iter().flatten().collect();
    match &args.out {
        Some(out) => models::files::write(Path::new(out), (all.join("\n") + "\n").as_bytes()).map_err(usage_error)?,
        None => all.iter().for_each(|line| outln!("{line}")),
    }
    let seconds = started.elapsed().as_secs_f64();
    errln!("{} prompts, {tokens} tokens in {seconds:.1} s, {:.0} tokens/s", all.len(), tokens as f64 / seconds);
    Ok(ExitStatus::Success)
}

pub(crate) fn merge(args: &Merge) -> Result<ExitStatus, UsageError> {
    let (out, dir) = (&args.out, Path::new(&args.adapter));
    models::ensure_no_model(Path::new(out)).map_err(usage_error)?;
    let _lock = DirLock::acquire_if_run(Path::new(out)).map_err(usage_error)?;
    if !dir.join("adapter_config.json").is_file() {
        return Err(UsageError(format!("{}: no adapter_config.json found; give an adapter directory", dir.display())));
    }
    let model = load_adapted(dir, args.base.as_deref(), args.dtype, args.module.as_deref())?;
    model.export(Path::new(&out)).map_err(usage_error)?;
    let base = args.base.clone().map_or_else(|| Adapter::base_of(dir).map_err(usage_error), Ok)?;
    models::merge_companions(Path::new(&base), dir, Path::new(&out)).map_err(usage_error)?;
    outln!("{out}: {} parameters, with the adapter merged", model.parameter_count());
    Ok(ExitStatus::Success)
}

pub(crate) fn quantize(args: &Quantize) -> Result<ExitStatus, UsageError> {
    let (out, dir) = (Path::new(&args.out), Path::new(&args.dir));
    check_source(&args.dir)?;
    let same = |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if same(dir, out) {
        return Err(UsageError(format!("{}: this is the input model; choose another `--out`", args.out)));
    }
    models::ensure_no_model(out).map_err(usage_error)?;
    let mut model = Model::load(dir, args.dtype).map_err(usage_error)?;
    let left = match &args.format {
        Some(scheme) => {
            let calibration = calibration(&model, dir, args)?;
            model.quantize_with_calibration(scheme, calibration.as_ref()).map_err(usage_error)?
        }
        None => Vec::new(),
    };
    if args.out.ends_with(".gguf") {
        let tokenizer = match Tokenizer::from_dir(dir) {
            Ok(tokenizer) => Some(tokenizer),
            Err(why) => {
                errln!("note: the file has no tokenizer: {why}");
                None
            }
        };
        model.save_gguf(out, tokenizer.as_ref()).map_err(usage_error)?;
        let left_out =
            if dir.is_dir() { models::files_without_gguf_form(dir).map_err(usage_error)? } else { Vec::new() };
        if !left_out.is_empty() {
            let names: Vec<String> = left_out.iter().map(|name| name.display().to_string()).collect();
            let except = if tokenizer.is_some() { ", except for the IDs of special tokens" } else { "" };
            errln!("note: not stored in the GGUF file{except}: {}", names.join(", "));
        }
    } else {
        let _lock = DirLock::acquire_if_run(out).map_err(usage_error)?;
        model.save_quantized(out).map_err(usage_error)?;
        models::copy_companions(dir, out).map_err(usage_error)?;
    }
    let stored: Vec<String> = model.storage_formats().into_iter().map(|(name, n)| format!("{n} as {name}")).collect();
    outln!("{}: {} parameters, {}", args.out, model.parameter_count(), stored.join(", "));
    if !left.is_empty() {
        errln!("note: not quantized, because their rows are not divisible by the group size: {}", left.join(", "));
    }
    Ok(ExitStatus::Success)
}

pub(crate) fn export(args: &Export) -> Result<ExitStatus, UsageError> {
    if let Some(file) = &args.onnx {
        return crate::onnx_export::export(args, file);
    }
    let (out, dir) = (&args.out.clone().unwrap_or_default(), &args.source.dir);
    let same = |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if same(Path::new(dir), Path::new(&out)) {
        return Err(UsageError(format!("{out}: this is the input model; choose another `--out`")));
    }
    models::ensure_no_model(Path::new(out)).map_err(usage_error)?;
    let _lock = DirLock::acquire_if_run(Path::new(&out)).map_err(usage_error)?;
    let model = load(&args.source)?;
    model.export(Path::new(&out)).map_err(usage_error)?;
    match Path::new(dir).join("adapter_config.json").is_file() {
        true => {
            let base = Adapter::base_of(Path::new(dir)).map_err(usage_error)?;
            models::merge_companions(Path::new(&base), Path::new(dir), Path::new(&out)).map_err(usage_error)?;
        }
        false => models::copy_companions(Path::new(dir), Path::new(&out)).map_err(usage_error)?,
    }
    outln!("{out}: {} parameters", model.parameter_count());
    Ok(ExitStatus::Success)
}
