//! How an engine's time is divided between steps of rows and parts of prompts, and which rows a step has.

use std::collections::BTreeMap;
use std::time::Duration;

/// A prompt of a client that is ahead of others gets one part of the time and their rows this many.
const DECODE_SHARES: u32 = 3;

/// What steps and parts took.
#[derive(Debug, Default)]
pub(crate) struct PrefillPacer {
    /// By the places of the program, what a step takes where nothing else has the cores: about the least of the last ones.
    steps: BTreeMap<usize, Duration>,
    /// What the last step took.
    last_step: Duration,
    /// Whether a part ran after the last step.
    prefill_ran: bool,
    /// How long rows are stepped before a part runs again.
    decode_time_owed: Duration,
}

/// Places of the program that steps so many rows.
fn batch_bucket(rows: usize) -> usize {
    rows.max(2).next_power_of_two()
}

impl PrefillPacer {
    /// Whether one more part may run before the next step. Parts run for as long as a step takes; one may run in any case, unless its
    /// client is `ahead` of one that has rows.
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
        // A step that others interrupted says little, and a program that seems slow would not be tried again.
        let least = self.steps.entry(batch_bucket(rows)).or_insert(time);
        *least = time.min(*least + *least / 16);
    }

    /// There are no rows that could be kept waiting.
    pub(crate) fn reset(&mut self) {
        (self.prefill_ran, self.decode_time_owed) = (false, Duration::ZERO);
    }

    /// Whether a step of all rows is worth it where a few would do: as long as it takes little longer.
    pub(crate) fn should_step_all(&self, few: usize, all: usize) -> bool {
        let usual = |rows| self.steps.get(&batch_bucket(rows));
        match (usual(few), usual(all)) {
            _ if batch_bucket(few) == batch_bucket(all) => true,
            (Some(few), Some(all)) => 4 * *all <= 5 * *few,
            // What is not known yet is tried.
            (few, _) => few.is_some(),
        }
    }
}

/// The rows in an order in which the wanted ones are among the first so many; few of them move.
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

    /// How much of the time parts of a prompt get beside rows, for parts and steps of these lengths.
    #[test]
    fn time_is_divided() {
        // Milliseconds of a step and of a part, whether the prompt's client is ahead; the parts' time of 100, the longest pause.
        let cases = [
            (10, 10, false, 50, 10),
            (10, 1, false, 50, 10),
            // One part at least is run between two steps.
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
        // Unknown ones are tried, the small one first.
        assert!(!pace.should_step_all(1, 8) && pace.should_step_all(5, 8));
        pace.record_step(1, ms(10));
        assert!(pace.should_step_all(1, 8) && pace.should_step_all(2, 8));
        pace.record_step(8, ms(12));
        assert!(pace.should_step_all(1, 8) && pace.should_step_all(1, 7));
        (0..20).for_each(|_| pace.record_step(8, ms(20)));
        assert!(!pace.should_step_all(1, 8) && !pace.should_step_all(2, 5) && pace.should_step_all(5, 8));
        // One that was interrupted changes nothing.
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
