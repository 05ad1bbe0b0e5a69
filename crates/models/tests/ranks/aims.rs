//! Other objectives than the next token, on several ranks: preferences, distillation, classes, masked tokens, contrastive pairs.

use super::*;
use tensorloom_models::train::Objective;

const SIZES: StepSizes = StepSizes { micro_batch_size: 4, seq_len: 8, gradient_accumulation_steps: 2 };

/// Rows for an objective.
pub(super) fn rows_of(aim: &Objective, rows: usize, seed: u64) -> Batch {
    let seq = SIZES.seq_len;
    let mut found = batch(rows, seq, seed);
    match aim {
        Objective::Classify { classes } => {
            let last: Vec<i32> = (0..rows).map(|r| found.labels[r * seq].rem_euclid(*classes as i32)).collect();
            found.labels.fill(-100);
            last.iter().enumerate().for_each(|(r, class)| found.labels[r * seq + seq - 1 - r % 3] = *class);
        }
        Objective::MaskedLm { .. } => {
            for (i, label) in found.labels.iter_mut().enumerate().filter(|(i, _)| i % 3 != 0) {
                *label = if i % 5 == 0 { found.ids[i] } else { -100 };
            }
        }
        Objective::Contrastive { .. } => {
            for (r, row) in found.labels.chunks_mut(seq).enumerate() {
                row.iter_mut().enumerate().for_each(|(i, label)| *label = if i < seq - r % 4 { 1 } else { -101 });
            }
        }
        _ => {}
    }
    found
}

fn run_aim(how: &ObjectiveOptions<'_>, backend: &Cpu, comm: Option<Arc<Comm>>) -> (Ran, Vec<NamedTensor>) {
    let made = LanguageModelTrainer::new(
        llama(&[]),
        None,
        SIZES,
        ADAM,
        &ObjectiveOptions { comm: comm.as_ref(), ..*how },
        backend,
    );
    let mut trainer = made.unwrap_or_else(|e| panic!("{}: {e}", how.aim));
    let mut losses = Vec::new();
    for step in 0..3 {
        let batch = rows_of(&how.aim, SIZES.micro_batch_size * SIZES.gradient_accumulation_steps, step as u64);
        let found = trainer.step(&batch, 1e-2, step).unwrap_or_else(|e| panic!("{}: {e}", how.aim));
        losses.push((found.loss, found.grad_norm));
    }
    let valid = trainer.validate(&[rows_of(&how.aim, SIZES.micro_batch_size, 99)], backend).unwrap();
    let heads = trainer.heads().unwrap();
    let ran = Ran { losses, valid, state: trainer.state().unwrap(), sent: 0, calls: 0, bytes: 0 };
    (ran, heads)
}

#[test]
fn other_aims_have_the_losses_of_one_process() {
    let teacher = model("llama", &[("d_model", 16), ("heads", 2)]);
    for (text, second) in [
        ("dpo,beta=0.5", false),
        ("dpo,form=ipo", true),
        ("orpo", false),
        ("distill,beta=0.5,hard=0.3", true),
        ("classify,classes=3", false),
        ("mlm", false),
        ("contrast", false),
    ] {
        let aim = Objective::parse(text).unwrap();
        let how = ObjectiveOptions { aim, second_model: second.then_some(&teacher), ..ObjectiveOptions::default() };
        let (want, own) = run_aim(&how, &Cpu::new(1), None);
        for mesh in ["dp=2", "fsdp=2", "tp=2", "sp=2", "dp=2,tp=2"] {
            let parsed = Mesh::parse(mesh).unwrap();
            let ran = thread_transport::spawn(&parsed, |comm| {
                Ok(run_aim(&how, &Cpu::new(1).with_communicator(comm.clone()), Some(comm)))
            });
            let ran = ran.unwrap_or_else(|e| panic!("{text} on {mesh}: {e}"));
            let (found, heads): (Vec<Ran>, Vec<_>) = ran.into_iter().unzip();
            same_numbers(&format!("{text} on {mesh}"), &found, &want);
            for (a, b) in heads[0].iter().zip(&own) {
                assert_eq!((&a.name, &a.shape, a.bytes.len()), (&b.name, &b.shape, b.bytes.len()), "{text} on {mesh}");
            }
        }
        let pipeline = Mesh::parse("pp=2").unwrap();
        let said = thread_transport::spawn(&pipeline, |comm| {
            let backend = Cpu::new(1).with_communicator(comm.clone());
            let how = ObjectiveOptions { comm: Some(&comm), ..how };
            Ok(LanguageModelTrainer::new(llama(&[]), None, SIZES, ADAM, &how, &backend).err().map(|e| e.to_string()))
        });
        let said = said.unwrap().remove(0).unwrap_or_default();
        assert!(
            said.contains("does not support pipeline parallelism")
                && said.contains(aim.to_string().split(',').next().unwrap())
        );
    }
}
