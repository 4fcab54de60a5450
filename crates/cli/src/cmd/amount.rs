//! Amounts as people write them, for every option that takes one: `64M`, `1GiB`, `2 kb`, `4096`. A unit is one of 1024.
//!
//! Who asks says what is wrong with an amount that is none, or too small for him.

/// A number and a unit (`K`, `M`, `G`, `T`, with or without `iB` or `B`, in any case).
pub(crate) fn amount(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_write_them() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("1GiB", 1 << 30),
            ("1GB", 1 << 30),
            ("2T", 2 << 40),
            ("4096", 4096),
            ("2 kb", 2048),
            ("0", 0),
        ] {
            assert_eq!(amount(text), Some(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "3X", "12 parsecs", "99999999999T", "1GiBB"] {
            assert_eq!(amount(text), None, "{text}");
        }
    }

    #[test]
    fn an_amount_is_its_number() {
        bowwave_fuzz::fuzz_text("an amount", &["64M", "1GiB", "4096", "2 kb"], |text| {
            let Some(bytes) = amount(text) else { return };
            assert_eq!(amount(&bytes.to_string()), Some(bytes));
        });
    }
}
