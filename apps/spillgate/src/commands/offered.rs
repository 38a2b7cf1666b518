//! Policies by name on the command line, with what each does; of those of the laboratory the error says where they are.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use spillgate_pipeline::placement::{Decider, PlacementPolicy};
use spillgate_pipeline::policy::{DispatchPolicyName, DropPolicy};
use spillgate_pipeline::schedule::SchedulePolicy;

/// Reads a name.
#[derive(Clone)]
pub(crate) struct Offered {
    names: PossibleValuesParser,
    laboratory: &'static [&'static str],
}

/// Drop policies.
pub(crate) fn drops() -> Offered {
    let explained = |drop: DropPolicy| PossibleValue::new(drop.name()).help(drop.recipe().summary);
    Offered {
        names: PossibleValuesParser::new(DropPolicy::OFFERED.map(explained)),
        laboratory: &DropPolicy::LABORATORY,
    }
}

/// Batch schedulers.
pub(crate) fn schedules() -> Offered {
    Offered {
        names: PossibleValuesParser::new(SchedulePolicy::OFFERED.map(SchedulePolicy::name)),
        laboratory: &SchedulePolicy::LABORATORY,
    }
}

/// Dispatch policies.
pub(crate) fn dispatches() -> Offered {
    Offered {
        names: PossibleValuesParser::new(DispatchPolicyName::OFFERED.map(DispatchPolicyName::name)),
        laboratory: &DispatchPolicyName::LABORATORY,
    }
}

/// Placements.
pub(crate) fn placements() -> Offered {
    let explained = |decider: Decider| {
        let summary = decider.placement().map(|p| p.recipe().summary);
        PossibleValue::new(decider.name()).help(summary.unwrap_or(BROKERS))
    };
    Offered {
        names: PossibleValuesParser::new(Decider::OFFERED.map(explained)),
        laboratory: &PlacementPolicy::LABORATORY,
    }
}

/// What `brokers` does.
const BROKERS: &str = "none: each device forms batches by the drop policy and the batch schedulers of the file, and reads a model before its batch; \
     the models that are asked for least give way";

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        self.names
            .parse_ref(command, arg, value)
            .map_err(|mut error| {
                if let Some(name) = self.laboratory.iter().find(|name| value == **name) {
                    let said = format!("{name} is one of the laboratory's (docs/laboratory.md)");
                    let said = ContextValue::StyledStrs(vec![said.into()]);
                    error.insert(ContextKind::Suggested, said);
                }
                error
            })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.names.possible_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_one_of_the_laboratory_is_told_where_it_is_and_what_there_is() {
        let told = |parser: Offered, name: &str| {
            let arg = Arg::new("policy").long("policy").value_parser(parser);
            let read = Command::new("simulate")
                .arg(arg)
                .try_get_matches_from(["simulate", "--policy", name]);
            read.map(drop).map_err(|error| error.to_string())
        };
        for (parser, name, offered) in [
            (drops(), "pard-sf", "nexus-split"),
            (schedules(), "clipper", "goodput"),
            (dispatches(), "least-outstanding-free", "affinity"),
            (placements(), "clockwork-fixed", "brokers"),
        ] {
            assert_eq!(told(parser.clone(), offered), Ok(()));
            let error = told(parser.clone(), name).unwrap_err();
            assert!(error.contains("is one of the laboratory's"), "{error}");
            assert!(error.contains(offered), "{error}");
            let error = told(parser, "pardon").unwrap_err();
            assert!(!error.contains("laboratory"), "{error}");
        }
    }
}
