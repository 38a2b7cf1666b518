//! Batches that shrink: members that are done leave, the others move up.

use spillgate_process::value::Tensor;

/// Of `[n, m]`, the rows of which `stays` says so, in their order, each without its first `n_left_out` columns.
///
/// # Panics
/// When the tensor is no matrix with one row for each of `stays`.
pub(crate) fn keep_rows(tensor: &Tensor, n_left_out: usize, stays: &[bool]) -> Tensor {
    let [n, m] = tensor.shape[..] else {
        panic!("{:?} is no matrix", tensor.shape)
    };
    assert_eq!(n, stays.len() as i64, "one entry a row");
    let mut kept = Vec::with_capacity(tensor.data.len());
    let mut n_kept = 0;
    for (row, _) in stays.iter().enumerate().filter(|(_, stays)| **stays) {
        kept.extend_from_slice(&tensor.row(row)[n_left_out..]);
        n_kept += 1;
    }
    Tensor::new(vec![n_kept, m - n_left_out as i64], kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_stay_move_up_in_order() {
        let tensor = Tensor::new(vec![4, 2], (0..8u8).map(f32::from).collect());
        let some = keep_rows(&tensor, 0, &[false, true, false, true]);
        assert_eq!(some, Tensor::new(vec![2, 2], vec![2.0, 3.0, 6.0, 7.0]));
        let ends = keep_rows(&tensor, 1, &[true, false, false, true]);
        assert_eq!(ends, Tensor::new(vec![2, 1], vec![1.0, 7.0]));
        let none = keep_rows(&tensor, 1, &[false; 4]);
        assert_eq!(none, Tensor::new(vec![0, 1], vec![]));
    }
}
