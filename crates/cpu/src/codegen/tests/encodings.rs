//! Checks encodings by disassembly.

use crate::codegen::asm::{Asm, Evex, PMem, PRm, W};
use crate::codegen::enc::{self, Kind};
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, NasmFormatter};

pub(super) fn text(bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut out = vec![];
    let mut i = Instruction::default();
    let mut f = NasmFormatter::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut i);
        let mut s = String::new();
        f.format(&i, &mut s);
        out.push(s);
    }
    out
}

#[test]
fn every_entry_is_the_instruction_of_its_name() {
    let base = PRm::M(PMem::At { base: 13, index: Some((10, 4)), disp: 0x100 });
    for (name, e) in enc::ALL {
        for w in [W::X, W::Y, W::Z] {
            let narrow_only = e.vex_l.is_some() && w != W::X;
            let wide_only =
                ["PERMD", "PERMQ_I", "EXTRACTF128", "INSERTF128", "EXTRACTF32X4"].contains(name) && w == W::X;
            let bad = (e.kind == Kind::Vex && w == W::Z)
                || narrow_only
                || wide_only
                || (["EXTRACTF32X8", "INSERTF32X8"].contains(name) && w != W::Z)
                || (*name == "BROADCASTSD" && w == W::X);
            if bad {
                continue;
            }
            let memory_only =
                ["MASKMOV", "GATHER", "MOVSS", "MOVSD"].iter().any(|p| name.starts_with(p)) || name.ends_with("_ST");
            let no_memory = ["PMOVM2", "KAND", "KOR", "KX", "KNOT", "KMOVW_FROM", "KMOVW_TO", "MOVMSK"]
                .iter()
                .any(|p| name.starts_with(p));
            let imm = [
                "CMP",
                "KCMP",
                "PCMPD",
                "PCMPU",
                "PCMPQ",
                "ROUND",
                "RNDSCALE",
                "GETMANT",
                "PSHUFD",
                "SHUFPS",
                "EXTRACT",
                "INSERT",
                "PINSR",
                "PEXTR",
                "PERMILPS_I",
                "PERMQ_I",
                "BLENDV",
                "CVTPS2PH",
            ]
            .iter()
            .any(|p| name.starts_with(p))
                || e.ext.is_some();
            for memory in [false, true] {
                if memory && (no_memory || e.ext.is_some() && e.kind == Kind::Both && w != W::Z)
                    || !memory && memory_only
                {
                    continue;
                }
                let gather = name.starts_with("GATHER");
                let evex_gather = gather && w == W::Z;
                let three = !matches!(
                    *name,
                    "MOVUPS" | "MOVUPD" | "MOVAPS" | "SQRTPS" | "SQRTPD" | "RCPPS" | "RCP14PS" | "PABSD"
                );
                let vvvv = if gather {
                    if evex_gather { 0 } else { 2 }
                } else if three && takes_two(name) {
                    5
                } else {
                    0
                };
                let mut asm = Asm::default();
                let rm = if memory { base } else { PRm::R(3) };
                let x = Evex { vsib: gather, mask: if evex_gather { 1 } else { 0 }, ..Evex::default() };
                asm.vec(e, w, e.ext.unwrap_or(1), vvvv, rm, imm.then_some(1), x);
                let got = text(&asm.buf);
                let stem = name
                    .trim_end_matches("_ST")
                    .trim_end_matches("_I")
                    .trim_end_matches("_FROM")
                    .trim_end_matches("_TO")
                    .to_lowercase();
                let stem = stem.strip_prefix('k').filter(|s| s.starts_with("cmp")).unwrap_or(&stem).to_owned();
                let ok = got.len() == 1 && {
                    let op = got[0].split(' ').next().unwrap().trim_start_matches('v').to_owned();
                    let fits = |a: &str| {
                        let tail = stem.strip_prefix(a);
                        op.starts_with(a) && tail.is_some()
                    };
                    op == stem
                        || op.starts_with(&stem)
                        || stem.strip_suffix('d').is_some_and(|s| op == s)
                        || stem.strip_suffix('q').is_some_and(|s| op == s)
                        || (stem.starts_with("cmp") && fits("cmp"))
                        || (stem.starts_with("pcmp") && op.starts_with("pcmp"))
                };
                assert!(ok, "{name} {w:?} memory={memory}: {got:?} {:02x?}", asm.buf);
            }
        }
    }
}

fn takes_two(name: &str) -> bool {
    let one = [
        "MOV",
        "BROADCAST",
        "PBROADCAST",
        "ROUND",
        "RNDSCALE",
        "GETEXP",
        "GETMANT",
        "PMOV",
        "CVT",
        "EXTRACT",
        "INSERT",
        "PEXTR",
        "PSHUFD",
        "PERMQ_I",
        "PERMILPS_I",
        "KMOV",
        "KNOT",
    ];
    !one.iter().any(|p| name.starts_with(p))
}
