//! The table of vector and mask instructions: one constant each, named after the mnemonic without its `v`.

/// The prefixes that an instruction supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Vex,
    Evex,
    Both,
}

/// The size of the memory operand, relative to the vector width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tuple {
    Full,
    Half,
    Quarter,
    Bytes(u8),
}

/// The encoding of one instruction.
#[derive(Debug)]
pub(crate) struct Enc {
    pub(crate) pp: u8,
    pub(crate) map: u8,
    pub(crate) op: u8,
    pub(crate) evex_op: u8,
    /// EVEX.W.
    pub(crate) w: u8,
    pub(crate) vex_w: u8,
    /// VEX.L where it does not follow from the width.
    pub(crate) vex_l: Option<u8>,
    /// Whether EVEX.LL must be 0.
    pub(crate) l_ignored: bool,
    pub(crate) kind: Kind,
    pub(crate) tuple: Tuple,
    /// Whether the source cannot be memory.
    pub(crate) reg_only: bool,
    /// Whether ModRM.rm contains the destination.
    pub(crate) to_rm: bool,
    /// The opcode extension in ModRM.reg; the destination is then in `vvvv`.
    pub(crate) ext: Option<u8>,
}

const fn both(pp: u8, map: u8, op: u8, w: u8) -> Enc {
    Enc {
        pp,
        map,
        op,
        evex_op: op,
        w,
        vex_w: 0,
        vex_l: None,
        l_ignored: false,
        kind: Kind::Both,
        tuple: Tuple::Full,
        reg_only: false,
        to_rm: false,
        ext: None,
    }
}

const fn evex(pp: u8, map: u8, op: u8, w: u8) -> Enc {
    Enc { kind: Kind::Evex, ..both(pp, map, op, w) }
}

const fn vex(pp: u8, map: u8, op: u8, vex_w: u8) -> Enc {
    Enc { kind: Kind::Vex, vex_w, ..both(pp, map, op, 0) }
}

const fn part(e: Enc, tuple: Tuple) -> Enc {
    Enc { tuple, ..e }
}

/// Marks an entry whose VEX.W equals EVEX.W and is significant.
const fn w_fixed(e: Enc) -> Enc {
    Enc { vex_w: e.w, ..e }
}

/// Makes an entry that works on one 128-bit register for any vector width.
const fn scalar(e: Enc, bytes: u8) -> Enc {
    Enc { tuple: Tuple::Bytes(bytes), vex_l: Some(0), l_ignored: true, ..e }
}

/// Makes an entry whose register form writes to ModRM.rm.
const fn to_rm(e: Enc) -> Enc {
    Enc { to_rm: true, ..e }
}

const fn ext(e: Enc, n: u8) -> Enc {
    Enc { ext: Some(n), ..e }
}

const fn mask_op(op: u8) -> Enc {
    Enc { vex_l: Some(1), ..vex(0, 1, op, 0) }
}

macro_rules! table {
    ($($name:ident = $e:expr;)*) => {
        $(pub(crate) static $name: Enc = $e;)*
        /// The table of all entries by name, for the tests.
        #[cfg(test)]
        pub(crate) static ALL: &[(&str, &Enc)] = &[$((stringify!($name), &$name)),*];
    };
}

table! {
    // Moves.
    MOVUPS = both(0, 1, 0x10, 0);
    MOVUPS_ST = both(0, 1, 0x11, 0);
    MOVUPD = both(1, 1, 0x10, 1);
    MOVUPD_ST = both(1, 1, 0x11, 1);
    MOVAPS = both(0, 1, 0x28, 0);
    MOVSS = scalar(both(2, 1, 0x10, 0), 4);
    MOVSS_ST = scalar(both(2, 1, 0x11, 0), 4);
    MOVSD = scalar(both(3, 1, 0x10, 1), 8);
    MOVSD_ST = scalar(both(3, 1, 0x11, 1), 8);
    MOVD_FROM = scalar(both(1, 1, 0x6e, 0), 4);
    MOVD_TO = to_rm(scalar(both(1, 1, 0x7e, 0), 4));
    MOVQ_FROM = w_fixed(scalar(both(1, 1, 0x6e, 1), 8));
    MOVQ_TO = to_rm(w_fixed(scalar(both(1, 1, 0x7e, 1), 8)));
    BROADCASTSS = part(both(1, 2, 0x18, 0), Tuple::Bytes(4));
    BROADCASTSD = part(both(1, 2, 0x19, 1), Tuple::Bytes(8));
    PBROADCASTD = part(both(1, 2, 0x58, 0), Tuple::Bytes(4));
    PBROADCASTQ = part(both(1, 2, 0x59, 1), Tuple::Bytes(8));
    MASKMOVPS = vex(1, 2, 0x2c, 0);
    MASKMOVPS_ST = vex(1, 2, 0x2e, 0);
    MASKMOVPD = vex(1, 2, 0x2d, 0);
    MASKMOVPD_ST = vex(1, 2, 0x2f, 0);
    // Floats.
    ADDPS = both(0, 1, 0x58, 0);
    ADDPD = both(1, 1, 0x58, 1);
    MULPS = both(0, 1, 0x59, 0);
    MULPD = both(1, 1, 0x59, 1);
    SUBPS = both(0, 1, 0x5c, 0);
    SUBPD = both(1, 1, 0x5c, 1);
    MINPS = both(0, 1, 0x5d, 0);
    MINPD = both(1, 1, 0x5d, 1);
    DIVPS = both(0, 1, 0x5e, 0);
    DIVPD = both(1, 1, 0x5e, 1);
    MAXPS = both(0, 1, 0x5f, 0);
    MAXPD = both(1, 1, 0x5f, 1);
    SQRTPS = both(0, 1, 0x51, 0);
    SQRTPD = both(1, 1, 0x51, 1);
    CMPPS = both(0, 1, 0xc2, 0);
    CMPPD = both(1, 1, 0xc2, 1);
    KCMPPS = evex(0, 1, 0xc2, 0);
    KCMPPD = evex(1, 1, 0xc2, 1);
    ROUNDPS = vex(1, 3, 0x08, 0);
    ROUNDPD = vex(1, 3, 0x09, 0);
    RNDSCALEPS = evex(1, 3, 0x08, 0);
    RNDSCALEPD = evex(1, 3, 0x09, 1);
    SCALEFPS = evex(1, 2, 0x2c, 0);
    SCALEFPD = evex(1, 2, 0x2c, 1);
    FMADD132PS = both(1, 2, 0x98, 0);
    FMADD213PS = both(1, 2, 0xa8, 0);
    FMADD231PS = both(1, 2, 0xb8, 0);
    FMSUB132PS = both(1, 2, 0x9a, 0);
    FMSUB213PS = both(1, 2, 0xaa, 0);
    FMSUB231PS = both(1, 2, 0xba, 0);
    FNMADD132PS = both(1, 2, 0x9c, 0);
    FNMADD213PS = both(1, 2, 0xac, 0);
    FNMADD231PS = both(1, 2, 0xbc, 0);
    FMADD132PD = w_fixed(both(1, 2, 0x98, 1));
    FMADD213PD = w_fixed(both(1, 2, 0xa8, 1));
    FMADD231PD = w_fixed(both(1, 2, 0xb8, 1));
    FMSUB132PD = w_fixed(both(1, 2, 0x9a, 1));
    FMSUB213PD = w_fixed(both(1, 2, 0xaa, 1));
    FMSUB231PD = w_fixed(both(1, 2, 0xba, 1));
    FNMADD132PD = w_fixed(both(1, 2, 0x9c, 1));
    FNMADD213PD = w_fixed(both(1, 2, 0xac, 1));
    FNMADD231PD = w_fixed(both(1, 2, 0xbc, 1));
    // Integers and bits.
    PADDD = both(1, 1, 0xfe, 0);
    PADDQ = both(1, 1, 0xd4, 1);
    PSUBD = both(1, 1, 0xfa, 0);
    PSUBQ = both(1, 1, 0xfb, 1);
    PMULLD = both(1, 2, 0x40, 0);
    PMULLQ = evex(1, 2, 0x40, 1);
    PMULUDQ = both(1, 1, 0xf4, 1);
    PMINSD = both(1, 2, 0x39, 0);
    PMINUD = both(1, 2, 0x3b, 0);
    PMAXSD = both(1, 2, 0x3d, 0);
    PMAXUD = both(1, 2, 0x3f, 0);
    PMINSQ = evex(1, 2, 0x39, 1);
    PMINUQ = evex(1, 2, 0x3b, 1);
    PMAXSQ = evex(1, 2, 0x3d, 1);
    PMAXUQ = evex(1, 2, 0x3f, 1);
    PABSD = both(1, 2, 0x1e, 0);
    PANDD = both(1, 1, 0xdb, 0);
    PORD = both(1, 1, 0xeb, 0);
    PXORD = both(1, 1, 0xef, 0);
    PANDQ = both(1, 1, 0xdb, 1);
    PORQ = both(1, 1, 0xeb, 1);
    PXORQ = both(1, 1, 0xef, 1);
    PCMPEQD = vex(1, 1, 0x76, 0);
    PCMPGTD = vex(1, 1, 0x66, 0);
    PCMPEQQ = vex(1, 2, 0x29, 0);
    PCMPGTQ = vex(1, 2, 0x37, 0);
    PCMPD = evex(1, 3, 0x1f, 0);
    PCMPUD = evex(1, 3, 0x1e, 0);
    PCMPQ = evex(1, 3, 0x1f, 1);
    PCMPUQ = evex(1, 3, 0x1e, 1);
    PTESTMD = evex(1, 2, 0x27, 0);
    PMOVM2D = evex(2, 2, 0x38, 0);
    PSLLVD = both(1, 2, 0x47, 0);
    PSRLVD = both(1, 2, 0x45, 0);
    PSRAVD = both(1, 2, 0x46, 0);
    PSLLVQ = w_fixed(both(1, 2, 0x47, 1));
    PSRLVQ = w_fixed(both(1, 2, 0x45, 1));
    PSRAVQ = evex(1, 2, 0x46, 1);
    PSLLD_I = ext(both(1, 1, 0x72, 0), 6);
    PSRLD_I = ext(both(1, 1, 0x72, 0), 2);
    PSRAD_I = ext(both(1, 1, 0x72, 0), 4);
    PSLLQ_I = ext(both(1, 1, 0x73, 1), 6);
    PSRLQ_I = ext(both(1, 1, 0x73, 1), 2);
    PSHUFB = both(1, 2, 0x00, 0);
    PSHUFD = both(1, 1, 0x70, 0);
    SHUFPS = both(0, 1, 0xc6, 0);
    // One element between memory and a lane.
    PINSRB = scalar(vex(1, 3, 0x20, 0), 1);
    PINSRW = scalar(vex(1, 1, 0xc4, 0), 2);
    PEXTRB_ST = scalar(vex(1, 3, 0x14, 0), 1);
    PEXTRW_ST = scalar(vex(1, 3, 0x15, 0), 2);
    PUNPCKLDQ = both(1, 1, 0x62, 0);
    PERMT2W = evex(1, 2, 0x7d, 1);
    PERMT2PS = evex(1, 2, 0x7f, 0);
    PERMT2PD = evex(1, 2, 0x7f, 1);
    PERMQ_I = w_fixed(both(1, 3, 0x00, 1));
    BLENDMPS = evex(1, 2, 0x65, 0);
    BLENDMPD = evex(1, 2, 0x65, 1);
    BLENDVPS = vex(1, 3, 0x4a, 0);
    BLENDVPD = vex(1, 3, 0x4b, 0);
    MOVMSKPS = Enc { reg_only: true, ..vex(0, 1, 0x50, 0) };
    EXTRACTF128 = to_rm(part(vex(1, 3, 0x19, 0), Tuple::Bytes(16)));
    EXTRACTF32X8 = to_rm(part(evex(1, 3, 0x1b, 0), Tuple::Bytes(32)));
    EXTRACTF32X4 = to_rm(part(evex(1, 3, 0x19, 0), Tuple::Bytes(16)));
    INSERTF128 = part(vex(1, 3, 0x18, 0), Tuple::Bytes(16));
    INSERTF32X8 = part(evex(1, 3, 0x1a, 0), Tuple::Bytes(32));
    // Conversions.
    CVTDQ2PS = both(0, 1, 0x5b, 0);
    CVTTPS2DQ = both(2, 1, 0x5b, 0);
    CVTPS2PD = part(both(0, 1, 0x5a, 0), Tuple::Half);
    CVTPD2PS = both(1, 1, 0x5a, 1);
    CVTDQ2PD = part(both(2, 1, 0xe6, 0), Tuple::Half);
    CVTTPD2DQ = both(1, 1, 0xe6, 1);
    CVTUDQ2PS = evex(3, 1, 0x7a, 0);
    CVTTPS2UDQ = evex(0, 1, 0x78, 0);
    CVTUDQ2PD = part(evex(2, 1, 0x7a, 0), Tuple::Half);
    CVTQQ2PD = evex(2, 1, 0xe6, 1);
    CVTQQ2PS = evex(0, 1, 0x5b, 1);
    CVTUQQ2PD = evex(2, 1, 0x7a, 1);
    CVTUQQ2PS = evex(3, 1, 0x7a, 1);
    CVTTPD2QQ = evex(1, 1, 0x7a, 1);
    CVTTPS2QQ = part(evex(1, 1, 0x7a, 0), Tuple::Half);
    CVTTPD2UDQ = evex(0, 1, 0x78, 1);
    CVTPH2PS = part(both(1, 2, 0x13, 0), Tuple::Half);
    CVTPS2PH = to_rm(part(both(1, 3, 0x1d, 0), Tuple::Half));
    PMOVSXBD = part(both(1, 2, 0x21, 0), Tuple::Quarter);
    PMOVZXBD = part(both(1, 2, 0x31, 0), Tuple::Quarter);
    PMOVSXWD = part(both(1, 2, 0x23, 0), Tuple::Half);
    PMOVZXWD = part(both(1, 2, 0x33, 0), Tuple::Half);
    PMOVSXDQ = part(both(1, 2, 0x25, 0), Tuple::Half);
    PMOVZXDQ = part(both(1, 2, 0x35, 0), Tuple::Half);
    PMOVDB = to_rm(part(evex(2, 2, 0x31, 0), Tuple::Quarter));
    PMOVDW = to_rm(part(evex(2, 2, 0x33, 0), Tuple::Half));
    PMOVQD = to_rm(part(evex(2, 2, 0x35, 0), Tuple::Half));
    // Gathers.
    GATHERDPS = part(both(1, 2, 0x92, 0), Tuple::Bytes(4));
    GATHERDPD = part(w_fixed(both(1, 2, 0x92, 1)), Tuple::Bytes(8));
    GATHERQPS = part(both(1, 2, 0x93, 0), Tuple::Bytes(4));
    GATHERQPD = part(w_fixed(both(1, 2, 0x93, 1)), Tuple::Bytes(8));
    // Masks.
    KMOVW = Enc { vex_l: Some(0), ..vex(0, 1, 0x90, 0) };
    KMOVW_ST = Enc { vex_l: Some(0), ..vex(0, 1, 0x91, 0) };
    KMOVW_FROM = Enc { vex_l: Some(0), ..vex(0, 1, 0x92, 0) };
    KMOVW_TO = Enc { vex_l: Some(0), ..vex(0, 1, 0x93, 0) };
    KANDW = mask_op(0x41);
    KNOTW = Enc { vex_l: Some(0), ..vex(0, 1, 0x44, 0) };
    KORW = mask_op(0x45);
    KXORW = mask_op(0x47);
    BZHI = Enc { vex_l: Some(0), ..vex(0, 2, 0xf5, 1) };
}
