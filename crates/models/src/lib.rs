//! HuggingFace directories in and out, training, generation.
//!
//! `config.json` chooses a model of the language's standard library and its sizes; the model's own `hf_mapping` says
//! which tensors of the checkpoint make up which parameter. Evaluation, gradients and generation run the lowered graph
//! through `transform`, `compiler` and a backend; export writes the parameters back under their HuggingFace names.

mod adapter;
mod answering;
mod architecture;
mod asserts;
mod beams;
mod budget;
mod calibrate;
mod charsmap;
mod chat;
mod chat_files;
mod checkpoint;
mod classify;
mod companions;
mod config;
mod constrain;
mod decoding;
mod disk;
mod divided;
mod error;
mod evaluate;
mod expansion;
mod export;
mod fields;
mod fresh;
mod frozen;
mod generate;
pub mod gguf;
mod growing;
mod guard;
mod ia3;
mod inject;
mod jinja;
mod last_row;
mod lora;
mod mapping;
mod model;
mod packed;
mod placing;
pub mod plan;
mod pooling;
mod quantize;
mod random;
mod recipe;
mod run;
mod sample;
#[cfg(feature = "serve")]
pub mod serve;
mod session;
mod slots;
mod special_tokens;
mod stored;
mod tensor_file;
mod together;
mod tokenizer;
pub mod train;
mod weight;

pub use adapter::{Adapter, AdapterOptions};
pub use answering::Answering;
pub use architecture::{Architecture, Input};
pub use beams::{Beams, Found};
pub use budget::{MOST_THREADS, memory};
pub use calibrate::Calibration;
pub use chat::ChatTemplate;
pub use checkpoint::Checkpoint;
pub use classify::Classifier;
pub use companions::{copy_companions, ensure_no_model, merge_companions, not_in_gguf};
pub use constrain::{Constrainer, Constraint};
pub use decoding::Decoding;
pub use disk::{load_program, write_lock};
pub use divided::divide;
pub use error::{Error, Result};
pub use evaluate::{Evaluation, Probed};
pub use export::{read_tensors, write_tensors};
pub use generate::{Generation, Writing};
pub use guard::panic_is_caught;
pub use ia3::Ia3Options;
pub use lora::LoraOptions;
pub use mapping::{Function, Part, Slice, Sources};
pub use model::Model;
pub use quantize::Scheme;
pub use random::Random;
pub use recipe::recipe;
pub use run::Run;
pub use sample::{History, Sampling, log_probabilities};
pub use slots::{Aside, SlotSizes, Slots};
pub use special_tokens::{SpecialTokens, end_ids, start_id};
pub use together::Together;
pub use tokenizer::{END, TextStream, Tokenizer};
pub use training::{NamedTensor, files};

/// The snippets of the README, the tutorial and the book are compiled and run with the documentation.
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
