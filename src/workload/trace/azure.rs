//! The Azure LLM inference traces of 2023 (Patel et al., "Splitwise", ISCA 2024; github.com/Azure/AzurePublicDataset):
//! `TIMESTAMP` is a date and time with up to nine decimals, e.g. `2023-11-16 18:15:46.6805900`.

use super::{Line, Problem, Row, TraceFormat, csv};

const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

pub(super) const FORMAT: TraceFormat = TraceFormat {
    name: "Azure 2023 CSV",
    first_line: "TIMESTAMP,ContextTokens,GeneratedTokens",
    has_header: true,
    recognises: |first| csv::has_columns(first, &COLUMNS),
    read,
};

fn read(header: &str, line: Line<'_>) -> Result<Row, Problem> {
    let time = csv::field(header, line, COLUMNS[0])?;
    Ok(Row {
        arrival_ns: parse_time(time.text).ok_or_else(|| csv::not_a(time, "time like `2023-11-16 18:15:46.6805900`"))?,
        input: csv::length(header, line, COLUMNS[1])?,
        output: csv::length(header, line, COLUMNS[2])?,
        content: Vec::new(),
        tokens_per_id: 0,
    })
}

/// Nanoseconds since 1970 of `YYYY-MM-DD HH:MM:SS[.fraction]`.
fn parse_time(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    let is_valid = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !is_valid || fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
    let seconds = ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000_000 + nanoseconds)
}

/// Three unsigned numbers between separators.
fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let parsed: Option<Vec<i64>> = text.split(separator).map(|part| part.parse::<u32>().ok().map(i64::from)).collect();
    parsed?.try_into().ok()
}

/// Days of the Gregorian calendar. Years start in March here, so that the leap day is the last of a year, and months
/// of 31 and 30 days alternate as 153 days every five (Fliegel and van Flandern, CACM 11, 1968).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before_year = year * 365 + year / 4 - year / 100 + year / 400;
    days_before_year + (month * 153 + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970() {
        assert_eq!(parse_time("1970-01-01 00:00:00"), Some(0));
        assert_eq!(parse_time("1972-03-01 00:00:00"), Some(790 * 86_400_000_000_000));
        assert_eq!(parse_time("2023-11-16 18:15:46.6805900"), Some(1_700_158_546_680_590_000));
        assert_eq!(parse_time("2000-02-29 23:59:59.1"), Some(951_868_799_100_000_000));
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in ["", "yesterday", "2023-11-16", "2023-13-16 18:15:46", "2023-11-16 18:15:46.", "2023-11-16 18:15"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
