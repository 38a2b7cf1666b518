//! The results of `live-cameras` as text: tables, and whether the figures to reach are met.

use anyhow::Result;

use super::told::Told;
use super::{NEED, WARM_UP_S};
use crate::observe::today;
use spillgate_report::{Page as Markdown, Table};

/// A variant holds a setting where less is missed.
const MISSED_MAX: f64 = 0.02;
/// A choice should be so much of the way from the smallest variant to the best one that holds.
const WAY: f64 = 0.9;

/// How variants are chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Choice {
    /// One variant for all, with an input of that side.
    Fixed { idx: usize, side: u64 },
    /// `adapt:` of that name.
    Named(String),
}

impl Choice {
    /// As pipelines have it.
    pub(super) fn yaml(&self) -> String {
        match self {
            Choice::Fixed { idx, .. } => format!("{{ name: fixed, variant: {idx} }}"),
            Choice::Named(name) => name.clone(),
        }
    }

    /// As tables and folders have it.
    pub(super) fn word(&self) -> String {
        match self {
            Choice::Fixed { side, .. } => format!("fixed-{side}"),
            Choice::Named(name) => name.clone(),
        }
    }
}

/// One choice in one setting.
pub(super) struct Cell {
    pub(super) choice: Choice,
    pub(super) told: Told,
    /// Frames that the cameras made, as a part of those that were due.
    pub(super) made: f64,
    /// Of a client in a minute.
    pub(super) switches: f64,
    /// Processor time of the server, in cores.
    pub(super) server_cores: f64,
    /// Part of the machine that was busy, with any process.
    pub(super) machine: f64,
}

impl Cell {
    fn holds(&self) -> bool {
        self.told.missed() < MISSED_MAX
    }

    /// The text for the terminal.
    pub(super) fn line(&self) -> String {
        format!(
            "{}: {:.1}% missed, F1 {:.3} ({:.3} of frames in time), side {:.0}, {:.1} switches a minute, machine {:.0}% busy",
            self.choice.word(),
            100.0 * self.told.missed(),
            self.told.f1(),
            self.told.f1_in_time(),
            self.told.side(),
            self.switches,
            100.0 * self.machine
        )
    }
}

/// All choices for cameras of one number on one trace.
pub(super) struct Setting {
    pub(super) trace: String,
    pub(super) clients: usize,
    /// The fixed ones by rising size, then the others.
    pub(super) cells: Vec<Cell>,
}

/// What is to be reached in a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    /// The smallest variant does not hold.
    Nothing,
    /// Only the smallest holds: more than its F1.
    Above(f64),
    /// At least this F1: a part of the way from one to the other.
    Way { from: f64, to: f64 },
}

impl Goal {
    /// Whether that F1 reaches it, in words.
    fn judged(self, f1: f64) -> String {
        match self {
            Goal::Nothing => "-".to_owned(),
            Goal::Above(least) if f1 > least => format!("met: {:+.3}", f1 - least),
            Goal::Above(least) => format!("not met: {:+.3}", f1 - least),
            Goal::Way { from, to } if from >= to => match f1 >= from {
                true => "met".to_owned(),
                false => "not met".to_owned(),
            },
            Goal::Way { from, to } => {
                let way = (f1 - from) / (to - from);
                let met = if way >= WAY { "met" } else { "not met" };
                format!("{met}: {way:.2}")
            }
        }
    }
}

impl Setting {
    fn goal(&self) -> Goal {
        let is_fixed = |cell: &&Cell| matches!(cell.choice, Choice::Fixed { .. });
        let mut fixed = self.cells.iter().filter(is_fixed);
        let Some(smallest) = fixed.next().filter(|cell| cell.holds()) else {
            return Goal::Nothing;
        };
        let from = smallest.told.f1();
        let others = fixed.filter(|cell| cell.holds()).map(|cell| cell.told.f1());
        match others.reduce(f64::max) {
            None => Goal::Above(from),
            Some(best) => Goal::Way {
                from,
                to: best.max(from),
            },
        }
    }

    /// As Markdown.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            "variants",
            "missed",
            "link, server, late",
            "F1",
            "F1 in time",
            "side",
            "switches",
            "made",
            "server, cores",
            "machine busy",
            "missed below 2%",
            "F1 to reach",
        ]);
        let goal = self.goal();
        for cell in &self.cells {
            let told = &cell.told;
            let percent = |n: u64| 100.0 * told.part(n);
            let judged = match (&cell.choice, goal) {
                (Choice::Fixed { .. }, _) if cell.holds() => ["holds".to_owned(), String::new()],
                (Choice::Fixed { .. }, _) => Default::default(),
                (_, Goal::Nothing) => ["-", "-"].map(str::to_owned),
                (_, _) if cell.holds() => ["met".to_owned(), goal.judged(told.f1())],
                (_, _) => ["not met".to_owned(), goal.judged(told.f1())],
            };
            table.row([
                format!("`{}`", cell.choice.word()),
                format!("{:.1}%", 100.0 * told.missed()),
                format!(
                    "{:.1}, {:.1}, {:.1}",
                    percent(told.unsent),
                    percent(told.unserved),
                    percent(told.late)
                ),
                format!("{:.3}", told.f1()),
                format!("{:.3}", told.f1_in_time()),
                format!("{:.0}", told.side()),
                format!("{:.1}", cell.switches),
                format!("{:.0}%", 100.0 * cell.made),
                format!("{:.2}", cell.server_cores),
                format!("{:.0}%", 100.0 * cell.machine),
                judged[0].to_string(),
                judged[1].to_string(),
            ]);
        }
        table
    }
}

/// All that the page tells.
pub(super) struct Page<'a> {
    /// Does the same again.
    pub(super) command: &'a str,
    /// In words.
    pub(super) machine: &'a str,
    pub(super) slo: &'a str,
    pub(super) fps: f64,
    pub(super) seconds: usize,
    /// By camera, bits a second.
    pub(super) needs: &'a [f64],
    pub(super) settings: &'a [Setting],
    /// Trace, clients and choice of the run that the picture shows.
    pub(super) pictured: &'a (String, usize, Choice),
}

impl Page<'_> {
    /// As Markdown. What people wrote in the page that was there is kept.
    pub(super) fn text(&self, before: &str) -> Result<String> {
        let bounds = self
            .needs
            .iter()
            .fold((f64::MAX, 0.0f64), |(least, most), need| {
                (least.min(*need), most.max(*need))
            });
        let (trace, clients, choice) = self.pictured;
        let mut page = Markdown::new("Cameras on links that change, live");
        page.say(&format!(
            "The traffic pipeline with its models serves cameras that adapt. Server and cameras are processes of one machine. Each camera is a \
             `spillgate stream` with a scene and a link of its own, and sends {fps} frames a second; the SLO is {slo}, time on the link included. \
             Plates ask for no least size here, so frames may be as small as the smallest variant sees.",
            fps = self.fps,
            slo = self.slo,
        ));
        page.say(&format!("On {}, {}:", today()?, self.machine));
        page.made_by(self.command);
        page.say(&format!(
            "- **Links** replay a trace, each camera from another place of it. Frames of the largest size need {NEED} times the mean of each link: they are \
             {least:.2} to {most:.2} Mbit/s, measured for each camera. `synthetic` is 20, 15, 10, 7.5, 10, 15, 20 in turn, once in a run of up to \
             140 s; the others are those of Jellyfish's repository.\n\
             - **`fixed-N`** serves all with the variant of that input, and the cameras send frames of that size whatever their links bear \
             (`--no-adapt --max-side N`). The others are the names of `adapt:`, whose cameras send what the server asks for, or less.\n\
             - **Missed**: no answer within the SLO from the moment when the frame was due, by the camera's clock, of all frames that the cameras \
             made. Beside it, in percent: not sent as the link was behind; dropped or refused by the server; late.\n\
             - **F1**: vehicles and people in the answers against what the scene shows, the mean over overlaps of 0.5 to 0.95, as `accuracy:` of the \
             pipeline; frames that were missed found nothing. **F1 in time** counts frames in time alone, as the paper does.\n\
             - **Side**: mean longer side of the frames sent, in pixels. **Switches** of it: of a camera in a minute.\n\
             - **Made**: frames that the cameras made, of those that were due. Less than 100% says that the machine was too slow for the cameras themselves.\n\
             - Frames of {seconds} s count, after {WARM_UP_S} s that do not. Each cell is one run of a fresh server; all have one profile.\n\
             - **To reach**, where the smallest variant misses below 2%: also less than 2%, and {WAY} of the way of F1 from the smallest variant to the best \
             one that holds (misses below 2%). Where no other holds: more F1 than the smallest.",
            least = bounds.0 / 1e6,
            most = bounds.1 / 1e6,
            seconds = self.seconds,
        ));
        for setting in self.settings {
            let (trace, clients) = (&setting.trace, setting.clients);
            page.section(&format!("{trace}, {clients} cameras"));
            page.table(&setting.table());
        }
        page.section("One camera");
        page.say("![Bandwidth, size of the frames and latency of one camera over time](live_cameras.svg)");
        page.say(&format!(
            "The first of {clients} cameras on `{trace}`, under `{}`. `spillgate stream --plot FILE.svg` draws it.",
            choice.word()
        ));
        Ok(page.text(before))
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::tests::of;
    use super::*;

    fn fixed(idx: usize, side: u64) -> Choice {
        Choice::Fixed { idx, side }
    }

    fn named(name: &str) -> Choice {
        Choice::Named(name.to_owned())
    }

    /// Of 1000 frames so many are missed.
    fn cell(choice: Choice, missed: u64) -> Cell {
        Cell {
            choice,
            told: of(1000, missed),
            made: 1.0,
            switches: 2.5,
            server_cores: 0.5,
            machine: 0.75,
        }
    }

    fn setting(cells: Vec<Cell>) -> Setting {
        Setting {
            trace: "lte".to_owned(),
            clients: 4,
            cells,
        }
    }

    #[test]
    fn a_choice_is_measured_by_the_variants_that_hold() {
        let (small, large) = (fixed(0, 128), fixed(1, 320));
        // Nobody holds.
        let none = setting(vec![cell(small.clone(), 20), cell(named("x"), 10)]);
        assert_eq!(none.goal(), Goal::Nothing);
        assert!(
            none.table()
                .to_string()
                .lines()
                .last()
                .unwrap()
                .ends_with("| - | - |")
        );
        // Only the smallest: its F1 is to be exceeded.
        let cells = vec![cell(small.clone(), 19), cell(large.clone(), 500)];
        let goal = setting(cells).goal();
        assert!(matches!(goal, Goal::Above(_)), "{goal:?}");
        // Another one, too.
        let cells = vec![
            cell(small.clone(), 19),
            cell(large.clone(), 5),
            cell(named("x"), 7),
        ];
        let both = setting(cells);
        let goal = both.goal();
        let (Goal::Way { from, to }, f1) = (goal, |missed| of(1000, missed).f1()) else {
            panic!("{goal:?}");
        };
        assert_eq!((from, to), (f1(19), f1(5)));
        let table = both.table().to_string();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert!(
            rows[0].starts_with("| `fixed-128` | 1.9% | 0.0, 1.9, 0.0 |"),
            "{table}"
        );
        assert!(
            rows[0].ends_with("| 320 | 2.5 | 100% | 0.50 | 75% | holds |  |"),
            "{table}"
        );
        assert!(rows[2].contains("| met | not met: 0.86 |"), "{table}");
        let columns: Vec<usize> = table.lines().map(|l| l.matches('|').count()).collect();
        assert!(columns.iter().all(|n| *n == columns[0]), "{columns:?}");
    }

    #[test]
    fn goals_are_judged_in_words() {
        let way = Goal::Way { from: 0.5, to: 0.7 };
        let above = Goal::Above(0.5);
        let same = Goal::Way { from: 0.5, to: 0.5 };
        for (goal, f1, words) in [
            (way, 0.681, "met: 0.91"),
            (way, 0.6, "not met: 0.50"),
            (way, 0.8, "met: 1.50"),
            (above, 0.51, "met: +0.010"),
            (above, 0.5, "not met: +0.000"),
            (same, 0.5, "met"),
            (same, 0.49, "not met"),
            (Goal::Nothing, 0.9, "-"),
        ] {
            assert_eq!(goal.judged(f1), words, "{goal:?}");
        }
    }

    #[test]
    fn the_page_has_every_table_and_keeps_what_people_wrote() {
        let settings = [setting(vec![
            cell(fixed(0, 128), 0),
            cell(named("greedy"), 30),
        ])];
        let pictured = ("lte".to_owned(), 4, named("greedy"));
        let page = Page {
            command: "cargo xtask live-cameras",
            machine: "2 virtual cores",
            slo: "400ms",
            fps: 10.0,
            seconds: 60,
            needs: &[1.5e6, 2.5e6],
            settings: &settings,
            pictured: &pictured,
        };
        let text = page.text("").unwrap();
        for part in [
            "\ncargo xtask live-cameras\n",
            "1.50 to 2.50 Mbit/s",
            "## lte, 4 cameras\n\n| variants |",
            "| `greedy` | 3.0% |",
            "| not met | not met: -",
            "The first of 4 cameras on `lte`, under `greedy`.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("\n\n\n") && !text.contains("Reading it"));
        let again = page.text("# Old\n\n## Reading it\n\nIt is so.\n").unwrap();
        assert_eq!(again, format!("{text}\n## Reading it\n\nIt is so.\n"));
    }
}
