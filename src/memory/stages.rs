//! How decoder layers are dealt out to pipeline stages.

use std::ops::Range;

/// Layers of stage `stage` of `stages`, as vLLM splits them (`get_pp_indices`): an equal share each; the remainder goes
/// one by one to the stages before the last, from the back, because the last stage also has the LM head.
#[must_use]
pub fn stage_layers(layers: u32, stages: u32, stage: u32) -> Range<usize> {
    let share = layers / stages;
    let remainder = layers % stages;
    // Stages in `[first_extra, stages - 1)` have one layer more.
    let first_extra = (stages - 1).saturating_sub(remainder);
    let extra_before = |stage: u32| stage.min(stages - 1).saturating_sub(first_extra);
    let start = |stage: u32| stage * share + extra_before(stage);
    start(stage) as usize..start(stage + 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(layers: u32, stages: u32) -> Vec<usize> {
        (0..stages).map(|stage| stage_layers(layers, stages, stage).len()).collect()
    }

    #[test]
    fn the_remainder_spares_the_last_stage() {
        assert_eq!(sizes(80, 4), [20, 20, 20, 20]);
        assert_eq!(sizes(61, 4), [15, 15, 16, 15]);
        assert_eq!(sizes(62, 4), [15, 16, 16, 15]);
        assert_eq!(sizes(63, 4), [16, 16, 16, 15]);
        assert_eq!(sizes(126, 4), [31, 32, 32, 31]);
        assert_eq!(sizes(7, 1), [7]);
    }

    #[test]
    fn stages_are_contiguous_and_cover_every_layer() {
        for (layers, stages) in [(61, 4), (5, 8), (94, 16), (1, 1)] {
            let mut next = 0;
            for stage in 0..stages {
                let range = stage_layers(layers, stages, stage);
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, layers as usize);
        }
    }
}
