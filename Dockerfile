# What `make image` makes without an engine, for whoever has one. Both are one static program on what distroless has around it. The bases are named by
# digest, which Dependabot moves, and no `# syntax=` asks for a frontend by a tag. Still only `make image` makes the same bytes again: an engine writes
# times into the image. And it alone has the licences of others (make inventory).
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS builder
WORKDIR /workspace

# The dependencies first, so that a change of our code does not download them again.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

# Every folder with Go code that the manager may need; test/arch_test.go fails when one is missing.
COPY main.go ./
COPY api/ api/
COPY baremetal/ baremetal/
COPY controllers/ controllers/
COPY setup/ setup/

ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o manager .

FROM gcr.io/distroless/static-debian12:nonroot@sha256:d093aa3e30dbadd3efe1310db061a14da60299baff8450a17fe0ccc514a16639
ARG VERSION=dev
ARG REVISION=
LABEL org.opencontainers.image.title="kubemend" \
      org.opencontainers.image.description="Detects unhealthy Cluster API Machines and Kubernetes Nodes and remediates them" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/kubemend/kubemend" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /workspace/manager /manager
COPY LICENSE /licenses/LICENSE
# As a number: Kubernetes cannot tell from a name that it is not root.
USER 65532:65532
ENTRYPOINT ["/manager"]
