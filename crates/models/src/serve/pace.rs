//! How an engine's time is divided between steps of rows and parts of prompts, and which rows a step has.

use std::collections::BTreeMap;
use std::time::Duration;

/// A prompt of a client that is ahead of others gets one part of the time and their rows this many.
const ROWS: u32 = 3;

/// What steps and parts took.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// By the places of the program, what a step takes where nothing else has the cores: about the least of the last ones.
    steps: BTreeMap<usize, Duration>,
    /// What the last step took.
    last: Duration,
    /// Whether a part ran after the last step.
    part: bool,
    /// How long rows are stepped before a part runs again.
    owed: Duration,
}

/// Places of the program that steps so many rows.
fn places(rows: usize) -> usize {
    rows.max(2).next_power_of_two()
}

impl Pace {
    /// Whether one more part may run before the next step. Parts run for as long as a step takes; one may run in any case, unless its
    /// client is `ahead` of one that has rows.
    pub(crate) fn allows_part(&self, ahead: bool) -> bool {
        self.owed < self.last || self.last.is_zero() || !ahead && !self.part
    }

    pub(crate) fn part_took(&mut self, time: Duration, ahead: bool) {
        self.part = true;
        self.owed += if ahead { ROWS * time } else { time };
    }

    pub(crate) fn step_took(&mut self, rows: usize, time: Duration) {
        self.part = false;
        self.last = time;
        self.owed = self.owed.saturating_sub(time);
        // A step that others interrupted says little, and a program that seems slow would not be tried again.
        let least = self.steps.entry(places(rows)).or_insert(time);
        *least = time.min(*least + *least / 16);
    }

    /// There are no rows that could be kept waiting.
    pub(crate) fn no_rows(&mut self) {
        (self.part, self.owed) = (false, Duration::ZERO);
    }

    /// Whether a step of all rows is worth it where a few would do: as long as it takes little longer.
    pub(crate) fn steps_all(&self, few: usize, all: usize) -> bool {
        let usual = |rows| self.steps.get(&places(rows));
        match (usual(few), usual(all)) {
            _ if places(few) == places(all) => true,
            (Some(few), Some(all)) => 4 * *all <= 5 * *few,
            // What is not known yet is tried.
            (few, _) => few.is_some(),
        }
    }
}

/// The rows in an order in which the wanted ones are among the first so many; few of them move.
pub(crate) fn ordered(wanted: &[bool], first: usize) -> Vec<usize> {
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
            let mut pace = Pace::default();
            pace.step_took(2, ms(step));
            let (mut parts, mut steps, mut pause) = (0, 0, 0);
            while parts + steps < 20_000 {
                let mut here = 0;
                while pace.allows_part(ahead) {
                    pace.part_took(ms(part), ahead);
                    here += part;
                }
                (parts, pause) = (parts + here, pause.max(here));
                pace.step_took(2, ms(step));
                steps += step;
            }
            assert_eq!((100 * parts / (parts + steps), pause), (share, longest), "step {step} part {part} {ahead}");
        }
    }

    #[test]
    fn a_newcomer_does_not_wait_for_what_others_owe() {
        let mut pace = Pace::default();
        pace.step_took(2, ms(1));
        pace.part_took(ms(50), true);
        pace.step_took(2, ms(1));
        assert!(!pace.allows_part(true) && pace.allows_part(false));
        pace.part_took(ms(5), false);
        assert!(!pace.allows_part(false));
        pace.no_rows();
        assert!(pace.allows_part(true));
    }

    #[test]
    fn rows_that_cost_little_run_along() {
        let mut pace = Pace::default();
        // Unknown ones are tried, the small one first.
        assert!(!pace.steps_all(1, 8) && pace.steps_all(5, 8));
        pace.step_took(1, ms(10));
        assert!(pace.steps_all(1, 8) && pace.steps_all(2, 8));
        pace.step_took(8, ms(12));
        assert!(pace.steps_all(1, 8) && pace.steps_all(1, 7));
        (0..20).for_each(|_| pace.step_took(8, ms(20)));
        assert!(!pace.steps_all(1, 8) && !pace.steps_all(2, 5) && pace.steps_all(5, 8));
        // One that was interrupted changes nothing.
        pace.step_took(2, ms(500));
        assert!(!pace.steps_all(1, 8));
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
            assert_eq!(ordered(&wanted, first), expected, "{wanted:?}");
        }
    }
}
