//! A regular expression as a table: states, classes of bytes, and which states can still lead to a match.

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::HashMap;

/// No way to a match from here.
pub(super) const DEAD: u32 = u32::MAX;

/// Bytes that building an automaton may take.
const LARGEST: usize = 64 << 20;

/// A deterministic automaton that matches whole texts.
pub(super) struct Automaton {
    /// The class of each byte.
    classes: [u8; 256],
    width: usize,
    table: Vec<u32>,
    accepting: Vec<bool>,
    start: u32,
}

impl Automaton {
    pub(super) fn new(pattern: &str) -> Result<Automaton, String> {
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(LARGEST))
            .determinize_size_limit(Some(LARGEST));
        let nfa = thompson::Config::new().nfa_size_limit(Some(LARGEST / 4));
        let built = dense::Builder::new().configure(config).thompson(nfa).build(pattern);
        let dfa = built.map_err(|e| {
            let mut text = e.to_string();
            let mut cause = std::error::Error::source(&e);
            while let Some(inner) = cause {
                text = inner.to_string();
                cause = inner.source();
            }
            format!("the expression can't be used: {text}")
        })?;
        let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::Yes)).map_err(|e| e.to_string())?;
        let mut classes = [0u8; 256];
        let mut representatives = Vec::new();
        for byte in 0..=255u8 {
            let class = dfa.byte_classes().get(byte);
            classes[byte as usize] = class;
            if usize::from(class) == representatives.len() {
                representatives.push(byte);
            }
        }
        let width = representatives.len();
        let (mut numbers, mut order) = (HashMap::from([(start, 0u32)]), vec![start]);
        let (mut table, mut accepting): (Vec<u32>, Vec<bool>) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < order.len() {
            let state: StateID = order[at];
            at += 1;
            accepting.push(dfa.is_match_state(dfa.next_eoi_state(state)));
            for byte in &representatives {
                let next = dfa.next_state(state, *byte);
                if dfa.is_quit_state(next) {
                    return Err("the expression can't be used: word boundaries need (?-u)".into());
                }
                table.push(match dfa.is_dead_state(next) {
                    true => DEAD,
                    false => *numbers.entry(next).or_insert_with(|| {
                        order.push(next);
                        order.len() as u32 - 1
                    }),
                });
            }
        }
        let mut found = Automaton { classes, width, table, accepting, start: 0 };
        found.prune();
        Ok(found)
    }

    /// Ways into states from which no match can be reached go nowhere.
    fn prune(&mut self) {
        let states = self.accepting.len();
        let mut into: Vec<Vec<u32>> = vec![Vec::new(); states];
        for state in 0..states {
            for &next in &self.table[state * self.width..(state + 1) * self.width] {
                if next != DEAD {
                    into[next as usize].push(state as u32);
                }
            }
        }
        let mut live = self.accepting.clone();
        let mut open: Vec<u32> = (0..states as u32).filter(|state| live[*state as usize]).collect();
        while let Some(state) = open.pop() {
            for &before in &into[state as usize] {
                if !std::mem::replace(&mut live[before as usize], true) {
                    open.push(before);
                }
            }
        }
        for next in &mut self.table {
            if *next != DEAD && !live[*next as usize] {
                *next = DEAD;
            }
        }
        if !live[0] {
            self.start = DEAD;
        }
    }

    pub(super) fn start(&self) -> u32 {
        self.start
    }

    pub(super) fn next(&self, state: u32, byte: u8) -> u32 {
        if state == DEAD {
            return DEAD;
        }
        self.table[state as usize * self.width + usize::from(self.classes[byte as usize])]
    }

    pub(super) fn accepts(&self, state: u32) -> bool {
        self.accepting.get(state as usize).copied().unwrap_or(false)
    }

    /// Whether nothing can follow.
    pub(super) fn ends(&self, state: u32) -> bool {
        state == DEAD || {
            let from = state as usize * self.width;
            self.table[from..from + self.width].iter().all(|next| *next == DEAD)
        }
    }

    /// Whether some text that matches has one of these bytes.
    pub(super) fn has(&self, bytes: impl Iterator<Item = u8> + Clone) -> bool {
        (0..self.accepting.len() as u32).any(|state| bytes.clone().any(|byte| self.next(state, byte) != DEAD))
    }
}
