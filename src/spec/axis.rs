//! Axes: the one place where a value may be a scalar, a list or a range.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{BoolDeserializer, F64Deserializer, I64Deserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::located::Located;

/// Most values that one range may expand to; more is a slip of the pen.
const MOST_VALUES: usize = 100_000;

/// The values that one key takes over the sweep, in the order written; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis<T> {
    /// The values. Those of a range carry the span of the range.
    pub values: Vec<Located<T>>,
    /// The whole axis in the sweep file.
    pub span: Range<usize>,
}

/// A type that an axis can hold.
pub trait AxisValue: DeserializeOwned + Clone + PartialEq + fmt::Debug {
    /// Ranges are allowed.
    const NUMERIC: bool;
    /// Shown in messages: "expected WORDS, a list ...".
    const WORDS: &'static str;

    /// `from`, `from + step`, ... up to and including `to`, or why not.
    ///
    /// # Errors
    /// A message if the type has no ranges or the range is not valid for it.
    fn range(_from: f64, _to: f64, _step: f64) -> Result<Vec<Self>, String> {
        Err("a range needs a numeric key".into())
    }
}

impl AxisValue for u32 {
    const NUMERIC: bool = true;
    const WORDS: &'static str = "a non-negative integer";

    fn range(from: f64, to: f64, step: f64) -> Result<Vec<Self>, String> {
        let whole = |value: f64| libm::trunc(value) == value && (0.0..=f64::from(Self::MAX)).contains(&value);
        if !(whole(from) && whole(to) && whole(step)) {
            return Err("`from`, `to` and `step` of this key must be non-negative integers".into());
        }
        Ok(f64::range(from, to, step)?.into_iter().map(|value| value as Self).collect())
    }
}

impl AxisValue for f64 {
    const NUMERIC: bool = true;
    const WORDS: &'static str = "a number";

    fn range(from: f64, to: f64, step: f64) -> Result<Vec<Self>, String> {
        let bounds_are_valid = step > 0.0 && from <= to && to.is_finite();
        if !bounds_are_valid {
            return Err("a range needs `step` above zero and `from` not above `to`".into());
        }
        // The end is included although 0.1 * 3 > 0.3: half a millionth of a step is rounding, not intention.
        let steps = libm::floor((to - from) / step + 5e-7);
        if steps >= MOST_VALUES as f64 {
            return Err(format!("the range has {steps:.0} steps, more than {MOST_VALUES}"));
        }
        Ok((0..=steps as usize).map(|index| from + index as f64 * step).collect())
    }
}

impl AxisValue for String {
    const NUMERIC: bool = false;
    const WORDS: &'static str = "a string";
}

impl AxisValue for bool {
    const NUMERIC: bool = false;
    const WORDS: &'static str = "true or false";
}

/// What was written, before the scalar knows its span.
enum Written<T> {
    One(T),
    List(Vec<Located<T>>),
    Range(Vec<T>),
}

impl<'de, T: AxisValue> Deserialize<'de> for Axis<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Located { value, span } = Located::<Written<T>>::deserialize(deserializer)?;
        let here = |value| Located { value, span: span.clone() };
        let values = match value {
            Written::One(value) => vec![here(value)],
            Written::List(values) => values,
            Written::Range(values) => values.into_iter().map(here).collect(),
        };
        Ok(Self { values, span })
    }
}

impl<'de, T: AxisValue> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WrittenVisitor(PhantomData))
    }
}

struct WrittenVisitor<T>(PhantomData<T>);

impl<'de, T: AxisValue> Visitor<'de> for WrittenVisitor<T> {
    type Value = Written<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of such", T::WORDS)?;
        if T::NUMERIC {
            write!(f, ", or a range `{{ from, to, step }}` or `{{ pow2 = [from, to] }}`")?;
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(BoolDeserializer::new(value)).map(Written::One)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        T::deserialize(I64Deserializer::new(value)).map(Written::One)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        T::deserialize(F64Deserializer::new(value)).map(Written::One)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        T::deserialize(StrDeserializer::new(value)).map(Written::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element::<Located<T>>()? {
            values.push(value);
        }
        if values.is_empty() {
            return Err(A::Error::custom("an axis needs at least one value, this list is empty"));
        }
        Ok(Written::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let range = RawRange::deserialize(MapAccessDeserializer::new(map))?;
        range.expand::<T>().map(Written::Range).map_err(A::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    from: Option<f64>,
    to: Option<f64>,
    step: Option<f64>,
    pow2: Option<[u32; 2]>,
}

impl RawRange {
    fn expand<T: AxisValue>(&self) -> Result<Vec<T>, String> {
        match (self.pow2, self.from, self.to, self.step) {
            (Some(bounds), None, None, None) => powers_of_two(bounds),
            (None, Some(from), Some(to), Some(step)) => T::range(from, to, step),
            _ => Err("a range is `{ from = A, to = B, step = C }` or `{ pow2 = [A, B] }`".into()),
        }
    }
}

/// The powers of two between two powers of two, both included.
fn powers_of_two<T: AxisValue>([first, last]: [u32; 2]) -> Result<Vec<T>, String> {
    if !(first.is_power_of_two() && last.is_power_of_two() && first <= last) {
        return Err(format!("`pow2 = [{first}, {last}]` needs two powers of two, the smaller first"));
    }
    let mut values = Vec::new();
    for exponent in first.trailing_zeros()..=last.trailing_zeros() {
        let value = f64::from(1u32 << exponent);
        values.extend(T::range(value, value, 1.0)?);
    }
    Ok(values)
}

impl<T: JsonSchema + AxisValue> JsonSchema for Axis<T> {
    fn inline_schema() -> bool {
        false
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Axis_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        let mut forms = vec![one.clone(), json_schema!({ "type": "array", "items": one, "minItems": 1 })];
        if T::NUMERIC {
            forms.push(json_schema!({
                "description": "Every value from `from` to `to`, both included, `step` apart.",
                "type": "object",
                "properties": { "from": one, "to": one, "step": one },
                "required": ["from", "to", "step"],
                "additionalProperties": false,
            }));
            forms.push(json_schema!({
                "description": "The powers of two between two powers of two, both included.",
                "type": "object",
                "properties": {
                    "pow2": { "type": "array", "items": { "type": "integer", "minimum": 1 },
                              "minItems": 2, "maxItems": 2 },
                },
                "required": ["pow2"],
                "additionalProperties": false,
            }));
        }
        json_schema!({ "description": "A value, a list or a range.", "oneOf": forms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(bound = "")]
    struct Document<T: AxisValue> {
        axis: Axis<T>,
    }

    fn read<T: AxisValue>(axis: &str) -> Result<Vec<T>, String> {
        toml::from_str::<Document<T>>(&format!("axis = {axis}"))
            .map(|document| document.axis.values.into_iter().map(|value| value.value).collect())
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn scalars_lists_and_ranges_are_axes() {
        assert_eq!(read::<u32>("4"), Ok(vec![4]));
        assert_eq!(read::<f64>("4"), Ok(vec![4.0]));
        assert_eq!(read::<u32>("[1, 3]"), Ok(vec![1, 3]));
        assert_eq!(read::<u32>("{ from = 2, to = 9, step = 3 }"), Ok(vec![2, 5, 8]));
        assert_eq!(read::<u32>("{ pow2 = [1, 8] }"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(read::<String>("[\"a\", \"b\"]"), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(read::<bool>("true"), Ok(vec![true]));
    }

    #[test]
    fn the_end_of_a_float_range_is_included_despite_rounding() {
        assert_eq!(read::<f64>("{ from = 0.1, to = 0.3, step = 0.1 }").map(|values| values.len()), Ok(3));
        assert_eq!(read::<f64>("{ from = 0.25, to = 0.75, step = 0.0625 }").map(|values| values.len()), Ok(9));
    }

    #[test]
    fn wrong_axes_say_what_is_expected() {
        let message = |result: Result<Vec<u32>, String>| result.expect_err("the axis is wrong");
        assert!(message(read("[]")).contains("this list is empty"));
        assert!(message(read("-1")).contains("expected u32"));
        assert!(message(read("\"x\"")).contains("invalid type"));
        assert!(message(read("{ from = 1, to = 4 }")).contains("`{ from = A, to = B, step = C }`"));
        assert!(message(read("{ from = 4, to = 1, step = 1 }")).contains("not above"));
        assert!(message(read("{ from = 1, to = 4, step = 0 }")).contains("above zero"));
        assert!(message(read("{ from = 1, to = 4, step = 0.5 }")).contains("integers"));
        assert!(message(read("{ from = 0, to = 4000000000, step = 1 }")).contains("steps"));
        assert!(message(read("{ pow2 = [3, 8] }")).contains("powers of two"));
        assert!(message(read("{ pwo2 = [1, 8] }")).contains("pow2"));
        assert!(read::<String>("{ pow2 = [1, 8] }").expect_err("strings have no ranges").contains("numeric"));
    }

    #[test]
    fn values_of_a_list_know_their_own_place() {
        let document: Document<u32> = toml::from_str("axis = [1, 22]").expect("a valid axis");
        assert_eq!(document.axis.values[1].span, 11..13);
        assert_eq!(document.axis.span, 7..14);
        let document: Document<u32> = toml::from_str("axis = 22").expect("a valid axis");
        assert_eq!(document.axis.values[0].span, 7..9);
    }
}
