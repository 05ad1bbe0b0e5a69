//! Encodes x86-64 instructions: VEX, EVEX and the general-purpose forms, with labels and constant references.

use super::enc::{Enc, Kind, Tuple};

/// Vector width.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum W {
    /// 128 bits.
    X = 0,
    /// 256 bits.
    Y = 1,
    /// 512 bits.
    Z = 2,
}

impl W {
    /// Returns the narrowest width of at least this many bytes.
    pub(crate) fn of_bytes(n: usize) -> W {
        match n {
            0..=16 => W::X,
            17..=32 => W::Y,
            _ => W::Z,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        16 << self as usize
    }
}

/// A memory operand over physical registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PMem {
    /// `[base + index * scale + disp]`; the index is a vector register in gathers.
    At { base: u8, index: Option<(u8, u8)>, disp: i32 },
    /// An entry of the constant pool, by byte offset.
    Pool(u32),
}

/// A register or memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PRm {
    R(u8),
    M(PMem),
}

/// The additional fields of an EVEX instruction.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Evex {
    pub(crate) mask: u8,
    pub(crate) zeroing: bool,
    pub(crate) broadcast: bool,
    /// Whether the memory operand's index is a vector register.
    pub(crate) vsib: bool,
}

pub(crate) const RAX: u8 = 0;
pub(crate) const RCX: u8 = 1;
pub(crate) const RDX: u8 = 2;
pub(crate) const RSP: u8 = 4;
pub(crate) const RBP: u8 = 5;
pub(crate) const RSI: u8 = 6;
pub(crate) const RDI: u8 = 7;

/// Condition codes of `jcc`, `cmovcc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cc {
    /// No carry: the bit that `bt` tested is off.
    Ae = 3,
    E = 4,
    Ne = 5,
    L = 12,
    Ge = 13,
    G = 15,
}

/// Two-operand integer instructions; the value is the `81 /n` extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Cmp = 7,
}

/// The code of a kernel while it is assembled.
#[derive(Default)]
pub(crate) struct Asm {
    pub(crate) buf: Vec<u8>,
    labels: Vec<u32>,
    jumps: Vec<(u32, u32)>,
    pool_refs: Vec<(u32, u32)>,
}

impl Asm {
    fn b(&mut self, byte: u8) {
        self.buf.push(byte);
    }

    fn d(&mut self, x: i32) {
        self.buf.extend_from_slice(&x.to_le_bytes());
    }

    /// Encodes ModRM, SIB and displacement. `n` is the unit of a compressed displacement (1 for VEX and legacy forms).
    fn operand(&mut self, reg: u8, rm: PRm, n: i32, imm_len: u32) {
        let reg = (reg & 7) << 3;
        match rm {
            PRm::R(r) => self.b(0xc0 | reg | (r & 7)),
            PRm::M(PMem::Pool(offset)) => {
                self.b(reg | 5);
                self.pool_refs.push((self.buf.len() as u32, offset));
                // The displacement counts from the end of the instruction.
                self.d(4 + imm_len as i32);
            }
            PRm::M(PMem::At { base, index, disp }) => {
                let short = disp % n == 0 && (-128..128).contains(&(disp / n));
                let mode = match disp {
                    0 if base & 7 != 5 => 0,
                    _ if short => 0x40,
                    _ => 0x80,
                };
                match index {
                    Some((i, scale)) => {
                        self.b(mode | reg | 4);
                        self.b((scale.trailing_zeros() as u8) << 6 | (i & 7) << 3 | (base & 7));
                    }
                    None if base & 7 == 4 => {
                        self.b(mode | reg | 4);
                        self.b(0x24);
                    }
                    None => self.b(mode | reg | (base & 7)),
                }
                match mode {
                    0x40 => self.b((disp / n) as u8),
                    0x80 => self.d(disp),
                    _ => {}
                }
            }
        }
    }

    /// Encodes a VEX or EVEX instruction; VEX where the operands allow it.
    #[expect(clippy::too_many_arguments, reason = "these are the fields of the instruction")]
    pub(crate) fn vec(&mut self, e: &Enc, w: W, reg: u8, vvvv: u8, rm: PRm, imm: Option<u8>, x: Evex) {
        let high = |r: u8| r >= 16;
        let rm_high = matches!(rm, PRm::R(r) if high(r))
            || x.vsib && matches!(rm, PRm::M(PMem::At { index: Some((i, _)), .. }) if high(i));
        let evex = match e.kind {
            Kind::Vex => false,
            Kind::Evex => true,
            Kind::Both => w == W::Z || high(reg) || high(vvvv) || rm_high || x.mask != 0 || x.broadcast,
        };
        let (ext_x, ext_b) = match rm {
            PRm::R(r) => ((r >> 4) & 1, (r >> 3) & 1),
            PRm::M(PMem::At { base, index, .. }) => (index.map_or(0, |(i, _)| (i >> 3) & 1), (base >> 3) & 1),
            PRm::M(PMem::Pool(_)) => (0, 0),
        };
        let ext_r = (reg >> 3) & 1;
        let mut n = 1;
        if evex {
            let v_high = match rm {
                PRm::M(PMem::At { index: Some((i, _)), .. }) if x.vsib => (i >> 4) & 1,
                _ => (vvvv >> 4) & 1,
            };
            self.b(0x62);
            self.b((1 ^ ext_r) << 7 | (1 ^ ext_x) << 6 | (1 ^ ext_b) << 5 | (1 ^ ((reg >> 4) & 1)) << 4 | e.map);
            self.b(e.w << 7 | (!vvvv & 15) << 3 | 4 | e.pp);
            let ll = if e.l_ignored { 0 } else { w as u8 };
            self.b((x.zeroing as u8) << 7 | ll << 5 | (x.broadcast as u8) << 4 | (1 ^ v_high) << 3 | x.mask);
            self.b(e.evex_op);
            let element = if e.w == 1 { 8 } else { 4 };
            n = match e.tuple {
                _ if x.broadcast => element,
                Tuple::Full => w.bytes(),
                Tuple::Half => w.bytes() / 2,
                Tuple::Quarter => w.bytes() / 4,
                Tuple::Bytes(n) => n as usize,
            } as i32;
        } else {
            let l = e.vex_l.unwrap_or(w as u8 & 1);
            if ext_x == 0 && ext_b == 0 && e.map == 1 && e.vex_w == 0 {
                self.b(0xc5);
                self.b((1 ^ ext_r) << 7 | (!vvvv & 15) << 3 | l << 2 | e.pp);
            } else {
                self.b(0xc4);
                self.b((1 ^ ext_r) << 7 | (1 ^ ext_x) << 6 | (1 ^ ext_b) << 5 | e.map);
                self.b(e.vex_w << 7 | (!vvvv & 15) << 3 | l << 2 | e.pp);
            }
            self.b(e.op);
        }
        self.operand(reg, rm, n, imm.is_some() as u32);
        if let Some(i) = imm {
            self.b(i);
        }
    }

    /// Encodes a legacy instruction on general registers: `prefix? REX op… modrm`.
    fn legacy(&mut self, wide: bool, op: &[u8], reg: u8, rm: PRm, imm_len: u32, byte_reg: bool) {
        let (x, b) = match rm {
            PRm::R(r) => (0, r >> 3),
            PRm::M(PMem::At { base, index, .. }) => (index.map_or(0, |(i, _)| i >> 3), base >> 3),
            PRm::M(PMem::Pool(_)) => (0, 0),
        };
        let rex = 0x40 | (wide as u8) << 3 | (reg >> 3) << 2 | x << 1 | b;
        if rex != 0x40 || byte_reg {
            self.b(rex);
        }
        self.buf.extend_from_slice(op);
        self.operand(reg, rm, 1, imm_len);
    }

    pub(crate) fn mov(&mut self, dst: u8, src: u8) {
        if dst != src {
            self.legacy(true, &[0x8b], dst, PRm::R(src), 0, false);
        }
    }

    pub(crate) fn mov_imm(&mut self, dst: u8, imm: i64) {
        if imm == 0 {
            self.legacy(false, &[0x33], dst, PRm::R(dst), 0, false);
        } else if let Ok(i) = i32::try_from(imm) {
            self.legacy(true, &[0xc7], 0, PRm::R(dst), 4, false);
            self.d(i);
        } else {
            self.b(0x48 | dst >> 3);
            self.b(0xb8 | (dst & 7));
            self.buf.extend_from_slice(&imm.to_le_bytes());
        }
    }

    /// Loads `size` bytes, zero-extended, or sign-extended from 4.
    pub(crate) fn load(&mut self, dst: u8, m: PMem, size: u8, signed: bool) {
        match size {
            1 => self.legacy(false, &[0x0f, 0xb6], dst, PRm::M(m), 0, false),
            2 => self.legacy(false, &[0x0f, 0xb7], dst, PRm::M(m), 0, false),
            4 if signed => self.legacy(true, &[0x63], dst, PRm::M(m), 0, false),
            4 => self.legacy(false, &[0x8b], dst, PRm::M(m), 0, false),
            _ => self.legacy(true, &[0x8b], dst, PRm::M(m), 0, false),
        }
    }

    pub(crate) fn store(&mut self, src: u8, m: PMem, size: u8) {
        match size {
            1 => self.legacy(false, &[0x88], src, PRm::M(m), 0, true),
            2 => {
                self.b(0x66);
                self.legacy(false, &[0x89], src, PRm::M(m), 0, false);
            }
            4 => self.legacy(false, &[0x89], src, PRm::M(m), 0, false),
            _ => self.legacy(true, &[0x89], src, PRm::M(m), 0, false),
        }
    }

    pub(crate) fn alu(&mut self, op: Alu, dst: u8, src: PRm) {
        self.legacy(true, &[(op as u8) << 3 | 3], dst, src, 0, false);
    }

    pub(crate) fn alu_imm(&mut self, op: Alu, dst: u8, imm: i32) {
        if let Ok(i) = i8::try_from(imm) {
            self.legacy(true, &[0x83], op as u8, PRm::R(dst), 1, false);
            self.b(i as u8);
        } else {
            self.legacy(true, &[0x81], op as u8, PRm::R(dst), 4, false);
            self.d(imm);
        }
    }

    pub(crate) fn imul(&mut self, dst: u8, src: PRm) {
        self.legacy(true, &[0x0f, 0xaf], dst, src, 0, false);
    }

    pub(crate) fn imul_imm(&mut self, dst: u8, src: PRm, imm: i32) {
        self.legacy(true, &[0x69], dst, src, 4, false);
        self.d(imm);
    }

    pub(crate) fn lea(&mut self, dst: u8, m: PMem) {
        self.legacy(true, &[0x8d], dst, PRm::M(m), 0, false);
    }

    pub(crate) fn test(&mut self, a: u8, b: u8) {
        self.legacy(true, &[0x85], b, PRm::R(a), 0, false);
    }

    /// Sets the carry flag to bit `bit` of `a`.
    pub(crate) fn bt(&mut self, a: u8, bit: u8) {
        self.legacy(true, &[0x0f, 0xa3], bit, PRm::R(a), 0, false);
    }

    /// Encodes a shift `C1 /n`: 4 is shl, 5 shr, 7 sar.
    pub(crate) fn shift_imm(&mut self, n: u8, dst: u8, imm: u8) {
        self.legacy(true, &[0xc1], n, PRm::R(dst), 1, false);
        self.b(imm);
    }

    pub(crate) fn cmov(&mut self, cc: Cc, dst: u8, src: PRm) {
        self.legacy(true, &[0x0f, 0x40 | cc as u8], dst, src, 0, false);
    }

    /// Divides rdx:rax by `src`: quotient in rax, remainder in rdx.
    pub(crate) fn div(&mut self, src: u8, signed: bool) {
        if signed {
            self.buf.extend_from_slice(&[0x48, 0x99]);
        } else {
            self.mov_imm(RDX, 0);
        }
        self.legacy(true, &[0xf7], if signed { 7 } else { 6 }, PRm::R(src), 0, false);
    }

    pub(crate) fn neg(&mut self, dst: u8) {
        self.legacy(true, &[0xf7], 3, PRm::R(dst), 0, false);
    }

    pub(crate) fn call_reg(&mut self, r: u8) {
        self.legacy(false, &[0xff], 2, PRm::R(r), 0, false);
    }

    pub(crate) fn push(&mut self, r: u8) {
        if r >= 8 {
            self.b(0x41);
        }
        self.b(0x50 | (r & 7));
    }

    pub(crate) fn pop(&mut self, r: u8) {
        if r >= 8 {
            self.b(0x41);
        }
        self.b(0x58 | (r & 7));
    }

    pub(crate) fn ret(&mut self) {
        self.b(0xc3);
    }

    pub(crate) fn vzeroupper(&mut self) {
        self.buf.extend_from_slice(&[0xc5, 0xf8, 0x77]);
    }

    pub(crate) fn bind(&mut self, label: u32) {
        let i = label as usize;
        if self.labels.len() <= i {
            self.labels.resize(i + 1, u32::MAX);
        }
        self.labels[i] = self.buf.len() as u32;
    }

    pub(crate) fn jmp(&mut self, label: u32) {
        self.b(0xe9);
        self.jumps.push((self.buf.len() as u32, label));
        self.d(0);
    }

    pub(crate) fn call(&mut self, label: u32) {
        self.b(0xe8);
        self.jumps.push((self.buf.len() as u32, label));
        self.d(0);
    }

    pub(crate) fn jcc(&mut self, cc: Cc, label: u32) {
        self.buf.extend_from_slice(&[0x0f, 0x80 | cc as u8]);
        self.jumps.push((self.buf.len() as u32, label));
        self.d(0);
    }

    /// Pads with `nop`s to a multiple of `n` bytes.
    pub(crate) fn align(&mut self, n: usize) {
        const NOPS: [&[u8]; 9] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        ];
        while !self.buf.len().is_multiple_of(n) {
            let gap = (n - self.buf.len() % n).min(9);
            self.buf.extend_from_slice(NOPS[gap - 1]);
        }
    }

    /// Appends the constant pool at a 64-byte boundary and resolves every reference.
    pub(crate) fn finish(mut self, pool: &[u8]) -> Vec<u8> {
        for &(at, label) in &self.jumps {
            let rel = self.labels[label as usize] as i32 - (at as i32 + 4);
            self.buf[at as usize..at as usize + 4].copy_from_slice(&rel.to_le_bytes());
        }
        while !self.buf.len().is_multiple_of(64) {
            self.buf.push(0xcc);
        }
        let start = self.buf.len() as i32;
        for &(at, offset) in &self.pool_refs {
            let at = at as usize;
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&self.buf[at..at + 4]);
            let rel = start + offset as i32 - (at as i32 + i32::from_le_bytes(bytes));
            self.buf[at..at + 4].copy_from_slice(&rel.to_le_bytes());
        }
        self.buf.extend_from_slice(pool);
        self.buf
    }
}
