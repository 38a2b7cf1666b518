//! Section 7.6: answers to single questions, beside the best ones.

use std::collections::BTreeMap;

use spillgate_controller_policy::adaptation::STEPS_DEFAULT;
use spillgate_jellyfish::adaptation::{Method, Search};

use super::Given;
use super::instances::Question;
use crate::in_parallel;
use crate::report::{Report, mean};

const METHODS: [Method; 3] = [Method::Greedy, Method::Jellyfish, Method::Spillgate];
/// Answers to one question: each with a seed of its own.
const SEEDS: u64 = 20;

/// By method: mean accuracy over the best one, and the clients that are not served.
type Answers = [(f64, f64); METHODS.len()];

pub(super) fn mapping(given: &Given, report: &mut Report) -> anyhow::Result<()> {
    report.say(&format!(
        "## Section 7.6: single questions\n\nMean accuracy over that of the best answer known (an integer program), and in brackets the clients that are \
         not served. Means over the questions of a kind, {SEEDS} seeds each; {STEPS_DEFAULT} steps. The paper's Algorithm 2 has 0.966 to 0.996 (2 and \
         4 workers), the reference's version of it 0.970 to 0.998."
    ));
    let known: Vec<&Question> = given
        .questions
        .iter()
        .filter(|q| q.best().is_some())
        .collect();
    let answers = in_parallel(&known, |question| answer(question))?;
    let mut kinds: BTreeMap<(String, usize, usize), Vec<Answers>> = BTreeMap::new();
    for (question, answers) in known.iter().zip(answers) {
        kinds.entry(question.kind()).or_default().push(answers);
    }
    let rows: Vec<Vec<String>> = kinds
        .iter()
        .map(|((profile, gpus, factor), all)| {
            let mut row = vec![
                profile.clone(),
                gpus.to_string(),
                (gpus * factor).to_string(),
                all.len().to_string(),
            ];
            row.extend((0..METHODS.len()).map(|m| {
                let ratio = mean(all.iter().map(|answers| answers[m].0));
                let unserved = mean(all.iter().map(|answers| answers[m].1));
                format!("{ratio:.4} ({unserved:.2})")
            }));
            row
        })
        .collect();
    let mut head = vec!["profile", "workers", "clients", "questions"];
    head.extend(METHODS.map(Method::name));
    report.table(&head, &rows);
    Ok(())
}

fn answer(question: &Question) -> anyhow::Result<Answers> {
    let instance = question.instance()?;
    let best = question.best().unwrap_or(1.0);
    let mut answers = [(0.0, 0.0); METHODS.len()];
    for (method, answer) in METHODS.iter().zip(&mut answers) {
        for seed in 1..=SEEDS {
            let mut search = Search::new(*method, instance.clone(), None, seed);
            for step in 0..STEPS_DEFAULT {
                search.advance(1, f64::from(step) / f64::from(STEPS_DEFAULT));
            }
            let assignment = search.best();
            assignment.check(&instance)?;
            let worth = assignment.worth(&instance);
            let unserved = instance.clients().len() - worth.served;
            answer.0 += worth.value / best / SEEDS as f64;
            answer.1 += unserved as f64 / SEEDS as f64;
        }
    }
    Ok(answers)
}
