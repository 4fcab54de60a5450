//! The rules in words, for whoever reads a reason: the table at the top of mod.rs itself, so that there is no other to grow old.
//!
//! ```text
//! | R3 waited | a window grows only when its reader waited: from the third read of the stream on, ... | plan.rs, ... | timed reads; ... |
//!   name        in short, up to the colon; the whole says when and how
//! ```

/// A rule, as the table has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// As reasons begin: `R3`.
    pub number: &'static str,
    /// `waited`
    pub name: &'static str,
    /// All that the table says.
    pub says: &'static str,
}

impl Rule {
    /// The first thing that it says, without when and how.
    pub fn in_short(&self) -> &'static str {
        let ends = [": ", "; ", ". ", ", unless "];
        let end = ends.into_iter().filter_map(|end| self.says.find(end)).min();
        &self.says[..end.unwrap_or(self.says.len())]
    }
}

/// All rules, R1 first. A reason begins with the number of its rule and a blank.
pub fn rules() -> impl Iterator<Item = Rule> {
    include_str!("mod.rs").lines().filter_map(|line| {
        let mut cells = line.strip_prefix("//! | R")?.split(" | ");
        let (_, says) = (cells.next()?, cells.next()?);
        let (number, name) = line["//! | ".len()..].split(" | ").next()?.split_once(' ')?;
        Some(Rule { number, name, says })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_rule_is_in_the_table_once_and_in_order() {
        let numbers: Vec<_> = rules().map(|rule| rule.number).collect();
        let all: Vec<_> = (1..=15).map(|number| alloc::format!("R{number}")).collect();
        assert_eq!(numbers, all);
        let waited = rules().nth(2).unwrap();
        assert_eq!(
            (waited.name, waited.in_short()),
            ("waited", "a window grows only when its reader waited")
        );
        assert!(rules().all(|rule| rule.in_short().len() > 20 && rule.says.starts_with(rule.in_short())));
    }
}
