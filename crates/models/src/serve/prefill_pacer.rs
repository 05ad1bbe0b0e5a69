//! Divides an engine's time between decode steps and prefill chunks, and selects the rows of a step.

use std::collections::BTreeMap;
use std::time::Duration;

/// If the client of a prompt is ahead of others, the decode steps get this many times the time of its prefill chunks.
const DECODE_SHARES: u32 = 3;

/// Measured times of decode steps and prefill chunks.
#[derive(Debug, Default)]
pub(crate) struct PrefillPacer {
    /// The time of an uninterrupted step by the row capacity of its program: about the least of the last ones.
    steps: BTreeMap<usize, Duration>,
    /// The time of the last step.
    last_step: Duration,
    /// Whether a chunk ran after the last step.
    prefill_ran: bool,
    /// The time that decode steps get before the next chunk runs.
    decode_time_owed: Duration,
}

/// The row capacity of the program that decodes this many rows.
fn batch_bucket(rows: usize) -> usize {
    rows.max(2).next_power_of_two()
}

impl PrefillPacer {
    /// Whether one more chunk may run before the next step. Chunks run for as long as a step takes; at least one may run, unless
    /// its client is `ahead` of one that has rows.
    pub(crate) fn allows_prefill(&self, ahead: bool) -> bool {
        self.decode_time_owed < self.last_step || self.last_step.is_zero() || !ahead && !self.prefill_ran
    }

    pub(crate) fn record_prefill(&mut self, time: Duration, ahead: bool) {
        self.prefill_ran = true;
        self.decode_time_owed += if ahead { DECODE_SHARES * time } else { time };
    }

    pub(crate) fn record_step(&mut self, rows: usize, time: Duration) {
        self.prefill_ran = false;
        self.last_step = time;
        self.decode_time_owed = self.decode_time_owed.saturating_sub(time);
        // A step may be slowed by other processes, so the estimate is close to the minimum: a
        // program that seems slow would not be tried again.
        let least = self.steps.entry(batch_bucket(rows)).or_insert(time);
        *least = time.min(*least + *least / 16);
    }

    /// Called when no rows wait for a decode step.
    pub(crate) fn reset(&mut self) {
        (self.prefill_ran, self.decode_time_owed) = (false, Duration::ZERO);
    }

    /// Whether to decode all rows where a few would do: if it takes at most a quarter longer.
    pub(crate) fn should_step_all(&self, few: usize, all: usize) -> bool {
        let usual = |rows| self.steps.get(&batch_bucket(rows));
        match (usual(few), usual(all)) {
            _ if batch_bucket(few) == batch_bucket(all) => true,
            (Some(few), Some(all)) => 4 * *all <= 5 * *few,
            // An unknown time is measured.
            (few, _) => few.is_some(),
        }
    }
}

/// Returns the rows in an order with the wanted ones among the first `first`; moves as few as possible.
pub(crate) fn order_rows(wanted: &[bool], first: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let mut free = (0..first).filter(|row| !wanted[*row]);
    for row in (first..wanted.len()).filter(|row| wanted[*row]) {
        if let Some(to) = free.next() {
            order.swap(row, to);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Tests the share of the time that prefill chunks get beside decoding, for these times of chunks and steps.
    #[test]
    fn time_is_divided() {
        // Milliseconds of a step and of a chunk, whether the prompt's client is ahead; the chunks'
        // share of the time in percent, the longest pause.
        let cases = [
            (10, 10, false, 50, 10),
            (10, 1, false, 50, 10),
            // At least one chunk runs between two steps.
            (1, 10, false, 90, 10),
            (10, 10, true, 25, 10),
            (10, 2, true, 25, 4),
            (1, 10, true, 25, 10),
        ];
        for (step, part, ahead, share, longest) in cases {
            let mut pace = PrefillPacer::default();
            pace.record_step(2, ms(step));
            let (mut parts, mut steps, mut pause) = (0, 0, 0);
            while parts + steps < 20_000 {
                let mut here = 0;
                while pace.allows_prefill(ahead) {
                    pace.record_prefill(ms(part), ahead);
                    here += part;
                }
                (parts, pause) = (parts + here, pause.max(here));
                pace.record_step(2, ms(step));
                steps += step;
            }
            assert_eq!((100 * parts / (parts + steps), pause), (share, longest), "step {step} part {part} {ahead}");
        }
    }

    #[test]
    fn a_newcomer_does_not_wait_for_what_others_owe() {
        let mut pace = PrefillPacer::default();
        pace.record_step(2, ms(1));
        pace.record_prefill(ms(50), true);
        pace.record_step(2, ms(1));
        assert!(!pace.allows_prefill(true) && pace.allows_prefill(false));
        pace.record_prefill(ms(5), false);
        assert!(!pace.allows_prefill(false));
        pace.reset();
        assert!(pace.allows_prefill(true));
    }

    #[test]
    fn rows_that_cost_little_run_along() {
        let mut pace = PrefillPacer::default();
        // Unknown programs are measured, the smaller one first.
        assert!(!pace.should_step_all(1, 8) && pace.should_step_all(5, 8));
        pace.record_step(1, ms(10));
        assert!(pace.should_step_all(1, 8) && pace.should_step_all(2, 8));
        pace.record_step(8, ms(12));
        assert!(pace.should_step_all(1, 8) && pace.should_step_all(1, 7));
        (0..20).for_each(|_| pace.record_step(8, ms(20)));
        assert!(!pace.should_step_all(1, 8) && !pace.should_step_all(2, 5) && pace.should_step_all(5, 8));
        // An interrupted step changes nothing.
        pace.record_step(2, ms(500));
        assert!(!pace.should_step_all(1, 8));
    }

    #[test]
    fn wanted_rows_come_first() {
        for (wanted, first, expected) in [
            ("1000", 2, [0, 1, 2, 3]),
            ("0100", 2, [0, 1, 2, 3]),
            ("0001", 2, [3, 1, 2, 0]),
            ("0101", 2, [3, 1, 2, 0]),
            ("0011", 2, [2, 3, 0, 1]),
            ("1101", 4, [0, 1, 2, 3]),
        ] {
            let wanted: Vec<bool> = wanted.bytes().map(|byte| byte == b'1').collect();
            assert_eq!(order_rows(&wanted, first), expected, "{wanted:?}");
        }
    }
}
