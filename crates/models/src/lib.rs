//! Import and export of HuggingFace models, training, generation.
//!
//! `config.json` selects a model of the language's standard library and its sizes; the model's own `hf_mapping` defines from
//! which checkpoint tensors each parameter is assembled. Evaluation, gradients and generation run the lowered graph through
//! `transform`, `compiler` and a backend; export writes the parameters back under their HuggingFace names.

mod adapter;
mod architecture;
mod asserts;
mod batch_engine;
mod batch_generate;
mod beams;
mod budget;
mod calibrate;
mod catch_panic;
mod charsmap;
mod chat;
mod chat_files;
mod checkpoint;
mod classify;
mod companions;
mod config;
mod config_fields;
mod constrain;
mod decoding;
mod disk;
mod error;
mod evaluate;
mod export;
mod frozen;
mod generate;
pub mod gguf;
mod growing;
mod ia3;
mod init;
mod insert_adapter;
mod jinja;
mod last_token;
mod lora;
mod mapping;
mod mmap_file;
mod model;
mod param_sharding;
pub mod plan;
mod pooling;
mod quantize;
mod quantized_params;
mod quantized_weight;
mod random;
mod recipe;
mod run;
mod sample;
mod seq2seq;
mod session;
mod sharded;
mod special_tokens;
mod tokenizer;
mod tokenizer_growth;
pub mod train;
mod weight;

pub use adapter::{Adapter, AdapterOptions};
pub use architecture::{Architecture, ModelInput};
pub use batch_engine::{BatchEngine, BatchOptions, SuspendedSequence};
pub use batch_generate::BatchGenerateOptions;
pub use beams::{BeamResult, BeamSearchOptions};
pub use budget::{MAX_THREADS, available_memory};
pub use calibrate::Calibration;
pub use catch_panic::panic_is_caught;
pub use chat::ChatTemplate;
pub use checkpoint::Checkpoint;
pub use classify::Classifier;
pub use companions::{copy_companions, ensure_no_model, files_without_gguf_form, merge_companions};
pub use constrain::{Constrainer, Constraint};
pub use decoding::DecodeSession;
pub use disk::{load_program, write_lock};
pub use error::{Error, Result};
pub use evaluate::{Captured, Evaluation};
pub use export::{read_tensors, write_tensors};
pub use generate::{GenerateOptions, Generation};
pub use ia3::Ia3Options;
pub use lora::LoraOptions;
pub use mapping::{ElementTransform, ParamSlice, ParamSources, SourceTensor};
pub use model::Model;
pub use quantize::QuantizationConfig;
pub use random::SplitMix64;
pub use recipe::parse_recipe;
pub use run::ModelOutputs;
pub use sample::{SamplingOptions, TokenHistory, top_logprobs};
pub use seq2seq::Seq2SeqDecoder;
pub use sharded::shard_graph;
pub use special_tokens::{SpecialTokens, decoder_start_id, eos_ids};
pub use tokenizer::{END_OF_TEXT, TextStream, Tokenizer};
pub use training::{NamedTensor, files};

/// The snippets of the README, the tutorial and the book are compiled and run as doctests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/tutorial.md")]
    struct Tutorial;
    #[doc = include_str!("../../../book/src/from_pytorch.md")]
    struct FromPyTorch;
    #[doc = include_str!("../../../book/src/from_jax.md")]
    struct FromJax;
    #[doc = include_str!("../../../book/src/tensors.md")]
    struct Tensors;
    #[doc = include_str!("../../../book/src/functions.md")]
    struct Functions;
    #[doc = include_str!("../../../book/src/variable_shapes.md")]
    struct VariableShapes;
    #[doc = include_str!("../../../book/src/modules.md")]
    struct Modules;
}
