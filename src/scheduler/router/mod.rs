//! Router policies, one file each: which engine receives a request.
//!
//! To add one, write `NAME.rs` with a unit struct that implements [`Router`], and add it to [`ROUTERS`].

mod least_outstanding;
mod power_of_two;
mod round_robin;

/// What a router can see when a request arrives.
#[derive(Clone, Copy, Debug)]
pub struct RouterView<'a> {
    /// Requests routed before this one.
    pub sequence: u64,
    /// Requests routed to each engine and not completed yet.
    pub outstanding: &'a [u32],
    /// Seed of the run, for policies that draw.
    pub seed: u64,
}

/// A routing policy; stateless, so that a choice depends only on what it is shown.
pub trait Router: Sync {
    /// Name in sweep files and results.
    fn name(&self) -> &'static str;

    /// One sentence for help texts.
    fn summary(&self) -> &'static str;

    /// Index of the engine that receives the request.
    fn route(&self, view: RouterView<'_>) -> usize;
}

/// Every router, in the order in which help texts list them.
pub const ROUTERS: &[&dyn Router] =
    &[&round_robin::RoundRobin, &least_outstanding::LeastOutstanding, &power_of_two::PowerOfTwo];

/// The router of this name.
#[must_use]
pub fn router(name: &str) -> Option<&'static dyn Router> {
    ROUTERS.iter().copied().find(|router| router.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sequence: u64, outstanding: &[u32]) -> RouterView<'_> {
        RouterView { sequence, outstanding, seed: 7 }
    }

    #[test]
    fn every_router_stays_in_range_and_repeats_its_choice() {
        for router in ROUTERS {
            for sequence in 0..50 {
                let choice = router.route(view(sequence, &[3, 0, 5]));
                assert!(choice < 3, "{}", router.name());
                assert_eq!(choice, router.route(view(sequence, &[3, 0, 5])), "{}", router.name());
            }
        }
    }

    #[test]
    fn round_robin_takes_turns() {
        let chosen: Vec<usize> =
            (0..5).map(|sequence| router("round_robin").unwrap().route(view(sequence, &[0, 9, 0]))).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn least_outstanding_takes_the_emptiest_and_rotates_ties() {
        let least = router("least_outstanding").unwrap();
        assert_eq!(least.route(view(0, &[4, 2, 3])), 1);
        let ties: Vec<usize> = (0..3).map(|sequence| least.route(view(sequence, &[1, 1, 1]))).collect();
        assert_eq!(ties, [0, 1, 2]);
    }

    #[test]
    fn power_of_two_never_takes_the_fullest_of_two() {
        let two = router("power_of_two").unwrap();
        assert!((0..100).all(|sequence| two.route(view(sequence, &[9, 0])) == 1));
        assert_eq!(two.route(view(0, &[5])), 0);
    }
}
