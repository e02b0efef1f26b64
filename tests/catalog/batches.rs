//! Many rows, rows that the database rejects, and transactions that do not complete.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use portolan::catalog::{ChartRow, ErrorKind, SyncCommit};
use rstest::rstest;

use super::{Fixture, On, chart, record};

#[rstest]
#[tokio::test]
async fn a_chart_that_the_database_rejects_is_reported_and_the_others_are_written(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let names: Vec<String> = (0..40).map(|at| format!("chart-{at:02}")).collect();
    let all = |version: &str| names.iter().map(|name| chart(name, &[version])).collect::<Vec<_>>();
    fixture.sync(all("1.0.0")[..20].to_vec()).await;
    refuse_poison(&fixture, on).await;
    let mut next = all("1.1.0");
    next[7].description = "poison".into();
    next[33].description = "poison".into();
    next[39].description = "poison".into();
    let committed = fixture.sync(next).await;
    let rejected: Vec<&str> = committed.rejected.iter().map(|(chart, _)| chart.as_str()).collect();
    assert_eq!(rejected, ["stable/chart-33", "stable/chart-39", "stable/chart-07"]);
    assert!(committed.rejected[0].1.contains(if on == On::Sqlite {
        "no poison here"
    } else {
        "check constraint"
    }));
    assert_eq!((committed.added, committed.changed, committed.removed), (18, 19, 0));
    let stored = fixture.charts().await;
    assert_eq!(stored.len(), 38);
    assert_eq!(stored[7].chart_versions[0].version, "1.0.0", "the stored row stays");
    assert_eq!(stored[8].chart_versions[0].version, "1.1.0");
}

/// Makes the database reject the description "poison".
pub async fn refuse_poison(fixture: &Fixture, on: On) {
    match on {
        On::Sqlite => {
            for event in ["INSERT", "UPDATE"] {
                fixture
                    .tables
                    .execute(&format!(
                        "CREATE TRIGGER refuse_{event} BEFORE {event} ON charts WHEN new.info ->> 'description' = 'poison'
                         BEGIN SELECT RAISE(ABORT, 'no poison here'); END"
                    ))
                    .await;
            }
        }
        On::Postgres => {
            fixture
                .tables
                .execute("ALTER TABLE charts ADD CHECK (info ->> 'description' <> 'poison')")
                .await;
        }
    }
}

#[tokio::test]
async fn charts_that_postgres_cannot_store_are_reported_and_the_others_are_written() {
    let fixture = Fixture::new(On::Postgres).await;
    let mut nul = chart("nul", &["1.0.0"]);
    nul.description = "a\0b".into();
    // Postgres limits an index row to 2,704 bytes after compression, so the ID must not be compressible.
    let noise: String = (0..4000_u32)
        .filter_map(|at| char::from_u32(0x4e00 + (at * 7919) % 20_000))
        .collect();
    let long = chart(&noise, &["1.0.0"]);
    let committed = fixture
        .sync(vec![chart("a", &["1.0.0"]), nul, chart("b", &["1.0.0"]), long.clone()])
        .await;
    assert_eq!(committed.added, 2);
    let mut rejected = committed.rejected;
    rejected.sort_by_key(|(chart, _)| chart.len());
    assert_eq!(rejected[0].0, "stable/nul");
    assert!(rejected[0].1.contains("Unicode"), "{}", rejected[0].1);
    assert_eq!(rejected[1].0, long.id);
    assert!(rejected[1].1.contains("index row"), "{}", rejected[1].1);
    assert_eq!(fixture.chart_names().await, ["a", "b"]);
}

#[rstest]
#[tokio::test]
async fn of_two_charts_with_one_id_the_first_is_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let committed = fixture.sync(vec![chart("a", &["1.0.0"]), chart("a", &["2.0.0"])]).await;
    assert_eq!((committed.added, committed.rejected.len()), (1, 1));
    let committed = fixture.sync(vec![chart("a", &["1.0.0"]), chart("a", &["2.0.0"])]).await;
    assert_eq!(
        (committed.unchanged, committed.changed, committed.rejected.len()),
        (1, 0, 1)
    );
    assert_eq!(fixture.charts().await, [chart("a", &["1.0.0"])]);
}

#[rstest]
#[tokio::test]
async fn many_and_large_charts_are_written_in_batches(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let large = |at: usize, text: char| {
        let mut info = chart(&format!("chart-{at:04}"), &["1.0.0"]);
        info.description = text
            .to_string()
            .repeat(if at.is_multiple_of(100) { 1_500_000 } else { 3000 });
        info
    };
    let committed = fixture.sync((0..700).map(|at| large(at, 'a')).collect()).await;
    assert_eq!(committed.added, 700);
    let committed = fixture
        .sync(
            (350..1050)
                .map(|at| large(at, if at < 500 { 'a' } else { 'b' }))
                .collect(),
        )
        .await;
    assert_eq!(
        (
            committed.unchanged,
            committed.changed,
            committed.added,
            committed.removed
        ),
        (150, 200, 350, 350)
    );
    assert_eq!(fixture.tables.count("charts").await, 700);
    assert_eq!(fixture.charts().await[699], large(1049, 'b'));
}

#[rstest]
#[tokio::test]
async fn an_error_of_the_rows_rolls_back_the_commit(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let broken = (0..600).map(|at| {
        if at == 590 {
            return Err(io::Error::other("the disk is broken"));
        }
        let info = chart(&at.to_string(), &["1.0.0"]);
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    let error = fixture
        .catalog
        .commit(SyncCommit::new(record(), None, "x"), broken)
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Rows) && error.is_transient(),
        "{error}"
    );
    assert!(error.to_string().contains("--spool-dir"), "{error}");
    assert_nothing_is_stored(&fixture).await;
}

#[rstest]
#[tokio::test]
async fn a_canceled_commit_is_rolled_back(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let half_way = Arc::new(AtomicBool::new(false));
    let reached = Arc::clone(&half_way);
    let charts = (0..1000).map(move |at| {
        if at == 600 {
            reached.store(true, Ordering::SeqCst);
        }
        let info = chart(&at.to_string(), &["1.0.0"]);
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    let mut commit = Box::pin(fixture.catalog.commit(SyncCommit::new(record(), None, "x"), charts));
    std::future::poll_fn(|context| {
        assert!(
            commit.as_mut().poll(context).is_pending(),
            "the commit ended before it was canceled"
        );
        if half_way.load(Ordering::SeqCst) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    drop(commit);
    assert_nothing_is_stored(&fixture).await;
    // The next commit is not blocked.
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
}

async fn assert_nothing_is_stored(fixture: &Fixture) {
    for table in ["repos", "charts", "portolan_repositories"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
}
