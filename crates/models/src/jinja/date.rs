//! `strftime_now`: the current time in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats the time with the directives of `strftime`.
pub(super) fn now(format: &str) -> String {
    format_time(format, SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

fn format_time(format: &str, seconds: u64) -> String {
    let days = (seconds / 86_400) as i64;
    let (year, month, day) = civil_from_days(days);
    let of_year = days
        - (0..).map(|back| days - back).find(|d| civil_from_days(*d).1 == 1 && civil_from_days(*d).2 == 1).unwrap_or(0)
        + 1;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[days.rem_euclid(7) as usize]);
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let directive = chars.next();
        let plain = directive == Some('-');
        let directive = if plain { chars.next() } else { directive };
        let two = |n: u64| if plain { n.to_string() } else { format!("{n:02}") };
        text += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => two(year.rem_euclid(100) as u64),
            Some('m') => two(month as u64),
            Some('d') => two(day as u64),
            Some('e') => format!("{day:2}"),
            Some('B') => month_name.into(),
            Some('b' | 'h') => month_name[..3].into(),
            Some('A') => day_name.into(),
            Some('a') => day_name[..3].into(),
            Some('H') => two(hour),
            Some('I') => two((hour + 11) % 12 + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.into(),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('j') => {
                if plain {
                    of_year.to_string()
                } else {
                    format!("{of_year:03}")
                }
            }
            Some('w') => ((days + 4).rem_euclid(7)).to_string(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('D') => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('f') => "000000".into(),
            Some('s') => seconds.to_string(),
            Some('Z' | 'z') => String::new(),
            Some('n') => "\n".into(),
            Some('t') => "\t".into(),
            Some('%') => "%".into(),
            Some(other) => format!("%{other}"),
            None => "%".into(),
        };
    }
    text
}

/// Converts a number of days since 1970 to year, month and day in the proleptic Gregorian calendar.
fn civil_from_days(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years start in March here.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (days, date) in [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (19_723, (2024, 1, 1))] {
            assert_eq!(civil_from_days(days), date);
        }
    }

    /// Expected values from Python's `datetime.strftime`.
    #[test]
    fn directives_are_those_of_python() {
        let format = "%Y-%m-%d %d %b %Y %B %A %a %H:%M:%S %I %p %j %y %% %-d %-m %w %q";
        for (seconds, text) in [
            (0, "1970-01-01 01 Jan 1970 January Thursday Thu 00:00:00 12 AM 001 70 % 1 1 4 %q"),
            (1_700_000_000, "2023-11-14 14 Nov 2023 November Tuesday Tue 22:13:20 10 PM 318 23 % 14 11 2 %q"),
            (951_782_399, "2000-02-28 28 Feb 2000 February Monday Mon 23:59:59 11 PM 059 00 % 28 2 1 %q"),
        ] {
            assert_eq!(format_time(format, seconds), text);
        }
    }
}
