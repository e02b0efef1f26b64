//! Intervals and cron expressions.
