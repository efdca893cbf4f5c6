//! `[sla]`: latency bounds.

use crate::spec::problems::Problems;
use crate::spec::sla::{KEYS, RawSla, Sla, SlaBound};

pub(super) fn resolve(raw: Option<&RawSla>, problems: &mut Problems) -> Sla {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    let mut positioned: Vec<(usize, SlaBound)> = Vec::with_capacity(entries.len());
    for (position, limit) in entries {
        let (key, latency, statistic) = KEYS[*position];
        let is_valid = limit.value > 0.0 && limit.value.is_finite();
        if !is_valid {
            problems.add(&limit.span, format!("`{key}` must be a positive number of milliseconds"));
        }
        positioned.push((*position, SlaBound { key, latency, statistic, limit_ms: limit.value }));
    }
    positioned.sort_by_key(|(position, _)| *position);
    Sla { bounds: positioned.into_iter().map(|(_, bound)| bound).collect() }
}
