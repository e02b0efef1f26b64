//! The AppRepository controller: decide, sync, clean up, report.
