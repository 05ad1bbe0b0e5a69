//! Schedules of pipelines: in which order each rank computes which part of a model for which micro-batch, and how long that
//! takes.
//!
//! A model is cut into chunks, one after another; chunk `c` is at rank `c % ranks`. A schedule is a list of actions for each rank. Who
//! needs what another computes waits for it; [`Timeline::of`] finds out how long, and whether anybody waits forever.

use crate::error::{Error, Result};

/// Forward or backward through one chunk for one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Action {
    /// Whether it is the backward pass.
    pub back: bool,
    /// The chunk.
    pub chunk: usize,
    /// The micro-batch.
    pub micro: usize,
}

impl Action {
    fn new(back: bool, chunk: usize, micro: usize) -> Action {
        Action { back, chunk, micro }
    }

    /// What must be done before it.
    pub fn needs(self, chunks: usize) -> Vec<Action> {
        let Action { back, chunk, micro } = self;
        let mut all = Vec::new();
        match back {
            false if chunk > 0 => all.push(Action::new(false, chunk - 1, micro)),
            false => {}
            true => {
                all.push(Action::new(false, chunk, micro));
                if chunk + 1 < chunks {
                    all.push(Action::new(true, chunk + 1, micro));
                }
            }
        }
        all
    }
}

/// Who does what when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Chunks at each rank.
    pub each: usize,
    /// Micro-batches.
    pub micro: usize,
    /// The actions of each rank, in order.
    pub ranks: Vec<Vec<Action>>,
}

impl Schedule {
    /// All forward, then all backward: every rank keeps all micro-batches.
    pub fn gpipe(ranks: usize, micro: usize) -> Schedule {
        let of = |rank: usize| {
            let forward = (0..micro).map(move |m| Action::new(false, rank, m));
            forward.chain((0..micro).map(move |m| Action::new(true, rank, m))).collect()
        };
        Schedule { each: 1, micro, ranks: (0..ranks).map(of).collect() }
    }

    /// One forward, one backward: rank `r` keeps `ranks - r` micro-batches at most.
    pub fn one_f_one_b(ranks: usize, micro: usize) -> Schedule {
        let of = |rank: usize| {
            let ahead = (ranks - rank - 1).min(micro);
            let mut all: Vec<Action> = (0..ahead).map(|m| Action::new(false, rank, m)).collect();
            for m in 0..micro {
                if ahead + m < micro {
                    all.push(Action::new(false, rank, ahead + m));
                }
                all.push(Action::new(true, rank, m));
            }
            all
        };
        Schedule { each: 1, micro, ranks: (0..ranks).map(of).collect() }
    }

    /// Several chunks at each rank, taken in turns: the wait at both ends is so many times shorter, and messages are so many
    /// times more. Micro-batches must be a multiple of the ranks.
    pub fn interleaved(ranks: usize, each: usize, micro: usize) -> Result<Schedule> {
        if ranks == 1 {
            return Ok(Schedule { each, micro, ranks: vec![all_chunks(each, micro)] });
        }
        if each == 1 {
            return Ok(Schedule::one_f_one_b(ranks, micro));
        }
        if each == 0 || ranks == 0 || !micro.is_multiple_of(ranks) {
            return Err(Error::Start(format!(
                "an interleaved pipeline of {ranks} ranks needs a multiple of {ranks} micro-batches, not {micro}"
            )));
        }
        let total = micro * each;
        // The k-th forward (or backward) of a rank: as many micro-batches as there are ranks, chunk by chunk.
        let at = |rank: usize, k: usize, back: bool| {
            let (round, within) = (k / (ranks * each), k % (ranks * each));
            let local = within / ranks;
            let local = if back { each - 1 - local } else { local };
            Action::new(back, local * ranks + rank, round * ranks + within % ranks)
        };
        let of = |rank: usize| {
            let ahead = match micro == ranks {
                true => total,
                false => ((ranks - rank - 1) * 2 + (each - 1) * ranks).min(total),
            };
            let mut all: Vec<Action> = (0..ahead).map(|k| at(rank, k, false)).collect();
            for k in 0..total {
                if ahead + k < total {
                    all.push(at(rank, ahead + k, false));
                }
                all.push(at(rank, k, true));
            }
            all
        };
        Ok(Schedule { each, micro, ranks: (0..ranks).map(of).collect() })
    }

    /// Chunks of the model.
    pub fn chunks(&self) -> usize {
        self.each * self.ranks.len()
    }

    /// The rank of a chunk.
    pub fn rank_of(&self, chunk: usize) -> usize {
        chunk % self.ranks.len()
    }

    /// What a rank tells another, in the order in which it does: the action whose result it is.
    pub fn messages(&self, from: usize, to: usize) -> Vec<Action> {
        let chunks = self.chunks();
        let goes = |a: &&Action| {
            let next = match a.back {
                false if a.chunk + 1 < chunks => a.chunk + 1,
                true if a.chunk > 0 => a.chunk - 1,
                _ => return false,
            };
            self.rank_of(next) == to && from != to
        };
        self.ranks[from].iter().filter(goes).copied().collect()
    }

    /// The most micro-batches of which a rank keeps something for the backward pass at once, counted by chunk.
    pub fn kept(&self, rank: usize) -> usize {
        self.most(rank, 0)
    }

    /// The same of what other chunks gave: the first is given nothing.
    pub fn given(&self, rank: usize) -> usize {
        self.most(rank, 1)
    }

    fn most(&self, rank: usize, first: usize) -> usize {
        let (mut now, mut most) = (0usize, 0);
        for a in self.ranks[rank].iter().filter(|a| a.chunk >= first) {
            match a.back {
                false => now += 1,
                true => now = now.saturating_sub(1),
            }
            most = most.max(now);
        }
        most
    }
}

fn all_chunks(each: usize, micro: usize) -> Vec<Action> {
    let one = |m: usize| {
        let forward = (0..each).map(move |c| Action::new(false, c, m));
        forward.chain((0..each).rev().map(move |c| Action::new(true, c, m)))
    };
    (0..micro).flat_map(one).collect()
}

/// How long actions take.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Forward through each chunk.
    pub forward: Vec<f64>,
    /// Backward through each.
    pub backward: Vec<f64>,
    /// From the end of an action until another rank has its result.
    pub message: f64,
}

/// When everything happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// When the last action ends.
    pub total: f64,
    /// How long each rank computes.
    pub busy: Vec<f64>,
    /// (start, end) of each action of each rank.
    pub spans: Vec<Vec<(f64, f64)>>,
}

impl Timeline {
    /// Runs a schedule; an error if ranks wait for each other in a circle, or something is missing.
    pub fn of(schedule: &Schedule, costs: &Costs) -> Result<Timeline> {
        let (ranks, chunks) = (schedule.ranks.len(), schedule.chunks());
        let place = |a: Action| (a.back as usize * chunks + a.chunk) * schedule.micro + a.micro;
        let mut ends: Vec<Option<f64>> = vec![None; 2 * chunks * schedule.micro];
        let (mut next, mut free) = (vec![0; ranks], vec![0.0f64; ranks]);
        let mut spans = vec![Vec::new(); ranks];
        let mut busy = vec![0.0; ranks];
        loop {
            let mut moved = false;
            for rank in 0..ranks {
                while let Some(&action) = schedule.ranks[rank].get(next[rank]) {
                    let mut start = free[rank];
                    let mut ready = true;
                    for need in action.needs(chunks) {
                        match ends[place(need)] {
                            Some(end) if schedule.rank_of(need.chunk) == rank => start = start.max(end),
                            Some(end) => start = start.max(end + costs.message),
                            None => ready = false,
                        }
                    }
                    if !ready {
                        break;
                    }
                    let long = if action.back { costs.backward[action.chunk] } else { costs.forward[action.chunk] };
                    (ends[place(action)], free[rank]) = (Some(start + long), start + long);
                    busy[rank] += long;
                    spans[rank].push((start, start + long));
                    next[rank] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        if let Some(rank) = (0..ranks).find(|&r| next[r] < schedule.ranks[r].len()) {
            return Err(Error::Start(format!("deadlock: rank {rank} of the pipeline waits forever")));
        }
        if ends.iter().any(Option::is_none) {
            return Err(Error::Start("the pipeline schedule is incomplete".into()));
        }
        Ok(Timeline { total: free.iter().fold(0.0, |a, b| a.max(*b)), busy, spans })
    }

    /// The share of time in which ranks wait.
    pub fn bubble(&self) -> f64 {
        let all = self.total * self.busy.len() as f64;
        if all == 0.0 { 0.0 } else { 1.0 - self.busy.iter().sum::<f64>() / all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn even(chunks: usize, forward: f64) -> Costs {
        Costs { forward: vec![forward; chunks], backward: vec![2.0 * forward; chunks], message: 0.0 }
    }

    fn sound(s: &Schedule) -> Timeline {
        let all: Vec<Action> = s.ranks.iter().flatten().copied().collect();
        let once: BTreeSet<Action> = all.iter().copied().collect();
        assert_eq!((all.len(), once.len()), (2 * s.chunks() * s.micro, all.len()), "{s:?}");
        for (rank, list) in s.ranks.iter().enumerate() {
            assert!(list.iter().all(|a| s.rank_of(a.chunk) == rank));
        }
        Timeline::of(s, &even(s.chunks(), 1.0)).unwrap_or_else(|e| panic!("{e}: {s:?}"))
    }

    #[test]
    fn schedules_are_complete_and_nobody_waits_forever() {
        for ranks in 1..=8 {
            for micro in 1..=17 {
                let plain = Schedule::one_f_one_b(ranks, micro);
                let found = sound(&plain);
                // (p - 1) of (m + p - 1) parts of the time, whatever comes first.
                let theory = (ranks - 1) as f64 / (micro + ranks - 1) as f64;
                assert!((found.bubble() - theory).abs() < 1e-9, "{ranks} {micro}: {} {theory}", found.bubble());
                assert_eq!(found.total, sound(&Schedule::gpipe(ranks, micro)).total);
                for r in 0..ranks {
                    assert_eq!(plain.kept(r), (ranks - r).min(micro));
                }
            }
            for each in 1..=4 {
                for rounds in 1..=4 {
                    let micro = ranks * rounds;
                    let s = Schedule::interleaved(ranks, each, micro).unwrap();
                    let found = sound(&s);
                    let theory = (ranks - 1) as f64 / (each * micro + ranks - 1) as f64;
                    assert!(
                        (found.bubble() - theory).abs() < 1e-9,
                        "{ranks} {each} {micro}: {} {theory}",
                        found.bubble()
                    );
                    // What one rank tells another is what the other waits for.
                    for (from, to) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
                        let sent: BTreeSet<Action> = s.messages(from, to).into_iter().collect();
                        let wanted: BTreeSet<Action> = (s.ranks[to].iter().flat_map(|a| a.needs(s.chunks())))
                            .filter(|a| s.rank_of(a.chunk) == from && from != to)
                            .collect();
                        assert_eq!(sent, wanted);
                    }
                }
            }
        }
        assert!(Schedule::interleaved(4, 2, 6).is_err());
    }

    #[test]
    fn a_schedule_that_can_not_be_is_found_out() {
        let mut s = Schedule::one_f_one_b(2, 2);
        s.ranks[0].swap(0, 1);
        s.ranks[0].reverse();
        assert!(Timeline::of(&s, &even(2, 1.0)).is_err());
        let mut s = Schedule::one_f_one_b(2, 2);
        s.ranks[1].pop();
        assert!(Timeline::of(&s, &even(2, 1.0)).is_err());
        // Messages take time at both ends.
        let slow = Timeline::of(&Schedule::one_f_one_b(2, 1), &Costs { message: 0.5, ..even(2, 1.0) }).unwrap();
        assert_eq!(slow.total, 1.0 + 0.5 + 3.0 + 0.5 + 2.0);
    }
}
