//! When the order of the waiting requests changes.

use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::policy::recipe::Transition;

/// The order for a load factor (PARD §4.3): `input` is T_in, `capacity` T_m, `smoothed` T_s, all in requests a
/// second.
pub(super) fn next_order(
    transition: Transition,
    before: BudgetOrder,
    input: f64,
    capacity: f64,
    smoothed: f64,
) -> BudgetOrder {
    if capacity <= 0.0 {
        return before;
    }
    let load = input / capacity;
    let eps = match transition {
        Transition::Delayed if smoothed > 0.0 => (input - smoothed).abs() / smoothed,
        Transition::Delayed | Transition::AtOnce => 0.0,
    };
    if load > 1.0 + eps {
        BudgetOrder::HighestFirst
    } else if load < 1.0 - eps {
        BudgetOrder::LowestFirst
    } else {
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_changes_late_and_instantly() {
        use BudgetOrder::{HighestFirst, LowestFirst};
        // Input 110 against capacity 100: 10% over, but 30% off its own mean: unchanged.
        let at = |transition, before, input, smoothed| {
            next_order(transition, before, input, 100.0, smoothed)
        };
        assert_eq!(
            at(Transition::Delayed, LowestFirst, 110.0, 85.0),
            LowestFirst
        );
        assert_eq!(
            at(Transition::Delayed, HighestFirst, 110.0, 85.0),
            HighestFirst
        );
        assert_eq!(
            at(Transition::Delayed, LowestFirst, 110.0, 108.0),
            HighestFirst
        );
        assert_eq!(
            at(Transition::Delayed, HighestFirst, 90.0, 92.0),
            LowestFirst
        );
        assert_eq!(
            at(Transition::AtOnce, LowestFirst, 101.0, 50.0),
            HighestFirst
        );
        assert_eq!(
            next_order(Transition::AtOnce, LowestFirst, 5.0, 0.0, 5.0),
            LowestFirst
        );
    }
}
