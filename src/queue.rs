//! Keys changed or due, first in, first out.
//!
//! A key stands in line once. While one pass works on a key no other pass gets it; a change that
//! comes meanwhile puts it in line again when the pass ends. Nothing is rate-limited: a change is
//! worked on as soon as its turn comes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The queue. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    line: VecDeque<K>,
    in_line: HashSet<K>,
    running: HashSet<K>,
    /// Changed while a pass worked on it.
    again: HashSet<K>,
    due: BTreeMap<(Instant, u64), K>,
    due_of: HashMap<K, (Instant, u64)>,
    serial: u64,
}

impl<K: Clone + Eq + Hash> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                line: VecDeque::new(),
                in_line: HashSet::new(),
                running: HashSet::new(),
                again: HashSet::new(),
                due: BTreeMap::new(),
                due_of: HashMap::new(),
                serial: 0,
            }),
            wake: Notify::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // The state is consistent between any two statements that could panic; there are none.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `key` in line now.
    pub fn push(&self, key: K) {
        let mut state = self.lock();
        state.push(key);
        drop(state);
        self.wake.notify_one();
    }

    /// Puts `key` in line after `delay`, unless it is due earlier already.
    pub fn push_after(&self, key: K, delay: Duration) {
        let at = now() + delay;
        let mut state = self.lock();
        if state.due_of.get(&key).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        if let Some(old) = state.due_of.remove(&key) {
            state.due.remove(&old);
        }
        state.serial += 1;
        let entry = (at, state.serial);
        state.due.insert(entry, key.clone());
        state.due_of.insert(key, entry);
        drop(state);
        self.wake.notify_one();
    }

    /// Keys in line, not those that are due later.
    pub fn depth(&self) -> usize {
        self.lock().line.len()
    }

    /// The next key. The caller works on it alone until it calls [`Queue::done`].
    pub async fn pop(&self) -> K {
        loop {
            let next_due = {
                let mut state = self.lock();
                state.admit_due(now());
                if let Some(key) = state.line.pop_front() {
                    state.in_line.remove(&key);
                    state.running.insert(key.clone());
                    let more = !state.line.is_empty();
                    drop(state);
                    if more {
                        // One wake may stand for several keys.
                        self.wake.notify_one();
                    }
                    return key;
                }
                state.due.keys().next().map(|(at, _)| *at)
            };
            match next_due {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.wake.notified() => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// The pass over `key` has ended.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        state.running.remove(key);
        if state.again.remove(key) {
            state.push(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn push(&mut self, key: K) {
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.in_line.insert(key.clone()) {
            self.line.push_back(key);
        }
    }

    fn admit_due(&mut self, now: Instant) {
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due_of.remove(&key);
            self.push(key);
        }
    }
}

fn now() -> Instant {
    // The runtime's clock, which tests can hold.
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn keys_come_in_order_and_once() {
        let queue = Queue::default();
        for key in ["a", "b", "a", "c"] {
            queue.push(key);
        }
        assert_eq!(queue.depth(), 3);
        assert_eq!(
            [queue.pop().await, queue.pop().await, queue.pop().await],
            ["a", "b", "c"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_during_a_pass_comes_after_it() {
        let queue = Queue::default();
        queue.push("a");
        assert_eq!(queue.pop().await, "a");
        queue.push("a");
        assert_eq!(queue.depth(), 0);
        queue.done(&"a");
        assert_eq!(queue.pop().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_due_time_wins() {
        let queue = Queue::default();
        let begun = tokio::time::Instant::now();
        queue.push_after("a", Duration::from_secs(60));
        queue.push_after("a", Duration::from_secs(5));
        queue.push_after("a", Duration::from_secs(30));
        assert_eq!(queue.pop().await, "a");
        assert_eq!(begun.elapsed().as_secs(), 5);
        queue.done(&"a");
        let none = tokio::time::timeout(Duration::from_secs(300), queue.pop()).await;
        assert!(none.is_err());
    }
}
