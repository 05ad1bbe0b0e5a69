//! Initializes a model: random parameters, and the HuggingFace tensors under which they will be saved.

use crate::architecture::Architecture;
use crate::budget;
use crate::error::{Error, Result};
use crate::mapping::{ParamSlice, ParamSources, SourceTensor, sources};
use crate::model::{CheckpointSlice, Model};
use crate::random::SplitMix64;
use crate::weight::Weight;
use ir::DType;
use lang::ModuleProgram;
use lang::consteval::ConstValue;
use lang::lower::{ParamInit, Parameter};
use safetensors::Dtype;
use train::named_tensor::to_bytes;

impl Model {
    /// Creates a model of a program with random parameters. `sizes` are values of the model's parameters, as in `[("vocab_size", 32)]`; where a
    /// program has several models, it is the first.
    ///
    /// ```
    /// use ir::DType;
    /// use lang::ModuleProgram;
    /// use tensorloom_models::Model;
    ///
    /// let text = "
    /// model Table(vocab_size: int):
    ///   params:
    ///     scores: [vocab_size, vocab_size]
    ///   forward:
    ///     in: [B, T, int32]
    ///     out: [B, T, vocab_size]
    ///     graph:
    ///       in -> embedding(scores) -> out
    /// ";
    /// let program = ModuleProgram::parse("table", text)?;
    /// let model = Model::init(&program, [("vocab_size", 32)], DType::F32, 1)?;
    /// assert_eq!(model.evaluate(&[vec![1, 2, 3]])?.logits.shape, [1, 3, 32]);
    /// # Ok::<(), tensorloom_models::Error>(())
    /// ```
    pub fn init<K: Into<String>, V: Into<ConstValue>>(
        program: &ModuleProgram,
        sizes: impl IntoIterator<Item = (K, V)>,
        dtype: DType,
        seed: u64,
    ) -> Result<Model> {
        let given = sizes.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Model::new_random(Architecture::from_program(program.clone(), None, given)?, dtype, seed)
    }

    /// A model with random parameters.
    pub fn new_random(architecture: Architecture, dtype: DType, seed: u64) -> Result<Model> {
        let params = architecture.lower(1, 1, dtype, None)?.params;
        budget::check_new_model(&params, dtype)?;
        let layers = architecture.size("n_layers").unwrap_or(1).max(1);
        let mut random = SplitMix64::new(seed, 1);
        let mut weights = Vec::new();
        for param in &params {
            // Values are not rounded to the compute dtype: training starts from the full-precision values.
            let values = init_values(&architecture, param, layers, &mut random);
            weights.push(Weight::InMemory(DType::F32, to_bytes(&values, DType::F32)));
        }
        let found = sources(&architecture, &params)?;
        let pairs = params.iter().zip(&found);
        let pieces =
            pairs.map(|(param, sources)| split_sources(&architecture, param, sources)).collect::<Result<_>>()?;
        let config = architecture.to_config();
        let limits = architecture.limits(dtype);
        Ok(Model {
            architecture,
            params,
            dtype,
            weights,
            checkpoint: None,
            limits,
            pieces,
            config,
            pooling: Default::default(),
        })
    }
}

/// Initial values of a parameter, by its name and rank.
pub(crate) fn init_values(
    architecture: &Architecture,
    param: &Parameter,
    layers: usize,
    random: &mut SplitMix64,
) -> Vec<f32> {
    let n = param.ty.numel();
    match param.init {
        ParamInit::Zeros => return vec![0.0; n],
        ParamInit::Ones => return vec![1.0; n],
        ParamInit::Default => {}
    }
    let last = param.path.rsplit('.').next().unwrap_or(&param.path);
    let norm = param.ty.rank() == 1 && (last == "weight" || last.ends_with("norm_weight"));
    match (last, param.ty.rank()) {
        // State-space models: decay rates of 1, 2, .., and initial step sizes between 0.001 and 0.1.
        ("A_log", 2) => (0..n).map(|i| ((i % param.ty.shape[1] + 1) as f32).ln()).collect(),
        ("D", 1) => vec![1.0; n],
        ("dt_bias", 1) => {
            let step = |random: &mut SplitMix64| (1e-3f64.ln() + random.uniform() * (0.1f64 / 1e-3).ln()).exp();
            (0..n).map(|_| step(random).exp_m1().ln() as f32).collect()
        }
        ("A_log", 1) => (0..n).map(|i| ((i + 1) as f32).ln()).collect(),
        // Gemma's norms multiply by one plus their weight.
        (_, 1) if norm && architecture.constants.get("unit_offset") == Some(&ConstValue::bool(true)) => vec![0.0; n],
        _ if norm || last.ends_with("_factors") => vec![1.0; n],
        (_, 0 | 1) => vec![0.0; n],
        _ => {
            // The standard deviation of PyTorch's linear layers: equals the 0.02 of larger models at a width of 768.
            let width = param.ty.shape.last().copied().unwrap_or(1).max(1) as f64;
            let mut deviation = 1.0 / (3.0 * width).sqrt();
            // Projections into the residual stream are scaled down with the depth of the model.
            if matches!(last, "out_weight" | "down_weight") {
                deviation /= (2.0 * layers as f64).sqrt();
            }
            (0..n).map(|_| (deviation * random.normal()) as f32).collect()
        }
    }
}

/// The HuggingFace tensors of a parameter, with their shapes.
pub(crate) fn split_sources(
    architecture: &Architecture,
    param: &Parameter,
    sources: &ParamSources,
) -> Result<Vec<CheckpointSlice>> {
    let stacked = matches!(sources, ParamSources::Stacked(_));
    let shape = &param.ty.shape[usize::from(stacked)..];
    let mut pieces = Vec::new();
    for (i, slice) in sources.slices().iter().enumerate() {
        let mut start = 0;
        for (part, size) in slice.parts.iter().zip(part_sizes(architecture, param, shape, slice)?) {
            let mut own = shape.to_vec();
            if let Some(along) = own.get_mut(slice.dim) {
                *along = size;
            }
            if part.transposed {
                own.reverse();
            }
            pieces.push(CheckpointSlice {
                tensor: part.tensor.clone(),
                shape: own,
                stored: Dtype::F32,
                transposed: part.transposed,
                function: part.function,
                index: stacked.then_some(i),
                dim: slice.dim,
                start,
            });
            start += size;
        }
    }
    Ok(pieces)
}

/// The sizes of the parts along the dimension in which they are concatenated: queries, keys and values by their heads, others equal.
fn part_sizes(
    architecture: &Architecture,
    param: &Parameter,
    shape: &[usize],
    slice: &ParamSlice,
) -> Result<Vec<usize>> {
    let total = shape.get(slice.dim).copied().unwrap_or(1);
    // `split` gives the ranges of the parts.
    if let Some(ranges) =
        slice.parts.iter().map(|part| part.range).collect::<Option<Vec<_>>>().filter(|r| !r.is_empty())
    {
        let end = ranges.last().map_or(0, |range| range.1);
        if end != total {
            return Err(Error::Input(format!(
                "parameter `{}`: its slices end at {end}, but it has {total} elements along dimension {}",
                param.path, slice.dim
            )));
        }
        return Ok(ranges.iter().map(|(start, end)| end - start).collect());
    }
    let heads = |part: &SourceTensor| {
        let module = part.tensor.rsplit('.').nth(1).unwrap_or("");
        match module.chars().next() {
            Some('q') => architecture.size("heads"),
            Some('k' | 'v') => architecture.size("kv_heads").filter(|n| *n > 0).or_else(|| architecture.size("heads")),
            _ => None,
        }
    };
    let counts: Option<Vec<usize>> = slice.parts.iter().map(heads).collect();
    let counts = counts.filter(|counts| counts.len() > 1).unwrap_or_else(|| vec![1; slice.parts.len()]);
    let sum: usize = counts.iter().sum();
    if slice.parts.is_empty() {
        return Ok(Vec::new());
    }
    if sum == 0 || !total.is_multiple_of(sum) {
        return Err(Error::Input(format!(
            "parameter `{}`: the size {total} of dimension {} is not divisible by {} tensors",
            param.path,
            slice.dim,
            slice.parts.len()
        )));
    }
    Ok(counts.iter().map(|count| total / sum * count).collect())
}
