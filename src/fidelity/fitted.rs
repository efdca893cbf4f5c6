//! Fitted predictors of one GPU and engine version: one file per operator family, with a card.

use std::fs;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::bytes::{Corrupt, Reader, put_u16, put_u32};
use super::card::{CARD_FILE, Card};
use super::family::Family;
use super::forest::Forest;
use super::operator::Operator;
use super::roofline::benchmark_ns;
use super::shape::{Shape, format_code, shape};
use super::table::{Coverage, ResidualTable};
use crate::catalog::{Gpu, NumberFormat};
use crate::diag::Diagnostic;

/// First bytes of a predictor file; the last two are the version of its layout.
const MAGIC: &[u8; 8] = b"svsfit\x00\x02";

/// Share of the forest in an estimate that a table gives too. The forest knows tiles and waves, interpolation knows the
/// neighbours; on held-out shapes of H100 and B200 tables the mean of both is better than either.
pub const TREND_WEIGHT: f64 = 0.5;

/// One forest and the residual tables that correct it.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Weight and activation formats, or zeros.
    pub key: [u8; 2],
    /// Trend over all shapes.
    pub forest: Forest,
    /// Corrections, sorted by class.
    pub tables: Vec<ResidualTable>,
}

impl Group {
    /// ln(time / roofline) at a shape, and how the shape lies to the measurements.
    #[must_use]
    pub fn residual(&self, shape: &Shape) -> (f64, Coverage) {
        let (trend, in_box) = self.forest.predict(&shape.features);
        let nearest = if in_box { Coverage::Between } else { Coverage::Beyond };
        let table = self.tables.binary_search_by(|table| table.class.cmp(&shape.class)).ok();
        match table.and_then(|position| self.tables[position].interpolate(&shape.coordinates)) {
            Some((correction, coverage)) => {
                // A measured shape is in its table, whatever the box of the features says.
                let coverage = if coverage == Coverage::Measured { coverage } else { coverage.max(nearest) };
                (TREND_WEIGHT * trend + correction, coverage)
            }
            None => (trend, nearest),
        }
    }
}

/// The predictor of one family.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedFamily {
    /// Which family.
    pub family: Family,
    /// One per pair of formats, sorted by key.
    pub groups: Vec<Group>,
}

impl FittedFamily {
    /// ln(time / roofline) at a shape, and how the shape lies to the measurements; `None` if nothing like it was
    /// measured. A pair of formats that was not measured borrows the efficiency of the closest one that was.
    #[must_use]
    pub fn residual(&self, shape: &Shape) -> Option<(f64, Coverage)> {
        let group = match self.group(shape.group) {
            Some(group) => group,
            None => {
                return Some((self.closest_group(shape.group)?.residual(shape).0, Coverage::Beyond));
            }
        };
        // Without a forest there is nothing to say about a class that has no table.
        if shape.feature_count == 0 {
            group.tables.binary_search_by(|table| table.class.cmp(&shape.class)).ok()?;
        }
        Some(group.residual(shape))
    }

    /// The group of the format whose kernels are most alike: fp8 for the formats that compute in eight bits or less, then
    /// bf16.
    fn closest_group(&self, key: [u8; 2]) -> Option<&Group> {
        let eight_bits = [NumberFormat::Fp8Block, NumberFormat::Int8, NumberFormat::Nvfp4, NumberFormat::Mxfp4];
        let fp8 = eight_bits.map(format_code).contains(&key[1]).then_some(NumberFormat::Fp8);
        let mut codes = fp8.into_iter().chain([NumberFormat::Bf16]).map(format_code);
        codes.find_map(|code| self.group([code; 2]).or_else(|| self.group([code, 0])))
    }

    fn group(&self, key: [u8; 2]) -> Option<&Group> {
        self.groups.binary_search_by(|group| group.key.cmp(&key)).ok().map(|position| &self.groups[position])
    }

    /// The file form: magic, family, groups, checksum.
    ///
    /// # Errors
    /// If a forest is too large for the file form.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Diagnostic> {
        let mut out = MAGIC.to_vec();
        out.push(self.family as u8);
        out.push(self.groups.len() as u8);
        for group in &self.groups {
            out.extend_from_slice(&group.key);
            group.forest.write(&mut out).map_err(|Corrupt(reason)| {
                Diagnostic::new(format!("cannot store the `{}` predictor: {reason}", self.family.name()))
            })?;
            put_u16(&mut out, group.tables.len() as u16);
            for table in &group.tables {
                table.write(&mut out);
            }
        }
        let checksum = xxh3_64(&out);
        put_u32(&mut out, checksum as u32);
        put_u32(&mut out, (checksum >> 32) as u32);
        Ok(out)
    }

    /// Reads the file form.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (body, checksum) =
            bytes.split_last_chunk::<8>().ok_or(Corrupt("the file is too short to be a predictor"))?;
        if !body.starts_with(MAGIC) {
            return Err(Corrupt("the file is not a predictor of this version"));
        }
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(Corrupt("the checksum does not match: the file is damaged or cut short"));
        }
        let mut reader = Reader::new(&body[MAGIC.len()..]);
        let code = usize::from(reader.u8()?);
        let family = *Family::ALL.get(code).ok_or(Corrupt("the operator family is unknown"))?;
        let count = reader.u8()?;
        let groups = (0..count).map(|_| read_group(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        if reader.left() > 0 {
            return Err(Corrupt("the file has more bytes than it declares"));
        }
        Ok(Self { family, groups })
    }
}

fn read_group(reader: &mut Reader<'_>) -> Result<Group, Corrupt> {
    let key = [reader.u8()?, reader.u8()?];
    let forest = Forest::read(reader)?;
    let count = reader.u16()?;
    let tables = (0..count).map(|_| ResidualTable::read(reader)).collect::<Result<Vec<_>, _>>()?;
    Ok(Group { key, forest, tables })
}

/// Everything fitted for one GPU and engine version.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedProfile {
    /// Source, licence, ranges and errors.
    pub card: Card,
    /// The measured GPU, as it was known when the predictors were fitted: residuals are relative to its roofline.
    pub gpu: Gpu,
    families: Vec<FittedFamily>,
}

impl FittedProfile {
    /// Puts a profile together; `families` in any order.
    #[must_use]
    pub fn new(card: Card, mut families: Vec<FittedFamily>) -> Self {
        families.sort_by_key(|family| family.family);
        Self { gpu: card.gpu.to_gpu(), card, families }
    }

    /// Reads the card of a folder and the predictor files that it lists.
    ///
    /// # Errors
    /// A missing, unreadable or damaged file, named.
    pub fn load(folder: &Path) -> Result<Self, Diagnostic> {
        let card = Card::load(&folder.join(CARD_FILE))?;
        let mut families = Vec::with_capacity(card.families.len());
        for entry in &card.families {
            let path = folder.join(&entry.file);
            let bytes = fs::read(&path)
                .map_err(|error| Diagnostic::new(format!("cannot read the predictor `{}`: {error}", path.display())))?;
            let family = FittedFamily::from_bytes(&bytes).map_err(|Corrupt(reason)| {
                Diagnostic::new(format!("cannot use the predictor `{}`: {reason}", path.display()))
                    .help("restore the file from the repository, or fit it again with `servescape profile fit`")
            })?;
            families.push(family);
        }
        Ok(Self::new(card, families))
    }

    /// The families of this profile.
    #[must_use]
    pub fn families(&self) -> &[FittedFamily] {
        &self.families
    }

    /// Whether operators of this kind were measured in these formats.
    #[must_use]
    pub fn measures_formats_of(&self, operator: &Operator, gpu: &Gpu) -> bool {
        let Some(shape) = shape(operator, gpu) else { return false };
        let family = self.families.binary_search_by_key(&shape.family, |family| family.family);
        family.is_ok_and(|position| self.families[position].group(shape.group).is_some())
    }

    /// Time in nanoseconds of an operator on `gpu`, and how its shape lies to the measurements; `None` if nothing like it was
    /// measured. On another GPU than the measured one, that GPU's roofline, with its floors, is scaled by the efficiency of
    /// the measured one at the same shape and at the new waves and balance of arithmetic and traffic.
    #[must_use]
    pub fn predict(&self, operator: &Operator, gpu: &Gpu) -> Option<(f64, Coverage)> {
        let shape = shape(operator, gpu)?;
        let position = self.families.binary_search_by_key(&shape.family, |family| family.family).ok()?;
        let (residual, coverage) = self.families[position].residual(&shape)?;
        Some((benchmark_ns(operator, gpu) * libm::exp(residual * shape.likeness), coverage))
    }
}
