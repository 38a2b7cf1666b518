//! Orientation: how a picture lies in its file (EXIF 2.32, 4.6.4, tag 0x0112), and how its rows get their upright places.

/// Which of the eight ways a picture lies in its file, 1 to 8 as in EXIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orientation(u8);

impl Orientation {
    /// As it is seen.
    pub const UPRIGHT: Orientation = Orientation(1);

    /// By the number that EXIF gives it; all others are upright, as readers take them.
    pub(crate) fn of(number: u32) -> Self {
        match number {
            1..=8 => Orientation(number as u8),
            _ => Orientation::UPRIGHT,
        }
    }

    /// Its number in EXIF.
    pub fn number(self) -> u8 {
        self.0
    }

    fn is_turned(self) -> bool {
        self.0 >= 5
    }

    /// The upright size of a picture that is stored in this size; the stored one of an upright one as well.
    pub(crate) fn upright(self, (width, height): (u32, u32)) -> (u32, u32) {
        match self.is_turned() {
            true => (height, width),
            false => (width, height),
        }
    }
}

/// Takes rows of RGB as they are stored, and puts them upright.
pub(crate) struct Upright {
    rgb: Vec<u8>,
    /// Where the first stored pixel lies, and the steps to the next one in its row and to the next row, in pixels.
    first: isize,
    along: isize,
    down: isize,
    /// Stored rows and columns.
    width: usize,
    height: usize,
    rows: usize,
    is_upright: bool,
}

impl Upright {
    /// For a picture that is stored in this size.
    pub(crate) fn new((width, height): (u32, u32), orientation: Orientation) -> Self {
        let (w, h) = (width as isize, height as isize);
        let (first, along, down) = match orientation.0 {
            2 => (w - 1, -1, w),
            3 => (w * h - 1, -1, -w),
            4 => (w * (h - 1), 1, -w),
            5 => (0, h, 1),
            6 => (h - 1, h, -1),
            7 => (h * w - 1, -h, -1),
            8 => (h * (w - 1), -h, 1),
            _ => (0, 1, w),
        };
        Upright {
            rgb: vec![0; width as usize * height as usize * 3],
            first,
            along,
            down,
            width: width as usize,
            height: height as usize,
            rows: 0,
            is_upright: orientation == Orientation::UPRIGHT,
        }
    }

    /// The rest of the picture, where rows lie as they are stored: to be written in place.
    pub(crate) fn rest(&mut self) -> Option<&mut [u8]> {
        let from = self.rows * self.width * 3;
        self.is_upright.then(|| &mut self.rgb[from..])
    }

    /// So many rows were written into [`Upright::rest`].
    pub(crate) fn wrote(&mut self, rows: usize) {
        self.rows += rows;
    }

    /// The next row, pixel by pixel. Rows beyond the last are ignored.
    pub(crate) fn row(&mut self, pixels: impl Iterator<Item = [u8; 3]>) {
        if self.rows == self.height {
            return;
        }
        let start = self.first + self.rows as isize * self.down;
        self.rows += 1;
        if self.along == 1 {
            let at = start as usize * 3;
            let row = self.rgb[at..at + self.width * 3].chunks_exact_mut(3);
            row.zip(pixels)
                .for_each(|(to, pixel)| to.copy_from_slice(&pixel));
            return;
        }
        for (x, pixel) in pixels.take(self.width).enumerate() {
            let at = (start + x as isize * self.along) as usize * 3;
            self.rgb[at..at + 3].copy_from_slice(&pixel);
        }
    }

    /// The picture, if all its rows came.
    pub(crate) fn done(self) -> Option<Vec<u8>> {
        (self.rows == self.height).then_some(self.rgb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The upright place of the stored pixel at (x, y), as EXIF's figure has it: where row 0 and column 0 are seen.
    fn place(number: u8, (w, h): (u32, u32), (x, y): (u32, u32)) -> (u32, u32) {
        match number {
            2 => (w - 1 - x, y),
            3 => (w - 1 - x, h - 1 - y),
            4 => (x, h - 1 - y),
            5 => (y, x),
            6 => (h - 1 - y, x),
            7 => (h - 1 - y, w - 1 - x),
            8 => (y, w - 1 - x),
            _ => (x, y),
        }
    }

    #[test]
    fn each_orientation_puts_each_pixel_where_it_is_seen() {
        for stored in [(1, 1), (5, 3), (3, 5), (1, 4), (4, 1)] {
            for number in 1..=8 {
                let orientation = Orientation::of(u32::from(number));
                let mut upright = Upright::new(stored, orientation);
                for y in 0..stored.1 {
                    upright.row((0..stored.0).map(|x| [x as u8, y as u8, number]));
                }
                let rgb = upright.done().expect("all rows came");
                let width = orientation.upright(stored).0;
                for (x, y) in (0..stored.1).flat_map(|y| (0..stored.0).map(move |x| (x, y))) {
                    let (column, row) = place(number, stored, (x, y));
                    let at = (row * width + column) as usize * 3;
                    assert_eq!(rgb[at..at + 3], [x as u8, y as u8, number], "{stored:?}");
                }
            }
        }
    }

    #[test]
    fn a_picture_without_all_its_rows_is_not_done() {
        let mut upright = Upright::new((2, 2), Orientation::UPRIGHT);
        upright.row([[1; 3]; 2].into_iter());
        assert_eq!(upright.done(), None);
    }
}
