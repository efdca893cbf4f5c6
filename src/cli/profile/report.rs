//! `servescape profile report`: the accuracy documents and their figure, from cards and check files alone.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::document::{PUBLISHED, Report, profile, profile_file, profile_name};
use super::{create_folder, unwritable, write_file};
use crate::diag::{Diagnostic, Diagnostics};
use crate::fidelity::accuracy::RANDOM_ROWS;
use crate::fidelity::card::{ALL_GROUPS, ALL_SPLITS, CARD_FILE, Card, ErrorKind};
use crate::fidelity::family::Family;
use crate::fidelity::predictor::profile_folders;
use crate::fidelity::transfer::TransferCheck;
use crate::plots::{ErrorCurve, ErrorFigure, ErrorMark, ErrorPanel, draw_errors};

/// Arguments of `profile report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Folder with fitted profiles, as GPU/ENGINE
    #[arg(long, default_value = "profiles/fitted")]
    pub profiles: PathBuf,
    /// Folder with cards of the method on other tables, as GPU/ENGINE; need not exist
    #[arg(long, default_value = "profiles/comparison")]
    pub comparison: PathBuf,
    /// Folder with check files; need not exist
    #[arg(long, default_value = "profiles/checks")]
    pub checks: PathBuf,
    /// Document to write; the figure and the documents of the profiles go beside it, its last part is read from
    /// `NAME-notes.md`
    #[arg(long, default_value = "docs/accuracy/operators.md")]
    pub out: PathBuf,
    /// Profiles in the figure, as GPU or GPU/ENGINE; the first stands beside the published numbers
    #[arg(long, default_values = ["h800", "h100-sxm", "b200"], value_name = "PROFILE")]
    pub figure: Vec<String>,
}

/// Families in the figure: those that the time of a step is made of.
const DRAWN: [Family; 7] = [
    Family::Gemm,
    Family::PrefillAttention,
    Family::DecodeAttention,
    Family::GroupedGemm,
    Family::Collective,
    Family::LatentPrefill,
    Family::LatentDecode,
];
/// Profiles that the figure has room for.
const FIGURE_PROFILES: usize = 2;
/// File stem of the figure.
const FIGURE: &str = "operator-errors";

pub(super) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), Diagnostics> {
    let written = write(args)?;
    for path in written {
        writeln!(out, "{}", path.display()).map_err(unwritable)?;
    }
    Ok(())
}

/// Writes documents and figure; returns their paths.
fn write(args: &ReportArgs) -> Result<Vec<PathBuf>, Diagnostic> {
    let inputs = Inputs::load(args)?;
    let mut written = Vec::new();
    for (path, text) in inputs.documents(args) {
        create_folder(path.parent().unwrap_or(Path::new(".")))?;
        write_file(&path, text.as_bytes())?;
        written.push(path);
    }
    let figure = args.out.with_file_name(FIGURE);
    draw_errors(&inputs.figure(), &figure)?;
    written.extend(["svg", "png"].map(|extension| figure.with_extension(extension)));
    Ok(written)
}

/// Everything the report is made of.
struct Inputs {
    cards: Vec<Card>,
    checks: Vec<TransferCheck>,
    notes: String,
    /// Positions of the cards in the figure.
    shown: Vec<usize>,
}

impl Inputs {
    fn load(args: &ReportArgs) -> Result<Self, Diagnostic> {
        let mut folders = profile_folders(&args.profiles);
        if folders.is_empty() {
            return Err(Diagnostic::new(format!("no fitted profiles in `{}`", args.profiles.display()))
                .help("a profile is a folder GPU/ENGINE with a `card.toml`; `servescape profile fit` writes one"));
        }
        folders.extend(profile_folders(&args.comparison));
        let cards: Vec<Card> =
            folders.iter().map(|folder| Card::load(&folder.join(CARD_FILE))).collect::<Result<_, _>>()?;
        let files = check_files(&args.checks);
        let checks = files.iter().map(|path| TransferCheck::load(path)).collect::<Result<_, _>>()?;
        let notes = notes_file(&args.out);
        let notes = if notes.exists() {
            fs::read_to_string(&notes)
                .map_err(|error| Diagnostic::new(format!("cannot read `{}`: {error}", notes.display())))?
        } else {
            String::new()
        };
        let shown = shown_profiles(&cards, &args.figure);
        Ok(Self { cards, checks, notes, shown })
    }

    /// Paths and texts of the documents.
    fn documents(&self, args: &ReportArgs) -> Vec<(PathBuf, String)> {
        let folder = args.out.with_extension("");
        let report = Report {
            cards: &self.cards,
            checks: &self.checks,
            reference: self.shown.first().map(|position| &self.cards[*position]),
            notes: &self.notes,
            figure: &format!("{FIGURE}.png"),
            folder: &folder.file_name().unwrap_or_default().to_string_lossy(),
        };
        let mut documents = vec![(args.out.clone(), report.text())];
        documents.extend(self.cards.iter().map(|card| (folder.join(profile_file(card)), profile(card))));
        documents
    }

    /// For each profile shown, a panel of held-out shapes and one of random rows.
    fn figure(&self) -> ErrorFigure {
        let name = |family: &Family| family.name().replace('_', " ");
        let position = |family: Family| DRAWN.iter().position(|other| *other == family);
        let references = PUBLISHED.iter().map(|published| {
            let series = if let [family] = published.families { position(*family) } else { None };
            (format!("Frontier: {}", published.name), series)
        });
        let panels = self.shown.iter().enumerate().flat_map(|(rank, card)| {
            [
                (ErrorKind::HeldOut, ALL_SPLITS, "whole shapes held out"),
                (ErrorKind::RandomRows, RANDOM_ROWS, "random rows held out"),
            ]
            .map(|(kind, split, title)| panel(&self.cards[*card], kind, split, title, rank == 0))
        });
        ErrorFigure {
            title: "Error of predicted operator times".to_owned(),
            subtitle:
                "Distribution of |predicted / measured − 1| over rows that the fit has not seen; all number formats. \
                       Rings: p50 and p95 of the Frontier paper, H800, BF16."
                    .to_owned(),
            counted: "shapes".to_owned(),
            series: DRAWN.iter().map(name).collect(),
            references: references.collect(),
            panels: panels.collect(),
            footnote:
                "servescape profile report · rings: arXiv 2605.21312, figure 7, on the same tables as the H800 curves; \
                       attention is prefill and decode together"
                    .to_owned(),
        }
    }
}

fn panel(card: &Card, kind: ErrorKind, split: &str, title: &str, marked: bool) -> ErrorPanel {
    let curves = DRAWN.iter().enumerate().filter_map(|(series, family)| {
        let errors = card.error(family.name(), kind, split, ALL_GROUPS)?;
        Some(ErrorCurve { series, quantiles: errors.quantiles.clone() })
    });
    let marks = PUBLISHED.iter().enumerate().flat_map(|(reference, published)| {
        let [p50, p95] = published.h800;
        [(p50, 50.0), (p95, 95.0)].map(|(error, share)| ErrorMark { reference, error, share })
    });
    ErrorPanel {
        title: format!("{}: {title}", profile_name(card)),
        curves: curves.collect(),
        marks: if marked { marks.collect() } else { Vec::new() },
    }
}

/// The first profiles that the names find, at most as many as fit; a name of a GPU finds its last engine.
fn shown_profiles(cards: &[Card], names: &[String]) -> Vec<usize> {
    let find = |name: &String| {
        cards.iter().rposition(|card| card.gpu.name == *name || format!("{}/{}", card.gpu.name, card.engine) == *name)
    };
    names.iter().filter_map(find).take(FIGURE_PROFILES).collect()
}

/// The part of a document that is written by hand.
fn notes_file(document: &Path) -> PathBuf {
    let stem = document.file_stem().unwrap_or_default().to_string_lossy();
    document.with_file_name(format!("{stem}-notes.md"))
}

/// The `.toml` files of a folder, sorted; none if it does not exist.
fn check_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments that make the documents of the repository.
    fn shipped() -> ReportArgs {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        ReportArgs {
            profiles: root.join("profiles/fitted"),
            comparison: root.join("profiles/comparison"),
            checks: root.join("profiles/checks"),
            out: root.join("docs/accuracy/operators.md"),
            figure: ["h800", "h100-sxm", "b200"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn the_committed_documents_are_current() {
        let args = shipped();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            write(&args).unwrap();
        }
        for (path, text) in Inputs::load(&args).unwrap().documents(&args) {
            let committed = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                committed == text,
                "{} is out of date; regenerate it with `UPDATE_DOCS=1 cargo test committed_documents`",
                path.display()
            );
        }
    }

    #[test]
    fn the_report_needs_a_profile_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let args = ReportArgs {
            profiles: folder.path().to_owned(),
            comparison: folder.path().join("comparison"),
            checks: folder.path().join("checks"),
            out: folder.path().join("report.md"),
            figure: Vec::new(),
        };
        let error = Inputs::load(&args).err().unwrap();
        assert!(error.message.contains("no fitted profiles"), "{}", error.message);
        let inputs = Inputs::load(&ReportArgs { profiles: shipped().profiles, ..args }).unwrap();
        assert!(inputs.checks.is_empty() && inputs.notes.is_empty() && inputs.shown.is_empty());
    }

    #[test]
    fn a_gpu_finds_its_last_engine_and_missing_ones_are_skipped() {
        let folder = &profile_folders(&shipped().profiles)[0];
        let mut card = Card::load(&folder.join(CARD_FILE)).unwrap();
        (card.gpu.name, card.engine) = ("h100-sxm".to_owned(), "vllm-0.19".to_owned());
        let mut cards = vec![card.clone()];
        "vllm-0.24".clone_into(&mut card.engine);
        cards.push(card);
        let find =
            |names: &[&str]| shown_profiles(&cards, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(find(&["h800", "h100-sxm"]), [1]);
        assert_eq!(find(&["h100-sxm/vllm-0.19", "h100-sxm"]), [0, 1]);
    }
}
