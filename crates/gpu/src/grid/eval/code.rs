//! The statements of a grid as a list with jumps, so that a thread can be suspended and resumed anywhere.

use crate::grid::{Loop, Reg, Scope, Stmt};

pub(super) enum Code<'a> {
    /// A statement without nested statements.
    Run(&'a Stmt),
    Enter(&'a Loop),
    /// Leaves the loop when it is finished.
    Test {
        of: &'a Loop,
        exit: usize,
    },
    /// Jumps back to the test.
    Next {
        of: &'a Loop,
        test: usize,
    },
    If {
        cond: Reg,
        exit: usize,
    },
    Barrier(Scope),
    Exchange {
        dst: Reg,
        src: Reg,
        xor: u32,
    },
    End,
}

pub(super) fn flatten(body: &[Stmt]) -> Vec<Code<'_>> {
    let mut out = Vec::new();
    block(body, &mut out);
    out.push(Code::End);
    out
}

fn block<'a>(body: &'a [Stmt], out: &mut Vec<Code<'a>>) {
    for s in body {
        match s {
            Stmt::Loop(l) => {
                out.push(Code::Enter(l));
                let test = out.len();
                out.push(Code::Test { of: l, exit: 0 });
                block(&l.body, out);
                out.push(Code::Next { of: l, test });
                let exit = out.len();
                out[test] = Code::Test { of: l, exit };
            }
            Stmt::If { cond, body } => {
                let at = out.len();
                out.push(Code::If { cond: *cond, exit: 0 });
                block(body, out);
                let exit = out.len();
                out[at] = Code::If { cond: *cond, exit };
            }
            Stmt::Barrier(scope) => out.push(Code::Barrier(*scope)),
            Stmt::Exchange { dst, src, xor } => out.push(Code::Exchange { dst: *dst, src: *src, xor: *xor }),
            _ => out.push(Code::Run(s)),
        }
    }
}
