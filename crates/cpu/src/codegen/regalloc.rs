//! Linear-scan register allocation over whole live intervals.
//!
//! An instruction reads its sources at position 2i and writes its result at 2i + 1. A register that is live into a loop stays
//! live to the loop's end. A value that finds no register is in the frame for its whole life; the allocator spills the one with
//! the lowest weight (uses, each loop level counting tenfold, divided by length). The move that ends an iteration of a carried
//! value is coalesced if the old value is dead when the new one is defined.

use super::inst::{Class, Inst, Role, V};

/// The location of a virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loc {
    /// Never assigned.
    None,
    Reg(u8),
    /// A byte offset among the spill slots.
    Slot(u32),
}

/// The result of register allocation.
pub(crate) struct Allocation {
    pub(crate) loc: Vec<Loc>,
    /// The number of bytes of spill slots.
    pub(crate) slot_bytes: u32,
    /// The set of general registers in use, by number.
    pub(crate) gprs_used: u16,
}

/// The allocatable registers, by class.
pub(crate) struct Files<'a> {
    pub(crate) gpr: &'a [u8],
    pub(crate) vec: &'a [u8],
    pub(crate) mask: &'a [u8],
    /// The number of bytes of a spilled vector register.
    pub(crate) vec_bytes: u32,
}

#[derive(Clone, Copy)]
struct Interval {
    start: u32,
    end: u32,
    /// The position of the last use seen so far, not extended over loops.
    last_use: u32,
    weight: f32,
    hint: V,
}

const UNSEEN: u32 = u32::MAX;

/// Assigns a location to every virtual register.
pub(crate) fn allocate(insts: &[Inst], classes: &[Class], files: &Files<'_>) -> Allocation {
    let (mut intervals, mut alias) = intervals(insts, classes.len());
    merge_carried(insts, &mut intervals, &mut alias);
    let mut order: Vec<u32> = (0..classes.len() as u32)
        .filter(|&v| intervals[v as usize].start != UNSEEN && alias[v as usize] == v)
        .collect();
    order.sort_unstable_by_key(|&v| intervals[v as usize].start);

    let mut loc = vec![Loc::None; classes.len()];
    let mut spilled: Vec<u32> = vec![];
    let mut gprs_used = 0u16;
    for class in [Class::Gpr, Class::Vec, Class::Mask] {
        let regs = match class {
            Class::Gpr => files.gpr,
            Class::Vec => files.vec,
            Class::Mask => files.mask,
        };
        // The interval that occupies each register now, by its index in `regs`.
        let mut held: Vec<Option<u32>> = vec![None; regs.len()];
        for &v in order.iter().filter(|&&v| classes[v as usize] == class) {
            let now = intervals[v as usize];
            for h in &mut held {
                if h.is_some_and(|o| intervals[o as usize].end < now.start) {
                    *h = None;
                }
            }
            let hinted = now.hint.some().and_then(|h| match loc[find(&alias, h.0) as usize] {
                Loc::Reg(r) => regs.iter().position(|&x| x == r).filter(|&i| held[i].is_none()),
                _ => None,
            });
            let free = hinted.or_else(|| held.iter().position(Option::is_none));
            let at = match free {
                Some(i) => Some(i),
                None => {
                    let cost = |o: u32| {
                        let i = &intervals[o as usize];
                        i.weight / (i.end - i.start + 8) as f32
                    };
                    let cheapest = (0..held.len())
                        .filter_map(|i| held[i].map(|o| (i, o)))
                        .min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)));
                    match cheapest {
                        Some((i, o)) if cost(o) < cost(v) => {
                            loc[o as usize] = Loc::None;
                            spilled.push(o);
                            Some(i)
                        }
                        _ => {
                            spilled.push(v);
                            None
                        }
                    }
                }
            };
            if let Some(i) = at {
                held[i] = Some(v);
                loc[v as usize] = Loc::Reg(regs[i]);
            }
        }
    }
    let slot_bytes = assign_slots(&mut spilled, &intervals, classes, files, &mut loc);
    for v in 0..classes.len() {
        loc[v] = loc[find(&alias, v as u32) as usize];
        if let (Loc::Reg(r), Class::Gpr) = (loc[v], classes[v]) {
            gprs_used |= 1 << r;
        }
    }
    Allocation { loc, slot_bytes, gprs_used }
}

fn find(alias: &[u32], mut v: u32) -> u32 {
    while alias[v as usize] != v {
        v = alias[v as usize];
    }
    v
}

fn intervals(insts: &[Inst], n: usize) -> (Vec<Interval>, Vec<u32>) {
    let empty = Interval { start: UNSEEN, end: 0, last_use: 0, weight: 0.0, hint: V::NONE };
    let mut all = vec![empty; n];
    // Loop ends by the index of their beginnings.
    let mut ends = vec![0u32; insts.len()];
    let mut open = vec![];
    for (i, inst) in insts.iter().enumerate() {
        match inst {
            Inst::LoopBegin { .. } => open.push(i),
            Inst::LoopEnd => {
                if let Some(b) = open.pop() {
                    ends[b] = i as u32;
                }
            }
            _ => {}
        }
    }
    let mut loops: Vec<(u32, u32)> = vec![];
    let mut unit = 1.0f32;
    for (i, inst) in insts.iter().enumerate() {
        match inst {
            Inst::LoopBegin { .. } => {
                loops.push((2 * i as u32, 2 * ends[i] + 1));
                unit *= 10.0;
                continue;
            }
            Inst::LoopEnd => {
                loops.pop();
                unit /= 10.0;
                continue;
            }
            _ => {}
        }
        let i = i as u32;
        let mut first_source = V::NONE;
        inst.visit(|v, role| {
            let x = &mut all[v.0 as usize];
            let at = match role {
                Role::Use => 2 * i,
                _ => 2 * i + 1,
            };
            if matches!(role, Role::Def | Role::UseDef) && x.start == UNSEEN {
                x.start = at;
                x.hint = first_source;
            }
            if role != Role::Def {
                x.last_use = at;
            }
            if matches!(role, Role::Use) && first_source == V::NONE {
                first_source = v;
            }
            x.weight += unit;
            let stretched = loops.iter().find(|l| l.0 > x.start).map_or(at, |l| l.1);
            x.end = x.end.max(stretched);
        });
    }
    (all, (0..n as u32).collect())
}

/// Removes `phi = next` at the end of an iteration if `next` dies there and was defined after `phi`'s last use.
fn merge_carried(insts: &[Inst], all: &mut [Interval], alias: &mut [u32]) {
    // The last uses before each move, collected in a second pass over moves alone.
    let mut last_use = vec![0u32; all.len()];
    let mut begins: Vec<u32> = vec![];
    for (i, inst) in insts.iter().enumerate() {
        match inst {
            Inst::LoopBegin { .. } => begins.push(2 * i as u32),
            Inst::LoopEnd => {
                begins.pop();
            }
            _ => {}
        }
        if let Inst::Mov { dst, src } = inst {
            let (d, s) = (dst.0 as usize, src.0 as usize);
            let (phi, next) = (all[d], all[s]);
            let begin = begins.last().copied().unwrap_or(u32::MAX);
            let back_edge = phi.start < begin && next.start > begin && next.end == 2 * i as u32;
            let unmerged = alias[s] == src.0 && alias[d] == dst.0;
            if back_edge && unmerged && last_use[d] <= next.start {
                alias[s] = dst.0;
                all[d].weight += next.weight;
            }
        }
        inst.visit(|v, role| {
            if role != Role::Def {
                last_use[v.0 as usize] = if role == Role::Use { 2 * i as u32 } else { 2 * i as u32 + 1 };
            }
        });
    }
}

fn assign_slots(spilled: &mut [u32], all: &[Interval], classes: &[Class], files: &Files<'_>, loc: &mut [Loc]) -> u32 {
    spilled.sort_unstable_by_key(|&v| all[v as usize].start);
    let (mut bytes, mut free): (u32, Vec<(u32, u32)>) = (0, vec![]);
    // (end, offset) of slots of the two sizes, reused once their value is dead.
    let mut busy: [Vec<(u32, u32)>; 2] = [vec![], vec![]];
    for &v in spilled.iter() {
        let wide = classes[v as usize] == Class::Vec;
        let size = if wide { files.vec_bytes } else { 8 };
        let list = &mut busy[wide as usize];
        let at = match list.iter_mut().find(|s| s.0 < all[v as usize].start) {
            Some(s) => {
                s.0 = all[v as usize].end;
                s.1
            }
            None => {
                // Scalars fill 64-byte groups so that vector slots stay aligned.
                let at = if wide {
                    bytes += size;
                    bytes - size
                } else {
                    match free.pop() {
                        Some((at, _)) => at,
                        None => {
                            bytes += 64;
                            for k in (1..8).rev() {
                                free.push((bytes - 64 + 8 * k, 0));
                            }
                            bytes - 64
                        }
                    }
                };
                list.push((all[v as usize].end, at));
                at
            }
        };
        loc[v as usize] = Loc::Slot(at);
    }
    bytes.next_multiple_of(64)
}
