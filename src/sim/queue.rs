//! The event queue: one pending event per slot, in a tournament tree.
//!
//! Order of events, the only definition of it: earlier time first; at equal times arrivals, then step ends by slot, then
//! the starts of new steps.

use crate::units::Ticks;

/// Pending events by slot. A slot is one pipeline lane of one replica; its event is the end of the steps in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotQueue {
    times: Vec<Ticks>,
    /// Winners; leaf `i` is node `leaves + i`, the root is node 1.
    winners: Vec<u32>,
    leaves: usize,
}

impl SlotQueue {
    /// Empties the queue and gives it this many slots, at least one.
    pub(crate) fn reset(&mut self, slots: usize) {
        self.leaves = slots.next_power_of_two().max(2);
        self.times.clear();
        self.times.resize(self.leaves, Ticks::NEVER);
        self.winners.clear();
        self.winners.resize(2 * self.leaves, 0);
        for leaf in 0..self.leaves {
            self.winners[self.leaves + leaf] = leaf as u32;
        }
        for node in (1..self.leaves).rev() {
            self.winners[node] = self.winners[2 * node];
        }
    }

    /// Sets the time of a slot's event; [`Ticks::NEVER`] removes it.
    pub(crate) fn set(&mut self, slot: usize, time: Ticks) {
        self.times[slot] = time;
        let mut node = (self.leaves + slot) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            // Left slots have lower numbers, so `<=` keeps the order among equal times.
            let left_wins = self.times[left as usize] <= self.times[right as usize];
            self.winners[node] = if left_wins { left } else { right };
            node /= 2;
        }
    }

    /// Time and slot of the next event; [`Ticks::NEVER`] if there is none.
    pub(crate) fn next(&self) -> (Ticks, usize) {
        let slot = self.winners[1] as usize;
        (self.times[slot], slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_times_come_out_by_slot() {
        let mut queue = SlotQueue::default();
        queue.reset(5);
        for slot in [4, 1, 3] {
            queue.set(slot, Ticks(10));
        }
        queue.set(2, Ticks(11));
        let mut order = Vec::new();
        while queue.next().0 != Ticks::NEVER {
            let (_, slot) = queue.next();
            order.push(slot);
            queue.set(slot, Ticks::NEVER);
        }
        assert_eq!(order, [1, 3, 4, 2]);
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_scan(slots in 1usize..40, updates in prop::collection::vec((0usize..40, 0u64..50), 1..200)) {
            let mut queue = SlotQueue::default();
            queue.reset(slots);
            let mut times = vec![Ticks::NEVER; slots];
            for (slot, time) in updates {
                let slot = slot % slots;
                let time = if time == 0 { Ticks::NEVER } else { Ticks(time) };
                times[slot] = time;
                queue.set(slot, time);
                let expected = times.iter().copied().enumerate().map(|(slot, time)| (time, slot)).min().unwrap();
                prop_assert_eq!(queue.next().0, expected.0);
                if expected.0 != Ticks::NEVER {
                    prop_assert_eq!(queue.next(), expected);
                }
            }
        }
    }
}
