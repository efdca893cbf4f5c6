//! Fits the host constants of an engine profile to measured runs.
//!
//! Every run of the engine's version counts the same, whatever its size. The free constants are those of [`CONSTANTS`], per
//! profile and never per run or model. `identify` keeps at its start what the runs do not determine, and the error
//! after the fit is that of runs that were left out of it.

mod constants;
mod document;
mod identify;
mod objective;
mod report;
mod search;

use crate::catalog::{Catalog, EngineProfile, HostOverhead};
use crate::diag::{Diagnostic, Diagnostics};

use super::answer::{Prepared, engines, prepare};
use super::case::{Case, Metric, Statistic};
use super::deployment::closest_profile;
use identify::{identify, refit};
use objective::{Objective, Term, terms};

pub use constants::{CONSTANTS, Constant};
pub use document::document;
pub use identify::Interval;
pub use report::{markdown, warnings};

/// With more runs than this, they are left out in groups of about equal size.
pub const MOST_FOLDS: usize = 20;
/// Groups in that case.
const GROUPS: usize = 10;

/// A fitted engine profile, and how good it is.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The profile that was fitted.
    pub profile: String,
    /// Host at the start.
    pub start: HostOverhead,
    /// Host with the fitted constants.
    pub host: HostOverhead,
    /// One entry for each of [`CONSTANTS`].
    pub constants: Vec<FittedConstant>,
    /// Runs that were fitted, then those held out.
    pub runs: Vec<RunErrors>,
    /// In how many fits the fitted runs were left out in turn; zero if there is only one run.
    pub folds: usize,
    /// Runs of other engines or versions.
    pub other_engines: usize,
    /// Runs without a value that the host moves.
    pub without_values: usize,
    /// Runs of this engine that cannot be simulated, with the reason.
    pub refused: Vec<(String, String)>,
    /// Simulations of all fitted runs.
    pub evaluations: usize,
}

/// What became of a constant.
#[derive(Clone, Copy, Debug)]
pub struct FittedConstant {
    /// Values that fit as well as the best.
    pub interval: Interval,
    /// The runs determine it; otherwise it has its start, or the value nearest to it that fits as well.
    pub fitted: bool,
}

/// Errors of one run.
#[derive(Clone, Debug)]
pub struct RunErrors {
    /// Group and id.
    pub name: String,
    /// It was fitted; its error after the fit is that of a fit without it.
    pub fitted: bool,
    /// One entry per value.
    pub values: Vec<ValueError>,
}

/// Error of one value: ln(simulated / measured).
#[derive(Clone, Copy, Debug)]
pub struct ValueError {
    /// Metric.
    pub metric: Metric,
    /// Statistic.
    pub statistic: Statistic,
    /// With the constants of the start.
    pub before: f64,
    /// With the fitted ones.
    pub after: f64,
}

/// Runs by their use.
#[derive(Default)]
struct Runs {
    names: Vec<String>,
    prepared: Vec<(Prepared, Vec<Term>)>,
}

/// Fits the constants of `profile` to the cases of its engine and version whose `group/id` begins with one of `prefixes`
/// (all of them if there is none); the others are only reported.
///
/// # Errors
/// A prefix that no such case has, no case to fit, or entries of the catalogue that cannot be read.
pub fn calibrate(
    cases: Vec<Case>,
    prefixes: &[String],
    profile: &EngineProfile,
    catalog: &Catalog,
) -> Result<Calibration, Diagnostics> {
    let engines = with_profile(engines(catalog)?, profile);
    let all = cases.len();
    let cases: Vec<Case> = cases.into_iter().filter(|case| is_of(case, &engines, profile)).collect();
    let other_engines = all - cases.len();
    check_prefixes(&cases, prefixes, profile)?;
    let (mut fit, mut held) = (Runs::default(), Runs::default());
    let (mut without_values, mut refused) = (0, Vec::new());
    for (case, prepared) in cases.iter().zip(prepare(&cases, catalog, &engines)?) {
        let (name, terms) = (name(case), terms(case));
        match prepared {
            _ if terms.is_empty() => without_values += 1,
            Err(reason) => refused.push((name, reason)),
            Ok(prepared) => {
                let runs = if is_chosen(&name, prefixes) { &mut fit } else { &mut held };
                runs.names.push(name);
                runs.prepared.push((prepared, terms));
            }
        }
    }
    if fit.names.is_empty() {
        let first = refused.first().map(|(name, reason)| format!("{name}: {reason}"));
        let problem = Diagnostic::new(format!("none of the runs of `{}` can be fitted", profile.name));
        return Err(problem.help(first.unwrap_or_else(|| "they have no latencies".to_owned())).into());
    }
    Ok(Calibration { other_engines, without_values, refused, ..fitted(fit, held, profile) })
}

fn fitted(fit: Runs, held: Runs, profile: &EngineProfile) -> Calibration {
    let start = profile.host;
    let all: Vec<usize> = (0..fit.names.len()).collect();
    let fit_terms = terms_of(&fit);
    let mut objective = Objective::new(fit.prepared);
    let identified = identify(&mut objective, &start, &all);
    let before = objective.errors(&start);
    let mut after = objective.errors(&identified.host).to_vec();
    let folds = folds(all.len());
    for fold in &folds {
        let others: Vec<usize> = all.iter().copied().filter(|run| !fold.contains(run)).collect();
        let host = refit(&mut objective, &start, &identified, &others);
        let errors = objective.errors(&host);
        for run in fold {
            after[*run].clone_from(&errors[*run]);
        }
    }
    let mut runs = run_errors(fit.names, &fit_terms, &before, &after, true);
    let held_terms = terms_of(&held);
    let mut held_out = Objective::new(held.prepared);
    let (before, after) = (held_out.errors(&start), held_out.errors(&identified.host));
    runs.extend(run_errors(held.names, &held_terms, &before, &after, false));
    let constant = |(index, interval): (usize, &Interval)| FittedConstant {
        interval: *interval,
        fitted: identified.free.contains(&index),
    };
    Calibration {
        profile: profile.name.clone(),
        start,
        host: identified.host,
        constants: identified.intervals.iter().enumerate().map(constant).collect(),
        runs,
        folds: folds.len(),
        other_engines: 0,
        without_values: 0,
        refused: Vec::new(),
        evaluations: objective.evaluations(),
    }
}

fn terms_of(runs: &Runs) -> Vec<Vec<Term>> {
    runs.prepared.iter().map(|(_, terms)| terms.clone()).collect()
}

fn run_errors(
    names: Vec<String>,
    terms: &[Vec<Term>],
    before: &[Vec<f64>],
    after: &[Vec<f64>],
    fitted: bool,
) -> Vec<RunErrors> {
    let of_run = |(run, name): (usize, String)| {
        let value = |(index, term): (usize, &Term)| ValueError {
            metric: term.metric,
            statistic: term.statistic,
            before: before[run][index],
            after: after[run][index],
        };
        let values: Vec<ValueError> = Vec::from_iter(terms[run].iter().enumerate().map(value));
        RunErrors { name, fitted, values }
    };
    names.into_iter().enumerate().map(of_run).collect()
}

/// Which runs are left out together: each alone, or every tenth if there are many; none if there is only one.
fn folds(runs: usize) -> Vec<Vec<usize>> {
    let count = match runs {
        0 | 1 => 0,
        few if few <= MOST_FOLDS => few,
        _ => GROUPS,
    };
    (0..count).map(|fold| (fold..runs).step_by(count).collect()).collect()
}

/// The profiles of the catalogue, with this one in the place of its engine and version.
fn with_profile(mut engines: Vec<EngineProfile>, profile: &EngineProfile) -> Vec<EngineProfile> {
    engines.retain(|known| (&known.engine, &known.version) != (&profile.engine, &profile.version));
    engines.push(profile.clone());
    engines
}

/// Whether a run would be simulated with the profile.
fn is_of(case: &Case, engines: &[EngineProfile], profile: &EngineProfile) -> bool {
    let Ok(run) = &case.run else { return false };
    run.engine.engine == profile.engine
        && closest_profile(engines, &run.engine).is_some_and(|closest| closest.version == profile.version)
}

fn name(case: &Case) -> String {
    format!("{}/{}", case.group, case.id)
}

fn is_chosen(name: &str, prefixes: &[String]) -> bool {
    prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
}

fn check_prefixes(cases: &[Case], prefixes: &[String], profile: &EngineProfile) -> Result<(), Diagnostic> {
    if cases.is_empty() {
        let problem = format!("none of the runs is of {} {}, or close to it", profile.engine, profile.version);
        return Err(Diagnostic::new(problem));
    }
    let names: Vec<String> = cases.iter().map(name).collect();
    let Some(unknown) = prefixes.iter().find(|prefix| !names.iter().any(|name| name.starts_with(prefix.as_str())))
    else {
        return Ok(());
    };
    let mut groups: Vec<&str> = cases.iter().map(|case| case.group.as_str()).collect();
    groups.dedup();
    let problem = format!("no run of `{}` begins with `{unknown}`", profile.name);
    let example = names.first().map_or("", String::as_str);
    Err(Diagnostic::new(problem).help(format!("groups: {}; a run: {example}", groups.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_left_out_once() {
        assert!(folds(1).is_empty());
        assert_eq!(folds(3), [[0], [1], [2]]);
        let many = folds(47);
        assert_eq!(many.len(), GROUPS);
        let mut left_out: Vec<usize> = many.concat();
        left_out.sort_unstable();
        assert_eq!(left_out, (0..47).collect::<Vec<_>>());
    }
}
