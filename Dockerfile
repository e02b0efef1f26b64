# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
# SQLite and ring are compiled from C.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*

# The dependencies alone: this layer is built again only when they change. Cargo wants a file for each target that it is told of.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src benches \
    && touch src/lib.rs \
    && echo 'fn main() {}' > src/main.rs \
    && awk -F '"' '/^\[/ { bench = $0 == "[[bench]]" } bench && /^name/ { print "benches/" $2 ".rs" }' Cargo.toml | xargs -r touch \
    && cargo build --release --locked --bin portolan

COPY migrations migrations
COPY charts/portolan/crds charts/portolan/crds
COPY src src
# Cargo goes by times of change, and the stand-ins above are newer than what a checkout may have written.
RUN touch src/lib.rs src/main.rs \
    && cargo build --release --locked --bin portolan

# Called by the names of the programs that it replaces, it takes their arguments.
RUN mkdir /names \
    && ln -s /usr/local/bin/portolan /names/apprepository-controller \
    && ln -s /usr/local/bin/portolan /names/asset-syncer \
    && ln -s /usr/local/bin/portolan /names/kube-app-manager

# glibc and the certificates of public authorities, no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/portolan /usr/local/bin/portolan
COPY --from=build /names/ /
# What syncs have taken goes back to the system: by itself glibc keeps a heap for each thread, and what is freed within it.
ENV MALLOC_ARENA_MAX=1
ENV MALLOC_TRIM_THRESHOLD_=1048576
ENV MALLOC_MMAP_THRESHOLD_=1048576
# By number, so that a kubelet can see that it is not root.
USER 65532:65532
WORKDIR /var/lib/portolan
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/portolan"]
CMD ["run", "--listen=:8080"]
