//! Expert all-to-all: compares the traffic with theory.

use super::*;

/// Four exchanges per layer, two of them in the backward pass, each sends a token to the other ranks with its experts: at most `k`.
#[test]
fn tokens_go_to_the_ranks_of_their_experts_alone() {
    const SIZES: StepSizes = StepSizes { micro_batch_size: 8, seq_len: 16, gradient_accumulation_steps: 1 };
    for (mesh, top_k) in [("ep=4", 1), ("ep=4", 2), ("ep=8", 2), ("dp=2,ep=4", 1)] {
        let model = || model("mixtral", &[("experts", 8), ("top_k", top_k)]);
        let want = alone(model(), SIZES, 2);
        let parsed = Mesh::parse(mesh).unwrap();
        let ran = thread_transport::spawn(&parsed, |comm| {
            let backend = Cpu::new(1).with_communicator(comm.clone());
            let how = ObjectiveOptions { comm: Some(&comm), ..ObjectiveOptions::default() };
            let made = LanguageModelTrainer::new(model(), None, SIZES, ADAM, &how, &backend);
            let mut trainer = made.unwrap_or_else(|e| panic!("{mesh}: {e}"));
            let mut losses = Vec::new();
            for step in 0..2 {
                let found =
                    trainer.step(&batch(SIZES.micro_batch_size, SIZES.seq_len, step as u64), 1e-2, step).unwrap();
                losses.push(found.loss);
            }
            Ok((losses, comm.traffic().by_kind))
        });
        let ran = ran.unwrap_or_else(|e| panic!("{mesh}: {e}"));
        let (mut sent, mut calls) = (0, 0);
        for (losses, traffic) in &ran {
            losses.iter().zip(&want.losses).for_each(|(got, want)| close(*got, want.0, mesh));
            let (own_calls, bytes) = traffic.get("all_to_all").copied().unwrap_or_default();
            (sent, calls) = (sent + bytes, own_calls);
        }
        let (layers, width, steps) = (2, 32, 2);
        assert_eq!(calls, 4 * layers * steps, "{mesh}");
        let ep = parsed.axis("ep").unwrap().size;
        // Gathering would send every token to every other rank.
        let token = SIZES.micro_batch_size * SIZES.seq_len * width * 4 * 4 * layers * steps;
        let (most, all) = (token * (top_k as usize).min(ep - 1), token * (ep - 1));
        println!("{mesh}, {top_k} of 8: {sent} bytes sent, at most {most}, by gathering {all}");
        // One bit per block of 64 bytes is always sent.
        let bits = all / 512 + 64 * calls * ran.len();
        assert!(sent <= most + bits, "{mesh}, {top_k} of 8: {sent} bytes sent, theory says {most}");
        assert!(sent >= token * (ep - 1) / ep / 2, "{mesh}: {sent} bytes are less than one expert's");
    }
}
