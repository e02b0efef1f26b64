# Entry points for users and developers; see `make help`.

DATABASE_URL ?= sqlite://target/portolan.db
MANIFESTS ?= examples
IMAGE ?= portolan:dev
# Cargo features of `make lint`; `cue` adds portolan-cue, which needs Go.
FEATURES ?=
FUZZ_TIME ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard fuzz/seeds/*))

# Rounds of `make chaos`, and seconds for which each fault is kept.
ROUNDS ?= 3
HOLD ?= 20

# More than cores: integration tests wait more than they compute.
TEST_THREADS ?= 8

# In memory if there is room: Postgres and etcd write gigabytes that are not needed afterwards.
TMPDIR ?= $(shell tests/tmpdir.sh)
export TMPDIR

.PHONY: help run check test chaos bench fuzz fmt lint loc tools image crds

help: ## list targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

run: ## run Portolan on examples/ without a cluster (MANIFESTS=, DATABASE_URL=)
	@mkdir -p target
	cargo run --locked -- run --manifests $(MANIFESTS) --database-url $(DATABASE_URL)

check: lint ## check formatting, lints and unit tests within a minute; real indexes are left to `make test`
	PORTOLAN_CORPUS= cargo test --locked --lib -- $(ARGS)

test: tools ## run all tests; the first run builds the tools (ARGS= is passed to the test binaries, TEST_THREADS=)
	cargo test --locked --features cue --doc
	cargo test --locked --features cue --lib --bins -- $(ARGS)
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --features cue --test main -- $(ARGS)

chaos: tools ## inject faults for half an hour and write docs/reliability.md (ROUNDS=, HOLD= seconds)
	ROUNDS=$(ROUNDS) HOLD=$(HOLD) cargo test --locked --features cue --test main isolation::chaos::chaos -- --ignored --nocapture

bench: tools ## run the benchmarks (ARGS=--record writes the results to docs/performance.md and README.md)
	cargo bench --locked --features cue --bench sync -- $(ARGS)

fuzz: ## run each fuzz target for FUZZ_TIME seconds; needs cargo-fuzz and nightly Rust (FUZZ_TARGETS=)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 1; }
	@rustc +nightly --version >/dev/null 2>&1 || { echo "nightly Rust is missing: rustup toolchain install nightly"; exit 1; }
	@for target in $(FUZZ_TARGETS); do \
		echo "== $$target, $(FUZZ_TIME) s"; mkdir -p fuzz/corpus/$$target; \
		cargo +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-max_total_time=$(FUZZ_TIME) -max_len=65536 -timeout=30 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 || exit 1; \
	done

fmt: ## format the code
	cargo fmt

lint: ## check formatting and run clippy (FEATURES=cue adds portolan-cue, as CI does)
	cargo fmt --check
	cargo clippy --locked --all-targets --features "$(FEATURES)" -- -D warnings

loc: ## count lines of production code, doc comments and other comments in src/
	@find src -name '*.rs' ! -path '*/tests/*' ! -name 'tests.rs' ! -name '*_tests.rs' | xargs awk -f tests/loc.awk

tools: ## install the control plane, Helm, registry and Postgres for the tests in target/tools
	@tests/tools.sh

image: ## build the container image (IMAGE=)
	docker build -t $(IMAGE) .

crds: ## generate the CRDs of the chart from the Rust types
	for name in apprepositories applications; do \
		cargo run --locked --quiet -- crds $$name > charts/portolan/crds/$$name.yaml || exit 1; \
	done
