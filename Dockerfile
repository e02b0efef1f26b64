# Base images are pinned by version; `make image-digests` adds their digests, which a release needs.
FROM golang:1.26.8-bookworm AS go

FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
# CUE is written in Go.
COPY --from=go /usr/local/go /usr/local/go
RUN ln -s /usr/local/go/bin/go /usr/local/bin/go
# SQLite, ring and CUE need a C compiler.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*

# Caches the dependencies in a separate layer. Cargo requires a source file for each declared target.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src/bin benches \
    && touch src/lib.rs \
    && echo 'fn main() {}' | tee src/main.rs > src/bin/portolan-cue.rs \
    && awk -F '"' '/^\[/ { bench = $0 == "[[bench]]" } bench && /^name/ { print "benches/" $2 ".rs" }' Cargo.toml | xargs -r touch \
    && cargo build --release --locked --features cue,otel --bins

COPY migrations migrations
COPY definitions definitions
COPY src src
# Cargo compares modification times, and the placeholders above may be newer than the checkout.
RUN touch src/lib.rs src/main.rs src/bin/portolan-cue.rs \
    && cargo build --release --locked --features cue,otel --bins

# Under the names of the replaced programs, Portolan accepts their arguments.
RUN mkdir /names \
    && ln -s /usr/local/bin/portolan /names/apprepository-controller \
    && ln -s /usr/local/bin/portolan /names/asset-syncer \
    && ln -s /usr/local/bin/portolan /names/kube-app-manager

# glibc and CA certificates; no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/portolan /src/target/release/portolan-cue /usr/local/bin/
COPY --from=build /names/ /
# Returns memory to the system after syncs; by default glibc keeps an arena per thread and the memory freed in it.
ENV MALLOC_ARENA_MAX=1
ENV MALLOC_TRIM_THRESHOLD_=1048576
ENV MALLOC_MMAP_THRESHOLD_=1048576
# Numeric, so that the kubelet can verify runAsNonRoot.
USER 65532:65532
WORKDIR /var/lib/portolan
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/portolan"]
CMD ["run", "--listen=:8080"]
