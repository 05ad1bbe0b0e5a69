//! Compiles a regular expression to a table: states, byte classes, and the states from which a match is still possible.
//!
//! The table is built by the subset construction on the expression's NFA. Its size can be exponential in that of the expression,
//! so every elementary step is counted: an expression costs at most its [`WorkBudget`].

use regex_automata::nfa::thompson::{self, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use std::collections::HashMap;

/// The dead state: no match is possible from here.
pub(super) const DEAD: u32 = u32::MAX;

/// Maximum size of an NFA in bytes.
const MAX_NFA_BYTES: usize = 4 << 20;
/// Maximum number of entries of a table, and of the sets that its states represent.
const MAX_TABLE_ENTRIES: usize = 2 << 20;

/// The budget for building automata. All constraints of a request share one.
pub(super) struct WorkBudget {
    steps: u64,
}

impl WorkBudget {
    /// A second or less in a release build.
    pub(super) const STEPS: u64 = 30_000_000;

    pub(super) fn new() -> WorkBudget {
        WorkBudget { steps: WorkBudget::STEPS }
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), String> {
        match self.steps.checked_sub(steps as u64) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err("the regular expression takes too long to compile: simplify it or the schema".into()),
        }
    }
}

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
    pub(super) fn new(pattern: &str, budget: &mut WorkBudget) -> Result<Automaton, String> {
        // The parser reads every byte several times.
        budget.spend(8 * pattern.len())?;
        let config = thompson::Config::new().nfa_size_limit(Some(MAX_NFA_BYTES)).which_captures(WhichCaptures::None);
        let nfa = NFA::compiler().configure(config).build(pattern).map_err(|e| {
            if e.size_limit().is_some() {
                return format!(
                    "the regular expression is too large, its automaton exceeds {MAX_NFA_BYTES} bytes: simplify it or \
                     the schema"
                );
            }
            let mut text = e.to_string();
            let mut cause = std::error::Error::source(&e);
            while let Some(inner) = cause {
                text = inner.to_string();
                cause = inner.source();
            }
            // The last line of the message is the reason, below an excerpt with the position.
            let reason = text.lines().last().unwrap_or_default().trim();
            format!("the regular expression is not supported: {}", reason.strip_prefix("error: ").unwrap_or(reason))
        })?;
        let known = [Look::Start, Look::End];
        if nfa.look_set_any().iter().any(|look| !known.contains(&look)) {
            return Err("the regular expression is not supported: it has word boundaries or line anchors".into());
        }
        budget.spend(16 * nfa.states().len())?;
        let mut found = SubsetConstruction::new(&nfa).determinise(budget)?;
        found.prune(budget)?;
        Ok(found)
    }

    /// Replaces transitions to states from which no match is reachable by the dead state.
    fn prune(&mut self, budget: &mut WorkBudget) -> Result<(), String> {
        let states = self.accepting.len();
        budget.spend(self.table.len())?;
        let mut into: Vec<Vec<u32>> = vec![Vec::new(); states];
        for state in 0..states {
            let mut last = DEAD;
            for &next in &self.table[state * self.width..(state + 1) * self.width] {
                if next != DEAD && next != last {
                    into[next as usize].push(state as u32);
                    last = next;
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
        Ok(())
    }

    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// The memory of the automaton in bytes.
    pub(super) fn bytes(&self) -> usize {
        4 * self.table.len() + self.accepting.len() + size_of::<Automaton>()
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

    /// Whether no byte can follow.
    pub(super) fn is_final(&self, state: u32) -> bool {
        state == DEAD || {
            let from = state as usize * self.width;
            self.table[from..from + self.width].iter().all(|next| *next == DEAD)
        }
    }

    /// Whether some matching text contains one of these bytes.
    pub(super) fn may_contain(&self, bytes: impl Iterator<Item = u8> + Clone) -> bool {
        (0..self.accepting.len() as u32).any(|state| bytes.clone().any(|byte| self.next(state, byte) != DEAD))
    }
}

/// The state of the subset construction.
struct SubsetConstruction<'a> {
    nfa: &'a NFA,
    classes: [u8; 256],
    width: usize,
    /// Marks of the states in the current closure.
    marks: Vec<u32>,
    mark: u32,
}

/// A sorted set of NFA states.
type NfaStateSet = Box<[StateID]>;

impl<'a> SubsetConstruction<'a> {
    fn new(nfa: &'a NFA) -> SubsetConstruction<'a> {
        let mut classes = [0u8; 256];
        for byte in 0..=255u8 {
            classes[byte as usize] = nfa.byte_classes().get(byte);
        }
        let width = usize::from(classes[255]) + 1;
        SubsetConstruction { nfa, classes, width, marks: vec![0; nfa.states().len()], mark: 0 }
    }

    /// The epsilon closure: states that read a byte, that accept, or that wait for the end of the text.
    fn closure(
        &mut self,
        from: &[StateID],
        begins: bool,
        ends: bool,
        budget: &mut WorkBudget,
    ) -> Result<NfaStateSet, String> {
        self.mark += 1;
        let mut open = from.to_vec();
        let mut found = Vec::new();
        let mut steps = 0;
        while let Some(id) = open.pop() {
            steps += 1;
            if std::mem::replace(&mut self.marks[id.as_usize()], self.mark) == self.mark {
                continue;
            }
            match self.nfa.state(id) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Match { .. } => found.push(id),
                State::Look { look, next } => match look {
                    Look::Start if begins => open.push(*next),
                    Look::Start => {}
                    _ if ends => open.push(*next),
                    _ => found.push(id),
                },
                State::Union { alternates } => open.extend(alternates.iter().copied()),
                State::BinaryUnion { alt1, alt2 } => open.extend([*alt1, *alt2]),
                State::Capture { next, .. } => open.push(*next),
                State::Fail => {}
            }
        }
        budget.spend(steps + 2 * found.len())?;
        found.sort_unstable();
        Ok(found.into())
    }

    fn determinise(mut self, budget: &mut WorkBudget) -> Result<Automaton, String> {
        let first = self.closure(&[self.nfa.start_anchored()], true, false, budget)?;
        let mut numbers: HashMap<NfaStateSet, u32> = HashMap::from([(first.clone(), 0)]);
        // The sets that byte classes lead to, before their closure: many are equal.
        let mut reached: HashMap<NfaStateSet, u32> = HashMap::new();
        let mut order = vec![first];
        let (mut table, mut accepting): (Vec<u32>, Vec<bool>) = (Vec::new(), Vec::new());
        let mut kept = 0;
        let mut at = 0;
        while at < order.len() {
            let set = order[at].clone();
            accepting.push(self.accepts(&set, at == 0, budget)?);
            at += 1;
            for next in self.targets(&set, budget)? {
                if next.is_empty() {
                    table.push(DEAD);
                    continue;
                }
                if let Some(known) = reached.get(&next) {
                    table.push(*known);
                    continue;
                }
                let whole = self.closure(&next, false, false, budget)?;
                let number = match numbers.get(&whole) {
                    Some(number) => *number,
                    None => {
                        kept += whole.len() + 8;
                        order.push(whole.clone());
                        numbers.insert(whole, order.len() as u32 - 1);
                        order.len() as u32 - 1
                    }
                };
                kept += next.len() + 8;
                reached.insert(next, number);
                table.push(number);
            }
            if table.len() + kept > MAX_TABLE_ENTRIES {
                return Err(format!(
                    "the regular expression is too large, its automaton has more than {MAX_TABLE_ENTRIES} entries: \
                     simplify it or the schema"
                ));
            }
        }
        Ok(Automaton { classes: self.classes, width: self.width, table, accepting, start: 0 })
    }

    fn accepts(&mut self, set: &[StateID], begins: bool, budget: &mut WorkBudget) -> Result<bool, String> {
        let is_match = |id: &StateID| matches!(self.nfa.state(*id), State::Match { .. });
        if set.iter().any(is_match) {
            return Ok(true);
        }
        if !set.iter().any(|id| matches!(self.nfa.state(*id), State::Look { .. })) {
            return Ok(false);
        }
        let ended = self.closure(set, begins, true, budget)?;
        Ok(ended.iter().any(|id| matches!(self.nfa.state(*id), State::Match { .. })))
    }

    /// The target of each byte class.
    fn targets(&self, set: &[StateID], budget: &mut WorkBudget) -> Result<Vec<NfaStateSet>, String> {
        let mut targets: Vec<Vec<StateID>> = vec![Vec::new(); self.width];
        let mut steps = self.width;
        let mut range = |from: u8, to: u8, next: StateID| {
            let (first, last) = (self.classes[from as usize] as usize, self.classes[to as usize] as usize);
            steps += last - first + 1;
            targets[first..=last].iter_mut().for_each(|target| target.push(next));
        };
        for id in set {
            match self.nfa.state(*id) {
                State::ByteRange { trans } => range(trans.start, trans.end, trans.next),
                State::Sparse(sparse) => {
                    sparse.transitions.iter().for_each(|trans| range(trans.start, trans.end, trans.next));
                }
                State::Dense(dense) => {
                    let mut class = None;
                    for (byte, next) in dense.transitions.iter().enumerate() {
                        let own = self.classes[byte];
                        if *next != StateID::ZERO && class != Some(own) {
                            range(byte as u8, byte as u8, *next);
                        }
                        class = Some(own);
                    }
                }
                _ => {}
            }
        }
        budget.spend(2 * steps)?;
        let sorted = targets.into_iter().map(|mut target| {
            target.sort_unstable();
            target.dedup();
            target.into_boxed_slice()
        });
        Ok(sorted.collect())
    }
}
