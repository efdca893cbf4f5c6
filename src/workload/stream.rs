//! The requests a simulation receives.

use crate::spec::Prefix;
use crate::units::Ticks;

/// One request. Its place in [`RequestStream::requests`] is its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Arrival. In a closed loop this is zero: the request is issued when a client becomes free. A later turn does not
    /// arrive before this moment, nor before the turn it follows has ended.
    pub arrival: Ticks,
    /// Prompt length, at least one token.
    pub prompt_tokens: u32,
    /// Output length, at least one token.
    pub output_tokens: u32,
}

impl Request {
    /// Prompt and output together, in tokens.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }
}

/// A later turn of a session: it arrives when the turn before it has ended and its user has thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The turn before, an earlier request.
    pub follows: u32,
    /// From the last token of the turn before, at the client, to the next request.
    pub think: Ticks,
}

/// A stream shared by every candidate with the same (workload, seed, load): common random numbers make comparisons
/// several times tighter than independent draws.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestStream {
    /// Requests by arrival; in a closed loop, in the order in which clients issue them. Later turns stand anywhere after
    /// the turn they follow.
    pub requests: Vec<Request>,
    /// Number of clients of a closed loop, each starting its next session when its last one ends (a request without
    /// turns is a session of its own); `None` for an open loop.
    pub clients: Option<u32>,
    /// The first so many requests load the system but are not measured.
    pub warmup: usize,
    pub(super) prefixes: Vec<Option<Prefix>>,
    pub(super) turns: Vec<Option<Turn>>,
}

impl RequestStream {
    /// Requests at their own times, by arrival.
    #[must_use]
    pub fn open(requests: Vec<Request>) -> Self {
        Self { requests, ..Self::default() }
    }

    /// Requests of so many clients, each sending its next when its last one completes.
    #[must_use]
    pub fn closed(requests: Vec<Request>, clients: u32) -> Self {
        Self { requests, clients: Some(clients), ..Self::default() }
    }

    /// Sessions of turns, in the order in which they start. A later turn is sent `think` after the one before has ended,
    /// not before its own arrival, and its prompt begins with the prompt and the answer of that one, as far as it is long
    /// enough. Set `clients` for a closed loop of sessions.
    #[must_use]
    pub fn sessions(sessions: impl IntoIterator<Item = Vec<Request>>, think: Ticks) -> Self {
        let mut stream = Self::default();
        for session in sessions {
            let mut previous: Option<(u32, u32)> = None;
            for request in session {
                let index = stream.requests.len() as u32;
                let prefix =
                    previous.map(|(source, tokens)| Prefix { source, tokens: tokens.min(request.prompt_tokens) });
                stream.prefixes.push(prefix);
                stream.turns.push(previous.map(|(follows, _)| Turn { follows, think }));
                stream.requests.push(request);
                previous = Some((index, request.tokens()));
            }
        }
        stream
    }

    /// The same stream with the first `warmup` requests not measured.
    #[must_use]
    pub fn with_warmup(self, warmup: usize) -> Self {
        Self { warmup, ..self }
    }

    /// The same stream with one entry per request that says what its prompt has in common with an earlier one.
    ///
    /// # Errors
    /// A message if the number of entries is not that of the requests, a source is not earlier, or more tokens are
    /// shared than the prompt or the source has.
    pub fn with_prefixes(mut self, mut prefixes: Vec<Option<Prefix>>) -> Result<Self, String> {
        if prefixes.len() != self.requests.len() {
            return Err(format!("{} requests have {} prefixes", self.requests.len(), prefixes.len()));
        }
        for index in 0..prefixes.len() {
            let Some(mut prefix) = prefixes[index] else { continue };
            let source = prefix.source as usize;
            if source >= index {
                return Err(format!("request {index} shares tokens with request {source}, which is not earlier"));
            }
            let most = self.requests[index].prompt_tokens.min(self.requests[source].tokens());
            if prefix.tokens > most {
                return Err(format!("request {index} shares {} tokens of at most {most}", prefix.tokens));
            }
            // What the source itself has from its own source is that one's: keeps the paths short.
            while let Some(above) = prefixes[prefix.source as usize].filter(|above| above.tokens >= prefix.tokens) {
                prefix.source = above.source;
            }
            prefixes[index] = (prefix.tokens > 0).then_some(prefix);
        }
        self.prefixes = prefixes;
        Ok(self)
    }

    /// The same stream with one entry per request that says which turn it follows.
    ///
    /// # Errors
    /// A message if the number of entries is not that of the requests, a turn does not follow an earlier request, or two
    /// follow the same.
    pub fn with_turns(mut self, turns: Vec<Option<Turn>>) -> Result<Self, String> {
        if turns.len() != self.requests.len() {
            return Err(format!("{} requests have {} turns", self.requests.len(), turns.len()));
        }
        let mut followed = vec![false; turns.len()];
        for (index, turn) in turns.iter().enumerate() {
            let Some(follows) = turn.map(|turn| turn.follows as usize) else { continue };
            if follows >= index {
                return Err(format!("request {index} follows request {follows}, which is not earlier"));
            }
            if std::mem::replace(&mut followed[follows], true) {
                return Err(format!("two requests follow request {follows}"));
            }
        }
        self.turns = turns;
        Ok(self)
    }

    /// What the prompt of a request has in common with an earlier one.
    #[must_use]
    pub fn prefix(&self, index: usize) -> Option<Prefix> {
        self.prefixes.get(index).copied().flatten()
    }

    /// Which turn a request follows.
    #[must_use]
    pub fn turn(&self, index: usize) -> Option<Turn> {
        self.turns.get(index).copied().flatten()
    }

    /// Some requests are later turns of a session.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(lengths: &[(u32, u32)]) -> RequestStream {
        let request =
            |&(prompt_tokens, output_tokens): &_| Request { arrival: Ticks::ZERO, prompt_tokens, output_tokens };
        RequestStream::open(lengths.iter().map(request).collect())
    }

    fn prefix(source: u32, tokens: u32) -> Option<Prefix> {
        Some(Prefix { source, tokens })
    }

    #[test]
    fn paths_skip_sources_that_add_nothing() {
        let stream = stream(&[(100, 20), (90, 5), (90, 5), (130, 5)]);
        let stream = stream.with_prefixes(vec![None, prefix(0, 60), prefix(1, 60), prefix(2, 0)]).unwrap();
        // What request 2 shares with request 1 is what both share with request 0.
        assert_eq!([0, 1, 2, 3].map(|index| stream.prefix(index)), [None, prefix(0, 60), prefix(0, 60), None]);
    }

    #[test]
    fn impossible_prefixes_are_refused() {
        let refused = |prefixes| stream(&[(100, 20), (130, 5)]).with_prefixes(prefixes).unwrap_err();
        assert_eq!(refused(vec![None]), "2 requests have 1 prefixes");
        assert!(refused(vec![None, prefix(1, 10)]).contains("not earlier"));
        assert!(refused(vec![None, prefix(0, 121)]).contains("121 tokens of at most 120"));
        assert!(stream(&[(100, 20), (130, 5)]).with_prefixes(vec![None, prefix(0, 120)]).is_ok());
    }

    #[test]
    fn sessions_follow_one_another() {
        let request = |prompt_tokens| Request { arrival: Ticks::ZERO, prompt_tokens, output_tokens: 5 };
        let sessions = [vec![request(10), request(40), request(20)], vec![request(7)]];
        let stream = RequestStream::sessions(sessions, Ticks(3));
        // The third turn forgot a part of the conversation.
        assert_eq!([0, 1, 2, 3].map(|index| stream.prefix(index)), [None, prefix(0, 15), prefix(1, 20), None]);
        let follows = [0, 1, 2, 3].map(|index| stream.turn(index).map(|turn| (turn.follows, turn.think)));
        assert_eq!(follows, [None, Some((0, Ticks(3))), Some((1, Ticks(3))), None]);
    }

    #[test]
    fn impossible_turns_are_refused() {
        let turn = |follows| Some(Turn { follows, think: Ticks::ZERO });
        let with = |turns| stream(&[(1, 1), (1, 1), (1, 1)]).with_turns(turns);
        assert!(with(vec![None, turn(2), None]).unwrap_err().contains("not earlier"));
        assert!(with(vec![None, turn(0), turn(0)]).unwrap_err().contains("two requests follow"));
        assert_eq!(with(vec![None, turn(0), turn(1)]).unwrap().turn(2), turn(1));
    }
}
