//! Numbers as they stand in tables.

/// Three digits are as much as such a measurement can tell.
pub fn seconds(value: f64) -> String {
    match value {
        value if value < 0.0995 => format!("{value:.4}"),
        value if value < 9.95 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

/// With its unit.
pub fn short(value: f64) -> String {
    if value < 0.0995 {
        format!("{:.1} ms", value * 1000.0)
    } else {
        format!("{} s", seconds(value))
    }
}

/// How many of so many there were a second.
pub fn a_second(count: usize, seconds: f64) -> String {
    format!("{:.0}", count as f64 / seconds)
}

/// Bytes in MiB.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A count as people write it.
pub fn thousands(count: usize) -> String {
    if count < 1000 {
        count.to_string()
    } else {
        format!("{},{:03}", count / 1000, count % 1000)
    }
}
