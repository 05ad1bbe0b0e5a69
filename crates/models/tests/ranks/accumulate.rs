//! Gradient accumulation equals one large batch, for any distribution of labels over micro-batches and ranks.

use super::aims::rows_of;
use super::*;
use tensorloom_models::train::Objective;

const ROWS: usize = 8;
const SEQ: usize = 8;

/// The first moment after one step is a tenth of the gradient.
const GRADIENTS: AdamW = AdamW { weight_decay: 0.0, max_grad_norm: 0.0, ..ADAM };

/// A batch for an objective, with a random part of the labels of each row ignored; some rows have none left.
fn masked(aim: &Objective, random: &mut SplitMix64) -> Batch {
    let mut found = rows_of(aim, ROWS, random.below(1 << 20) as u64);
    for row in found.labels.chunks_mut(SEQ) {
        let share = random.below(5);
        for label in row.iter_mut().filter(|label| **label >= 0) {
            if random.below(4) < share {
                *label = -100;
            }
        }
    }
    // At least one label is left.
    if !found.labels.iter().any(|label| *label >= 0) {
        found.labels[SEQ - 1] = 1;
    }
    found
}

/// The loss and the gradients of one step.
fn step(
    how: &ObjectiveOptions<'_>,
    sizes: StepSizes,
    batch: &Batch,
    comm: Option<Arc<Comm>>,
) -> (f32, Vec<NamedTensor>) {
    let mut cpu = Cpu::new(1);
    if let Some(comm) = &comm {
        cpu = cpu.with_communicator(comm.clone());
    }
    let made = LanguageModelTrainer::new(
        llama(&[]),
        None,
        sizes,
        GRADIENTS,
        &ObjectiveOptions { comm: comm.as_ref(), ..*how },
        &cpu,
    );
    let mut trainer = made.unwrap_or_else(|e| panic!("{}: {e}", how.aim));
    let loss = trainer.step(batch, 0.0, 0).unwrap_or_else(|e| panic!("{}: {e}", how.aim)).loss;
    let state = trainer.state().unwrap();
    (loss, state.into_iter().filter(|tensor| tensor.name.starts_with("first.")).collect())
}

fn same(what: &str, found: &(f32, Vec<NamedTensor>), want: &(f32, Vec<NamedTensor>)) {
    assert!((found.0 - want.0).abs() <= 2e-6 * want.0.abs().max(1.0), "{what}: loss {} {}", found.0, want.0);
    let floats = |tensor: &NamedTensor| -> Vec<f32> {
        tensor.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    assert_eq!(found.1.len(), want.1.len(), "{what}");
    for (found, want) in found.1.iter().zip(&want.1) {
        let (a, b) = (floats(found), floats(want));
        let most = b.iter().fold(0f32, |most, x| most.max(x.abs()));
        let off = a.iter().zip(&b).fold(0f32, |off, (a, b)| off.max((a - b).abs()));
        assert!(off <= 1e-5 * most.max(1e-4), "{what}: {} is off by {off} of {most}", want.name);
    }
}

fn aims() -> Vec<(Objective, bool, Option<i32>)> {
    let all = [
        ("next", false, None),
        ("next", false, Some(7)),
        ("dpo,beta=0.5", true, None),
        ("dpo,form=ipo", true, None),
        ("dpo,form=hinge,smoothing=0.2", true, None),
        ("dpo,smoothing=0.2", true, None),
        ("orpo", false, None),
        ("distill,beta=0.5,hard=0.3", true, None),
        ("classify,classes=3", false, None),
        ("mlm", false, None),
    ];
    all.map(|(text, second, end)| (Objective::parse(text).unwrap(), second, end)).into()
}

fn rounds(usual: usize) -> usize {
    std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn accumulated_batches_equal_one_batch() {
    let teacher = model("llama", &[("d_model", 16), ("heads", 2)]);
    let mut random = SplitMix64::new(17, 3);
    for (aim, second, end) in aims() {
        let how = ObjectiveOptions {
            aim,
            end_id: end,
            second_model: second.then_some(&teacher),
            ..ObjectiveOptions::default()
        };
        for _ in 0..rounds(1) {
            let batch = masked(&aim, &mut random);
            let want = step(
                &how,
                StepSizes { micro_batch_size: ROWS, seq_len: SEQ, gradient_accumulation_steps: 1 },
                &batch,
                None,
            );
            for rows in [1, 2, 4] {
                if rows % if matches!(aim, Objective::Dpo { .. } | Objective::Orpo { .. }) { 2 } else { 1 } != 0 {
                    continue;
                }
                let sizes =
                    StepSizes { micro_batch_size: rows, seq_len: SEQ, gradient_accumulation_steps: ROWS / rows };
                same(&format!("{aim} in rows of {rows}"), &step(&how, sizes, &batch, None), &want);
            }
        }
    }
}

#[test]
fn accumulated_batches_equal_one_batch_over_ranks() {
    let teacher = model("llama", &[("d_model", 16), ("heads", 2)]);
    let mut random = SplitMix64::new(18, 3);
    for (aim, second, end) in aims() {
        let how = ObjectiveOptions {
            aim,
            end_id: end,
            second_model: second.then_some(&teacher),
            ..ObjectiveOptions::default()
        };
        let meshes: &[&str] = if aim == Objective::CausalLm { &["dp=2", "pp=2", "dp=2,sp=2"] } else { &["dp=2"] };
        for mesh in meshes.iter().filter(|mesh| end.is_none() || !mesh.contains("pp")) {
            for _ in 0..rounds(1) {
                let batch = masked(&aim, &mut random);
                let want = step(
                    &how,
                    StepSizes { micro_batch_size: ROWS, seq_len: SEQ, gradient_accumulation_steps: 1 },
                    &batch,
                    None,
                );
                let sizes = StepSizes { micro_batch_size: 4, seq_len: SEQ, gradient_accumulation_steps: 2 };
                let ran = thread_transport::spawn(&Mesh::parse(mesh).unwrap(), |comm| {
                    Ok(step(&how, sizes, &batch, Some(comm)))
                });
                same(&format!("{aim} on {mesh}"), &ran.unwrap_or_else(|e| panic!("{mesh}: {e}"))[0], &want);
            }
        }
    }
}
