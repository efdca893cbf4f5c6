//! The event loop of a co-located deployment.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::catalog::SchedulingRules;
use crate::fidelity::{StepCost, StepMix};
use crate::scheduler::Scheduler;
use crate::scheduler::router::{Router, RouterView};
use crate::space::EngineLimits;
use crate::units::Ticks;
use crate::workload::{Request, RequestStream};

use super::engine::EngineState;
use super::front_end::{FrontEnd, Inbox};
use super::observer::Observer;
use super::outcome::{Finished, Outcome, RequestBounds, RequestTiming};
use super::queue::SlotQueue;
use super::replica::{Advance, Records, Replica, ReplicaContext};
use super::request::{NONE, RequestState};

/// A co-located deployment as the simulator sees it.
#[derive(Clone, Copy)]
pub struct Deployment<'a> {
    /// Identical replicas.
    pub replicas: u32,
    /// Attention data-parallel ranks of a replica, in lock-step.
    pub ranks: u32,
    /// Step durations of a replica.
    pub cost: &'a StepCost,
    /// KV blocks of one engine.
    pub kv_blocks: u64,
    /// Engine limits.
    pub limits: &'a EngineLimits,
    /// Settings of the engine version's scheduler.
    pub rules: SchedulingRules,
    /// Scheduler policy.
    pub scheduler: &'a dyn Scheduler,
    /// Router policy.
    pub router: &'a dyn Router,
    /// The server in front of each replica.
    pub front_end: FrontEnd,
    /// Seed of policies that draw.
    pub seed: u64,
}

/// Working memory of a simulation. Reused from one to the next, so that nothing is allocated once it is warm.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    requests: Vec<RequestState>,
    replicas: Vec<Replica>,
    queue: SlotQueue,
    outstanding: Vec<u32>,
    /// Requests between clients and engines.
    inbox: Inbox,
    /// When the clients of a closed loop send their next requests, in order.
    reissued: VecDeque<Ticks>,
    /// By request, the turn that follows it; empty without turns.
    followers: Vec<u32>,
    /// Later turns that are not sent yet, by when they will be.
    due_turns: BinaryHeap<Reverse<(Ticks, u32)>>,
    completed: Vec<u32>,
    /// Replicas whose next step may have changed.
    touched: Vec<usize>,
    records: Records,
    /// Scratch of the outcome's percentiles.
    sample: Vec<Ticks>,
}

impl Arena {
    /// The steps of the last simulation, by size.
    #[must_use]
    pub fn step_mix(&self) -> &StepMix {
        &self.records.mix
    }

    /// The requests of the last simulation, in the order of its stream.
    pub fn timings(&self) -> impl ExactSizeIterator<Item = RequestTiming> {
        self.requests.iter().map(|request| RequestTiming {
            arrival: request.arrival,
            first_scheduled: request.first_scheduled,
            first_token: request.first_token,
            completed: request.completed,
            prefix_hit_tokens: request.prefix_hit_tokens,
        })
    }
}

/// Runs one simulation to the end of its stream.
///
/// # Panics
/// If a request needs more KV blocks than an engine has.
pub fn simulate(
    arena: &mut Arena,
    deployment: &Deployment<'_>,
    stream: &RequestStream,
    bounds: &RequestBounds,
    advance: Advance,
    observer: &mut impl Observer,
) -> Outcome {
    let longest = stream.requests.iter().map(Request::tokens).max();
    let needed = u64::from(longest.unwrap_or(0).div_ceil(deployment.limits.block_size));
    // A request that can never be finished would be preempted and recomputed for ever.
    assert!(
        needed <= deployment.kv_blocks,
        "the longest request needs {needed} KV blocks, an engine has {}",
        deployment.kv_blocks
    );
    let mut simulation = Simulation::new(arena, deployment, stream, advance);
    simulation.run(observer);
    let submitted = simulation.delivered;
    debug_assert!(
        arena.replicas[..deployment.replicas as usize]
            .iter()
            .flat_map(|replica| &replica.engines)
            .all(EngineState::is_empty),
        "an engine ends with sequences or blocks"
    );
    let Arena { requests, replicas, records, sample, .. } = arena;
    let finished = Finished {
        requests,
        replicas: &replicas[..deployment.replicas as usize],
        gaps: &records.gaps,
        response_latency: deployment.front_end.response,
        submitted,
    };
    Outcome::collect(&finished, bounds, sample)
}

struct Simulation<'a> {
    arena: &'a mut Arena,
    deployment: &'a Deployment<'a>,
    stream: &'a RequestStream,
    context: ReplicaContext<'a>,
    lanes: usize,
    /// Requests delivered to an engine so far.
    delivered: usize,
    /// Next first turn that is not sent yet.
    next_start: usize,
}

impl<'a> Simulation<'a> {
    fn new(arena: &'a mut Arena, deployment: &'a Deployment<'a>, stream: &'a RequestStream, advance: Advance) -> Self {
        let lanes = deployment.cost.stages();
        let (replicas, ranks) = (deployment.replicas as usize, deployment.ranks as usize);
        arena.requests.clear();
        let block_size = deployment.limits.block_size;
        let states = stream.requests.iter().enumerate().map(|(index, request)| {
            RequestState::new(request, stream.prefix(index), block_size, index >= stream.warmup)
        });
        arena.requests.extend(states);
        arena.followers.clear();
        if stream.has_turns() {
            arena.followers.resize(stream.requests.len(), NONE);
            for index in 0..stream.requests.len() {
                if let Some(turn) = stream.turn(index) {
                    arena.followers[turn.follows as usize] = index as u32;
                }
            }
        }
        arena.due_turns.clear();
        arena.inbox.reset(replicas);
        arena.replicas.resize_with(replicas.max(arena.replicas.len()), Replica::default);
        for replica in &mut arena.replicas[..replicas] {
            replica.reset(
                ranks,
                lanes,
                deployment.kv_blocks,
                deployment.limits,
                &deployment.rules,
                stream.requests.len(),
            );
        }
        arena.queue.reset(replicas * lanes);
        arena.outstanding.clear();
        arena.outstanding.resize(replicas * ranks, 0);
        arena.completed.clear();
        arena.touched.clear();
        arena.records.gaps.reset();
        arena.records.mix.reset(ranks);
        arena.reissued.clear();
        if let Some(clients) = stream.clients {
            arena.reissued.extend((0..clients).map(|_| Ticks::ZERO));
        }
        let context = ReplicaContext {
            cost: deployment.cost,
            limits: deployment.limits,
            rules: &deployment.rules,
            scheduler: deployment.scheduler,
            advance,
            schedules_ahead: deployment.cost.schedules_ahead(),
        };
        Self { arena, deployment, stream, context, lanes, delivered: 0, next_start: 0 }
    }

    fn run(&mut self, observer: &mut impl Observer) {
        loop {
            let (step_end, _) = self.arena.queue.next();
            let now = self.next_sending().min(self.arena.inbox.next_arrival()).min(step_end);
            if now == Ticks::NEVER {
                return;
            }
            self.settle(now, observer);
            self.start_steps(now);
        }
    }

    /// Handles everything that happens at `now` before any step starts: requests sent, arrivals, then step ends by slot,
    /// then the requests that these cause. One scheduling call sees them all, whichever replica was first.
    fn settle(&mut self, now: Ticks, observer: &mut impl Observer) {
        loop {
            while self.next_sending() == now {
                self.send(now);
            }
            while self.arena.inbox.next_arrival() == now {
                self.deliver(now);
            }
            match self.arena.queue.next() {
                (step_end, slot) if step_end == now => self.end_steps(now, slot, observer),
                _ => return,
            }
        }
    }

    /// When a client sends the next request.
    fn next_sending(&self) -> Ticks {
        self.next_first_turn().min(self.next_later_turn())
    }

    fn next_first_turn(&self) -> Ticks {
        match (self.stream.requests.get(self.next_start), self.stream.clients) {
            (None, _) => Ticks::NEVER,
            (_, Some(_)) => self.arena.reissued.front().copied().unwrap_or(Ticks::NEVER),
            (Some(request), None) => request.arrival,
        }
    }

    fn next_later_turn(&self) -> Ticks {
        self.arena.due_turns.peek().map_or(Ticks::NEVER, |Reverse((due, _))| *due)
    }

    /// Takes the request that is sent now; first turns come before later ones.
    fn take_sending(&mut self) -> u32 {
        if self.next_first_turn() > self.next_later_turn()
            && let Some(Reverse((_, index))) = self.arena.due_turns.pop()
        {
            return index;
        }
        let index = self.next_start;
        self.arena.reissued.pop_front();
        self.next_start += 1;
        while self.stream.turn(self.next_start).is_some() {
            self.next_start += 1;
        }
        index as u32
    }

    fn send(&mut self, now: Ticks) {
        let index = self.take_sending();
        let Arena { requests, inbox, .. } = &mut *self.arena;
        let request = &mut requests[index as usize];
        request.arrival = now;
        inbox.send(index, request.prompt_tokens, now, &self.deployment.front_end);
    }

    fn deliver(&mut self, now: Ticks) {
        let Some(index) = self.arena.inbox.take() else { return };
        let sequence = self.delivered as u64;
        self.delivered += 1;
        let view = RouterView { sequence, outstanding: &self.arena.outstanding, seed: self.deployment.seed };
        let target = self.deployment.router.route(view);
        self.arena.outstanding[target] += 1;
        self.arena.requests[index as usize].engine = target as u32;
        let ranks = self.deployment.ranks as usize;
        let (replica, rank) = (target / ranks, target % ranks);
        let next_step_is_decided = self.context.schedules_ahead && !self.arena.replicas[replica].is_idle(0);
        let engine = &mut self.arena.replicas[replica].engines[rank];
        if !engine.enqueue(index, self.context.rules, next_step_is_decided) {
            return;
        }
        self.arena.touched.push(replica);
        for lane in 0..self.lanes {
            if let Some(end) = self.arena.replicas[replica].cut_short(lane, now) {
                self.arena.queue.set(replica * self.lanes + lane, end);
            }
        }
    }

    fn end_steps(&mut self, now: Ticks, slot: usize, observer: &mut impl Observer) {
        let (replica, lane) = (slot / self.lanes, slot % self.lanes);
        observer.replica(replica);
        let Arena { replicas, requests, records, completed, .. } = &mut *self.arena;
        replicas[replica].finish(lane, now, requests, records, completed, observer);
        self.arena.queue.set(slot, Ticks::NEVER);
        self.arena.touched.push(replica);
        for &index in &self.arena.completed {
            observer.completed(index, now);
            let engine = self.arena.requests[index as usize].engine;
            self.arena.outstanding[engine as usize] -= 1;
            let answered = now + self.deployment.front_end.response;
            match self.arena.followers.get(index as usize) {
                Some(&follower) if follower != NONE => {
                    let think = self.stream.turn(follower as usize).map_or(Ticks::ZERO, |turn| turn.think);
                    let asked = self.stream.requests[follower as usize].arrival.max(answered + think);
                    self.arena.due_turns.push(Reverse((asked, follower)));
                }
                _ if self.stream.clients.is_some() => {
                    self.arena.reissued.push_back(answered);
                }
                _ => {}
            }
        }
        self.arena.completed.clear();
    }

    /// Starts the idle lanes of the replicas where something changed.
    fn start_steps(&mut self, now: Ticks) {
        while let Some(replica) = self.arena.touched.pop() {
            for lane in 0..self.lanes {
                let Arena { replicas, requests, queue, .. } = &mut *self.arena;
                if replicas[replica].is_idle(lane)
                    && let Some(end) = replicas[replica].start(lane, now, self.context, requests)
                {
                    queue.set(replica * self.lanes + lane, end);
                }
            }
        }
    }
}
