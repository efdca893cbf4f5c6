//! Sessions: system prompts that many have in common, and turns that repeat what came before.

use super::stream::{Request, RequestStream, Turn};
use crate::rng::Stream;
use crate::spec::{Dialogue, Prefix};
use crate::units::Ticks;

/// The stream of sessions that start at `starts`. `lengths` gives input and output of every turn, session after session;
/// the last session may be cut short.
pub(super) fn stream(
    dialogue: &Dialogue,
    starts: &[Ticks],
    lengths: impl Iterator<Item = (u32, u32)>,
    seed: u64,
) -> RequestStream {
    let mut draws = Stream::new(seed, "workload.system_prompt", 0);
    // The first request that began with each system prompt.
    let mut first_users: Vec<Option<u32>> = vec![None; dialogue.system_prompts as usize];
    let mut requests: Vec<Request> = Vec::new();
    let (mut prefixes, mut turns) = (Vec::new(), Vec::new());
    for (index, (input, output_tokens)) in lengths.enumerate() {
        let (session, turn) = (index / dialogue.turns as usize, index % dialogue.turns as usize);
        let previous = requests.last().copied().filter(|_| turn > 0);
        let (history, prefix) = match previous {
            Some(previous) => (previous.tokens(), Some(Prefix { source: index as u32 - 1, tokens: previous.tokens() })),
            None if first_users.is_empty() => (0, None),
            None => {
                let drawn = draws.below(first_users.len() as u64) as usize;
                let source = first_users[drawn];
                first_users[drawn] = source.or(Some(index as u32));
                (dialogue.system_tokens, source.map(|source| Prefix { source, tokens: dialogue.system_tokens }))
            }
        };
        let arrival = starts[session];
        requests.push(Request { arrival, prompt_tokens: history.saturating_add(input), output_tokens });
        prefixes.push(prefix);
        turns.push(previous.map(|_| Turn { follows: index as u32 - 1, think: dialogue.think }));
    }
    let mut stream = RequestStream::open(requests);
    if *dialogue != Dialogue::NONE {
        (stream.prefixes, stream.turns) = (prefixes, turns);
    }
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_repeat_what_came_before_and_sessions_share_system_prompts() {
        let dialogue = Dialogue { system_prompts: 1, system_tokens: 50, turns: 2, think: Ticks::from_seconds(1.0) };
        let starts = [0.0, 7.0, 9.0].map(Ticks::from_seconds);
        let lengths = [(10, 5), (20, 6), (11, 7), (21, 8), (12, 9)];
        let stream = stream(&dialogue, &starts, lengths.into_iter(), 3);
        let prompts: Vec<u32> = stream.requests.iter().map(|request| request.prompt_tokens).collect();
        assert_eq!(prompts, [60, 85, 61, 89, 62]);
        let prefixes: Vec<_> = (0..5).map(|index| stream.prefix(index).map(|p| (p.source, p.tokens))).collect();
        assert_eq!(prefixes, [None, Some((0, 65)), Some((0, 50)), Some((2, 68)), Some((0, 50))]);
        let follows: Vec<_> = (0..5).map(|index| stream.turn(index).map(|turn| turn.follows)).collect();
        assert_eq!(follows, [None, Some(0), None, Some(2), None]);
        assert_eq!(stream.requests[4].arrival, Ticks::from_seconds(9.0));
    }

    #[test]
    fn system_prompts_are_used_evenly() {
        let dialogue = Dialogue { system_prompts: 4, system_tokens: 10, ..Dialogue::NONE };
        let stream = stream(&dialogue, &[Ticks::ZERO; 4000], std::iter::repeat_n((1, 1), 4000), 3);
        let firsts: Vec<u32> = (0..4000).filter(|i| stream.prefix(*i).is_none()).map(|i| i as u32).collect();
        assert_eq!(firsts.len(), 4);
        for first in firsts {
            let users = (0..4000).filter(|index| stream.prefix(*index).is_some_and(|p| p.source == first)).count();
            assert!((900..1100).contains(&users), "{users} of 4,000");
        }
    }
}
