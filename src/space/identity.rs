//! Content hashes of candidates.

use xxhash_rust::xxh3::xxh3_64;

use super::candidate::{Candidate, CandidateId, Pool};

/// Changes when the encoding does, so that ids of different encodings never meet.
const ENCODING: &str = "servescape candidate 2";

/// The id of a candidate: a hash of the model's name, the traffic, the load and every setting. The index, the
/// seed and the SLA are not part of it: they do not change what is deployed or what it faces.
pub(super) fn identify(model: &str, traffic_hash: u64, candidate: &Candidate) -> CandidateId {
    let mut bytes = Encoder(Vec::with_capacity(256));
    bytes.text(ENCODING);
    bytes.text(model);
    bytes.number(traffic_hash);
    bytes.number(candidate.load.to_bits());
    bytes.text(candidate.architecture.name());
    bytes.text(candidate.router);
    bytes.number(candidate.pools.len() as u64);
    for pool in &candidate.pools {
        bytes.pool(pool);
    }
    CandidateId(xxh3_64(&bytes.0))
}

/// Writes values so that different sequences of values never give the same bytes.
struct Encoder(Vec<u8>);

impl Encoder {
    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn pool(&mut self, pool: &Pool) {
        self.0.push(pool.role.letter() as u8);
        self.text(&pool.gpu.name);
        let split = pool.parallelism;
        for size in [pool.replicas, split.pp, split.tp_attention, split.dp_attention, split.tp_ffn, split.ep_ffn] {
            self.number(u64::from(size));
        }
        for format in [pool.precision.weights, pool.precision.activations, pool.precision.kv_cache] {
            self.text(format.name());
        }
        self.text(&pool.engine_profile);
        let engine = &pool.engine;
        self.text(engine.scheduler);
        for limit in [engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len, engine.block_size] {
            self.number(u64::from(limit));
        }
        self.number(engine.gpu_memory_utilization.to_bits());
        self.number(u64::from(engine.cuda_graph));
        self.number(u64::from(engine.chunked_prefill));
        self.number(u64::from(engine.prefix_caching));
    }
}
