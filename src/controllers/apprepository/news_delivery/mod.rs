//! Delivers the news in the outbox to sinks: HTTP servers that a Secret names. Runs on the leader.
//!
//! ```text
//!  commit of this process ─┐                        ┌─► Secret ─► messages ─► POST ─┬─ 2xx ──► delete the row
//!  change of a Job ────────┼─► look ─► due rows ────┤   (one row of a sink at once) ├─ 410 ──► drop the sink's rows
//!  next try, fallback ─────┘     └─► clean up       └─► ...                         └─ other ► postpone the row
//! ```
//!
//! A row is deleted after its last message was accepted, so that a message is delivered at least once. Its ID is the same
//! each time. A row that fails holds the later rows of its sink, which keeps their order, and no other sink.
//!
//! Requests share [`PERMITS`], of which a namespace has at most [`SHARE`], and namespaces are served in turn. Without rows
//! nothing is read but at the start, after a commit of news, and each [`FALLBACK`].

mod message;
mod metrics;
mod request;
mod schedule;
mod sink;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

pub use metrics::NewsMetrics;

use super::CachedRepository;
use super::origin::Origin;
use crate::api::NamespacedName;
use crate::budget::ResourceMetrics;
use crate::catalog::news::{DueNews, NewsBacklog, NewsRow};
use crate::catalog::{self, Catalog};
use crate::http::Fetcher;
use crate::runtime::events::Event;
use crate::runtime::fair_semaphore::{FairLimits, FairSemaphore, Requester};
use crate::runtime::watch::{Cached, Store};
use message::{Message, messages};
use request::{Failure, FailureKind, send};
use schedule::{MAX_AGE, MAX_REJECTIONS, delay};
use sink::Sink;
use state::{Deliveries, SinkState};

/// Requests in flight.
const PERMITS: usize = 8;
/// Rows in progress, and thereby requests in flight, to the sinks of one namespace.
const SHARE: usize = 4;
/// Rows in progress. Most of them wait for a permit.
const MAX_ROWS: usize = 256;
/// Rows that one look reads, first one of each namespace: more namespaces than have their share in progress.
const LOOK_ROWS: usize = MAX_ROWS / SHARE;
const MAX_PER_SINK: u32 = 1_000;
const MAX_TOTAL: u32 = 10_000;
/// Between two looks: commits in quick succession share one.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of looks while rows are delivered: others become due meanwhile, and no timer says so.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of looks if other replicas commit to the same outbox.
const SHARED_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of looks without rows: commands such as `portolan sync` commit, too.
const FALLBACK: Duration = Duration::from_mins(10);
const CLEAN_INTERVAL: Duration = Duration::from_mins(1);
const DATABASE_RETRY: Duration = Duration::from_secs(10);

pub struct NewsDelivery {
    pub catalog: Catalog,
    pub origin: Arc<Origin>,
    pub store: Store<Cached<CachedRepository>>,
    /// Refuses the addresses that tenants must not reach.
    pub fetcher: Fetcher,
    /// Notified when a Job may have inserted rows.
    pub jobs_changed: Arc<Notify>,
    /// Other replicas insert rows without a notification.
    pub has_other_writers: bool,
    /// Other processes of the cluster watch the repositories that are not in the store, and deliver their news.
    pub has_other_watchers: bool,
    pub permits: FairSemaphore,
    pub metrics: NewsMetrics,
}

/// The end of a try to deliver a row.
#[derive(Debug, PartialEq, Eq)]
enum RowEnd {
    Delivered,
    Postponed(Duration),
    SinkGone,
}

/// Returns the permits of requests to sinks.
#[must_use]
pub fn permits(metrics: ResourceMetrics) -> FairSemaphore {
    let limits = FairLimits {
        total: PERMITS,
        per_object: PERMITS,
    };
    FairSemaphore::new(limits, metrics)
}

impl NewsDelivery {
    /// Never returns. Dropping the future aborts the requests; their rows are delivered again.
    pub async fn run(self) {
        let delivery = Arc::new(self);
        let mut deliveries = Deliveries::default();
        let mut cleaned = None;
        let mut inserted = delivery.catalog.news_inserted();
        delivery.store.wait_until_synced().await;
        loop {
            let looked = Instant::now();
            let pause = match delivery.look(&mut deliveries, &mut cleaned).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "failed to read the news that is due, retrying");
                    DATABASE_RETRY
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = inserted.changed() => {}
                () = delivery.jobs_changed.notified() => {}
                () = deliveries.next_end() => {}
            }
            sleep_until(looked + MIN_INTERVAL).await;
        }
    }

    /// Starts the delivery of rows that are due. Returns the time until the next look.
    async fn look(
        self: &Arc<Self>,
        deliveries: &mut Deliveries,
        cleaned: &mut Option<Instant>,
    ) -> Result<Duration, catalog::Error> {
        let idle = if self.has_other_writers {
            SHARED_INTERVAL
        } else {
            FALLBACK
        };
        let now = Timestamp::now();
        let expiry = now - MAX_AGE;
        // Also without own rows: others may be of repositories that no process watches any more.
        if cleaned.is_none_or(|cleaned| cleaned.elapsed() >= CLEAN_INTERVAL) {
            self.clean_up(expiry).await?;
            *cleaned = Some(Instant::now());
        }
        let due = self.due_news(now, &deliveries.sinks()).await?;
        let Some(next_try) = due.next_try else {
            deliveries.forget();
            self.metrics.observe(&NewsBacklog::default());
            return Ok(idle);
        };
        for row in due.rows.into_iter().filter(|row| row.created >= expiry) {
            deliveries.start(row, |row, state| Arc::clone(self).deliver(row, state));
        }
        let pause = Duration::try_from(next_try.duration_since(now)).unwrap_or_default();
        Ok(pause.clamp(BUSY_INTERVAL, idle))
    }

    async fn due_news(&self, now: Timestamp, busy: &[String]) -> Result<DueNews, catalog::Error> {
        let declared = self.has_other_watchers.then(|| {
            let names = self.store.names();
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        });
        self.catalog
            .due_news(self.origin.id(), declared.as_deref(), now, busy, LOOK_ROWS)
            .await
    }

    /// Deletes the rows of this cluster that are too old or too many, and counts the others.
    async fn clean_up(&self, expiry: Timestamp) -> Result<(), catalog::Error> {
        let origin = self.origin.id();
        let mut backlog = self.catalog.news_backlog(origin).await?;
        let (mut expired, mut surplus) = (0, 0);
        if backlog.oldest.is_some_and(|oldest| oldest < expiry) {
            expired = self.catalog.expire_news(origin, expiry).await?;
            self.metrics.dropped("Expired", expired);
        }
        if backlog.rows > u64::from(MAX_PER_SINK) {
            surplus = self.catalog.trim_news(origin, MAX_PER_SINK, MAX_TOTAL).await?;
            self.metrics.dropped("TooMany", surplus);
        }
        if expired + surplus > 0 {
            backlog = self.catalog.news_backlog(origin).await?;
            tracing::warn!(
                rows = expired + surplus,
                "dropped news that its sinks did not accept in time"
            );
        }
        self.metrics.observe(&backlog);
        Ok(())
    }

    /// Delivers a row and records its end. Returns the state of the sink for its next row.
    async fn deliver(self: Arc<Self>, row: NewsRow, mut state: SinkState) -> SinkState {
        state.begin(&row);
        let end = self.send_row(&row, &mut state).await;
        match self.record(&row, &end).await {
            Ok(()) => state.end(&end),
            // The messages that were accepted are not sent again, unless this process ends.
            Err(error) => {
                tracing::warn!(sink = row.sink, %error, "failed to record the delivery of news, retrying");
                sleep(DATABASE_RETRY).await;
            }
        }
        state
    }

    async fn record(&self, row: &NewsRow, end: &RowEnd) -> Result<(), catalog::Error> {
        match end {
            RowEnd::Delivered => self.catalog.news_delivered(&row.id, &row.sink).await,
            RowEnd::Postponed(delay) => {
                let next_try = Timestamp::now().saturating_add(*delay).unwrap_or(Timestamp::MAX);
                self.catalog.postpone_news(&row.id, &row.sink, next_try).await
            }
            RowEnd::SinkGone => {
                let rows = self.catalog.drop_sink(self.origin.id(), &row.sink).await?;
                self.metrics.dropped("Gone", rows);
                Ok(())
            }
        }
    }

    async fn send_row(&self, row: &NewsRow, state: &mut SinkState) -> RowEnd {
        let (namespace, name) = row.sink.split_once('/').unwrap_or_default();
        let sink = match Sink::read(&self.origin, &NamespacedName::new(namespace, name)).await {
            Ok(sink) => sink,
            Err(error) => return self.postpone(row, state, &Failure::from(&error)).await,
        };
        for message in messages(&row.event, &sink) {
            if message.index < state.next_message {
                continue;
            }
            match self.send_message(row, namespace, &sink, &message).await {
                Ok(()) => {
                    self.metrics.delivered();
                    state.accepted(message.index);
                }
                Err(failure) if failure.kind == FailureKind::Gone => {
                    self.metrics.failed(failure.reason);
                    self.report(row, &failure.message, "all news for it was dropped").await;
                    return RowEnd::SinkGone;
                }
                Err(failure) if failure.kind == FailureKind::Rejected && state.rejections + 1 >= MAX_REJECTIONS => {
                    self.metrics.failed(failure.reason);
                    self.metrics.dropped(failure.reason, 1);
                    self.report(row, &failure.message, "the message was dropped").await;
                    state.skip(message.index);
                }
                Err(failure) => return self.postpone(row, state, &failure).await,
            }
        }
        RowEnd::Delivered
    }

    async fn send_message(
        &self,
        row: &NewsRow,
        namespace: &str,
        sink: &Sink,
        message: &Message<'_>,
    ) -> Result<(), Failure> {
        // For each message: a slow sink gives others their turn.
        let requester = Requester {
            group: namespace.to_owned(),
            ..Requester::default()
        };
        let _permit = self.permits.acquire(requester).await;
        let body = message.body(row, sink.format, self.origin.id());
        send(&self.fetcher, sink, namespace, body).await
    }

    async fn postpone(&self, row: &NewsRow, state: &mut SinkState, failure: &Failure) -> RowEnd {
        self.metrics.failed(failure.reason);
        if state.failed(failure) {
            self.report(row, &failure.message, "retrying for a day").await;
        }
        RowEnd::Postponed(delay(
            state.failures.max(row.tries.saturating_add(1)),
            failure.retry_after,
        ))
    }

    /// Publishes an event of the repository, unless the sink is the operator's, which tenants must not see.
    async fn report(&self, row: &NewsRow, problem: &str, consequence: &str) {
        let sink = &row.sink;
        let (namespace, name) = sink.split_once('/').unwrap_or_default();
        let note = format!("news is not delivered to the sink of Secret {name}: {problem}; {consequence}");
        let repository = self.store.get(&NamespacedName::new(&row.namespace, &row.name));
        match repository.filter(|_| namespace == row.namespace) {
            Some(repository) => {
                let event = Event::warning("NewsNotDelivered", note);
                self.origin.publish(repository.meta(), event).await;
            }
            None => tracing::warn!(sink, "{note}"),
        }
    }
}
