# syntax=docker/dockerfile:1

# What `make image` makes without an engine, for whoever has one. Both are one static program on what distroless has around it. Only `make image`
# makes the same bytes again: the tags below move, and it alone has the licences of others (make inventory).
FROM --platform=$BUILDPLATFORM golang:1.26 AS builder
WORKDIR /workspace

# The dependencies first, so that a change of our code does not download them again.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

# Every folder with Go code that the manager may need; test/arch_test.go fails when one is missing.
COPY announce.go leave.go machinehealth.go main.go nodehealth.go remediations.go ./
COPY api/ api/
COPY baremetal/ baremetal/
COPY controllers/ controllers/

ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o manager .

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=dev
ARG REVISION=
LABEL org.opencontainers.image.title="kubemend" \
      org.opencontainers.image.description="Finds Kubernetes machines and nodes that are no longer well and brings them back" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/kubemend/kubemend" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /workspace/manager /manager
COPY LICENSE /licenses/LICENSE
# As a number: Kubernetes cannot tell from a name that it is not root.
USER 65532:65532
ENTRYPOINT ["/manager"]
