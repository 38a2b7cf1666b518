//! Rectangles in pixels of a frame.

/// An axis-parallel rectangle. Corners in pixels of the frame, `x` to the right, `y` down.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    /// Left edge.
    pub x0: f32,
    /// Top edge.
    pub y0: f32,
    /// Right edge.
    pub x1: f32,
    /// Bottom edge.
    pub y1: f32,
}

impl Rect {
    /// A rectangle from its corners.
    pub const fn new(x0: f32, y0: f32, x1: f32, y1: f32) -> Self {
        Rect { x0, y0, x1, y1 }
    }

    /// Width in pixels, 0 for an inverted rectangle.
    pub fn width(&self) -> f32 {
        (self.x1 - self.x0).max(0.0)
    }

    /// Height in pixels, 0 for an inverted rectangle.
    pub fn height(&self) -> f32 {
        (self.y1 - self.y0).max(0.0)
    }

    /// Area in square pixels.
    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// What both cover; of no area when they are apart.
    #[must_use]
    pub fn intersection(&self, other: &Rect) -> Rect {
        Rect {
            x0: self.x0.max(other.x0),
            y0: self.y0.max(other.y0),
            x1: self.x1.min(other.x1),
            y1: self.y1.min(other.y1),
        }
    }

    /// Intersection over union, 0 to 1.
    pub fn iou(&self, other: &Rect) -> f32 {
        let both = self.intersection(other).area();
        let either = self.area() + other.area() - both;
        if either > 0.0 { both / either } else { 0.0 }
    }

    /// The part inside a frame of `width` x `height` pixels.
    #[must_use]
    pub fn clipped(&self, width: u32, height: u32) -> Rect {
        self.intersection(&Rect::new(0.0, 0.0, width as f32, height as f32))
    }

    /// A part of this rectangle, given in fractions of its width and height.
    #[must_use]
    pub fn part(&self, x0: f32, y0: f32, x1: f32, y1: f32) -> Rect {
        let (w, h) = (self.x1 - self.x0, self.y1 - self.y0);
        Rect::new(
            self.x0 + x0 * w,
            self.y0 + y0 * h,
            self.x0 + x1 * w,
            self.y0 + y1 * h,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Rect;

    #[test]
    fn iou_of_equal_apart_and_half() {
        let a = Rect::new(0.0, 0.0, 10.0, 10.0);
        assert_eq!(a.iou(&a), 1.0);
        assert_eq!(a.iou(&Rect::new(20.0, 0.0, 30.0, 10.0)), 0.0);
        let half = a.iou(&Rect::new(0.0, 0.0, 10.0, 5.0));
        assert!((half - 0.5).abs() < 1e-6);
        assert_eq!(Rect::default().iou(&Rect::default()), 0.0);
    }
}
