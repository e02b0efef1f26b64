# Entry points for users and developers; see `make help`.

DATABASE_URL ?= sqlite://target/portolan.db
MANIFESTS ?= examples
IMAGE ?= portolan:dev
# Cargo features of the image.
IMAGE_FEATURES = otel
# Cargo features of `make lint`.
FEATURES ?=
TEST_FEATURES ?= otel
FUZZ_TIME ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard fuzz/seeds/*))

# Tests of `make chaos`; those of one scenario of interruptions are `chaos::every_interruption::case_1` and so on.
CAMPAIGNS ?= isolation::chaos::chaos isolation::parsed_objects chaos::every_interruption

# Interruptions of each kind of point in `make chaos`; all if it is empty.
SAMPLE ?=

# Not empty: `make chaos` continues the interruptions of a campaign that was stopped.
RESUME ?=

# Rounds of `make chaos`, and seconds for which each fault is kept.
ROUNDS ?= 3
HOLD ?= 20

# More than cores: integration tests wait more than they compute.
TEST_THREADS ?= 8

# In memory if there is room: Postgres and etcd write gigabytes that are not needed afterwards.
TMPDIR ?= $(shell tests/tmpdir.sh)
export TMPDIR

.PHONY: help run check test chaos bench fuzz fmt lint evaluator loc tools image image-push image-digests sbom crds man completions

help: ## list targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

run: ## run Portolan on examples/ without a cluster, and serve the catalog on 127.0.0.1:8090 (MANIFESTS=, DATABASE_URL=)
	@mkdir -p target
	cargo run --locked -- run --manifests $(MANIFESTS) --archives=proxy --database-url $(DATABASE_URL)

check: lint ## check formatting, lints and unit tests within a minute; real indexes are left to `make test`
	PORTOLAN_CORPUS= cargo test --locked --lib -- $(ARGS)

test: tools ## run all tests; the first run builds the tools (ARGS= is passed to the test binaries, TEST_THREADS=)
	@! command -v go >/dev/null || (cd evaluator && go vet ./... && go test ./...)
	cargo test --locked --features $(TEST_FEATURES) --doc
	cargo test --locked --features $(TEST_FEATURES) --lib --bins -- $(ARGS)
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --features $(TEST_FEATURES) --test main -- $(ARGS)

chaos: tools ## inject faults and interruptions for three hours and write docs/explanation/reliability.md (ROUNDS=, HOLD=, SAMPLE=, RESUME=, CAMPAIGNS=)
	ROUNDS=$(ROUNDS) HOLD=$(HOLD) SAMPLE=$(SAMPLE) RESUME=$(RESUME) cargo test --locked --features $(TEST_FEATURES) --test main -- --ignored --nocapture --test-threads 1 $(CAMPAIGNS)

bench: tools ## run the benchmarks (ARGS=--record writes the results to docs/explanation/performance.md and README.md)
	cargo bench --locked --bench sync -- $(ARGS)

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

lint: ## check formatting and run clippy (FEATURES=otel adds traces, as CI does)
	cargo fmt --check
	cargo clippy --locked --all-targets --features "$(FEATURES)" -- -D warnings

evaluator: ## build the CUE evaluator beside the binaries of Cargo; needs Go
	tests/tools.sh evaluator
	@mkdir -p target/debug target/release
	cp target/tools/portolan-cue target/debug/
	cp target/tools/portolan-cue target/release/

loc: ## count lines of production code and comments in src/, and handwritten words of the docs
	@find src -name '*.rs' ! -path '*/tests/*' ! -name 'tests.rs' ! -name '*_tests.rs' | xargs awk -f tests/loc.awk
	@find docs -name '*.md' | xargs awk -f tests/words.awk README.md

.PHONY: docs recording screenshot

# The tests that write pages of docs/reference.
REFERENCE = surface::coverage:: surface::pages:: surface::reasons:: surface::the_reference_of packaging::readme::

docs: ## write the reference and build the book in target/book; links are checked
	tests/tools.sh mdbook
	UPDATE_EXPECT=1 cargo test --locked --features $(TEST_FEATURES) --test main -- $(REFERENCE)
	target/tools/mdbook build docs
	cargo test --locked --features $(TEST_FEATURES) --test main -- docs::each_

recording: ## run the commands of the README's picture and draw docs/recording.svg
	cargo build --locked
	docs/recording.sh

screenshot: ## take docs/catalog.png, the page of the catalog in the README
	tests/tools.sh browser
	cargo build --locked
	docs/screenshot.sh

tools: ## install the control plane, evaluator, Helm, registry, Postgres and Chromium for the tests in target/tools
	@tests/tools.sh

image: ## build the container image (IMAGE=)
	docker build -t $(IMAGE) .

image-push: ## build and push the image with an SBOM of its files and its provenance (IMAGE=REGISTRY/NAME:TAG)
	@awk '/^FROM .*[.:]/ && $$2 !~ /@sha256:/ { print $$2 " has no digest: run make image-digests first"; bad = 1 } END { exit bad }' Dockerfile
	docker buildx build --sbom=true --provenance=mode=max --push -t $(IMAGE) .

image-digests: ## pin the base images of the Dockerfile to the digests of their tags
	@for image in $$(awk '/^FROM .*[.:]/ { print $$2 }' Dockerfile); do \
		tag=$${image%@*}; \
		digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' $$tag) || exit 1; \
		sed -i "s|^FROM $$image|FROM $$tag@$$digest|" Dockerfile; \
		echo "$$tag@$$digest"; \
	done

GO_MODULES = {{with .Module}}{{if .Version}}{{.Path}} {{.Version}} golang|{{end}}{{end}}

sbom: ## write the crates and Go modules of the image to target/portolan.cdx.json (CycloneDX)
	@mkdir -p target
	@{ cargo tree --locked --features $(IMAGE_FEATURES) --edges no-dev --prefix none --no-dedupe --format '{p}|{l}'; \
		cd evaluator && go list -deps -f '$(GO_MODULES)' . ; } | grep . \
		| sort -u | awk -f tests/packaging/sbom.awk > target/portolan.cdx.json
	@echo target/portolan.cdx.json

crds: ## generate the CRDs of the chart from the Rust types
	for name in apprepositories applications; do \
		cargo run --locked --quiet -- crds $$name > charts/portolan/crds/$$name.yaml || exit 1; \
	done

man: ## write the man pages to target/man
	cargo run --locked --quiet -- man target/man
	@echo target/man

completions: ## write the completion scripts of bash, zsh and fish to target/completions
	@mkdir -p target/completions
	for shell in bash zsh fish; do \
		cargo run --locked --quiet -- completion $$shell > target/completions/portolan.$$shell || exit 1; \
	done
	@echo target/completions
