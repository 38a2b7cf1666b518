//! Protocol Buffers as they lie in memory: the fields of a message, one after the other. Nothing is copied, and nothing is believed: a length
//! ends within the bytes, or the message is cut short.

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// An integer, a truth or a choice.
    Number(u64),
    /// A text, bytes, a message, or numbers one after the other.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes.
    Fixed(&'a [u8]),
}

/// Why a message cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It ends within a field.
    Short,
    /// A field of no kind that there is.
    Strange,
}

impl From<Broken> for String {
    fn from(broken: Broken) -> String {
        match broken {
            Broken::Short => "it is cut short",
            Broken::Strange => "it is damaged",
        }
        .to_owned()
    }
}

/// The fields of a message: number and value.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    fn varint(&mut self) -> Result<u64, Broken> {
        varint(&mut self.rest)
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], Broken> {
        let n = usize::try_from(n).map_err(|_| Broken::Short)?;
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(Broken::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Broken> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Broken::Strange)?;
        if number == 0 {
            return Err(Broken::Strange);
        }
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Fixed(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.take(4)?),
            _ => return Err(Broken::Strange),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Broken>;

    /// Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// An integer of up to ten bytes, seven bits in each.
fn varint(rest: &mut &[u8]) -> Result<u64, Broken> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, after) = rest.split_first().ok_or(Broken::Short)?;
        *rest = after;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Broken::Strange)
}

/// Adds the numbers of a repeated field of integers, one or several one after the other, while there are no more than `most`. Says whether there
/// are no more.
///
/// # Errors
/// When the last one is cut short.
pub(super) fn integers(value: Value<'_>, most: usize, into: &mut Vec<i64>) -> Result<bool, Broken> {
    let mut push = |number: u64| {
        let has_room = into.len() < most;
        if has_room {
            into.push(number as i64);
        }
        has_room
    };
    match value {
        Value::Number(one) => Ok(push(one)),
        Value::Bytes(mut all) => {
            while !all.is_empty() {
                if !push(varint(&mut all)?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Value::Fixed(_) => Err(Broken::Strange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_what_is_cut_short_or_strange_ends_them() {
        let message = [
            0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        let all: Result<Vec<_>, _> = Fields::of(&message).collect();
        let expected = vec![
            (1, Value::Number(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed(&[1, 2, 3, 4])),
            (4, Value::Fixed(&[1, 2, 3, 4, 5, 6, 7, 8])),
        ];
        assert_eq!(all, Ok(expected));
        for cut in [1, 2, 4, 5, 6, 8, 11, 20] {
            let last = Fields::of(&message[..cut]).last();
            assert_eq!(last, Some(Err(Broken::Short)), "{cut}");
        }
        for strange in [
            &[0x0b][..],
            &[0x00, 1],
            &[
                0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
        ] {
            assert_eq!(Fields::of(strange).last(), Some(Err(Broken::Strange)));
        }
        let long = [
            0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0,
        ];
        assert_eq!(Fields::of(&long).last(), Some(Err(Broken::Short)));
    }

    #[test]
    fn repeated_integers_are_read_in_both_forms() {
        let mut all = Vec::new();
        assert_eq!(integers(Value::Number(7), 4, &mut all), Ok(true));
        let two = Value::Bytes(&[0x96, 0x01, 3]);
        assert_eq!(integers(two, 4, &mut all), Ok(true));
        assert_eq!(all, [7, 150, 3]);
        let cut = Value::Bytes(&[0x96]);
        assert_eq!(integers(cut, 4, &mut all), Err(Broken::Short));
        // A number has a byte at least: more of them than there is room for are not kept.
        assert_eq!(integers(Value::Bytes(&[1; 1000]), 4, &mut all), Ok(false));
        assert_eq!(integers(Value::Number(7), 4, &mut all), Ok(false));
        assert_eq!(all.len(), 4);
    }
}
