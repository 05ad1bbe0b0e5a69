//! Schedules of pipeline parallelism: the order in which each rank computes the chunks of a model for the micro-batches, and the
//! resulting time.
//!
//! A model is divided into consecutive chunks; chunk `c` is on rank `c % ranks`. A schedule is a list of actions for each rank.
//! An action waits for the results that it needs; [`PipelineTimeline::simulate`] computes the waiting times and detects deadlocks.

use crate::error::{Error, Result};

/// The forward or backward pass of one chunk for one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineAction {
    /// Whether it is the backward pass.
    pub is_backward: bool,
    /// The chunk.
    pub chunk: usize,
    /// The micro-batch.
    pub micro_batch: usize,
}

impl PipelineAction {
    fn new(back: bool, chunk: usize, micro: usize) -> PipelineAction {
        PipelineAction { is_backward: back, chunk, micro_batch: micro }
    }

    /// The actions that must be complete before it.
    pub fn dependencies(self, chunks: usize) -> Vec<PipelineAction> {
        let PipelineAction { is_backward: back, chunk, micro_batch: micro } = self;
        let mut all = Vec::new();
        match back {
            false if chunk > 0 => all.push(PipelineAction::new(false, chunk - 1, micro)),
            false => {}
            true => {
                all.push(PipelineAction::new(false, chunk, micro));
                if chunk + 1 < chunks {
                    all.push(PipelineAction::new(true, chunk + 1, micro));
                }
            }
        }
        all
    }
}

/// The actions of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSchedule {
    /// The number of chunks per rank.
    pub chunks_per_rank: usize,
    /// The number of micro-batches.
    pub micro_batches: usize,
    /// The actions of each rank, in order.
    pub actions_by_rank: Vec<Vec<PipelineAction>>,
}

impl PipelineSchedule {
    /// All forward passes, then all backward passes: every rank keeps the activations of all micro-batches.
    pub fn gpipe(ranks: usize, micro: usize) -> PipelineSchedule {
        let of = |rank: usize| {
            let forward = (0..micro).map(move |m| PipelineAction::new(false, rank, m));
            forward.chain((0..micro).map(move |m| PipelineAction::new(true, rank, m))).collect()
        };
        PipelineSchedule { chunks_per_rank: 1, micro_batches: micro, actions_by_rank: (0..ranks).map(of).collect() }
    }

    /// One forward, one backward (1F1B): rank `r` keeps the activations of at most `ranks - r` micro-batches.
    pub fn one_forward_one_backward(ranks: usize, micro: usize) -> PipelineSchedule {
        let of = |rank: usize| {
            let ahead = (ranks - rank - 1).min(micro);
            let mut all: Vec<PipelineAction> = (0..ahead).map(|m| PipelineAction::new(false, rank, m)).collect();
            for m in 0..micro {
                if ahead + m < micro {
                    all.push(PipelineAction::new(false, rank, ahead + m));
                }
                all.push(PipelineAction::new(true, rank, m));
            }
            all
        };
        PipelineSchedule { chunks_per_rank: 1, micro_batches: micro, actions_by_rank: (0..ranks).map(of).collect() }
    }

    /// Interleaved 1F1B with several chunks per rank: the pipeline bubble is `each` times shorter, and there are `each` times as
    /// many messages. The number of micro-batches must be a multiple of the ranks.
    pub fn interleaved(ranks: usize, each: usize, micro: usize) -> Result<PipelineSchedule> {
        if ranks == 1 {
            return Ok(PipelineSchedule {
                chunks_per_rank: each,
                micro_batches: micro,
                actions_by_rank: vec![all_chunks(each, micro)],
            });
        }
        if each == 1 {
            return Ok(PipelineSchedule::one_forward_one_backward(ranks, micro));
        }
        if each == 0 || ranks == 0 || !micro.is_multiple_of(ranks) {
            return Err(Error::Rendezvous(format!(
                "an interleaved pipeline of {ranks} ranks needs a multiple of {ranks} micro-batches, not {micro}"
            )));
        }
        let total = micro * each;
        // The k-th forward (or backward) of a rank: groups of as many micro-batches as there are ranks, chunk by chunk.
        let at = |rank: usize, k: usize, back: bool| {
            let (round, within) = (k / (ranks * each), k % (ranks * each));
            let local = within / ranks;
            let local = if back { each - 1 - local } else { local };
            PipelineAction::new(back, local * ranks + rank, round * ranks + within % ranks)
        };
        let of = |rank: usize| {
            let ahead = match micro == ranks {
                true => total,
                false => ((ranks - rank - 1) * 2 + (each - 1) * ranks).min(total),
            };
            let mut all: Vec<PipelineAction> = (0..ahead).map(|k| at(rank, k, false)).collect();
            for k in 0..total {
                if ahead + k < total {
                    all.push(at(rank, ahead + k, false));
                }
                all.push(at(rank, k, true));
            }
            all
        };
        Ok(PipelineSchedule {
            chunks_per_rank: each,
            micro_batches: micro,
            actions_by_rank: (0..ranks).map(of).collect(),
        })
    }

    /// The number of chunks of the model.
    pub fn chunks(&self) -> usize {
        self.chunks_per_rank * self.actions_by_rank.len()
    }

    /// The rank of a chunk.
    pub fn rank_of(&self, chunk: usize) -> usize {
        chunk % self.actions_by_rank.len()
    }

    /// The messages from one rank to another, in order: the actions whose results are sent.
    pub fn messages(&self, from: usize, to: usize) -> Vec<PipelineAction> {
        let chunks = self.chunks();
        let goes = |a: &&PipelineAction| {
            let next = match a.is_backward {
                false if a.chunk + 1 < chunks => a.chunk + 1,
                true if a.chunk > 0 => a.chunk - 1,
                _ => return false,
            };
            self.rank_of(next) == to && from != to
        };
        self.actions_by_rank[from].iter().filter(goes).copied().collect()
    }

    /// The maximum number of micro-batches whose activations a rank keeps for the backward pass, counted by chunk.
    pub fn max_live_micro_batches(&self, rank: usize) -> usize {
        self.max_live_before_chunk(rank, 0)
    }

    /// The same for received inputs: the first chunk receives none.
    pub fn max_live_inputs(&self, rank: usize) -> usize {
        self.max_live_before_chunk(rank, 1)
    }

    fn max_live_before_chunk(&self, rank: usize, first: usize) -> usize {
        let (mut now, mut most) = (0usize, 0);
        for a in self.actions_by_rank[rank].iter().filter(|a| a.chunk >= first) {
            match a.is_backward {
                false => now += 1,
                true => now = now.saturating_sub(1),
            }
            most = most.max(now);
        }
        most
    }
}

fn all_chunks(each: usize, micro: usize) -> Vec<PipelineAction> {
    let one = |m: usize| {
        let forward = (0..each).map(move |c| PipelineAction::new(false, c, m));
        forward.chain((0..each).rev().map(move |c| PipelineAction::new(true, c, m)))
    };
    (0..micro).flat_map(one).collect()
}

/// The duration of actions.
#[derive(Clone, Debug)]
pub struct PipelineCosts {
    /// The forward pass of each chunk.
    pub forward: Vec<f64>,
    /// The backward pass of each chunk.
    pub backward: Vec<f64>,
    /// The latency from the end of an action until another rank has its result.
    pub message: f64,
}

/// The times of all actions.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineTimeline {
    /// The end of the last action.
    pub total: f64,
    /// The computing time of each rank.
    pub busy_time: Vec<f64>,
    /// (start, end) of each action of each rank.
    pub spans: Vec<Vec<(f64, f64)>>,
}

impl PipelineTimeline {
    /// Simulates a schedule; returns an error if ranks deadlock, or an action is missing.
    pub fn simulate(schedule: &PipelineSchedule, costs: &PipelineCosts) -> Result<PipelineTimeline> {
        let (ranks, chunks) = (schedule.actions_by_rank.len(), schedule.chunks());
        let place =
            |a: PipelineAction| (a.is_backward as usize * chunks + a.chunk) * schedule.micro_batches + a.micro_batch;
        let mut ends: Vec<Option<f64>> = vec![None; 2 * chunks * schedule.micro_batches];
        let (mut next, mut free) = (vec![0; ranks], vec![0.0f64; ranks]);
        let mut spans = vec![Vec::new(); ranks];
        let mut busy = vec![0.0; ranks];
        loop {
            let mut moved = false;
            for rank in 0..ranks {
                while let Some(&action) = schedule.actions_by_rank[rank].get(next[rank]) {
                    let mut start = free[rank];
                    let mut ready = true;
                    for need in action.dependencies(chunks) {
                        match ends[place(need)] {
                            Some(end) if schedule.rank_of(need.chunk) == rank => start = start.max(end),
                            Some(end) => start = start.max(end + costs.message),
                            None => ready = false,
                        }
                    }
                    if !ready {
                        break;
                    }
                    let long =
                        if action.is_backward { costs.backward[action.chunk] } else { costs.forward[action.chunk] };
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
        if let Some(rank) = (0..ranks).find(|&r| next[r] < schedule.actions_by_rank[r].len()) {
            return Err(Error::Rendezvous(format!("deadlock: rank {rank} of the pipeline waits forever")));
        }
        if ends.iter().any(Option::is_none) {
            return Err(Error::Rendezvous("the pipeline schedule is incomplete".into()));
        }
        Ok(PipelineTimeline { total: free.iter().fold(0.0, |a, b| a.max(*b)), busy_time: busy, spans })
    }

    /// The fraction of time in which ranks wait (the pipeline bubble).
    pub fn bubble_fraction(&self) -> f64 {
        let all = self.total * self.busy_time.len() as f64;
        if all == 0.0 { 0.0 } else { 1.0 - self.busy_time.iter().sum::<f64>() / all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn even(chunks: usize, forward: f64) -> PipelineCosts {
        PipelineCosts { forward: vec![forward; chunks], backward: vec![2.0 * forward; chunks], message: 0.0 }
    }

    fn sound(s: &PipelineSchedule) -> PipelineTimeline {
        let all: Vec<PipelineAction> = s.actions_by_rank.iter().flatten().copied().collect();
        let once: BTreeSet<PipelineAction> = all.iter().copied().collect();
        assert_eq!((all.len(), once.len()), (2 * s.chunks() * s.micro_batches, all.len()), "{s:?}");
        for (rank, list) in s.actions_by_rank.iter().enumerate() {
            assert!(list.iter().all(|a| s.rank_of(a.chunk) == rank));
        }
        PipelineTimeline::simulate(s, &even(s.chunks(), 1.0)).unwrap_or_else(|e| panic!("{e}: {s:?}"))
    }

    #[test]
    fn schedules_are_complete_and_nobody_waits_forever() {
        for ranks in 1..=8 {
            for micro in 1..=17 {
                let plain = PipelineSchedule::one_forward_one_backward(ranks, micro);
                let found = sound(&plain);
                // (p - 1) / (m + p - 1) of the time, for both schedules.
                let theory = (ranks - 1) as f64 / (micro + ranks - 1) as f64;
                assert!(
                    (found.bubble_fraction() - theory).abs() < 1e-9,
                    "{ranks} {micro}: {} {theory}",
                    found.bubble_fraction()
                );
                assert_eq!(found.total, sound(&PipelineSchedule::gpipe(ranks, micro)).total);
                for r in 0..ranks {
                    assert_eq!(plain.max_live_micro_batches(r), (ranks - r).min(micro));
                }
            }
            for each in 1..=4 {
                for rounds in 1..=4 {
                    let micro = ranks * rounds;
                    let s = PipelineSchedule::interleaved(ranks, each, micro).unwrap();
                    let found = sound(&s);
                    let theory = (ranks - 1) as f64 / (each * micro + ranks - 1) as f64;
                    assert!(
                        (found.bubble_fraction() - theory).abs() < 1e-9,
                        "{ranks} {each} {micro}: {} {theory}",
                        found.bubble_fraction()
                    );
                    // The messages that one rank sends are those that the other waits for.
                    for (from, to) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
                        let sent: BTreeSet<PipelineAction> = s.messages(from, to).into_iter().collect();
                        let wanted: BTreeSet<PipelineAction> =
                            (s.actions_by_rank[to].iter().flat_map(|a| a.dependencies(s.chunks())))
                                .filter(|a| s.rank_of(a.chunk) == from && from != to)
                                .collect();
                        assert_eq!(sent, wanted);
                    }
                }
            }
        }
        assert!(PipelineSchedule::interleaved(4, 2, 6).is_err());
    }

    #[test]
    fn a_schedule_that_can_not_be_is_found_out() {
        let mut s = PipelineSchedule::one_forward_one_backward(2, 2);
        s.actions_by_rank[0].swap(0, 1);
        s.actions_by_rank[0].reverse();
        assert!(PipelineTimeline::simulate(&s, &even(2, 1.0)).is_err());
        let mut s = PipelineSchedule::one_forward_one_backward(2, 2);
        s.actions_by_rank[1].pop();
        assert!(PipelineTimeline::simulate(&s, &even(2, 1.0)).is_err());
        // Messages add latency in both passes.
        let slow = PipelineTimeline::simulate(
            &PipelineSchedule::one_forward_one_backward(2, 1),
            &PipelineCosts { message: 0.5, ..even(2, 1.0) },
        )
        .unwrap();
        assert_eq!(slow.total, 1.0 + 0.5 + 3.0 + 0.5 + 2.0);
    }
}
