use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::flags::database::DatabaseFlags;
use super::{Error, failed_to};
use crate::catalog::transfer::{ImportMode, Transferred};

/// Back up the catalog, and move it between SQLite and Postgres
#[derive(Args, Debug)]
pub struct CatalogCommand {
    #[command(subcommand)]
    command: CatalogTransfer,
}

#[derive(Subcommand, Debug)]
enum CatalogTransfer {
    Export(Export),
    Import(Import),
}

/// Write all rows of the catalog as JSON lines
///
/// The rows are those of one point in time; `portolan run` may go on. The file holds no passwords. Give the password of
/// Postgres in DB_PASSWORD.
#[derive(Args, Debug)]
struct Export {
    /// File to write, - for the standard output; it must not exist
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    database: DatabaseFlags,
}

/// Read an export into an empty catalog
///
/// Stop `portolan run` first. All rows are written in one transaction: after any failure nothing has changed. A file that was
/// cut or changed is refused. Give the password of Postgres in DB_PASSWORD.
#[derive(Args, Debug)]
struct Import {
    /// File to read, - for the standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Delete all rows of the catalog first
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl CatalogCommand {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            CatalogTransfer::Export(command) => command.execute().await,
            CatalogTransfer::Import(command) => command.execute().await,
        }
    }
}

impl Export {
    async fn execute(self) -> Result<(), Error> {
        let out: Box<dyn Write + Send> = if is_standard(&self.file) {
            Box::new(io::stdout())
        } else {
            let file = File::create_new(&self.file);
            Box::new(file.map_err(failed_to(format!("create {}", self.file.display())))?)
        };
        let out = BufWriter::new(out);
        let exported = self.database.read(async |catalog| Ok(catalog.export(out).await?)).await;
        if exported.is_err() && !is_standard(&self.file) {
            // A part of an export would be refused.
            let _ = std::fs::remove_file(&self.file);
        }
        report("exported", exported?);
        Ok(())
    }
}

impl Import {
    async fn execute(self) -> Result<(), Error> {
        let mode = if self.replace {
            ImportMode::Replace
        } else {
            ImportMode::Empty
        };
        let input: Box<dyn io::Read + Send> = if is_standard(&self.file) {
            Box::new(io::stdin())
        } else {
            let file = File::open(&self.file);
            Box::new(file.map_err(failed_to(format!("open {}", self.file.display())))?)
        };
        let input = BufReader::new(input);
        let imported = self
            .database
            .write(async |catalog| Ok(catalog.import(input, mode).await?))
            .await?;
        report("imported", imported);
        Ok(())
    }
}

fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

/// Prints the result, not on the standard output, which an export may use.
fn report(verb: &str, Transferred { repositories, rows }: Transferred) {
    eprintln!("{verb} {repositories} repositories, {rows} rows");
}
