//! Service-level bounds: as written, and what they mean.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::located::Located;

/// A latency that can be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Latency {
    /// Arrival to first output token.
    Ttft,
    /// (E2E - TTFT) / (output tokens - 1).
    Tpot,
    /// Gap between two tokens of one request.
    Itl,
    /// Arrival to last output token.
    E2e,
}

/// A statistic of a latency over the measured requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
}

/// Every key of `[sla]`, with what it bounds.
pub const KEYS: [(&str, Latency, Statistic); 20] = {
    use Latency::{E2e, Itl, Tpot, Ttft};
    use Statistic::{Mean, P50, P90, P95, P99};
    [
        ("ttft_mean_ms", Ttft, Mean),
        ("ttft_p50_ms", Ttft, P50),
        ("ttft_p90_ms", Ttft, P90),
        ("ttft_p95_ms", Ttft, P95),
        ("ttft_p99_ms", Ttft, P99),
        ("tpot_mean_ms", Tpot, Mean),
        ("tpot_p50_ms", Tpot, P50),
        ("tpot_p90_ms", Tpot, P90),
        ("tpot_p95_ms", Tpot, P95),
        ("tpot_p99_ms", Tpot, P99),
        ("itl_mean_ms", Itl, Mean),
        ("itl_p50_ms", Itl, P50),
        ("itl_p90_ms", Itl, P90),
        ("itl_p95_ms", Itl, P95),
        ("itl_p99_ms", Itl, P99),
        ("e2e_mean_ms", E2e, Mean),
        ("e2e_p50_ms", E2e, P50),
        ("e2e_p90_ms", E2e, P90),
        ("e2e_p95_ms", E2e, P95),
        ("e2e_p99_ms", E2e, P99),
    ]
};

/// The same keys, as serde wants them for its message.
const KEY_NAMES: [&str; KEYS.len()] = {
    let mut names = [""; KEYS.len()];
    let mut index = 0;
    while index < KEYS.len() {
        names[index] = KEYS[index].0;
        index += 1;
    }
    names
};

/// The `[sla]` table: positions in [`KEYS`] with the limit in milliseconds.
#[derive(Debug, Default)]
pub struct RawSla(pub Vec<(usize, Located<f64>)>);

/// One key of `[sla]`: its position in [`KEYS`].
struct Key(usize);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let position = KEY_NAMES.iter().position(|key| *key == name);
        position.map(Self).ok_or_else(|| D::Error::unknown_field(&name, &KEY_NAMES))
    }
}

impl<'de> Deserialize<'de> for RawSla {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawSlaVisitor)
    }
}

struct RawSlaVisitor;

impl<'de> Visitor<'de> for RawSlaVisitor {
    type Value = RawSla;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of latency bounds in milliseconds")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawSla, A::Error> {
        let mut entries = Vec::new();
        while let Some(Located { value: Key(position), .. }) = map.next_key::<Located<Key>>()? {
            entries.push((position, map.next_value()?));
        }
        Ok(RawSla(entries))
    }
}

impl JsonSchema for RawSla {
    fn schema_name() -> Cow<'static, str> {
        "Sla".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let properties: serde_json::Map<String, serde_json::Value> = KEY_NAMES
            .iter()
            .map(|name| ((*name).to_owned(), serde_json::json!({ "type": "number", "exclusiveMinimum": 0 })))
            .collect();
        json_schema!({
            "description": "Latency bounds in milliseconds: ttft, tpot, itl or e2e, as mean or percentile.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

/// One bound on a statistic of a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlaBound {
    /// The key in the sweep file, e.g. `ttft_p95_ms`; also the results column it applies to.
    pub key: &'static str,
    /// What is bounded.
    pub latency: Latency,
    /// Which statistic of it.
    pub statistic: Statistic,
    /// Upper limit, in milliseconds.
    pub limit_ms: f64,
}

/// What a deployment must keep; empty if nothing is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sla {
    /// The bounds, in the order of [`KEYS`].
    pub bounds: Vec<SlaBound>,
}

/// The limits that decide whether one request counts as goodput, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestLimits {
    /// Time to first token.
    pub ttft_ms: Option<f64>,
    /// Time per output token.
    pub tpot_ms: Option<f64>,
    /// End-to-end time.
    pub e2e_ms: Option<f64>,
}

impl Sla {
    /// The limits of a single request: per latency the tightest bound, whatever its statistic. ITL bounds are not
    /// per request and do not take part.
    #[must_use]
    pub fn request_limits(&self) -> RequestLimits {
        let tightest = |latency| {
            let limits = self.bounds.iter().filter(|bound| bound.latency == latency).map(|bound| bound.limit_ms);
            limits.min_by(f64::total_cmp)
        };
        RequestLimits {
            ttft_ms: tightest(Latency::Ttft),
            tpot_ms: tightest(Latency::Tpot),
            e2e_ms: tightest(Latency::E2e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_held_to_the_tightest_bound() {
        let bound = |key: &str, limit_ms| {
            let (key, latency, statistic) = KEYS.into_iter().find(|(name, ..)| *name == key).expect("a key");
            SlaBound { key, latency, statistic, limit_ms }
        };
        let sla =
            Sla { bounds: vec![bound("ttft_p50_ms", 300.0), bound("ttft_p99_ms", 900.0), bound("itl_p99_ms", 9.0)] };
        assert_eq!(sla.request_limits(), RequestLimits { ttft_ms: Some(300.0), tpot_ms: None, e2e_ms: None });
    }

    #[test]
    fn every_combination_has_a_key_of_its_own() {
        for (index, (key, latency, statistic)) in KEYS.iter().enumerate() {
            let words = format!("{latency:?}_{statistic:?}_ms").to_lowercase();
            assert_eq!(*key, words);
            assert!(KEYS[index + 1..].iter().all(|(other, ..)| other != key));
        }
    }
}
