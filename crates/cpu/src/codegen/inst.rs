//! Machine instructions over virtual registers, in program order with labels and loop markers.
//!
//! A virtual register may be assigned more than once (carried values, the arms of a branch). The register allocator
//! only requires that its first assignment precedes every use in program order.

use super::asm::{Alu, Cc, W};
use super::enc::Enc;

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct V(pub(crate) u32);

impl V {
    /// No register.
    pub(crate) const NONE: V = V(u32::MAX);

    pub(crate) fn some(self) -> Option<V> {
        (self != V::NONE).then_some(self)
    }
}

/// The register files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Gpr,
    Vec,
    /// AVX-512 mask registers.
    Mask,
}

/// The base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Reg(V),
    /// A byte offset into the frame's transfer area.
    Frame,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem {
    pub(crate) base: Base,
    pub(crate) index: Option<(V, u8)>,
    pub(crate) disp: i32,
}

impl Mem {
    pub(crate) fn base(v: V, disp: i32) -> Mem {
        Mem { base: Base::Reg(v), index: None, disp }
    }

    pub(crate) fn frame(disp: i32) -> Mem {
        Mem { base: Base::Frame, index: None, disp }
    }

    pub(crate) fn plus(self, d: i32) -> Mem {
        Mem { disp: self.disp + d, ..self }
    }
}

/// The second source of a vector instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rm {
    R(V),
    M(Mem),
    /// A constant in every lane, by pool entry.
    C(u32),
}

impl From<V> for Rm {
    fn from(v: V) -> Rm {
        Rm::R(v)
    }
}

/// The signs of a fused multiply-add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FmaKind {
    /// `a * b + c`.
    Add,
    /// `a * b - c`.
    Sub,
    /// `c - a * b`.
    Neg,
}

/// A general-purpose source operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Src {
    R(V),
    I(i32),
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inst {
    /// `dst = enc(a, b, imm)`; lanes off the mask are zeroed.
    Vec {
        enc: &'static Enc,
        w: W,
        dst: V,
        a: V,
        b: Rm,
        imm: Option<u8>,
        mask: V,
    },
    /// `dst = ±a * b ± c`.
    Fma {
        kind: FmaKind,
        wide: bool,
        w: W,
        dst: V,
        a: V,
        b: Rm,
        c: Rm,
    },
    /// AVX2's `dst = mask ? b : a`.
    Blendv {
        wide: bool,
        w: W,
        dst: V,
        a: V,
        b: Rm,
        mask: V,
    },
    /// AVX-512's `dst = mask ? b : a`.
    Blendm {
        enc: &'static Enc,
        w: W,
        dst: V,
        a: V,
        b: Rm,
        mask: V,
    },
    /// `mem = src`.
    Store {
        enc: &'static Enc,
        w: W,
        src: V,
        mem: Mem,
        mask: V,
        imm: Option<u8>,
    },
    /// Loads lanes on the mask from `mem + scale * index`; `dst` initially contains the other lanes.
    Gather {
        enc: &'static Enc,
        w: W,
        dst: V,
        mask: V,
        base: V,
        disp: i32,
        index: V,
        scale: u8,
    },
    /// AVX-512's permutation of the lanes of `dst` and `b` by lane number; the numbers of `b` follow those of `dst`.
    Permute {
        enc: &'static Enc,
        w: W,
        dst: V,
        index: V,
        b: Rm,
    },
    /// A copy within one register file.
    Mov {
        dst: V,
        src: V,
    },
    Imm {
        dst: V,
        imm: i64,
    },
    Load {
        dst: V,
        mem: Mem,
        size: u8,
        signed: bool,
    },
    StoreG {
        src: V,
        mem: Mem,
        size: u8,
    },
    /// `dst = dst op src` (or only flags for `cmp`).
    Alu {
        op: Alu,
        dst: V,
        src: Src,
    },
    Imul {
        dst: V,
        src: Src,
    },
    Lea {
        dst: V,
        mem: Mem,
    },
    Shift {
        op: u8,
        dst: V,
        imm: u8,
    },
    Cmov {
        cc: Cc,
        dst: V,
        src: V,
    },
    Test {
        a: V,
        b: V,
    },
    Bt {
        a: V,
        bit: V,
    },
    /// The low `n` bits set.
    LowBits {
        dst: V,
        n: V,
    },
    /// 64-bit division or remainder with XLA's semantics.
    DivRem {
        dst: V,
        a: V,
        b: V,
        signed: bool,
        rem: bool,
    },
    Jcc {
        cc: Cc,
        label: u32,
    },
    Jmp {
        label: u32,
    },
    Label {
        label: u32,
    },
    /// The target of a loop's back edge.
    LoopBegin {
        label: u32,
    },
    /// The last instruction of a loop, after its back edge.
    LoopEnd,
    /// Calls the lane helper on the transfer area; every register survives.
    Call {
        code: u32,
    },
}

/// How an instruction accesses a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Use,
    /// A use that is still needed while the result is written.
    LateUse,
    Def,
    UseDef,
}

impl Inst {
    /// Calls `f` with every register and its role, uses before definitions.
    pub(crate) fn visit(&self, mut f: impl FnMut(V, Role)) {
        fn mem(m: &Mem, f: &mut impl FnMut(V, Role)) {
            if let Base::Reg(b) = m.base {
                f(b, Role::Use);
            }
            if let Some((i, _)) = m.index {
                f(i, Role::Use);
            }
        }
        fn rm(r: &Rm, f: &mut impl FnMut(V, Role)) {
            match r {
                Rm::R(v) => f(*v, Role::Use),
                Rm::M(m) => mem(m, f),
                Rm::C(_) => {}
            }
        }
        match self {
            Inst::Vec { dst, a, b, mask, .. } => {
                if let Some(a) = a.some() {
                    f(a, Role::Use);
                }
                rm(b, &mut f);
                if let Some(m) = mask.some() {
                    f(m, Role::Use);
                }
                f(*dst, Role::Def);
            }
            Inst::Fma { dst, a, b, c, .. } => {
                f(*a, Role::Use);
                rm(b, &mut f);
                rm(c, &mut f);
                f(*dst, Role::Def);
            }
            Inst::Blendv { dst, a, b, mask, .. } | Inst::Blendm { dst, a, b, mask, .. } => {
                f(*a, Role::Use);
                rm(b, &mut f);
                f(*mask, Role::Use);
                f(*dst, Role::Def);
            }
            Inst::Store { src, mem: m, mask, .. } => {
                f(*src, Role::Use);
                mem(m, &mut f);
                if let Some(m) = mask.some() {
                    f(m, Role::Use);
                }
            }
            Inst::Gather { dst, mask, base, index, .. } => {
                f(*base, Role::LateUse);
                f(*index, Role::LateUse);
                f(*mask, Role::LateUse);
                f(*dst, Role::UseDef);
            }
            Inst::Permute { dst, index, b, .. } => {
                f(*index, Role::LateUse);
                rm(b, &mut |v, _| f(v, Role::LateUse));
                f(*dst, Role::UseDef);
            }
            Inst::Mov { dst, src } => {
                f(*src, Role::Use);
                f(*dst, Role::Def);
            }
            Inst::Imm { dst, .. } => f(*dst, Role::Def),
            Inst::Load { dst, mem: m, .. } | Inst::Lea { dst, mem: m } => {
                mem(m, &mut f);
                f(*dst, Role::Def);
            }
            Inst::StoreG { src, mem: m, .. } => {
                f(*src, Role::Use);
                mem(m, &mut f);
            }
            Inst::Alu { op, dst, src } => {
                if let Src::R(v) = src {
                    f(*v, Role::Use);
                }
                f(*dst, if *op == Alu::Cmp { Role::Use } else { Role::UseDef });
            }
            Inst::Imul { dst, src } => {
                if let Src::R(v) = src {
                    f(*v, Role::Use);
                }
                f(*dst, Role::UseDef);
            }
            Inst::Shift { dst, .. } => f(*dst, Role::UseDef),
            Inst::Cmov { dst, src, .. } => {
                f(*src, Role::Use);
                f(*dst, Role::UseDef);
            }
            Inst::Test { a, b } | Inst::Bt { a, bit: b } => {
                f(*a, Role::Use);
                f(*b, Role::Use);
            }
            Inst::LowBits { dst, n } => {
                f(*n, Role::Use);
                f(*dst, Role::Def);
            }
            Inst::DivRem { dst, a, b, .. } => {
                f(*a, Role::LateUse);
                f(*b, Role::LateUse);
                f(*dst, Role::Def);
            }
            Inst::Jcc { .. }
            | Inst::Jmp { .. }
            | Inst::Label { .. }
            | Inst::LoopBegin { .. }
            | Inst::LoopEnd
            | Inst::Call { .. } => {}
        }
    }
}
