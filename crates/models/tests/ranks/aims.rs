//! Other aims than the next token, on several ranks: preferences, a teacher, classes, masked ids, texts and their like.

use super::*;
use tensorloom_models::train::Aim;

const SIZES: StepSizes = StepSizes { rows: 4, seq: 8, accumulate: 2 };

/// Rows as an aim wants them.
pub(super) fn rows_of(aim: &Aim, rows: usize, seed: u64) -> Batch {
    let seq = SIZES.seq;
    let mut found = batch(rows, seq, seed);
    match aim {
        Aim::Classify { classes } => {
            let last: Vec<i32> = (0..rows).map(|r| found.labels[r * seq].rem_euclid(*classes as i32)).collect();
            found.labels.fill(-100);
            last.iter().enumerate().for_each(|(r, class)| found.labels[r * seq + seq - 1 - r % 3] = *class);
        }
        Aim::Masked { .. } => {
            for (i, label) in found.labels.iter_mut().enumerate().filter(|(i, _)| i % 3 != 0) {
                *label = if i % 5 == 0 { found.ids[i] } else { -100 };
            }
        }
        Aim::Contrast { .. } => {
            for (r, row) in found.labels.chunks_mut(seq).enumerate() {
                row.iter_mut().enumerate().for_each(|(i, label)| *label = if i < seq - r % 4 { 1 } else { -101 });
            }
        }
        _ => {}
    }
    found
}

fn run_aim(how: &How<'_>, backend: &Cpu, comm: Option<Arc<Comm>>) -> (Ran, Vec<NamedTensor>) {
    let made = Trainer::new(llama(&[]), None, SIZES, ADAM, &How { comm: comm.as_ref(), ..*how }, backend);
    let mut trainer = made.unwrap_or_else(|e| panic!("{}: {e}", how.aim));
    let mut losses = Vec::new();
    for step in 0..3 {
        let batch = rows_of(&how.aim, SIZES.rows * SIZES.accumulate, step as u64);
        let found = trainer.step(&batch, 1e-2, step).unwrap_or_else(|e| panic!("{}: {e}", how.aim));
        losses.push((found.loss, found.norm));
    }
    let valid = trainer.validate(&[rows_of(&how.aim, SIZES.rows, 99)], backend).unwrap();
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
        let aim = Aim::parse(text).unwrap();
        let how = How { aim, second: second.then_some(&teacher), ..How::default() };
        let (want, own) = run_aim(&how, &Cpu::new(1), None);
        for mesh in ["dp=2", "fsdp=2", "tp=2", "sp=2", "dp=2,tp=2"] {
            let parsed = Mesh::parse(mesh).unwrap();
            let ran = local::spawn(&parsed, |comm| {
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
        let said = local::spawn(&pipeline, |comm| {
            let backend = Cpu::new(1).with_communicator(comm.clone());
            let how = How { comm: Some(&comm), ..how };
            Ok(Trainer::new(llama(&[]), None, SIZES, ADAM, &how, &backend).err().map(|e| e.to_string()))
        });
        let said = said.unwrap().remove(0).unwrap_or_default();
        assert!(
            said.contains("can't be trained as a pipeline")
                && said.contains(aim.to_string().split(',').next().unwrap())
        );
    }
}
