//! The parts of a page of measurements, as Markdown: tables, sections, how the page was made, and the section that people write.

use std::fmt;
use std::fmt::Write as _;

/// Heading of the part of a page that people write. It ends the page.
const BY_HAND: &str = "## Reading it\n";

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    width: usize,
    text: String,
}

impl Table {
    /// A table without rows.
    pub fn new<T: fmt::Display>(head: impl IntoIterator<Item = T>) -> Self {
        let mut table = Table {
            width: 0,
            text: String::new(),
        };
        table.width = table.line(head);
        let rule = "---|".repeat(table.width);
        let _ = writeln!(table.text, "|{rule}");
        table
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has more or fewer cells than the head.
    pub fn row<T: fmt::Display>(&mut self, cells: impl IntoIterator<Item = T>) {
        let width = self.line(cells);
        assert_eq!(width, self.width, "a row is as wide as its table");
    }

    fn line<T: fmt::Display>(&mut self, cells: impl IntoIterator<Item = T>) -> usize {
        let mut width = 0;
        self.text.push('|');
        for cell in cells {
            let _ = write!(self.text, " {cell} |");
            width += 1;
        }
        self.text.push('\n');
        width
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A page. Each part of it is followed by an empty line.
#[derive(Clone, Debug)]
pub struct Page {
    text: String,
}

impl Page {
    /// A page with a title alone.
    pub fn new(title: &str) -> Self {
        Page {
            text: format!("# {title}\n\n"),
        }
    }

    /// How the page was made: the command that does the same again.
    pub fn made_by(&mut self, command: &str) {
        let _ = write!(self.text, "```sh\n{command}\n```\n\n");
    }

    /// A section begins.
    pub fn section(&mut self, heading: &str) {
        let _ = write!(self.text, "## {heading}\n\n");
    }

    /// Paragraphs or a list.
    pub fn say(&mut self, text: &str) {
        let _ = write!(self.text, "{text}\n\n");
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        let _ = writeln!(self.text, "{table}");
    }

    /// The page, and at its end what people wrote of the page that was there before.
    pub fn text(&self, before: &str) -> String {
        let text = self.text.trim_end();
        match by_hand(before) {
            "" => format!("{text}\n"),
            written => format!("{text}\n\n{written}"),
        }
    }
}

/// The part of a page that people wrote: from its heading to the end. Empty where there is none.
fn by_hand(page: &str) -> &str {
    let at = page.find(&format!("\n{BY_HAND}"));
    at.map_or("", |at| &page[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_page_are_apart() {
        let mut table = Table::new(["a", "b"]);
        table.row([1, 2]);
        table.row(["0.2", "`x`"]);
        let mut page = Page::new("X");
        page.say("One.");
        page.made_by("make x");
        page.section("Y");
        page.table(&table);
        assert_eq!(
            page.text(""),
            "# X\n\nOne.\n\n```sh\nmake x\n```\n\n## Y\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 0.2 | `x` |\n"
        );
    }

    #[test]
    fn a_page_written_anew_keeps_what_people_wrote() {
        let mut page = Page::new("X");
        page.say("Two. ## Reading it");
        let alone = page.text("");
        assert_eq!(page.text(&alone), alone);
        let kept = page.text("# Old\n\nOne.\n\n## Reading it\n\nIt is more.\n");
        assert_eq!(kept, format!("{alone}\n## Reading it\n\nIt is more.\n"));
        assert_eq!(page.text(&kept), kept, "it is there once");
    }

    #[test]
    #[should_panic(expected = "as wide as its table")]
    fn a_row_that_is_too_short_is_a_fault() {
        Table::new(["a", "b"]).row(["1"]);
    }
}
