# Base images are pinned by version; `make image-digests` adds their digests, which a release needs.
FROM golang:1.26.8-bookworm AS evaluator
WORKDIR /src/evaluator
COPY evaluator/go.mod evaluator/go.sum ./
RUN go mod download
COPY evaluator ./
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /portolan-cue .

FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
# SQLite and ring need a C compiler.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*

# Caches the dependencies in a separate layer. Cargo requires a source file for each declared target.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src benches \
    && touch src/lib.rs \
    && echo 'fn main() {}' > src/main.rs \
    && awk -F '"' '/^\[/ { bench = $0 == "[[bench]]" } bench && /^name/ { print "benches/" $2 ".rs" }' Cargo.toml | xargs -r touch \
    && cargo build --release --locked --features otel --bins

COPY migrations migrations
COPY definitions definitions
COPY src src
# Cargo compares modification times, and the placeholders above may be newer than the checkout.
RUN touch src/lib.rs src/main.rs \
    && cargo build --release --locked --features otel --bins

# Under the names of the replaced programs, Portolan accepts their arguments.
RUN mkdir /names \
    && ln -s /usr/local/bin/portolan /names/apprepository-controller \
    && ln -s /usr/local/bin/portolan /names/asset-syncer \
    && ln -s /usr/local/bin/portolan /names/kube-app-manager

# glibc and CA certificates; no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/portolan /usr/local/bin/
COPY --from=evaluator /portolan-cue /usr/local/bin/
COPY --from=build /names/ /
# Returns memory to the system after syncs; by default glibc keeps an arena per thread and the memory freed in it.
ENV MALLOC_ARENA_MAX=1
ENV MALLOC_TRIM_THRESHOLD_=1048576
ENV MALLOC_MMAP_THRESHOLD_=1048576
# Numeric, so that the kubelet can verify runAsNonRoot.
USER 65532:65532
WORKDIR /var/lib/portolan
EXPOSE 8080 8090
ENTRYPOINT ["/usr/local/bin/portolan"]
CMD ["run", "--listen=:8080"]
