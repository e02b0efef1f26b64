//! The database: migrations, rows, queries; SQLite and Postgres behind one type.
