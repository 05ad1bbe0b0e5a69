//! Continuous batching: a row is bitwise equal to the same sequence alone, and has the tokens of plain generation.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tensorloom_models::{Adapter, Architecture, BatchEngine, BatchOptions, LoraOptions, Model, SplitMix64};

fn fresh(name: &str, sizes: &[(&str, i64)], dtype: DType) -> Arc<Model> {
    let given: BTreeMap<String, ConstValue> = sizes.iter().map(|(k, v)| (k.to_string(), ConstValue::int(*v))).collect();
    let architecture = Architecture::from_library(name, given).unwrap_or_else(|e| panic!("{e}"));
    Arc::new(Model::new_random(architecture, dtype, 5).unwrap_or_else(|e| panic!("{e}")))
}

fn llama(dtype: DType) -> Arc<Model> {
    let sizes = [("vocab_size", 97), ("d_model", 48), ("n_layers", 2), ("heads", 6), ("kv_heads", 2), ("d_ff", 64)];
    fresh("llama", &sizes, dtype)
}

fn golden(name: &str) -> Arc<Model> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    Arc::new(Model::load(&dir, DType::F32).unwrap_or_else(|e| panic!("{e}")))
}

fn slots(model: &Arc<Model>, rows: usize, adapters: &[Adapter]) -> BatchEngine {
    let sizes = BatchOptions { max_batch: rows, max_seq_len: 40, prefill_chunk: 8, prefix_cache_bytes: 1 << 20 };
    BatchEngine::new(model.clone(), adapters, sizes, Arc::new(Cpu::new(2))).unwrap_or_else(|e| panic!("{e}"))
}

fn prompts(model: &Model, count: usize) -> Vec<Vec<i32>> {
    let mut random = SplitMix64::new(11, 0);
    let vocabulary = model.vocabulary().expect("known");
    let shared: Vec<i32> = (0..17).map(|_| random.below(vocabulary) as i32).collect();
    (0..count)
        .map(|i| match i % 3 {
            // Some share a prefix, of whole chunks and more.
            0 => shared[..1 + i % 17].to_vec(),
            _ => (0..1 + random.below(19)).map(|_| random.below(vocabulary) as i32).collect(),
        })
        .collect()
}

fn best(row: &[f32]) -> i32 {
    (0..row.len()).fold(0, |b, i| if row[i] > row[b] { i } else { b }) as i32
}

/// The logits of the prompt, and those of every step.
fn prefill(slots: &mut BatchEngine, prompt: &[i32], adapter: usize) -> Vec<f32> {
    slots.start_prefill(prompt, adapter).unwrap_or_else(|e| panic!("{e}"));
    loop {
        if let Some(logits) = slots.prefill_chunk().unwrap_or_else(|e| panic!("{e}")) {
            slots.admit().unwrap_or_else(|e| panic!("{e}"));
            return logits;
        }
    }
}

/// One sequence alone in a separate batch.
fn alone(slots: &mut BatchEngine, prompt: &[i32], adapter: usize, count: usize) -> Vec<Vec<f32>> {
    assert!(slots.is_empty());
    let mut all = vec![prefill(slots, prompt, adapter)];
    while all.len() < count {
        let next = best(&all[all.len() - 1]);
        all.push(slots.step(&[next]).unwrap_or_else(|e| panic!("{e}")).0);
    }
    slots.evict(0).expect("there");
    all
}

/// Sequences that start and end at different times, as in a server: each step's logits are bitwise equal to those of a lone run.
fn check_together(model: &Arc<Model>, rows: usize, adapters: &[Adapter]) {
    let prompts = prompts(model, 2 * rows + 3);
    let wanted = |i: usize| 3 + i % 9;
    let adapter = |i: usize| i % (adapters.len() + 1);
    let mut lone = slots(model, rows, adapters);
    let expected: Vec<Vec<Vec<f32>>> =
        prompts.iter().enumerate().map(|(i, prompt)| alone(&mut lone, prompt, adapter(i), wanted(i))).collect();
    let mut slots = slots(model, rows, adapters);
    let mut waiting: Vec<usize> = (0..prompts.len()).rev().collect();
    // The sequence of each row, and its results so far.
    let mut running: Vec<(usize, Vec<Vec<f32>>)> = Vec::new();
    let mut finished = 0;
    while finished < prompts.len() {
        if slots.has_room()
            && let Some(i) = waiting.pop()
        {
            running.push((i, vec![prefill(&mut slots, &prompts[i], adapter(i))]));
        }
        let next: Vec<i32> = running.iter().map(|(_, given)| best(&given[given.len() - 1])).collect();
        let (logits, width) = slots.step(&next).unwrap_or_else(|e| panic!("{e}"));
        for ((_, given), row) in running.iter_mut().zip(logits.chunks_exact(width)) {
            given.push(row.to_vec());
        }
        for row in (0..running.len()).rev() {
            let (i, given) = &running[row];
            if given.len() == wanted(*i) {
                assert!(*given == expected[*i], "sequence {i} in row {row} of {}", running.len());
                slots.evict(row).expect("there");
                running.swap_remove(row);
                finished += 1;
            }
        }
    }
}

#[test]
fn a_row_has_the_bits_of_a_lone_sequence() {
    check_together(&llama(DType::F32), 9, &[]);
    check_together(&llama(DType::BF16), 4, &[]);
    let mixtral = [("vocab_size", 61), ("d_model", 32), ("n_layers", 2), ("heads", 4), ("kv_heads", 2), ("d_ff", 48)];
    check_together(&fresh("mixtral", &mixtral, DType::F32), 3, &[]);
    let mamba = [("vocab_size", 61), ("d_model", 32), ("n_layers", 2)];
    check_together(&fresh("mamba", &mamba, DType::F32), 3, &[]);
}

/// Wide enough for blocked products and reductions over several vectors.
#[test]
fn a_row_has_the_bits_of_a_lone_sequence_at_real_widths() {
    let sizes =
        [("vocab_size", 1000), ("d_model", 896), ("n_layers", 1), ("heads", 14), ("kv_heads", 2), ("d_ff", 1300)];
    check_together(&fresh("qwen2", &sizes, DType::F32), 17, &[]);
}

#[test]
fn rows_give_the_tokens_of_plain_generation() {
    let cpu = Cpu::new(2);
    for name in ["llama", "gpt2", "qwen2", "gemma", "gpt_neox", "phi3", "mamba"] {
        let model = golden(name);
        let prompts = prompts(&model, 5);
        let mut slots = slots(&model, 5, &[]);
        let mut found: Vec<Vec<i32>> = Vec::new();
        for prompt in &prompts {
            let logits = prefill(&mut slots, prompt, 0);
            found.push(vec![best(&logits)]);
        }
        for _ in 1..10 {
            let next: Vec<i32> = found.iter().map(|ids| ids[ids.len() - 1]).collect();
            let (logits, width) = slots.step(&next).unwrap_or_else(|e| panic!("{e}"));
            found.iter_mut().zip(logits.chunks_exact(width)).for_each(|(ids, row)| ids.push(best(row)));
        }
        for (prompt, found) in prompts.iter().zip(&found) {
            let plain = model.generate_greedy(prompt, 10, &cpu).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(*found, plain.ids, "{name}");
        }
    }
}

#[test]
fn several_adapters_stand_in_one_batch() {
    let model = llama(DType::F32);
    let mut adapters = Vec::new();
    for (n, text) in ["rank=4,alpha=8,targets=q,v", "rank=2,alpha=6,targets=q,o,up"].iter().enumerate() {
        let options = LoraOptions::parse(text).expect("valid");
        let mut adapter = Adapter::new_untrained(&model, "base", &options, 3).expect("fits");
        let mut random = SplitMix64::new(n as u64, 9);
        adapter.fill(|_| (random.uniform() - 0.5) as f32);
        adapters.push(adapter);
    }
    check_together(&model, 5, &adapters);
    // Each row equals the merged model.
    let cpu = Cpu::new(2);
    let mut slots = slots(&model, 4, &adapters);
    for (i, prompt) in prompts(&model, 6).iter().enumerate() {
        let logits = alone(&mut slots, prompt, i % 3, 8);
        let mut merged = Model::clone(&model);
        if i % 3 > 0 {
            merged.merge(&adapters[i % 3 - 1]).expect("fits");
        }
        let plain = merged.generate_greedy(prompt, 8, &cpu).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(logits.iter().map(|row| best(row)).collect::<Vec<_>>(), plain.ids, "{i}");
    }
}

#[test]
fn beginnings_are_taken_over() {
    let model = llama(DType::F32);
    let mut slots = slots(&model, 2, &[]);
    let prompt: Vec<i32> = (0..30).map(|i| (i * 7) % 97).collect();
    assert_eq!(slots.start_prefill(&prompt, 0).expect("fits"), 0);
    let first = loop {
        if let Some(logits) = slots.prefill_chunk().expect("runs") {
            break logits;
        }
    };
    slots.cancel_prompt();
    assert_eq!(slots.start_prefill(&prompt, 0).expect("fits"), 24);
    assert_eq!(slots.prefill_chunk().expect("runs"), Some(first));
    // At least one token is prefilled, and a different prefix is not reused.
    assert_eq!(slots.start_prefill(&prompt[..24], 0).expect("fits"), 16);
    let other: Vec<i32> = std::iter::once(5).chain(prompt[1..].iter().copied()).collect();
    assert_eq!(slots.start_prefill(&other, 0).expect("fits"), 0);
    assert!(slots.prefix_bytes() > 0);
}

/// A step of the first rows leaves the others unchanged, in any order of the rows.
#[test]
fn some_rows_may_pause() {
    let mamba = [("vocab_size", 61), ("d_model", 32), ("n_layers", 2)];
    for model in [llama(DType::F32), fresh("mamba", &mamba, DType::F32)] {
        let prompts = prompts(&model, 7);
        let mut lone = slots(&model, 7, &[]);
        let expected: Vec<_> = prompts.iter().map(|prompt| alone(&mut lone, prompt, 0, 12)).collect();
        let mut slots = slots(&model, 7, &[]);
        let mut running: Vec<(usize, Vec<Vec<f32>>)> =
            prompts.iter().enumerate().map(|(i, prompt)| (i, vec![prefill(&mut slots, prompt, 0)])).collect();
        let mut random = SplitMix64::new(4, 4);
        while running.iter().any(|(_, given)| given.len() < 12) {
            // Rows that need more tokens come first.
            let mut order: Vec<usize> = (0..running.len()).collect();
            order.sort_by_key(|row| (running[*row].1.len() >= 12, random.below(100)));
            slots.reorder_cache(&order).expect("there");
            running = order.iter().map(|row| running[*row].clone()).collect();
            let count = slots.step_width(1 + random.below(7));
            assert!(slots.step(&vec![0; 8]).is_err() && slots.step(&[0; 3]).is_err());
            let next: Vec<i32> = running[..count].iter().map(|(_, given)| best(&given[given.len() - 1])).collect();
            let (logits, width) = slots.step(&next).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(logits.len(), width * count);
            for ((_, given), row) in running.iter_mut().zip(logits.chunks_exact(width)) {
                given.push(row.to_vec());
            }
        }
        for (i, given) in &running {
            assert!(given[..12] == expected[*i], "sequence {i}");
        }
    }
}

/// The prefix cache respects its limit and the size of the row caches, and evicts the least recently used pages.
#[test]
fn memory_of_prefixes_is_bounded() {
    let model = llama(DType::F32);
    // Bytes of 8 positions: keys and values of 2 layers with 2 heads of 8 numbers.
    let page = 8 * 2 * 2 * 2 * 8 * 4;
    for (prefixes, rows, most) in [(0, 2, 0), (3 * (page + 160), 8, 3), (1 << 30, 2, 9)] {
        let sizes = BatchOptions { max_batch: rows, max_seq_len: 40, prefill_chunk: 8, prefix_cache_bytes: prefixes };
        let mut slots =
            BatchEngine::new(model.clone(), &[], sizes, Arc::new(Cpu::new(2))).unwrap_or_else(|e| panic!("{e}"));
        slots.warmup().unwrap_or_else(|e| panic!("{e}"));
        for round in 0..8 {
            let prompt: Vec<i32> = (0..17).map(|i| (i * 7 + round) % 97).collect();
            prefill(&mut slots, &prompt, 0);
            slots.evict(0).expect("there");
            let known = slots.start_prefill(&prompt, 0).expect("fits");
            slots.cancel_prompt();
            assert_eq!(known, 8 * most.min(2), "{prefixes}");
        }
        assert_eq!(slots.prefix_bytes(), most * page, "{prefixes}");
    }
}

#[test]
fn caches_are_changed_in_place() {
    let (done, all) = slots(&llama(DType::F32), 4, &[]).in_place().expect("compiles");
    assert_eq!((done, all), (4, 4));
}

#[test]
fn embeddings_are_means_of_states_and_depend_on_the_text() {
    let model = llama(DType::F32);
    let mut slots = slots(&model, 2, &[]);
    let ids: Vec<i32> = (0..39).map(|i| (i * 5) % 97).collect();
    let mut last: Vec<f32> = Vec::new();
    for n in [1, 7, 8, 9, 32, 33, 39] {
        let found = slots.embed(&ids[..n], 0).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.len(), 48);
        let length: f32 = found.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5 && found != last, "{n}");
        last = found;
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let model = llama(DType::F32);
    let mut slots = slots(&model, 2, &[]);
    for (ids, adapter) in [(vec![], 0), (vec![97], 0), (vec![-1], 0), (vec![1; 40], 0), (vec![1], 1)] {
        assert!(slots.start_prefill(&ids, adapter).is_err(), "{ids:?} {adapter}");
    }
    assert!(
        slots.step(&[]).is_err() && slots.prefill_chunk().is_err() && slots.admit().is_err() && slots.evict(0).is_err()
    );
    prefill(&mut slots, &[1; 39], 0);
    assert!(slots.step(&[1]).is_ok() && slots.step(&[1]).is_err());
    assert!(
        BatchEngine::new(
            model,
            &[],
            BatchOptions { max_batch: 1 << 40, ..BatchOptions::default() },
            Arc::new(Cpu::new(1))
        )
        .is_err()
    );
}
