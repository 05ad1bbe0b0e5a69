//! Incremental decoding equals running the whole sequence, for random models with every sequence operation of the language.
//! `DECODING_MODULES=500` tests that many.

mod in_place;
mod modules;

use cpu::Cpu;
use ir::DType;
use lang::library::LibraryLoader;
use lang::resolve::{MemoryLoader, ModuleProgram};
use modules::{Parts, module};
use std::collections::BTreeMap;
use tensorloom_models::{Architecture, Model, NamedTensor, SplitMix64};

fn model(text: &str, seed: u64) -> Model {
    let loader = MemoryLoader::new().with("m", "v1.0.0", text);
    let program = ModuleProgram::load("m", &LibraryLoader(loader));
    let architecture = Architecture::from_program(program, None, BTreeMap::new());
    let architecture = architecture.unwrap_or_else(|e| panic!("{e}\n{text}"));
    Model::new_random(architecture, DType::F32, seed).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Compares the logits of decoding after every prefix with those of running the prefix.
fn check(text: &str, model: &Model, random: &mut SplitMix64) {
    let cpu = Cpu::new(1 + random.below(2));
    let mut decoding = model.decode_session(modules::LONGEST, &cpu).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut left = modules::LONGEST;
    for call in 0..4 {
        // A prompt, then one token at a time, once several together.
        let count = if call == 0 { 2 + random.below(4) } else { 1 + 2 * usize::from(call == 2) }.min(left);
        left -= count;
        let ids: Vec<i32> = (0..count).map(|_| random.below(modules::VOCABULARY) as i32).collect();
        let found = decoding.append(&ids).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let whole = model.evaluate_on(&[decoding.ids().to_vec()], None, &cpu).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let wanted = whole.logits.to_f32_vec();
        let wanted = &wanted[wanted.len() - found.len()..];
        let size = wanted.iter().fold(1f32, |m, x| m.max(x.abs()));
        for (a, b) in found.iter().zip(wanted) {
            let close = (a - b).abs() <= 2e-4 * size;
            assert!(
                close,
                "{} ids, whole {:?}\n{found:?}\n{wanted:?}\n{text}",
                decoding.ids().len(),
                model.full_recompute_reason()
            );
        }
    }
}

#[test]
fn cached_decoding_equals_the_whole_sequence() {
    let wanted = std::env::var("DECODING_MODULES").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let (mut cached, mut whole) = (0, 0);
    for seed in 0..wanted {
        let mut random = SplitMix64::new(seed, 7);
        let Parts { text, mixes } = module(&mut random);
        let model = model(&text, seed);
        match (mixes, model.full_recompute_reason()) {
            (false, Some(why)) => panic!("could be cached, but {why}\n{text}"),
            (_, None) => cached += 1,
            (true, Some(_)) => whole += 1,
        }
        check(&text, &model, &mut random);
    }
    println!("{wanted} modules: {cached} with caches, {whole} that run the whole sequence");
    assert!(cached * 4 > wanted && whole * 4 > wanted, "{cached} with caches, {whole} without, of {wanted}");
}

/// For each sequence operation alone, it is known whether it supports KV caches.
#[test]
fn each_way_of_mixing_time_is_known() {
    for (name, part, mixes) in modules::PARTS {
        for seed in 0..2 {
            let mut random = SplitMix64::new(seed, 9);
            let text = modules::module_of(&mut random, &[*part]);
            let model = model(&text, seed);
            assert_eq!(
                model.full_recompute_reason().is_some(),
                *mixes,
                "{name}: {:?}\n{text}",
                model.full_recompute_reason()
            );
            check(&text, &model, &mut random);
        }
    }
}

/// Compares incremental encoder-decoder generation with running the whole sequence; returns whether caches were used.
fn check_answer(what: &str, model: &Model, random: &mut SplitMix64) -> bool {
    let cpu = Cpu::new(1 + random.below(2));
    let tensor = |name: &str, ids: &[i32]| {
        let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        NamedTensor { name: name.into(), shape: vec![1, ids.len()], dtype: DType::I32, bytes }
    };
    let draw = |random: &mut SplitMix64, n: usize| -> Vec<i32> {
        (0..n).map(|_| random.below(modules::VOCABULARY) as i32).collect()
    };
    let length = 1 + random.below(7);
    let read = tensor("input_ids", &draw(random, length));
    let most = modules::LONGEST;
    let mut answering =
        model.seq2seq_decoder(std::slice::from_ref(&read), most, &cpu).unwrap_or_else(|e| panic!("{e}\n{what}"));
    for count in [1 + random.below(3), 1, 3, 1] {
        let ids = draw(random, count);
        let found = answering.append(&ids).unwrap_or_else(|e| panic!("{e}\n{what}"));
        let all = [read.clone(), tensor("decoder_input_ids", answering.ids())];
        let whole = model.run(&all, &[], &cpu).unwrap_or_else(|e| panic!("{e}\n{what}"));
        let wanted = whole.outputs[0].to_f32_vec();
        let wanted = &wanted[wanted.len() - found.len()..];
        let size = wanted.iter().fold(1f32, |m, x| m.max(x.abs()));
        let close = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 2e-4 * size);
        assert!(
            close,
            "{} ids, whole {}\n{found:?}\n{wanted:?}\n{what}",
            answering.ids().len(),
            answering.recomputes_prefix()
        );
    }
    !answering.recomputes_prefix()
}

/// Parts that compute each position independently.
const ROW_BY_ROW: &[&str] = &["feed-forward", "norm", "channels first"];

/// Random encoder-decoders: with caches or recomputing all rows. `DECODING_MODULES=500` tests this many models.
#[test]
fn cached_answers_equal_the_whole() {
    let wanted: u64 = std::env::var("DECODING_MODULES").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for (name, part, _) in modules::PARTS {
        let mut random = SplitMix64::new(3, 11);
        let text = modules::answering_module_of(&mut random, &[*part]);
        let cached = check_answer(&text, &model(&text, 3), &mut random);
        assert!(cached || !ROW_BY_ROW.contains(name), "{name} could be cached\n{text}");
    }
    for seed in 0..wanted {
        let mut random = SplitMix64::new(seed, 13);
        let count = 2 + random.below(4);
        let parts: Vec<modules::Part> =
            (0..count).map(|_| modules::PARTS[random.below(modules::PARTS.len())].1).collect();
        let text = modules::answering_module_of(&mut random, &parts);
        check_answer(&text, &model(&text, seed), &mut random);
    }
}

/// T5 in odd sizes uses caches, with the same position biases as the whole sequence; so does Whisper (`more.rs`).
#[test]
fn t5_answers_with_caches() {
    for seed in 0..4 {
        let mut random = SplitMix64::new(seed, 17);
        let program = ModuleProgram::load("std/models/t5", &LibraryLoader(MemoryLoader::new()));
        let mut given = BTreeMap::new();
        let mut size =
            |name: &str, n: usize| given.insert(name.to_string(), lang::consteval::ConstValue::int(n as i64));
        size("vocab_size", modules::VOCABULARY);
        size("d_model", 6 + random.below(3));
        size("d_kv", 3 + random.below(3));
        size("d_ff", 9);
        size("heads", 1 + random.below(3));
        size("n_layers", 1);
        size("decoder_layers", 1 + random.below(2));
        size("buckets", 4 + 4 * random.below(2));
        size("max_distance", 9);
        let architecture = Architecture::from_program(program, None, given).unwrap_or_else(|e| panic!("{e}"));
        let model = Model::new_random(architecture, DType::F32, seed).unwrap_or_else(|e| panic!("{e}"));
        assert!(check_answer("t5", &model, &mut random), "caches");
    }
}

/// Models without incremental decoding; `more.rs` tests them.
const WHOLE: &[&str] = &["bert", "roberta", "vit", "clip", "whisper", "t5"];

/// All decoders of the library support KV caches.
#[test]
fn models_of_the_library_use_caches() {
    for path in lang::library::models() {
        let name = path.rsplit('/').next().expect("a name");
        if WHOLE.contains(&name) {
            continue;
        }
        let program = ModuleProgram::load(path, &LibraryLoader(MemoryLoader::new()));
        let sizes = [("vocab_size", 40), ("d_model", 16), ("n_layers", 2), ("heads", 2), ("kv_heads", 2), ("d_ff", 24)];
        let more = [("max_seq", 32), ("experts", 3), ("d_inner", 16), ("dt_rank", 4), ("d_state", 4), ("head_dim", 8)];
        let own = [("top_k", 2), ("groups", 1), ("top_groups", 1), ("expand", 1), ("d_expert", 8), ("kv_rank", 6)];
        let known = lang::resolve::ModuleView::new(&program, model_of(&program)).expect("a model");
        let has = |name: &str| {
            known.header.iter().any(|p| matches!(p, lang::ast::Param::Named { name: n, .. } if n.name == name))
        };
        let given = sizes.iter().chain(&more).chain(&own).filter(|(name, _)| has(name));
        let given = given.map(|(name, n)| (name.to_string(), lang::consteval::ConstValue::int(*n))).collect();
        let architecture = Architecture::from_program(program, None, given).unwrap_or_else(|e| panic!("{name}: {e}"));
        let model = Model::new_random(architecture, DType::F32, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(model.full_recompute_reason(), None, "{name}");
        assert_eq!(model.vocabulary(), Some(40), "{name}");
    }
}

fn model_of(program: &ModuleProgram) -> lang::resolve::ItemRef {
    let items = (0..program.files[0].ast.items.len()).map(|item| lang::resolve::ItemRef { file: 0, item });
    let is_model =
        |item: &lang::resolve::ItemRef| program.decl(*item).is_some_and(|decl| decl.kind == lang::ast::DeclKind::Model);
    items.into_iter().find(is_model).expect("a model")
}
