//! The server in front of the engines: takes requests, hands them over, and sends tokens back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::catalog::HostOverhead;
use crate::units::Ticks;

/// What the server costs a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontEnd {
    /// From the client's request to the engine's queue, as far as requests do not wait for each other.
    pub request: Ticks,
    /// What the server does for one request at a time, per request.
    pub serial_request: Ticks,
    /// The same per token of the prompt.
    pub serial_prompt_token: Ticks,
    /// From the end of a step to the token at the client.
    pub response: Ticks,
}

impl FrontEnd {
    /// The server of an engine version.
    #[must_use]
    pub fn new(host: &HostOverhead) -> Self {
        let ticks = |us: f64| Ticks::from_ns(us * 1e3);
        Self {
            request: ticks(host.request_us),
            serial_request: ticks(host.serial_request_us),
            serial_prompt_token: ticks(host.serial_prompt_token_us),
            response: ticks(host.response_us),
        }
    }

    /// A server that only delays.
    #[must_use]
    pub const fn latencies(request: Ticks, response: Ticks) -> Self {
        Self { request, serial_request: Ticks::ZERO, serial_prompt_token: Ticks::ZERO, response }
    }

    fn serial(&self, prompt_tokens: u32) -> Ticks {
        Ticks(self.serial_request.0 + self.serial_prompt_token.0 * u64::from(prompt_tokens))
    }
}

/// Requests between client and engine. Each replica has a server of its own; requests take turns among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    /// When each server is free again.
    free: Vec<Ticks>,
    sent: usize,
    /// (arrival at the engine, request), the first to arrive on top.
    underway: BinaryHeap<Reverse<(Ticks, u32)>>,
}

impl Inbox {
    pub(crate) fn reset(&mut self, servers: usize) {
        self.free.clear();
        self.free.resize(servers, Ticks::ZERO);
        self.sent = 0;
        self.underway.clear();
    }

    /// A client sends a request.
    pub(crate) fn send(&mut self, index: u32, prompt_tokens: u32, now: Ticks, front_end: &FrontEnd) {
        let server = self.sent % self.free.len();
        self.sent += 1;
        let done = self.free[server].max(now) + front_end.serial(prompt_tokens);
        self.free[server] = done;
        self.underway.push(Reverse((done + front_end.request, index)));
    }

    /// When the next request reaches an engine.
    pub(crate) fn next_arrival(&self) -> Ticks {
        self.underway.peek().map_or(Ticks::NEVER, |Reverse((arrival, _))| *arrival)
    }

    /// Takes the request that reaches an engine next.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.underway.pop().map(|Reverse((_, index))| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_come_together_are_handled_one_after_the_other() {
        let front_end = FrontEnd {
            request: Ticks(100),
            serial_request: Ticks(10),
            serial_prompt_token: Ticks(2),
            response: Ticks::ZERO,
        };
        let arrivals = |servers: usize| {
            let mut inbox = Inbox::default();
            inbox.reset(servers);
            for (index, prompt_tokens) in [5, 10, 1].into_iter().enumerate() {
                inbox.send(index as u32, prompt_tokens, Ticks(0), &front_end);
            }
            inbox.send(3, 0, Ticks(1000), &front_end);
            let mut arrivals = Vec::new();
            while let (arrival, Some(index)) = (inbox.next_arrival(), inbox.take()) {
                arrivals.push((arrival.0, index));
            }
            arrivals
        };
        // 10 + 2 x 5, then 10 + 2 x 10, then 10 + 2.
        assert_eq!(arrivals(1), [(120, 0), (150, 1), (162, 2), (1110, 3)]);
        // Two servers take turns.
        assert_eq!(arrivals(2), [(120, 0), (130, 1), (132, 2), (1110, 3)]);
    }
}
