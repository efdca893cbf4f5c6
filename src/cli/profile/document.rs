//! The accuracy report as Markdown: one document for all profiles, and one with every number per profile.

use std::fmt::Write as _;

use super::tables::{count, errors, microseconds, ranges, statistics_of, table, worst_shapes};
use crate::fidelity::accuracy::RANDOM_ROWS;
use crate::fidelity::card::{ALL_GROUPS, ALL_SPLITS, Card, ErrorKind, ErrorStatistics};
use crate::fidelity::family::Family;
use crate::fidelity::transfer::{ALL_SIZES, TransferCheck};

/// What a family should reach on held-out shapes.
struct Aim {
    family: Family,
    heading: &'static str,
    /// Median and 95th percentile, in per cent.
    p50: f64,
    p95: f64,
}

const AIMS: &[Aim] = &[
    Aim { family: Family::Gemm, heading: "Linear layers (gemm)", p50: 2.0, p95: 6.0 },
    Aim { family: Family::PrefillAttention, heading: "Prefill attention", p50: 3.0, p95: 12.0 },
    Aim { family: Family::DecodeAttention, heading: "Decode attention", p50: 3.0, p95: 10.0 },
    Aim { family: Family::GroupedGemm, heading: "Routed experts (grouped GEMM)", p50: 1.5, p95: 5.0 },
    Aim { family: Family::Collective, heading: "Collectives", p50: 4.0, p95: 12.0 },
    Aim { family: Family::LatentPrefill, heading: "Latent attention blocks, prefill", p50: 3.0, p95: 12.0 },
    Aim { family: Family::LatentDecode, heading: "Latent attention blocks, decode", p50: 3.0, p95: 10.0 },
    Aim { family: Family::BatchedGemm, heading: "Absorbed products (batched GEMM)", p50: 2.0, p95: 6.0 },
];

/// A published operator error.
pub(super) struct Published {
    /// What the publication calls the operators.
    pub(super) name: &'static str,
    /// Families that it compares with.
    pub(super) families: &'static [Family],
    /// H800, BF16: p50 and p95, in per cent.
    pub(super) h800: [f64; 2],
    /// H20, BF16: p50 and p90, in per cent.
    h20: [f64; 2],
}

/// "Frontier" (arXiv 2605.21312), figure 7 with the text of section 5 (H800) and appendix A.1 (H20).
pub(super) const PUBLISHED: &[Published] = &[
    Published {
        name: "attention",
        families: &[Family::PrefillAttention, Family::DecodeAttention],
        h800: [3.5, 14.2],
        h20: [3.24, 14.20],
    },
    Published { name: "linear", families: &[Family::Gemm], h800: [3.3, 6.4], h20: [2.95, 9.58] },
    Published { name: "grouped GEMM", families: &[Family::GroupedGemm], h800: [1.4, 5.3], h20: [0.93, 3.12] },
];

const INTRODUCTION: &str = "\
How far a predicted kernel time can be trusted, on shapes that the fit has not seen. Written by `servescape profile
report` from the cards in `profiles/fitted` and the checks in `profiles/checks`; only the last part, from
`operators-notes.md`, is written by hand.

## Method

A predictor answers with `roofline x exp(forest + residual table)`:

1. **Roofline** (`src/fidelity/roofline.rs`): launches, thread-block overhead, arithmetic or traffic. It never falls when
   a shape grows.
2. **Forest** (`src/fidelity/forest.rs`): a random forest on ln(measured / roofline) over the features listed in
   `src/fidelity/shape.rs` (sizes, tile padding, waves over the multiprocessors and their tail, arithmetic against
   traffic).
3. **Residual table** (`src/fidelity/table.rs`): what half the forest leaves at each measured shape, interpolated on
   logarithmic axes; gaps are bridged between their measured neighbours. Measured shapes come back to within 0.1 %;
   between them the answer is the mean of forest and plain interpolation, which is better than either.

Outside the measurements, features and table positions are clamped to their edge: the estimate follows the roofline's
growth and is marked `Extrapolated`.

Errors are |predicted / measured - 1| of fits that have not seen the judged rows (`src/fidelity/accuracy.rs`); the shipped
predictors are then fitted on all rows. Repeats of a shape are merged first.

- **Held-out** rows are split by shape. Whole (n, k) pairs, expert shapes or head counts (one in seven), and every fourth
  token count, batch size, length, context or message size, are absent from the fit. A held-out size is a hard test: its
  neighbours are up to four times away, while a user's shape often lies in the table itself.
- **Extrapolation** leaves out the largest quarter of the sizes.
- **Random rows** leaves out one row in ten wherever it lies, so that its neighbours stay. It says little about new
  shapes and stands here only beside publications that do not say that they held out whole shapes.
";

const BESIDE_FRONTIER: &str = "\
The Frontier paper (arXiv 2605.21312) reports the relative error of its per-operator latency predictions: on H800 under BF16
and FP8 for attention, linear layers and grouped GEMM (figure 7 and section 5; p50 and p95), and on H20 for 600 selected
rows per family (appendix A.1; p50 and p90). It does not say how judged rows were kept from the fit. Its batches have
unequal lengths and skewed expert loads, which these tables do not hold. In FP8 it reports, on H800, attention p95 8.8 %, and
on H20, p50 / p90, attention 2.11 / 8.49, linear 0.42 / 2.29, grouped GEMM 2.01 / 8.64 %. The two columns to the right are
the bf16 groups of one profile here, full attention: other rows and other shapes, so read the comparison as one of scale.
";

/// The groups whose weights, activations and cache are bf16, as far as a family has them.
const BF16_GROUPS: [&str; 2] = ["bf16", "bf16 cache"];

/// What the main document is made of.
pub(super) struct Report<'a> {
    /// Cards, sorted by GPU and engine.
    pub(super) cards: &'a [Card],
    /// Checks, sorted by file name.
    pub(super) checks: &'a [TransferCheck],
    /// The profile that stands beside the publication.
    pub(super) reference: Option<&'a Card>,
    /// Text written by hand.
    pub(super) notes: &'a str,
    /// Figure, relative to the document.
    pub(super) figure: &'a str,
    /// Folder of the documents per profile, relative to the document.
    pub(super) folder: &'a str,
}

/// Name of a profile in tables.
pub(super) fn profile_name(card: &Card) -> String {
    format!("{}, {}", card.gpu.name, card.engine)
}

/// File of a profile's own document.
pub(super) fn profile_file(card: &Card) -> String {
    format!("{}-{}.md", card.gpu.name, card.engine)
}

impl Report<'_> {
    /// The main document.
    pub(super) fn text(&self) -> String {
        let mut text = format!("# Accuracy of operator predictions\n\n{INTRODUCTION}\n{}", self.profiles());
        text.push_str(
            "\n## Held-out shapes against the aims\n\nAll groups of a family together; p50 / p95 in per cent, bold where \
             the aim is met.\nThe last column of each table names the splits that meet both.\n",
        );
        for aim in AIMS {
            text.push_str(&self.aim(aim));
        }
        if let Some(card) = self.reference {
            text.push_str(&self.beside_frontier(card));
        }
        text.push_str(&self.extrapolation());
        if !self.checks.is_empty() {
            text.push_str(&self.transfer());
        }
        format!("{text}\n{}", self.notes)
    }

    fn profiles(&self) -> String {
        let rows = self.cards.iter().map(|card| {
            let rows = |family: &Family| {
                let entry = card.families.iter().find(|entry| entry.name == family.name());
                entry.map_or_else(|| "-".to_owned(), |entry| count(entry.rows))
            };
            let link = format!("[{}]({}/{})", profile_name(card), self.folder, profile_file(card));
            [link].into_iter().chain(Family::ALL.iter().map(rows)).collect()
        });
        let mut headings = vec!["profile"];
        headings.extend(Family::ALL.iter().map(|family| family.name()));
        format!(
            "## Profiles\n\nMeasured shapes per family; behind each name, every group, split and range.\n\n{}",
            table(&headings, 1, rows)
        )
    }

    /// Splits of a family and kind, in the order in which the cards list them.
    fn splits(&self, family: Family, kind: ErrorKind) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let entries = self.cards.iter().flat_map(|card| &card.errors);
        for entry in entries.filter(|entry| entry.family == family.name() && entry.kind == kind) {
            if entry.held_out != ALL_SPLITS && !names.contains(&entry.held_out.as_str()) {
                names.push(&entry.held_out);
            }
        }
        names
    }

    /// One family: every profile's splits against the aim, then the worst shapes of those that miss it.
    fn aim(&self, aim: &Aim) -> String {
        let splits = self.splits(aim.family, ErrorKind::HeldOut);
        let mut missing = Vec::new();
        let mut rows = Vec::new();
        for card in self.cards {
            let error = |kind, split: &str| card.error(aim.family.name(), kind, split, ALL_GROUPS);
            let judged: Vec<(&str, Option<&ErrorStatistics>)> =
                splits.iter().map(|split| (*split, error(ErrorKind::HeldOut, split))).collect();
            if judged.iter().all(|(_, errors)| errors.is_none()) {
                continue;
            }
            let verdict = aim.verdict(&judged);
            if verdict != "all" {
                missing.extend(card.worst.iter().find(|worst| worst.family == aim.family.name()).map(|w| (card, w)));
            }
            let mut cells = vec![profile_name(card)];
            cells.extend(judged.iter().map(|(_, errors)| aim.cell(*errors)));
            cells.push(aim.cell(error(ErrorKind::RandomRows, RANDOM_ROWS)));
            cells.push(verdict);
            rows.push(cells);
        }
        if rows.is_empty() {
            return String::new();
        }
        let new: Vec<String> = splits.iter().map(|split| format!("new {split}")).collect();
        let mut headings = vec!["profile"];
        headings.extend(new.iter().map(String::as_str));
        headings.extend(["random rows", "met by"]);
        let mut text = format!("\n### {}: aim {} / {} %\n\n", aim.heading, aim.p50, aim.p95);
        text.push_str(&table(&headings, 1, rows));
        if !missing.is_empty() {
            let rows = missing.into_iter().map(|(card, worst)| {
                let time = format!("{} / {}", microseconds(worst.predicted_us), microseconds(worst.measured_us));
                let names = [profile_name(card), worst.group.clone(), worst.shape.clone(), worst.held_out.clone()];
                names.into_iter().chain([time, format!("{:+.0}", worst.error)]).collect()
            });
            let headings = ["profile", "group", "shape", "held out", "predicted / measured us", "error %"];
            text.push_str("\nWorst held-out shape where the aim is missed:\n\n");
            text.push_str(&table(&headings, 4, rows));
        }
        text
    }

    fn beside_frontier(&self, card: &Card) -> String {
        let bf16 = |family: Family, kind, split| {
            BF16_GROUPS.iter().find_map(|group| card.error(family.name(), kind, split, group))
        };
        let three = |errors: Option<&ErrorStatistics>| {
            errors.map_or_else(|| "-".to_owned(), |e| format!("{:.2} / {:.2} / {:.2}", e.p50, e.p90, e.p95))
        };
        let rows = PUBLISHED.iter().flat_map(|published| {
            published.families.iter().map(move |family| {
                vec![
                    published.name.to_owned(),
                    format!("{} / {}", published.h800[0], published.h800[1]),
                    format!("{:.2} / {:.2}", published.h20[0], published.h20[1]),
                    family.name().to_owned(),
                    three(bf16(*family, ErrorKind::HeldOut, ALL_SPLITS)),
                    three(bf16(*family, ErrorKind::RandomRows, RANDOM_ROWS)),
                ]
            })
        });
        let held_out = format!("{}, held-out: p50 / p90 / p95 %", profile_name(card));
        let headings = [
            "Frontier, BF16",
            "H800: p50 / p95 %",
            "H20: p50 / p90 %",
            "family here",
            &held_out,
            "the same, random rows",
        ];
        format!(
            "\n## Beside the Frontier paper\n\n{BESIDE_FRONTIER}\n{}\n![Error distributions]({})\n",
            table(&headings, 1, rows),
            self.figure
        )
    }

    fn extrapolation(&self) -> String {
        let columns: Vec<(Family, &str)> = Family::ALL
            .iter()
            .flat_map(|family| self.splits(*family, ErrorKind::Extrapolation).into_iter().map(|split| (*family, split)))
            .collect();
        let rows = self.cards.iter().map(|card| {
            let cell = |(family, split): &(Family, &str)| {
                let errors = card.error(family.name(), ErrorKind::Extrapolation, split, ALL_GROUPS);
                errors.map_or_else(|| "-".to_owned(), |e| format!("{:.1} / {:.1} ({:+.1})", e.p50, e.p95, e.bias))
            };
            [profile_name(card)].into_iter().chain(columns.iter().map(cell)).collect()
        });
        let names: Vec<String> = columns.iter().map(|(family, split)| format!("{}: {split}", family.name())).collect();
        let mut headings = vec!["profile"];
        headings.extend(names.iter().map(String::as_str));
        format!(
            "\n## Beyond the measurements\n\nFitted without the largest quarter of the sizes and judged on them: p50 / p95 \
             (median with its sign) in\nper cent. A plus says too slow.\n\n{}",
            table(&headings, 1, rows)
        )
    }

    fn transfer(&self) -> String {
        let rows = self.checks.iter().flat_map(|check| {
            let whole = check.errors.iter().filter(|entry| entry.group == ALL_GROUPS && entry.range == ALL_SIZES);
            whole.map(|entry| {
                let mut cells = vec![
                    format!("{}, {}", check.to, check.engine),
                    format!("{} {}", check.from, check.from_engine),
                    entry.family.clone(),
                ];
                cells.extend(statistics_of(&entry.statistics));
                cells.push(count(entry.roofline_rows));
                cells.push(format!("{:.1} / {:.1}", entry.roofline.p50, entry.roofline.p95));
                cells
            })
        });
        let headings = [
            "measured",
            "predicted from",
            "family",
            "rows",
            "p50 %",
            "p90 %",
            "p95 %",
            "worst %",
            "bias %",
            "rows by roofline",
            "roofline alone: p50 / p95 %",
        ];
        format!(
            "\n## Transfer to another GPU\n\nA GPU's tables against what the profile of *another* GPU says, scaled per \
             operator by the ratio of the two\nrooflines: the method for GPUs without tables of their own. Of the measured \
             GPU only its data sheet is used. Printed by\n`servescape profile check TABLES --gpu NAME --from GPU`, there \
             also by group and size.\n\n{}",
            table(&headings, 3, rows)
        )
    }
}

impl Aim {
    /// p50 / p95, each bold if it meets the aim.
    fn cell(&self, errors: Option<&ErrorStatistics>) -> String {
        let Some(errors) = errors else { return "-".to_owned() };
        let mark = |value: f64, aim: f64| if value <= aim { format!("**{value:.2}**") } else { format!("{value:.2}") };
        format!("{} / {}", mark(errors.p50, self.p50), mark(errors.p95, self.p95))
    }

    /// The splits that meet both numbers: `all`, `none`, or their names.
    fn verdict(&self, judged: &[(&str, Option<&ErrorStatistics>)]) -> String {
        let meets = |errors: &ErrorStatistics| errors.p50 <= self.p50 && errors.p95 <= self.p95;
        let judged: Vec<(&str, bool)> =
            judged.iter().filter_map(|(split, errors)| Some((*split, meets((*errors)?)))).collect();
        let met: Vec<&str> = judged.iter().filter(|(_, met)| *met).map(|(split, _)| *split).collect();
        match met.len() {
            0 => "none".to_owned(),
            all if all == judged.len() => "all".to_owned(),
            _ => met.join(", "),
        }
    }
}

/// The document of one profile.
pub(super) fn profile(card: &Card) -> String {
    let mut text = format!(
        "# {}\n\nSource: {} ({}; {}). Written by `servescape profile report`; what the columns mean is in \
         [the main document](../operators.md).\n\n## Measurements\n\n{}",
        profile_name(card),
        card.source,
        card.licence,
        card.attribution,
        ranges(card)
    );
    if !card.dropped.is_empty() {
        text.push_str("\nLeft out or merged:\n\n");
    }
    for dropped in &card.dropped {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {} rows: {} (e.g. `{}`)", count(dropped.rows), dropped.reason, dropped.example);
    }
    let _ = write!(text, "\n## Errors\n\n{}\n## Worst held-out shapes\n\n{}", errors(card), worst_shapes(&card.worst));
    text
}
