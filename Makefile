# What users and developers call; `make help` lists it.

DATABASE_URL ?= sqlite://target/portolan.db
MANIFESTS ?= examples
IMAGE ?= portolan:dev
FUZZ_TIME ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard fuzz/seeds/*))

.PHONY: help run test bench fuzz fmt lint loc tools image crds

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

run: ## Portolan over the repositories declared in examples/, with no cluster (MANIFESTS=, DATABASE_URL=)
	@mkdir -p target
	cargo run --locked -- run --manifests $(MANIFESTS) --database-url $(DATABASE_URL)

test: tools ## all tests; sets up what they need the first time (ARGS= goes to the test binary)
	cargo test --locked --doc
	cargo test --locked --tests --no-fail-fast -- $(ARGS)

bench: tools ## the figures in the README and docs/performance.md, on an optimised build (ARGS=--record writes them there)
	cargo bench --locked --bench sync -- $(ARGS)

fuzz: ## each fuzz target for FUZZ_TIME seconds; needs cargo-fuzz and a nightly Rust (FUZZ_TARGETS=)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 1; }
	@rustc +nightly --version >/dev/null 2>&1 || { echo "a nightly Rust is missing: rustup toolchain install nightly"; exit 1; }
	@for target in $(FUZZ_TARGETS); do \
		echo "== $$target, $(FUZZ_TIME) s"; mkdir -p fuzz/corpus/$$target; \
		cargo +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-max_total_time=$(FUZZ_TIME) -max_len=65536 -timeout=30 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 || exit 1; \
	done

fmt: ## formats the code
	cargo fmt

lint: ## what CI checks before it runs the tests
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

loc: ## lines of production code, doc comments and other comments in src/
	@find src -name '*.rs' ! -path '*/tests/*' ! -name 'tests.rs' ! -name '*_tests.rs' | xargs awk -f tests/loc.awk

tools: ## the control plane, helm, the registry and Postgres that the tests run against, in target/tools
	@tests/tools.sh

image: ## the container image (IMAGE=)
	docker build -t $(IMAGE) .

crds: ## the chart's custom resource definitions, from the types
	for name in apprepositories applications; do \
		cargo run --locked --quiet -- crds $$name > charts/portolan/crds/$$name.yaml || exit 1; \
	done
